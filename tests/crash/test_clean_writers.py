"""While eight processes write, the store is cleaned and backed up again and again: nothing of theirs is lost."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.backup import backup
from orihon.ops.clean import clean
from orihon.ops.doctor import examine
from orihon.records import Message
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.base import Query
from orihon.testing.samples import a_message
from support.past_runs import a_run

WRITERS = 8
ROOT = Principal("root", admin=True)
WRITER = """
import select, sys
from orihon.stores import open_store
from orihon.testing.samples import a_message, a_task
with open_store(sys.argv[1]) as store:
    said = 0
    while not select.select([sys.stdin], [], [], 0.01)[0]:  # one task after the other, each of them ends
        about = a_task(user="writer")
        with store.lease(about.uuid, create=about) as lease:
            for _ in range(5):
                lease.append(a_message("x" * 500))
                said += 1
            lease.sync()
            lease.update(status="completed", final_summary="done")
print(said)
"""


@pytest.mark.parametrize("kind", ["contexts", "sqlite:///contexts.db"])
def test_nothing_is_lost(tmp_path, kind):
    """Old tasks go; of what the writers say nothing goes, though all of it is compressed as soon as it has ended."""
    url = kind.replace("contexts", str(tmp_path / "contexts"))
    with open_store(url) as store:
        for _ in range(30):
            a_run(store, at="2020-01-01T00:00:00.000000Z", records=[a_message("x" * 5000)])
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(WRITERS)
        ]
        try:
            authorized = AuthorizedStore(store, ROOT, command="clean")
            done = [clean(authorized, Settings(), emergency=True) for _ in range(3)]
            backups = [
                backup(authorized, tmp_path / "backups", now=datetime.now(UTC) + timedelta(days=day)) for day in (0, 1)
            ]
            done.append(clean(authorized, Settings(), emergency=True))
            said = sum(int(writer.communicate(timeout=60)[0]) for writer in writers)
        finally:
            for writer in writers:
                writer.kill()
                writer.wait()
        assert sum(one.deleted for one in done) == 30
        assert [sentence for one in (*done, *backups) for sentence in one.failures] == []
        rows = list(store.find(Query(user="writer")))
        assert sum(len(list(store.read(row.uuid, Message))) for row in rows) == said > 0
        assert {row.status for row in rows} == {"completed"}
    assert not [found for found in examine(url) if found.level == "problem"]
