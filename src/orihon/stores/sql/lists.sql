-- The lists of a task and its blobs. `line` is the record as JSON, byte for byte, without the line end; the columns
-- before it repeat fields for queries, and come first so that a query does not read the whole line.
-- Tables with long rows have rowids: as WITHOUT ROWID, messages of 3.7 kB took 20 % more disk. Events are short.
CREATE TABLE IF NOT EXISTS metadata (
    uuid TEXT NOT NULL,
    id INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (uuid, id)
);
CREATE TABLE IF NOT EXISTS messages (
    uuid TEXT NOT NULL,
    seq INTEGER NOT NULL,
    role TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    timestamp TEXT NOT NULL,
    key TEXT,
    line TEXT NOT NULL,
    PRIMARY KEY (uuid, seq)
);
-- not UNIQUE: a key may be used again after 1,000 messages, and a copy of such a log must be possible
CREATE INDEX IF NOT EXISTS idx_messages_key ON messages(uuid, key) WHERE key IS NOT NULL;
CREATE TABLE IF NOT EXISTS summaries (
    uuid TEXT NOT NULL,
    id INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (uuid, id)
);
CREATE TABLE IF NOT EXISTS tool_calls (
    uuid TEXT NOT NULL,
    seq INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (uuid, seq)
);
CREATE TABLE IF NOT EXISTS events (
    uuid TEXT NOT NULL,
    id INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (uuid, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS folds (
    uuid TEXT NOT NULL,
    id INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (uuid, id)
);
CREATE TABLE IF NOT EXISTS planning (
    uuid TEXT NOT NULL,
    id INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (uuid, id)
);
CREATE TABLE IF NOT EXISTS blobs (
    uuid TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (uuid, sha256)
);
