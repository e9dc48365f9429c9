"""Backups: every record comes back, unchanged tasks cost nothing, and nothing in a backup is taken on trust."""

import gzip
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from orihon.errors import LeaseHeld, NotFound, OrihonError, UsageError
from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.backup import backup, list_generations, read_manifest, restore
from orihon.ops.clean import clean, keep_task
from orihon.ops.copy import copy_tasks
from orihon.records import Message
from orihon.redaction import MASKS
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.base import LISTS, Options
from orihon.testing.samples import a_message, one_of_each
from orihon.testing.samples import a_task as new_task
from support.faults import Fault, Faults, fast_place, in_child, sampled
from support.past_runs import a_run

STORES = ["jsonl", "sqlite", "postgres", "memory"]
NOW = datetime(2024, 6, 1, 3, tzinfo=UTC)
ROOT = Principal("root", admin=True)
TASK = new_task()


@pytest.fixture(params=STORES)
def authorized(request, url_at, tmp_path):
    with open_store(url_at(request.param, tmp_path)) as store:
        yield AuthorizedStore(store, ROOT, command="backup")


@pytest.fixture
def files(tmp_path):
    """A authorized over plain files, for what does not depend on the store."""
    with open_store(tmp_path / "contexts") as store:
        yield AuthorizedStore(store, ROOT, command="backup")


def a_task(store, text="words ", days=1, **fields):
    at = (NOW - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    records = [a_message(text * 45_000), a_message("second"), *one_of_each()[1:]]
    return a_run(store, at=at, records=records, **fields)


def everything(store, uuid):
    return {kind: list(store.read(uuid, kind)) for kind in LISTS}


def days(tmp_path):
    return [path.name for path in list_generations(tmp_path / "backups")]


@pytest.mark.parametrize("other", ["again", "sqlite:///again.db"])
def test_all_comes_back_in_any_store(authorized, tmp_path, other):
    """Every record, blob and row, after the store is lost; what has not ended is not in it."""
    uuids = [a_task(authorized.store, status=status) for status in ("completed", "stopped", "failed")]
    running = a_task(authorized.store, status="paused")
    done = backup(authorized, tmp_path / "backups", now=NOW)
    assert (done.tasks, done.written, done.failures) == (3, 3, [])
    with open_store(other.replace("again", str(tmp_path / "again"))) as target:
        back = restore(tmp_path / "backups", AuthorizedStore(target, ROOT, command="restore"))
        assert (back.restored, back.equal, back.failures) == (3, 0, [])
        compared = copy_tasks(authorized.store, target, tasks=uuids)
        assert (compared.appended, compared.failures, compared.broken) == (0, [], 0)
        assert running not in {row.uuid for row in target.find()}
        again = restore(tmp_path / "backups", AuthorizedStore(target, ROOT, command="restore"))
        assert (again.restored, again.equal, again.failures) == (0, 3, [])


def test_what_has_not_changed_is_not_copied_again(authorized, tmp_path):
    """It is the same file under a second name; a compressed task has not changed, a kept or cut one has."""
    same, kept = a_task(authorized.store, days=10), a_task(authorized.store, days=9)
    backup(authorized, tmp_path / "backups", now=NOW)
    clean(authorized, Settings(), now=NOW)
    keep_task(authorized, kept)
    new = a_task(authorized.store)
    done = backup(authorized, tmp_path / "backups", now=NOW + timedelta(days=1))
    assert (done.tasks, done.written, done.unchanged) == (3, 2, 1)
    first, second = (tmp_path / "backups" / day / "tasks" for day in ("2024-06-01", "2024-06-02"))
    assert (first / f"{same}.orihon").samefile(second / f"{same}.orihon")
    assert not (first / f"{kept}.orihon").samefile(second / f"{kept}.orihon")
    assert (second / f"{new}.orihon").exists()
    clean(authorized, Settings(), now=NOW, older_than=10 - 1)
    assert backup(authorized, tmp_path / "backups", now=NOW + timedelta(days=2)).written == 1  # the stub
    backup(authorized, tmp_path / "backups", now=NOW + timedelta(days=3))
    assert len(days(tmp_path)) == 4


def test_seven_generations(files, tmp_path):
    """The eighth day takes the first away; a second one of the same day takes its place."""
    a_task(files.store)
    for day in range(8):
        backup(files, tmp_path / "backups", now=NOW + timedelta(days=day))
    assert days(tmp_path) == [f"2024-06-0{day}" for day in range(8, 1, -1)]
    a_task(files.store)
    backup(files, tmp_path / "backups", now=NOW + timedelta(days=7, hours=2))
    assert days(tmp_path) == [f"2024-06-0{day}" for day in range(8, 1, -1)]
    assert len(list(read_manifest(tmp_path / "backups" / "2024-06-08"))) == 2
    assert [path.name for path in (tmp_path / "backups").iterdir() if path.name.startswith(".")] == []


def test_private(files, tmp_path):
    """Nobody else can read a backup, whatever the umask."""
    a_task(files.store)
    before = os.umask(0)
    try:
        backup(files, tmp_path / "backups", now=NOW)
    finally:
        os.umask(before)
    found = [tmp_path / "backups", *(tmp_path / "backups").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in found if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in found if path.is_file()} == {0o600}


def test_one_task(files, tmp_path):
    """Backed up alone it leaves the others in the generation; restored alone, the others stay away."""
    first, second = a_task(files.store), a_task(files.store, days=3)
    backup(files, tmp_path / "backups", now=NOW)
    keep_task(files, first)
    done = backup(files, tmp_path / "backups", tasks=[first[:8]], now=NOW)
    assert (done.tasks, done.written, done.carried) == (2, 1, 1)
    with open_store(tmp_path / "again") as target:
        there = AuthorizedStore(target, ROOT, command="restore")
        assert restore(tmp_path / "backups", there, tasks=[second[:8]]).restored == 1
        assert [row.uuid for row in target.find()] == [second]
        with pytest.raises(NotFound):
            restore(tmp_path / "backups", there, tasks=["nobody"])
    paused = a_task(files.store, status="paused")
    with pytest.raises(UsageError, match="is paused"):
        backup(files, tmp_path / "backups", tasks=[paused])


def test_a_cleaned_task_gets_its_records_back(authorized, tmp_path):
    """The stub is filled again; its row says that it is whole."""
    uuid = a_task(authorized.store, days=40)
    before = everything(authorized.store, uuid)
    backup(authorized, tmp_path / "backups", now=NOW)
    clean(authorized, Settings(), now=NOW)
    assert authorized.store.row(uuid).archived == "stub"
    assert restore(tmp_path / "backups", authorized).restored == 1
    assert everything(authorized.store, uuid) == before
    row = authorized.store.row(uuid)
    assert (row.archived, row.packed_bytes) == ("", None)
    clean(authorized, Settings(), now=NOW, older_than=0)
    clean(authorized, Settings(), now=NOW + timedelta(days=60))
    assert restore(tmp_path / "backups", authorized).restored == 1
    assert everything(authorized.store, uuid) == before


def test_nothing_is_overwritten(authorized, tmp_path):
    """A task that was written, or kept, since the backup stays as it is, and the others come."""
    written, kept, gone = (a_task(authorized.store) for _ in range(3))
    backup(authorized, tmp_path / "backups", now=NOW)
    with authorized.store.lease(written) as lease:
        lease.append(a_message("later"))
    keep_task(authorized, kept)
    authorized.store.delete(gone)
    done = restore(tmp_path / "backups", authorized)
    assert (done.restored, len(done.failures)) == (1, 2)
    assert [message.text for message in authorized.store.read(written, Message)][-1] == "later"
    assert authorized.store.row(kept).kept


def test_users(files, tmp_path):
    """Bob backs up and restores his own tasks, and learns nothing of others'."""
    mine, hers = a_task(files.store, user="bob"), a_task(files.store, user="alice")
    bob = AuthorizedStore(files.store, Principal("bob"), command="backup")
    assert backup(bob, tmp_path / "his", now=NOW).tasks == 1
    with pytest.raises(NotFound):
        backup(bob, tmp_path / "his", tasks=[hers], now=NOW)
    backup(files, tmp_path / "backups", now=NOW)
    with open_store(tmp_path / "again") as target:
        there = AuthorizedStore(target, Principal("bob"), command="restore")
        assert restore(tmp_path / "backups", there).restored == 1
        assert [row.uuid for row in target.find()] == [mine]
        with pytest.raises(NotFound):
            restore(tmp_path / "backups", there, tasks=[hers])


def test_one_backup_at_a_time(files, tmp_path):
    """The second is told who makes one."""
    a_task(files.store)

    def on_progress(_):
        with pytest.raises(LeaseHeld, match="is making a backup"):
            backup(files, tmp_path / "backups", now=NOW)

    backup(files, tmp_path / "backups", now=NOW, on_progress=on_progress)


def test_a_broken_task_is_named_and_its_last_copy_kept(files, tmp_path):
    """What cannot be read whole is not backed up anew; what the last generation has of it stays."""
    uuid, sound = a_task(files.store), a_task(files.store)
    backup(files, tmp_path / "backups", now=NOW)
    keep_task(files, uuid)
    with (tmp_path / "contexts" / "completed" / uuid / "messages.jsonl").open("ab") as log:
        log.write(b"nonsense\n")
    done = backup(files, tmp_path / "backups", now=NOW + timedelta(days=1))
    assert uuid in done.failures[0]
    assert (done.tasks, done.carried, done.unchanged) == (2, 1, 1)
    with open_store(tmp_path / "again") as target:
        assert restore(tmp_path / "backups", AuthorizedStore(target, ROOT, command="restore")).restored == 2
        assert len(everything(target, sound)[Message]) == 2


def test_a_file_that_rotted_is_written_anew(files, tmp_path):
    """A second name of a damaged file would be no backup."""
    uuid = a_task(files.store)
    backup(files, tmp_path / "backups", now=NOW)
    file = tmp_path / "backups" / "2024-06-01" / "tasks" / f"{uuid}.orihon"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    done = backup(files, tmp_path / "backups", now=NOW + timedelta(days=1))
    assert (done.written, done.unchanged) == (1, 0)
    with open_store(tmp_path / "again") as target:
        there = AuthorizedStore(target, ROOT, command="restore")
        assert "is not the file" in restore(tmp_path / "backups", there, generation="2024-06-01").failures[0]
        assert restore(tmp_path / "backups", there).restored == 1


# hostile backups


def forged(place, **changes):
    """Change the entry of the only task, with all checksums right."""
    manifest = place / "manifest.jsonl"
    header, entry, _ = manifest.read_bytes().splitlines(keepends=True)
    lines = header + msgspec.json.encode(msgspec.json.decode(entry) | changes) + b"\n"
    sealed(manifest, lines, 1)


def sealed(manifest, lines, count):
    end = {"tasks": count, "sha256": hashlib.sha256(lines).hexdigest()}
    manifest.write_bytes(lines + msgspec.json.encode(end) + b"\n")


def link(place, uuid):
    file = place / "tasks" / f"{uuid}.orihon"
    file.rename(place / "elsewhere")
    file.symlink_to(place / "elsewhere")


def fifo(place, uuid):
    (place / "tasks" / f"{uuid}.orihon").unlink()
    os.mkfifo(place / "tasks" / f"{uuid}.orihon")


def bomb(place, uuid):
    packed = gzip.compress(b'{"orihon":"task","version":1,"uuid":"%s"}\n' % uuid.encode() + b"0" * 300_000_000, 9)
    (place / "tasks" / f"{uuid}.orihon").write_bytes(packed)
    forged(place, size_bytes=len(packed), sha256=hashlib.sha256(packed).hexdigest())


def twice(place, _):
    header, entry, _ = (place / "manifest.jsonl").read_bytes().splitlines(keepends=True)
    sealed(place / "manifest.jsonl", header + entry + entry, 2)


def linked_folder(place, _):
    (place / "tasks").rename(place / "real")
    (place / "tasks").symlink_to(place / "real")


HOSTILE = {
    "link": link,
    "fifo": fifo,
    "bomb": bomb,
    "twice": twice,
    "linked folder": linked_folder,
    "path": lambda place, _: forged(place, uuid="../../etc/passwd"),
    "absolute": lambda place, _: forged(place, uuid="/etc/passwd"),
    "null": lambda place, _: forged(place, uuid="a\0b"),
    "long": lambda place, _: forged(place, uuid="x" * 5000),
    "other task": lambda place, uuid: (
        (place / "tasks" / f"{uuid}.orihon").rename(place / "tasks" / "x.orihon"),
        forged(place, uuid="x"),
    ),
    "other user": lambda place, _: forged(place, user="mallory"),
    "other status": lambda place, _: forged(place, status="failed"),
    "cut off": lambda place, _: (place / "manifest.jsonl").write_bytes((place / "manifest.jsonl").read_bytes()[:-30]),
    "no manifest": lambda place, _: (place / "manifest.jsonl").unlink(),
    "manifest is a link": lambda place, _: (
        (place / "manifest.jsonl").rename(place / "m"),
        (place / "manifest.jsonl").symlink_to(place / "m"),
    ),
    "newer": lambda place, _: (place / "manifest.jsonl").write_bytes(
        b'{"orihon":"backup","version":2,"made_at":"","store":""}\n'
    ),
    "endless line": lambda place, _: (place / "manifest.jsonl").write_bytes(b"[" * 10_000_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_backups(files, tmp_path, name):
    """Nothing comes in, nothing outside is touched, and a sentence says what is wrong."""
    uuid = a_task(files.store)
    backup(files, tmp_path / "backups", now=NOW)
    HOSTILE[name](tmp_path / "backups" / "2024-06-01", uuid)
    with open_store(tmp_path / "again") as target:
        there = AuthorizedStore(target, ROOT, command="restore")
        try:
            done = restore(tmp_path / "backups", there)
        except OrihonError as error:
            assert error.message
        else:
            assert len(done.failures) == 1
            assert done.restored == 0
        assert list(target.find()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "backups", "contexts"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill before", "kill after"])
def test_killed_while_it_backs_up(how):
    """Whenever it dies, the generations that were there can be restored, and the next backup is whole."""
    with fast_place() as place:
        with open_store(place / "contexts") as store:
            authorized = AuthorizedStore(store, ROOT, command="backup")
            first = a_task(store)
            backup(authorized, place / "backups", now=NOW, keep=1)
            second = a_task(store)

        def again(target):
            with open_store(place / "contexts") as store:
                backup(AuthorizedStore(store, ROOT, command="backup"), target, now=NOW + timedelta(days=1), keep=1)

        counted = shutil.copytree(place / "backups", place / "counted")
        with Faults() as faults:
            again(counted)
        for at in sampled(list(range(1, len(faults.calls) + 1)), 12):
            target = shutil.copytree(place / "backups", place / f"{at}")
            assert in_child(lambda _, target=target: again(target), Fault(at=at, how=how)).signal == signal.SIGKILL
            with open_store(place / f"{at}-out") as out:
                there = AuthorizedStore(out, ROOT, command="restore")
                if list_generations(target):  # else it died between two names, which the next backup puts right
                    assert first in {row.uuid for row in out.find()} or restore(target, there).failures == []
                again(target)
                restore(target, there)
                assert {row.uuid for row in out.find()} == {first, second}
            assert [path.name for path in target.iterdir()] == ["2024-06-02"]
            shutil.rmtree(target)
            shutil.rmtree(place / f"{at}-out")


@pytest.mark.slow
def test_killed_while_it_restores():
    """The next restore goes on, and all is there once."""
    with fast_place() as place:
        with open_store(place / "contexts") as store:
            uuid = a_task(store)
            whole = everything(store, uuid)
            backup(AuthorizedStore(store, ROOT, command="backup"), place / "backups", now=NOW)

        def again(target):
            with open_store(target) as store:
                return restore(place / "backups", AuthorizedStore(store, ROOT, command="restore"))

        with Faults() as faults:
            again(place / "counted")
        for at in sampled(list(range(1, len(faults.calls) + 1)), 15):
            target = place / f"{at}"
            in_child(lambda _, target=target: again(target), Fault(at=at, how="kill after"))
            assert again(target).failures == []
            with open_store(target) as store:
                assert everything(store, uuid) == whole
                assert store.row(uuid).status == "completed"
            shutil.rmtree(target)


def test_the_commands(tmp_path):
    """In a real process, from files to SQLite."""

    def orihon(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "orihon", *arguments],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    with open_store(tmp_path / "contexts") as store:
        uuid = a_task(store)
    told = orihon("backup", "backups", "--store", "contexts")
    assert (told.returncode, told.stderr) == (0, "")
    assert "Written, restored and compared: 1 task, 7 records" in told.stdout
    assert json.loads(orihon("backup", "backups", "--store", "contexts", "--json").stdout)["unchanged"] == 1
    back = orihon("restore", "backups", uuid[:8], "--store", "sqlite:///drill.db", "--json")
    assert json.loads(back.stdout)["restored"] == 1
    missing = orihon("restore", "backups", "--generation", "1999-01-01", "--store", "sqlite:///drill.db")
    assert missing.returncode == 3
    assert "There is no backup '1999-01-01'" in missing.stderr


def test_a_row_that_would_be_masked_today(tmp_path):
    """What an earlier version left unmasked is masked on the way, in a copy and in a backup."""
    said = "log in with password: V6feAT2dDNMN"
    unmasked = Options(kinds=frozenset())
    with open_store(tmp_path / "old", unmasked) as store, store.lease(TASK.uuid, create=TASK) as lease:
        lease.append(a_message(content=said))
        lease.update(status="completed", final_summary=said)
    with open_store(tmp_path / "old") as store, open_store(tmp_path / "new") as target:
        done = copy_tasks(store, target)
        assert not done.failures
        assert target.row(TASK.uuid).final_summary == "log in with password: [PASSWORD]"
        assert not backup(AuthorizedStore(store, ROOT, command="backup"), tmp_path / "backups").failures


def test_a_backup_masks_as_its_store_does(tmp_path):
    """What `masking.kinds` leaves alone is in the backup as it is."""
    with open_store(tmp_path / "store", Options(kinds=MASKS - {"EMAIL"})) as store:
        with store.lease(TASK.uuid, create=TASK, status="running") as lease:
            lease.append(a_message(content="ask alice@corp.co.jp"))
            lease.update(status="completed", final_summary="ask alice@corp.co.jp")
        authorized = AuthorizedStore(store, ROOT, command="backup")
        assert not backup(authorized, tmp_path / "backups").failures
    with open_store(tmp_path / "again", Options(kinds=MASKS - {"EMAIL"})) as store:
        restore(tmp_path / "backups", AuthorizedStore(store, ROOT, command="restore"))
        assert store.row(TASK.uuid).final_summary == "ask alice@corp.co.jp"
