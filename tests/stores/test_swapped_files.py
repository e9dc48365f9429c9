"""A file that changes all the time takes turns with the one before it."""

import errno
import json
import os

import pytest

from orihon.stores import open_store
from orihon.stores.files import Refused, directory_handle, drop_spares, replace_file, swap_file
from orihon.testing.contract import a_task

TASK = a_task()
SPARE, PUT_BY = ".state.json.spare", ".state.json.spare.new"


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "task"
    folder.mkdir(mode=0o700)
    with directory_handle(folder) as handle:
        replace_file("state.json", b"first\n", handle, durable=False)
    return folder


def swap(place, *texts):
    """Which files these were put into."""
    found = []
    with directory_handle(place) as handle:
        for text in texts:
            swap_file("state.json", text, handle)
            assert (place / "state.json").read_bytes() == text
            found.append((place / "state.json").stat().st_ino)
    return found


def names(place):
    return sorted(path.name for path in place.iterdir())


def test_two_files_take_turns(place):
    """The same two, however often; private, and nothing else is left."""
    one, other, *rest = swap(place, *(b"%d\n" % number for number in range(2, 12)))
    assert one != other
    assert rest == [one, other] * 4
    assert names(place) == [SPARE, "state.json"]
    assert (place / "state.json").stat().st_mode & 0o777 == 0o600


def test_a_short_text_leaves_nothing_of_a_long_one(place):
    """Whichever file it is put into."""
    swap(place, b"a long text\n", b"another long text\n", b"short\n", b"")
    assert [(place / name).read_bytes() for name in (SPARE, "state.json")] == [b"short\n", b""]


def test_whoever_looks_sees_one_or_the_other(place):
    """The name is never missing, and what was opened does not change with the next one."""
    with (place / "state.json").open("rb") as seen:
        swap(place, b"second\n")
        assert seen.read() == b"first\n"


def test_a_backup_made_of_links_keeps_what_it_has(place, tmp_path):
    """`cp -al` makes names, not copies."""
    backup = tmp_path / "backup"
    backup.mkdir()
    swap(place, b"second\n", b"third\n")
    for name in names(place):
        os.link(place / name, backup / name)
    before = {name: (backup / name).read_bytes() for name in names(backup)}
    swap(place, b"fourth\n", b"fifth\n", b"sixth\n")
    assert {name: (backup / name).read_bytes() for name in names(backup)} == before


def test_without_links_each_file_is_a_new_one(place, monkeypatch):
    """Some file systems have none; there it takes longer, and that is all."""

    def refused(*_args, **_named):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    swap(place, b"second\n", b"third\n", b"fourth\n")
    assert names(place) == ["state.json"]


@pytest.mark.parametrize("step", ["link", "replace", "second replace"])
def test_an_interrupt_at_any_step_does_no_harm(place, monkeypatch, step):
    """What it leaves is used by the next one, or by nobody."""
    swap(place, b"second\n")
    name, skipped = step.split()[-1], step.startswith("second")
    real = getattr(os, name)

    def interrupted(*args, **named):
        nonlocal skipped
        if skipped:
            skipped = False
            return real(*args, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"os.{name}", interrupted)
        with directory_handle(place) as handle, pytest.raises(KeyboardInterrupt):
            swap_file("state.json", b"third\n", handle)
    assert (place / "state.json").read_bytes() in {b"second\n", b"third\n"}
    one, other, *rest = swap(place, b"4\n", b"5\n", b"6\n", b"7\n")
    assert rest == [one, other]
    assert names(place) == [SPARE, "state.json"]


def test_a_full_disk_keeps_what_is_there(place, monkeypatch):
    """And gets back what little room the spare took."""
    swap(place, b"second\n", b"third\n")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.write", full)
        with directory_handle(place) as handle, pytest.raises(OSError, match="No space"):
            swap_file("state.json", b"fourth\n", handle)
    assert (place / "state.json").read_bytes() == b"third\n"
    assert names(place) == ["state.json"]
    swap(place, b"fourth\n")


def test_a_planted_link_leads_nowhere(place, tmp_path):
    """What it points to is not written; whoever takes the task next removes the link."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious\n")
    (place / SPARE).symlink_to(precious)
    with directory_handle(place) as handle:
        with pytest.raises(Refused, match=r"\.state\.json\.spare is not a regular file"):
            swap_file("state.json", b"second\n", handle)
        drop_spares("state.json", handle)
    swap(place, b"second\n", b"third\n")
    assert precious.read_bytes() == b"precious\n"


def test_a_spare_that_cannot_be_removed_is_no_secret(place, monkeypatch):
    """It may hold an older status, so nothing that is to last is written beside it."""
    swap(place, b"second\n")

    def refused(*_args, **_named):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.unlink", refused)
    with directory_handle(place) as handle, pytest.raises(OSError, match="Input/output"):
        drop_spares("state.json", handle)


def test_dropped_spares_are_gone(place):
    """Also one that an interrupt had left, and twice."""
    swap(place, b"second\n")
    os.link(place / "state.json", place / PUT_BY)
    with directory_handle(place) as handle:
        drop_spares("state.json", handle)
        drop_spares("state.json", handle)
    assert names(place) == ["state.json"]


def test_what_is_to_last_begins_anew(tmp_path):
    """A spare with an older status must not come back after a power cut; a task that ended has none."""
    with open_store(tmp_path / "contexts") as store, store.lease(TASK.uuid, create=TASK) as lease:
        running = tmp_path / "contexts" / "running" / TASK.uuid
        for _ in range(3):
            lease.update(add={"llm_call_count": 1})
            assert (running / SPARE).exists()
        lease.update(status="paused")
        paused = tmp_path / "contexts" / "paused" / TASK.uuid
        assert not (paused / SPARE).exists()
        lease.update(last_activity="waits")
        assert b'"running"' not in (paused / SPARE).read_bytes()
        lease.update(status="running")
        lease.update(status="completed")
    assert [path.name for path in (tmp_path / "contexts" / "completed" / TASK.uuid).glob(".state*")] == []


def test_states_are_of_one_length(tmp_path):
    """So that a power cut cannot leave the length of one with the bytes of another; programs see only JSON."""
    sizes = set()
    with open_store(tmp_path / "contexts") as store, store.lease(TASK.uuid, create=TASK) as lease:
        file = tmp_path / "contexts" / "running" / TASK.uuid / "state.json"
        for count, activity in enumerate(["llm_call", "llm_reply", "tool_call", "x" * 40], 1):
            lease.update(add={"llm_call_count": 1}, last_activity=activity)
            state = json.loads(file.read_bytes())
            assert (state["llm_call_count"], state["last_activity"]) == (count, activity)
            sizes.add(file.stat().st_size)
    assert sizes == {1024}
