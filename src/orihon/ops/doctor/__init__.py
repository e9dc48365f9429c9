"""`examine(url)`: what is right and wrong with a store, in sentences, as values, one after the other.

Nothing is changed unless `fix` or `rebuild` is asked for, and nothing is made where there is no store. Memory stays
small whatever the size of the store, because findings are given as they are found. `fix` repairs what can be repaired
without losing anything; what cannot is explained: what is lost, and what is still there.

    for finding in examine("logs/contexts"):
        if finding.level == "problem":
            print(finding.where, finding.sentence)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orihon.errors import UsageError
from orihon.ops.doctor.files import examine_files
from orihon.ops.doctor.finding import Finding
from orihon.ops.doctor.sqlite import examine_sqlite
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.stores import SQLITE_PREFIX, is_postgres, require_store
from orihon.stores.files import disk_errors

__all__ = ["Finding", "ProgressCounter", "examine"]


def examine(url: str, *, fix: bool = False, rebuild: bool = False, on_progress: OnProgress = None) -> Iterator[Finding]:
    """Findings about a store; `tell` hears how far the look has come."""
    require_store(url)
    with disk_errors(f"The store {url} cannot be looked at"):
        yield from _examine(url, ProgressCounter(on_progress), fix=fix, rebuild=rebuild)


def _examine(url: str, progress: ProgressCounter, *, fix: bool, rebuild: bool) -> Iterator[Finding]:
    if rebuild and (url == "memory:" or url.startswith(SQLITE_PREFIX) or is_postgres(url)):
        raise UsageError("Only a store of plain files can have its tasks.db made again.", hint="Leave out --rebuild.")
    if url == "memory:":
        yield Finding("ok", url, "A store in memory is empty in every new process; there is nothing to look at.")
    elif is_postgres(url):
        from orihon.ops.doctor.postgres import examine_postgres  # noqa: PLC0415 - only with psycopg

        yield from examine_postgres(url, progress, fix=fix)
    elif url.startswith(SQLITE_PREFIX):
        yield from examine_sqlite(Path(url.removeprefix(SQLITE_PREFIX)), progress, fix=fix)
    else:
        yield from examine_files(Path(url), progress, fix=fix, rebuild=rebuild)
