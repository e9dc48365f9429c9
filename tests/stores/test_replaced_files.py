"""A file is replaced in one step."""

import errno
import os

import pytest

from orihon.stores.files import directory_handle, replace_file


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "task"
    folder.mkdir(mode=0o700)
    replace(folder, b"first\n")
    return folder


def replace(folder, text, **options):
    with directory_handle(folder) as handle:
        replace_file("state.json", text, handle, **{"durable": False} | options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_new_file_is_private_and_alone(folder):
    """Mode 0600; no temporary file is left."""
    replace(folder, b"second\n")
    assert (folder / "state.json").read_bytes() == b"second\n"
    assert (folder / "state.json").stat().st_mode & 0o777 == 0o600
    assert names(folder) == ["state.json"]


def test_a_reader_sees_the_old_or_the_new_content(folder):
    """A file that is open does not change."""
    with (folder / "state.json").open("rb") as seen:
        replace(folder, b"second\n")
        assert seen.read() == b"first\n"


def test_a_backup_of_hard_links_keeps_its_content(folder, tmp_path):
    """`cp -al` makes links, not copies."""
    os.link(folder / "state.json", tmp_path / "backup.json")
    replace(folder, b"second\n")
    assert (tmp_path / "backup.json").read_bytes() == b"first\n"


@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace"])
def test_an_interrupt_does_no_harm(folder, monkeypatch, step):
    """The old content stays, and the next replacement removes the temporary file."""

    def interrupt(*_args, **_named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(f"os.{step}", interrupt)
        replace(folder, b"second\n", atomic=True)
    assert (folder / "state.json").read_bytes() == b"first\n"
    replace(folder, b"third\n")
    assert names(folder) == ["state.json"]


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_full_disk_keeps_the_old_content(folder, monkeypatch, step):
    """The temporary file is removed, because it takes space."""

    def fill(*_args, **_named):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(f"os.{step}", fill)
        replace(folder, b"second\n", atomic=True)
    assert (folder / "state.json").read_bytes() == b"first\n"
    assert names(folder) == ["state.json"]


def test_a_planted_link_leads_nowhere(folder, tmp_path):
    """The temporary file is created, never opened."""
    target = tmp_path / "precious"
    target.write_bytes(b"precious\n")
    (folder / ".state.json.new").symlink_to(target)
    replace(folder, b"second\n")
    assert target.read_bytes() == b"precious\n"
    assert (folder / "state.json").read_bytes() == b"second\n"
