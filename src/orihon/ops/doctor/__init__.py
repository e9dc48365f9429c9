"""The doctor: `examine(url)` yields findings about a store.

Nothing is changed unless `fix` or `rebuild` is given, and no store is created. Findings are yielded one by one, so that
memory stays bounded for a store of any size. `fix` repairs what can be repaired without loss. The other findings say
what is lost and what is still there.

    for finding in examine("logs/contexts"):
        if finding.level == "problem":
            print(finding.where, finding.sentence)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orihon.errors import UsageError
from orihon.ops.doctor.check_files import examine_files
from orihon.ops.doctor.check_sql import examine_postgres, examine_sqlite
from orihon.ops.doctor.finding import Finding
from orihon.ops.doctor.repair import rebuild_table
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.stores import SQLITE_PREFIX, is_postgres, require_store
from orihon.stores.files import disk_errors

__all__ = ["Finding", "examine"]


def examine(url: str, *, fix: bool = False, rebuild: bool = False, on_progress: OnProgress = None) -> Iterator[Finding]:
    """Yield findings about a store. With `fix`, repair what can be repaired; with `rebuild`, rebuild `tasks.db`."""
    require_store(url)
    progress = ProgressCounter(on_progress)
    is_sqlite = url.startswith(SQLITE_PREFIX)
    if rebuild and (url == "memory:" or is_sqlite or is_postgres(url)):
        raise UsageError("Only a store of plain files has a tasks.db to rebuild.", hint="Leave out --rebuild.")
    with disk_errors(f"The store {url} cannot be examined"):
        if url == "memory:":
            yield Finding("ok", url, "A store in memory is empty in every new process; there is nothing to examine.")
        elif is_postgres(url):
            yield from examine_postgres(url, progress, fix=fix)
        elif is_sqlite:
            yield from examine_sqlite(Path(url.removeprefix(SQLITE_PREFIX)), progress, fix=fix)
        else:
            if rebuild:
                yield rebuild_table(Path(url))
            yield from examine_files(Path(url), progress, fix=fix)
