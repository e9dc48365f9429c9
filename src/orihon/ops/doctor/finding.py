"""Findings, each one sentence about one place of a store, and the checks that all kinds of store share."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from orihon import codec
from orihon.context.events import problem as event_problem
from orihon.errors import Corrupt
from orihon.ops.blobs import list_blobs
from orihon.ops.progress import ProgressCounter
from orihon.records import Event, Record
from orihon.stores.base import LISTS

MAX_FINDINGS = 100  # about one list
KEPT = "The line is kept; the lines before and after it are still read."

Level = Literal["ok", "note", "problem", "fixed"]


class Finding(Struct, frozen=True):
    """One result of an examination. Only a problem means that something is wrong."""

    level: Level
    where: str
    sentence: str
    fixable: bool = False


def problem(where: str, sentence: str, *, fixable: bool = False) -> Finding:
    """Return a finding about something that is wrong."""
    return Finding("problem", where, sentence, fixable)


def note(where: str, sentence: str, *, fixable: bool = False) -> Finding:
    """Return a finding about something that is harmless."""
    return Finding("note", where, sentence, fixable)


def report_figures(where: str, progress: ProgressCounter) -> Finding:
    """Return the finding at the end of an examination."""
    return Finding("ok", where, f"Examined {progress} in {progress.seconds:.1f} seconds.")


def limit_findings(where: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the first findings and the number of the others, so that memory stays bounded."""
    omitted = 0
    for count, finding in enumerate(findings):
        if count < MAX_FINDINGS:
            yield finding
        else:
            omitted += 1
    if omitted:
        yield problem(where, f"{omitted:,} more findings like these are left out.")


def repair_and_recheck(
    findings: list[Finding], repair: Callable[[], None], check: Callable[[], Iterable[Finding]]
) -> list[Finding]:
    """Repair what can be repaired and check again. Return what was fixed and what remains."""
    if not any(finding.fixable for finding in findings):
        return findings
    repair()
    remaining = list(check())
    gone = [finding for finding in findings if finding.fixable and finding not in remaining]
    return [*(Finding("fixed", finding.where, finding.sentence) for finding in gone), *remaining]


def check_mode(mode: int, where: str, private: int) -> Iterator[Finding]:
    """Check that only the owner can read and write a file or directory."""
    mode = stat.S_IMODE(mode)
    if mode != private:
        yield problem(where, f"Its mode is {mode:04o}; it should be {private:04o}, for its owner only.", fixable=True)


class Line(NamedTuple):
    """One line of a list, where it is, and the columns that repeat what it says."""

    uuid: str
    where: str
    prefix: str  # of a sentence about it
    data: bytes | int  # its length, if it is too long to be read
    columns: dict[str, Any] | None = None  # None if the order of the lines is to be checked instead


def check_lines(
    kind: type[Record], lines: Iterable[Line], has_blob: Callable[[str, str], bool], progress: ProgressCounter
) -> Iterator[Finding]:
    """Check that every line of a list is a record that can be used, and that its blobs exist."""
    _, field = LISTS[kind]
    before = newest = 0  # the numbers of the last two records
    for line in lines:
        if isinstance(line.data, int):
            limit = f"more than {codec.MAX_LINE_BYTES:,}, and is left out"
            yield _about(line, f"the line has {line.data:,} bytes, {limit}. {KEPT}")
            continue
        progress.add(records=1, size_bytes=len(line.data))
        try:
            record = codec.decode_line(line.data, kind)
        except Corrupt as error:
            yield _about(line, f"{error.message.rstrip('.')}. {KEPT}")
            continue
        if line.columns is not None:
            wrong = [name for name, value in line.columns.items() if getattr(record, name) != value]
            if wrong:
                yield _about(line, f"The columns {' and '.join(wrong)} differ from the line, which is the truth.")
        else:
            number = getattr(record, field)
            if number <= before or number == newest:
                yield _about(line, f"the line repeats number {number} and is left out. {KEPT}")
                continue
            if number < newest:
                yield _about(line, f"number {number} comes after number {newest}. {KEPT}")
            before, newest = min(newest, number - 1), number
        yield from _check_record(record, line, has_blob)


def _check_record(record: Record, line: Line, has_blob: Callable[[str, str], bool]) -> Iterator[Finding]:
    if isinstance(record, Event) and (reason := event_problem(record)):
        yield _about(line, f"It cannot be used: {reason}. Readers and exports skip it; it stays in the store.")
    for blob in list_blobs(record):
        if not has_blob(line.uuid, blob.sha256):
            lost = f"{blob.size_bytes:,} bytes are lost. The text in the line is still there."
            yield _about(line, f"It names blob {blob.sha256}, which does not exist: {lost}")


def _about(line: Line, sentence: str) -> Finding:
    return problem(line.where, f"{line.prefix}{sentence}")
