"""The directories of all tasks and their rows in `tasks.db`: find, create, move, recover and delete tasks.

A task is created under a hidden name and appears in its place in one step, complete and locked, so no process ever
meets a part of it. After a crash `state.json` decides: a directory in the wrong place is moved, a row that differs is
written again, a task whose creation was interrupted is removed, and a row without a directory is reported. A task that
another process holds is left to that process.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from orihon import codec
from orihon.coerce import decode_json
from orihon.errors import (
    Conflict,
    Corrupt,
    LeaseHeld,
    NotFound,
    NotWritten,
    OrihonError,
    OutcomeUnknown,
    StoreUnavailable,
)
from orihon.records import Metadata, Status, TaskRow
from orihon.retry import Backoff
from orihon.stores.base import Problem, Query
from orihon.stores.files import (
    directory_handle,
    disk_errors,
    exists,
    make_private_directory,
    open_directory,
    read_file,
    replace_file,
    sync_directory,
)
from orihon.stores.jsonl.layout import (
    DIRECTORIES,
    LOCK,
    NEW,
    PLACES,
    TRASH,
    decode_row,
    decode_status,
    encode_metadata,
    find_place,
    find_task,
    guess_row,
    task_directory,
    write_state,
)
from orihon.stores.jsonl.lock_file import Hold, LockFile
from orihon.stores.sql import rows
from orihon.stores.sql.database import Database

log = logging.getLogger("orihon")

ACTIVE: tuple[Status, ...] = ("pending", "running", "paused")
# another process removes the same directory, and is done in a moment
RACE = Backoff(tries=20, first_seconds=0.005, longest_seconds=0.005, jitter=0)


class TaskTree:
    """The tasks beneath one directory."""

    def __init__(self, base: Path, database: Database, *, durable: bool, report: Callable[[Problem], None]) -> None:
        self.base, self.database, self.durable, self.report = base, database, durable, report

    @contextmanager
    def locked(self, uuid: str) -> Iterator[tuple[int, Hold]]:
        """Open the directory of a task and hold its lock; no other process writes the task meanwhile."""
        with task_directory(self.base, uuid) as directory:
            lock = LockFile.take(uuid, directory)
            try:
                yield directory, Hold(self.base, uuid, lock)
            finally:
                lock.release()

    # creating a task

    def create(self, metadata: Metadata, row: TaskRow) -> tuple[int, LockFile]:
        """Create the directory of a task; return its descriptor and its lock."""
        hidden = self.base / f"{NEW}{row.uuid}"
        with disk_errors(f"Task {row.uuid} cannot be created"):
            directory, lock = _make_hidden(hidden, row.uuid)
            try:
                write_state(row, directory, durable=self.durable)
                replace_file("metadata.json", encode_metadata(metadata), directory, durable=self.durable)
                self._publish(hidden, self.base / DIRECTORIES[row.status] / row.uuid)
            except BaseException:
                self.rollback_create(row.uuid, directory, lock)
                raise
        return directory, lock

    def _publish(self, hidden: Path, path: Path) -> None:
        try:
            hidden.rename(path)
        except OSError as error:
            if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:
                raise Conflict(f"Task {path.name} exists already.") from None
            raise
        self._sync(path.parent, self.base)

    def rollback_create(self, uuid: str, directory: int, lock: LockFile) -> None:
        """Remove a task whose creation failed; raise OutcomeUnknown if it may still be there.

        A directory whose lock is no longer ours stays, because another process may have taken it and written to it.
        """
        try:
            with lock.guard:
                for path in (self.base / f"{NEW}{uuid}", *(self.base / place / uuid for place in PLACES)):
                    if lock.is_at(f"{path}/{LOCK}"):
                        shutil.rmtree(path)
            if find_place(self.base, uuid) is None:  # or another process created a task with this id meanwhile
                with suppress(OrihonError):  # a row that is left is reported as one without a directory
                    self.delete_row(uuid)
        except (OSError, StoreUnavailable) as error:
            raise OutcomeUnknown(f"Task {uuid} was created in part and cannot be removed: {error}") from error
        finally:
            lock.release()
            os.close(directory)

    # state, directory and row

    def load(self, uuid: str, directory: int) -> tuple[Metadata, TaskRow]:
        """Return the metadata and the row that the files of a task stand for.

        If the state cannot be read, as after a power cut, the row of `tasks.db` or the task's directory decides.
        """
        metadata = codec.decode_line(read_file("metadata.json", directory), Metadata)
        try:
            return metadata, decode_row(metadata, read_file("state.json", directory))
        except (Corrupt, FileNotFoundError) as error:
            if metadata.format or not isinstance(
                error, FileNotFoundError
            ):  # version 3.0 of the format has no such file
                self.report(Problem(uuid, "state.json", 0, f"{error}; it is replaced by what tasks.db says"))
        # the query also finds longer ids, and the row of another task must never be taken
        known = next((row for row in rows.find(self.database, Query(uuid=uuid)) if row.uuid == uuid), None)
        return metadata, guess_row(metadata, find_place(self.base, uuid) or "", known)

    def move_to_place(self, row: TaskRow) -> None:
        """Move a task to the directory of its status, if it is not there."""
        source, target = find_task(self.base, row.uuid), self.base / DIRECTORIES[row.status] / row.uuid
        if source != target:
            with disk_errors(f"Task {row.uuid} cannot be moved to {target.parent.name}/"):
                source.rename(target)
                self._sync(target.parent, source.parent)

    def delete_row(self, uuid: str) -> None:
        """Delete the task's row. Nothing remembers it: its directory is gone as well."""

        def delete(connection: sqlite3.Connection) -> None:
            for table in ("tasks", "deleted_tasks"):
                connection.execute(f"DELETE FROM {table} WHERE uuid = ?", (uuid,))  # noqa: S608

        self.database.transact(delete)

    def delete(self, uuid: str, hold: Hold) -> None:
        """Delete a task. It disappears in one step; the next open of the store removes what a crash leaves of it."""
        path, trash = find_task(self.base, uuid), self.base / f"{TRASH}{uuid}"
        if trash.exists():  # an earlier task with this id, which was not removed completely
            remove_tree(trash)
        with hold:
            path.rename(trash)
        self._sync(path.parent, self.base)
        try:
            self.delete_row(uuid)
        except NotWritten:  # the disk is full, and removing the files makes space on it
            remove_tree(trash)
            self.delete_row(uuid)
        else:
            remove_tree(trash)

    def _sync(self, *directories: Path) -> None:
        if self.durable:
            for directory in directories:
                sync_directory(directory)

    # recovery

    def remove_leftovers(self) -> None:
        """Remove what is left of tasks that were being created or deleted."""
        for path in (*self.base.glob(f"{TRASH}*"), *self.base.glob(f"{NEW}*")):
            try:
                with directory_handle(path) as directory:
                    lock = LockFile.take(path.name, directory)
                    try:
                        _, _, uuid = path.name.partition("-")
                        if path.name.startswith(TRASH) and find_place(self.base, uuid) is None:
                            self.delete_row(uuid)
                        remove_tree(path)
                    finally:
                        lock.release()
            except (LeaseHeld, NotFound, FileNotFoundError):
                continue  # another process is at work on it
            except (OSError, OrihonError) as error:
                log.warning("%s cannot be removed: %s", path, error)

    def reconcile(self) -> None:
        """Compare the files of tasks that have not ended with their rows, and recover those that differ."""
        deleted = self.find_deleted()
        there = {name for place in ACTIVE for name in os.listdir(self.base / place)} - deleted
        statement = f"SELECT uuid, status, updated_at FROM tasks WHERE status IN ({', '.join('?' * len(ACTIVE))})"  # noqa: S608
        known = {uuid: (status, updated_at) for uuid, status, updated_at in self.database.all(statement, *ACTIVE)}
        for uuid in sorted(there | known.keys()):
            state = self._read_state(uuid)
            if state is None or state != known.get(uuid):
                self.recover(uuid)
        if not self._completed_agree():
            rows_known = {uuid for (uuid,) in self.database.all("SELECT uuid FROM tasks")}
            for uuid in sorted(set(os.listdir(self.base / "completed")) - rows_known - deleted):
                self.recover(uuid)

    def find_deleted(self) -> set[str]:
        """Return the tasks whose rows a user deleted. Their directories are left alone."""
        return {uuid for (uuid,) in self.database.all("SELECT uuid FROM deleted_tasks")}

    def _read_state(self, uuid: str) -> tuple[str, str] | None:
        """Return status and time of the last change as the files say; None if they cannot be read, or disagree."""
        try:
            with directory_handle(find_task(self.base, uuid)) as directory:
                state = decode_json(read_file("state.json", directory), type=_State)
            status = decode_status(state.status)
        except (OrihonError, OSError, ValueError):
            return None  # `recover` reports why
        return (status, state.updated_at) if DIRECTORIES[status] == find_place(self.base, uuid) else None

    def _completed_agree(self) -> bool:
        """Return whether there are as many ended tasks as rows. Most file systems count directories as links.

        Where they do not (ext4 stops at 65,000, btrfs never begins), a row that was written after the last move must
        do.
        """
        found = (self.base / "completed").stat()
        ended = set(DIRECTORIES) - set(ACTIVE)
        statement = f"SELECT COUNT(*) FROM tasks WHERE status IN ({', '.join('?' * len(ended))})"  # noqa: S608
        ((count,),) = self.database.all(statement, *ended)
        if found.st_nlink > 1:
            return bool(found.st_nlink - 2 == count)
        return count > 0 and found.st_mtime_ns <= self._last_write_ns()

    def _last_write_ns(self) -> int:
        path = self.database.path
        files = [path.stat()]
        with suppress(FileNotFoundError):
            files.append(path.with_name(f"{path.name}-wal").stat())
        return max(file.st_mtime_ns for file in files if file.st_size)  # an empty log is only as old as this connection

    def recover(self, uuid: str) -> None:
        """Make directory, state and row of one task agree. A broken task is reported."""
        where = "tasks"
        try:
            with self.locked(uuid) as (directory, hold), hold:
                where = "metadata.json"
                if not exists(where, directory):
                    self._discard(uuid, directory)
                    return
                _, row = self.load(uuid, directory)
                self.move_to_place(row)
                self.database.write_row(row)
        except LeaseHeld:
            return  # its holder finishes it
        except NotFound:
            self.report(Problem(uuid, "tasks.db", 0, "the task has a row but no directory"))
        except (OrihonError, OSError) as error:  # one broken task must not keep the others from being used
            self.report(Problem(uuid, where, 0, str(error)))

    def _discard(self, uuid: str, directory: int) -> None:
        """Remove a task whose creation was interrupted; nothing else is ever without metadata."""
        begun = {"state.json", LOCK}
        if any(name not in begun and not name.startswith(".") for name in os.listdir(directory)):
            self.report(Problem(uuid, "metadata.json", 0, "it is missing; the other files are left as they are"))
            return
        shutil.rmtree(find_task(self.base, uuid), ignore_errors=True)


class _State(msgspec.Struct):
    status: str
    updated_at: str = ""


def _make_hidden(path: Path, uuid: str) -> tuple[int, LockFile]:
    """Create and lock a directory. Until it is locked, a process that removes leftovers may take it for one."""

    def attempt() -> tuple[int, LockFile]:
        with suppress(FileExistsError):
            make_private_directory(path)
        directory = open_directory(path)
        try:
            return directory, LockFile.take(uuid, directory)
        except BaseException:
            os.close(directory)
            raise

    races = (FileNotFoundError, NotFound, LeaseHeld)
    try:
        return RACE.call(attempt, should_retry=lambda error: isinstance(error, races))
    except races:
        raise Conflict(f"Task {uuid} is being created by another process.") from None


def remove_tree(path: Path) -> None:
    """Remove a directory, also if another process removes it at the same time."""
    races = {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}

    def attempt() -> None:
        if path.exists():
            shutil.rmtree(path)

    try:
        RACE.call(attempt, should_retry=lambda error: isinstance(error, OSError) and error.errno in races)
    except OSError as error:
        if error.errno not in races:
            raise
        log.warning("%s could not be removed; the next open of the store tries again.", path)
