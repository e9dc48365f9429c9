-- What a row counts, so that many tasks are summed up without opening one, and what retention has left of a task.
ALTER TABLE tasks
    ADD COLUMN archived text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN message_count bigint NOT NULL DEFAULT 0,
    ADD COLUMN size_bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN packed_bytes bigint,
    ADD COLUMN summary_count bigint NOT NULL DEFAULT 0,
    ADD COLUMN summary_failures bigint NOT NULL DEFAULT 0,
    ADD COLUMN summarised_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN summary_tokens bigint NOT NULL DEFAULT 0;
-- The sums themselves are not kept, as a SQLite file keeps them: all workers would wait for the one line of a day.

-- What retention asks of tasks that have ended.
CREATE INDEX idx_tasks_ended ON tasks (coalesce(completed_at, created_at))
    WHERE status NOT IN ('pending', 'running', 'paused');
-- Tasks whose deletion was begun: their metadata have number 0 and go last.
CREATE INDEX idx_metadata_left ON metadata (uuid) WHERE id = 0;

-- SQLite's function, so that one text of SQL sums up rows in both; what is no time is NULL there, and here.
CREATE FUNCTION julianday(moment text) RETURNS double precision LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN extract(epoch FROM moment::timestamptz) / 86400.0 + 2440587.5;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$$;

-- Retention deletes much, a little at a time. Its room is free for the next task once a fiftieth of a table is dead, and
-- not a fifth, as a server has it that was told nothing; a vacuum of a table that only grew reads its newest pages.
ALTER TABLE tasks SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE metadata SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE messages SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE summaries SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE tool_calls SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE events SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE folds SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE planning SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE blobs SET (autovacuum_vacuum_scale_factor = 0.02);
