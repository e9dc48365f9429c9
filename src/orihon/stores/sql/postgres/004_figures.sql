-- Counters, so that many tasks are summed up without reading their lists, and what retention has kept of a task.
ALTER TABLE tasks
    ADD COLUMN archived text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN message_count bigint NOT NULL DEFAULT 0,
    ADD COLUMN size_bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN packed_bytes bigint,
    ADD COLUMN summary_count bigint NOT NULL DEFAULT 0,
    ADD COLUMN summary_failures bigint NOT NULL DEFAULT 0,
    ADD COLUMN summarised_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN summary_tokens bigint NOT NULL DEFAULT 0;
-- There is no table of totals as in a SQLite file: all workers would wait for the one row of a day.

-- For retention, which looks for ended tasks.
CREATE INDEX idx_tasks_ended ON tasks (coalesce(completed_at, created_at))
    WHERE status NOT IN ('pending', 'running', 'paused');
-- Tasks that are being deleted: their metadata have number 0 and are deleted last.
CREATE INDEX idx_metadata_left ON metadata (uuid) WHERE id = 0;

-- SQLite's function, so that the same query sums up rows in both; as in SQLite, an invalid time gives NULL.
CREATE FUNCTION julianday(moment text) RETURNS double precision LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN extract(epoch FROM moment::timestamptz) / 86400.0 + 2440587.5;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$$;

-- Retention deletes many rows, a few at a time. Their space can be used again once 2 % of a table are dead, not 20 %, the
-- server's default. A vacuum of a table that has only grown reads its newest pages.
ALTER TABLE tasks SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE metadata SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE messages SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE summaries SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE tool_calls SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE events SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE folds SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE planning SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE blobs SET (autovacuum_vacuum_scale_factor = 0.02);
