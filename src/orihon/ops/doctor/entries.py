"""What stands in the directories of a store: kinds, owners and modes of files, and what crashes left behind."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from orihon.errors import UsageError
from orihon.ops.doctor.finding import Finding, note, problem
from orihon.ops.doctor.quiet import open_quietly
from orihon.stores.files import PRIVATE_DIRECTORY, PRIVATE_FILE
from orihon.stores.validation import validate_task_id

TEMPORARY = re.compile(r"\..*\.new(-wal|-shm|-journal)?")
OURS = re.compile(r"\.?(tasks\.db|search\.db|audit\.jsonl|mask\.key|pause_signal|stop_signal)([-.].*)?")
FOLDERS = ("planning", "blobs")


def look_at_entries(directory: int, where: str) -> Iterator[Finding]:
    """A directory of the store and what is in it; not what is in directories inside it.

    A store may share its top directory with other files of the user, which are left alone.
    """
    own = os.fstat(directory)
    yield from look_at_mode(own, where, PRIVATE_DIRECTORY)
    with os.scandir(directory) as entries:
        for entry in (entry for entry in entries if where != "." or is_ours(entry.name)):
            here = f"{where}/{entry.name}" if where != "." else entry.name
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # a temporary file, gone since
            yield from _look_at_entry(entry.name, found, here)
            if found.st_uid != own.st_uid:
                yield problem(here, f"It belongs to another user (uid {found.st_uid}, not {own.st_uid}).")


def look_at_folders(directory: int, where: str) -> Iterator[Finding]:
    """The directories inside a task's."""
    for name in FOLDERS:
        try:
            with open_quietly(name, directory, directory=True) as folder:
                yield from look_at_entries(folder, f"{where}/{name}")
        except OSError:
            continue  # not there, or a link, which its entry says


def look_at_mode(found: os.stat_result, where: str, private: int) -> Iterator[Finding]:
    """Only the owner reads and writes."""
    mode = stat.S_IMODE(found.st_mode)
    if mode != private:
        yield problem(where, f"Its mode is {mode:04o}; it should be {private:04o}, for its owner only.", fixable=True)


def is_ours(name: str) -> bool:
    """Whether Orihon made a file of this name in the top directory of a store."""
    return OURS.fullmatch(name) is not None


def is_id(name: str) -> bool:
    """Whether a directory can be a task's."""
    try:
        validate_task_id(name)
    except UsageError:
        return False
    return True


def is_temporary(name: str) -> bool:
    """Whether a file was on its way to replace another when its writer died."""
    return TEMPORARY.fullmatch(name) is not None


def strange(mode: int, here: str) -> Finding:
    """Something that is neither a file nor a directory."""
    kind = "link" if stat.S_ISLNK(mode) else "FIFO" if stat.S_ISFIFO(mode) else "device or a socket"
    return problem(here, f"It is a {kind}, which Orihon neither makes nor follows. Remove it unless it is yours.")


def _look_at_entry(name: str, found: os.stat_result, here: str) -> Iterator[Finding]:
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        yield strange(found.st_mode, here)
        return
    if stat.S_ISREG(found.st_mode):
        yield from look_at_mode(found, here, PRIVATE_FILE)
    if is_temporary(name):
        yield note(here, "A temporary file of a write that was not finished.", fixable=True)
    elif name.endswith(".torn"):
        yield note(here, f"{found.st_size:,} bytes that a crash had torn off are kept here; nobody reads them.")
