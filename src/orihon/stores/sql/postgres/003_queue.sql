-- The queue: what waits, by user and urgency; what runs; and until when a worker has put a task by for its child, so
-- that others look further. The lease alone decides who works on it.
ALTER TABLE tasks ADD COLUMN reserved_until text COLLATE "C";
CREATE INDEX idx_tasks_waiting ON tasks (coalesce("user", ''), priority DESC, created_at, uuid) WHERE status = 'pending';
CREATE INDEX idx_tasks_running ON tasks (heartbeat_at) WHERE status = 'running';
