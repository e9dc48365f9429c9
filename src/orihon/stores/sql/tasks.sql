-- The table of tasks: first the columns and indexes that the format names, in its order, then those for leases, the
-- queue, inheritance and the state of a task.
CREATE TABLE IF NOT EXISTS tasks (
    uuid TEXT PRIMARY KEY,
    task_source TEXT NOT NULL,
    owner TEXT NOT NULL,
    repo TEXT NOT NULL,
    task_type TEXT NOT NULL,
    task_id TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at TEXT NOT NULL,
    started_at TEXT,
    completed_at TEXT,
    process_id INTEGER,
    hostname TEXT,
    llm_provider TEXT,
    model TEXT,
    context_length INTEGER,
    llm_call_count INTEGER DEFAULT 0,
    tool_call_count INTEGER DEFAULT 0,
    total_tokens INTEGER DEFAULT 0,
    compression_count INTEGER DEFAULT 0,
    error_message TEXT,
    user TEXT,
    project_id INTEGER,
    task_key TEXT NOT NULL,
    activity TEXT NOT NULL DEFAULT '',
    updated_at TEXT,
    last_activity TEXT,
    current_context_tokens INTEGER NOT NULL DEFAULT 0,
    reason TEXT,
    resume_count INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    priority INTEGER NOT NULL DEFAULT 0,
    kept INTEGER NOT NULL DEFAULT 0,
    archived TEXT NOT NULL DEFAULT '',
    linked_key TEXT,
    final_summary TEXT,
    handoff TEXT,
    fence INTEGER NOT NULL DEFAULT 0,
    lease_owner TEXT,
    heartbeat_at TEXT,
    message_count INTEGER NOT NULL DEFAULT 0,
    size_bytes INTEGER NOT NULL DEFAULT 0,
    packed_bytes INTEGER,
    summary_count INTEGER NOT NULL DEFAULT 0,
    summary_failures INTEGER NOT NULL DEFAULT 0,
    summarised_tokens INTEGER NOT NULL DEFAULT 0,
    summary_tokens INTEGER NOT NULL DEFAULT 0,
    retention_count INTEGER NOT NULL DEFAULT 0,
    retention_sum INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS idx_tasks_status ON tasks(status);
CREATE INDEX IF NOT EXISTS idx_tasks_created_at ON tasks(created_at);
CREATE INDEX IF NOT EXISTS idx_tasks_user ON tasks(user);
CREATE INDEX IF NOT EXISTS idx_tasks_page ON tasks(created_at DESC, uuid DESC);
CREATE INDEX IF NOT EXISTS idx_tasks_status_page ON tasks(status, created_at DESC, uuid DESC);
CREATE INDEX IF NOT EXISTS idx_tasks_user_page ON tasks(user, created_at DESC, uuid DESC);
CREATE INDEX IF NOT EXISTS idx_tasks_key ON tasks(task_key, completed_at DESC);
CREATE INDEX IF NOT EXISTS idx_tasks_linked ON tasks(linked_key, completed_at DESC);
-- every column that tasks are sorted by, so that the largest are found without reading whole rows
CREATE INDEX IF NOT EXISTS idx_tasks_figures ON tasks(
    created_at, status, user, started_at, completed_at, total_tokens, llm_call_count, message_count, size_bytes, kept,
    uuid
);
-- every column that retention needs of ended tasks; updates of other tasks do not change the index
CREATE INDEX IF NOT EXISTS idx_tasks_ended ON tasks(
    coalesce(completed_at, created_at), status, archived, kept, user, size_bytes, packed_bytes, completed_at, created_at
) WHERE status NOT IN ('pending', 'running', 'paused');
