"""A network file system is refused for writing, an unknown one is mentioned."""

import logging
from pathlib import Path

import pytest

from orihon.errors import UsageError
from orihon.stores import mounts
from orihon.stores.jsonl.store import JsonlStore

MOUNTS = (
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "40 22 0:35 / /home rw shared:2 - nfs4 server:/home rw,vers=4.2\n"
    "41 40 0:36 / /home/with\\040blank rw - xfs /dev/sdb rw\n"
    "42 22 0:37 / /strange rw - holofs none rw\n"
)


@pytest.mark.parametrize(
    ("place", "kind"),
    [("/", "ext4"), ("/var/lib/x", "ext4"), ("/home", "nfs4"), ("/home/me/logs", "nfs4"), ("/homestead", "ext4"),
     ("/home/with blank/x", "xfs"), ("/strange/y", "holofs")],
)  # fmt: skip
def test_the_innermost_mount_decides(place, kind):
    """A directory is on the mount with the longest path above it."""
    assert mounts.find_type(Path(place), MOUNTS) == kind


def test_nothing_known_is_nothing_said():
    """Where the kernel does not tell, nobody is stopped."""
    assert mounts.find_type(Path("/x"), "") == ""


def mounted_as(kind, monkeypatch, tmp_path):
    file = tmp_path / "mountinfo"
    file.write_text(f"22 1 8:1 / / rw - {kind} none rw\n")
    monkeypatch.setattr(mounts, "MOUNTS", file)


def test_a_network_file_system_is_refused(monkeypatch, tmp_path):
    """The sentence says why, and that PostgreSQL is the way; nothing is written there."""
    mounted_as("nfs4", monkeypatch, tmp_path)
    with pytest.raises(UsageError, match="nfs4") as caught:
        JsonlStore(tmp_path / "contexts")
    assert "PostgreSQL" in caught.value.hint
    assert not (tmp_path / "contexts" / "tasks.db").exists()


def test_an_unknown_file_system_gets_a_warning(monkeypatch, tmp_path, caplog):
    """It is used, and mentioned once."""
    mounted_as("holofs", monkeypatch, tmp_path)
    with caplog.at_level(logging.WARNING):
        JsonlStore(tmp_path / "contexts").close()
    assert "holofs" in caplog.text
