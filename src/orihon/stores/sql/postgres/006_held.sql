-- Tasks that a worker holds and has not started.
CREATE INDEX idx_tasks_held ON tasks (uuid) WHERE status IN ('pending', 'paused') AND lease_owner IS NOT NULL;
