"""Findings, each one sentence about one place of a store, and the checks that all kinds of store share."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct

from orihon.context.events import problem as event_problem
from orihon.ops.blobs import list_blobs
from orihon.records import Event, Record

MAX_FINDINGS = 100  # about one list

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
) -> Iterator[Finding]:
    """Repair, check again, and yield what was fixed and what remains."""
    repair()
    remaining = list(check())
    for finding in findings:
        if finding.fixable and finding not in remaining:
            yield Finding("fixed", finding.where, finding.sentence)
    yield from remaining


def check_mode(found: os.stat_result, where: str, private: int) -> Iterator[Finding]:
    """Check that only the owner can read and write a file or directory."""
    mode = stat.S_IMODE(found.st_mode)
    if mode != private:
        yield problem(where, f"Its mode is {mode:04o}; it should be {private:04o}, for its owner only.", fixable=True)


def check_record(record: Record, where: str, has_blob: Callable[[str], bool]) -> Iterator[Finding]:
    """Check that a record can be used, and that its blobs exist."""
    if isinstance(record, Event) and (reason := event_problem(record)):
        yield problem(where, f"It cannot be used: {reason}. Readers and exports skip it; it stays in the store.")
    for blob in list_blobs(record):
        if not has_blob(blob.sha256):
            lost = f"{blob.size_bytes:,} bytes are lost. The text in the line is still there."
            yield problem(where, f"It names blob {blob.sha256}, which does not exist: {lost}")
