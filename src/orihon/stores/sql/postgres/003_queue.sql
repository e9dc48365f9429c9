-- The queue: waiting tasks by user and priority, running tasks, and until when a worker has reserved a task for its
-- child, so that other workers take another one. Only the lease decides which process works on it.
ALTER TABLE tasks ADD COLUMN reserved_until text COLLATE "C";
CREATE INDEX idx_tasks_waiting ON tasks (coalesce("user", ''), priority DESC, created_at, uuid) WHERE status = 'pending';
CREATE INDEX idx_tasks_running ON tasks (heartbeat_at) WHERE status = 'running';
