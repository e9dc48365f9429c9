-- Tasks, their lists and their blobs, all keyed by the task's uuid. `line` is the record as JSON, byte for byte, without
-- the line end: convert_from(line, 'UTF8')::json reads it. The columns before it repeat fields for queries.
-- Text is compared byte by byte (COLLATE "C"), as in every other store: uuids have prefixes, and dates are text.

-- The columns are those of every store, in the same order; `revision` counts the changes of a row, so that a change whose
-- answer was lost is not made twice. Pages keep free space, because counters and heartbeats change often.
CREATE TABLE tasks (
    uuid text COLLATE "C" PRIMARY KEY,
    task_source text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    repo text COLLATE "C" NOT NULL,
    task_type text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    created_at text COLLATE "C" NOT NULL,
    started_at text COLLATE "C",
    completed_at text COLLATE "C",
    process_id bigint,
    hostname text COLLATE "C",
    llm_provider text COLLATE "C",
    model text COLLATE "C",
    context_length bigint,
    llm_call_count bigint NOT NULL DEFAULT 0,
    tool_call_count bigint NOT NULL DEFAULT 0,
    total_tokens bigint NOT NULL DEFAULT 0,
    compression_count bigint NOT NULL DEFAULT 0,
    error_message text COLLATE "C",
    "user" text COLLATE "C",
    project_id bigint,
    task_key text COLLATE "C" NOT NULL,
    activity text COLLATE "C" NOT NULL DEFAULT '',
    updated_at text COLLATE "C",
    last_activity text COLLATE "C",
    current_context_tokens bigint NOT NULL DEFAULT 0,
    reason text COLLATE "C",
    resume_count bigint NOT NULL DEFAULT 0,
    attempts bigint NOT NULL DEFAULT 0,
    priority bigint NOT NULL DEFAULT 0,
    kept boolean NOT NULL DEFAULT false,
    linked_key text COLLATE "C",
    final_summary text COLLATE "C",
    handoff text COLLATE "C",
    fence bigint NOT NULL DEFAULT 0,
    lease_owner text COLLATE "C",
    heartbeat_at text COLLATE "C",
    revision bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE INDEX idx_tasks_page ON tasks (created_at DESC, uuid DESC);
CREATE INDEX idx_tasks_status_page ON tasks (status, created_at DESC, uuid DESC);
CREATE INDEX idx_tasks_user_page ON tasks ("user", created_at DESC, uuid DESC);
CREATE INDEX idx_tasks_key ON tasks (task_key, created_at DESC, uuid DESC);
CREATE INDEX idx_tasks_linked ON tasks (linked_key, created_at DESC, uuid DESC) WHERE linked_key IS NOT NULL;

CREATE TABLE metadata (
    uuid text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    line bytea NOT NULL,
    PRIMARY KEY (uuid, id)
);
CREATE TABLE messages (
    uuid text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    role text NOT NULL,
    tokens bigint NOT NULL,
    timestamp text NOT NULL,
    key text COLLATE "C",
    line bytea NOT NULL,
    PRIMARY KEY (uuid, seq)
);
-- not UNIQUE: a key may be used again after 1,000 messages, and a copy of such a log must be possible. Hashed, because
-- a key may be longer than an index entry
CREATE INDEX idx_messages_key ON messages (uuid, md5(key)) WHERE key IS NOT NULL;
CREATE TABLE summaries (
    uuid text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    line bytea NOT NULL,
    PRIMARY KEY (uuid, id)
);
CREATE TABLE tool_calls (
    uuid text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    line bytea NOT NULL,
    PRIMARY KEY (uuid, seq)
);
CREATE TABLE events (
    uuid text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    line bytea NOT NULL,
    PRIMARY KEY (uuid, id)
);
CREATE TABLE folds (
    uuid text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    line bytea NOT NULL,
    PRIMARY KEY (uuid, id)
);
CREATE TABLE planning (
    uuid text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    line bytea NOT NULL,
    PRIMARY KEY (uuid, id)
);
CREATE TABLE blobs (
    uuid text COLLATE "C" NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (uuid, sha256)
);
