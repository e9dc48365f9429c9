-- How much of what a conversation used again its summaries hold.
ALTER TABLE summaries
    ADD COLUMN retention double precision GENERATED ALWAYS AS (orihon_number(line, 'retention')) STORED;
ALTER TABLE tasks
    ADD COLUMN retention_count bigint NOT NULL DEFAULT 0,
    ADD COLUMN retention_sum bigint NOT NULL DEFAULT 0;
