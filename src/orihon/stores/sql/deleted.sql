-- What a user deleted from `tasks` with SQL stays deleted, although the directory of the task is still there.
CREATE TABLE IF NOT EXISTS deleted_tasks (uuid TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS remember_deleted AFTER DELETE ON tasks
BEGIN INSERT OR IGNORE INTO deleted_tasks VALUES (old.uuid); END;
CREATE TRIGGER IF NOT EXISTS forget_deleted AFTER INSERT ON tasks
BEGIN DELETE FROM deleted_tasks WHERE uuid = new.uuid; END
