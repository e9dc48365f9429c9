"""The key of masked ids: one for all processes, private, made when needed, and in nothing that leaves the store."""

import os
import stat
import subprocess
import sys

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

import orihon
from orihon.cli import cli
from orihon.errors import Corrupt, OrihonError
from orihon.stores import open_store
from orihon.stores.files import MASK_KEY_BYTES, Refused, read_mask_key
from orihon.stores.sql.migrations import bring_up_to_date
from orihon.testing.samples import TOKEN

SCRIPT = """
import sys
from orihon.stores import open_store
with open_store(sys.argv[1]) as store:
    print(store.sanitiser.id(sys.argv[2]))
"""


@pytest.fixture(params=["jsonl", "sqlite", "postgres"])
def url(request, url_at, tmp_path):
    return url_at(request.param, tmp_path)


def test_processes_that_begin_at_once_have_one_key(url):
    """The first id that is masked is masked alike everywhere."""
    with open_store(url):
        pass  # the tables are there
    arguments = [sys.executable, "-c", SCRIPT, url, f"call_{TOKEN}"]
    running = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = {process.communicate()[0] for process in running}
    with open_store(url) as store:
        assert said == {store.sanitiser.id(f"call_{TOKEN}") + "\n"}


def test_another_store_has_another_key(url_at, tmp_path):
    """Nobody learns from one store what an id of another one was."""
    with open_store(url_at("jsonl", tmp_path)) as one, open_store(url_at("sqlite", tmp_path)) as other:
        assert one.sanitiser.id(TOKEN) != other.sanitiser.id(TOKEN)


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_it_is_made_when_it_is_needed_and_for_its_owner_alone(kind, url_at, tmp_path):
    """A store in which no id was masked has no key."""
    with open_store(url_at(kind, tmp_path)) as store:
        path = store.sidecar_path("mask.key")
        store.sanitiser.id("call_1")
        assert not path.exists()
        store.sanitiser.id(TOKEN)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_size == MASK_KEY_BYTES
        assert [one.name for one in path.parent.iterdir() if "mask.key." in one.name] == []


def test_a_key_that_is_none_is_said_so(tmp_path):
    """With a way out; and a planted link is not followed."""
    (tmp_path / "mask.key").write_bytes(b"short")
    (tmp_path / "mask.key").chmod(0o600)
    with pytest.raises(Corrupt, match=r"mask\.key does not hold a key") as broken:
        read_mask_key(tmp_path / "mask.key")
    assert "Remove it" in broken.value.hint
    (tmp_path / "mask.key").unlink()
    (tmp_path / "mask.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises((Refused, OrihonError)):
        read_mask_key(tmp_path / "mask.key")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_it_leaves_with_nothing(kind, url_at, tmp_path, monkeypatch):
    """Neither an export nor a backup nor a copy has it, and a doctor has nothing to say about it."""
    monkeypatch.chdir(tmp_path)
    url = url_at(kind, tmp_path / "store")
    (tmp_path / "store").mkdir()
    with orihon.open(url) as engine:
        with engine.start("local/x/issue/a") as task:
            task.add("user", "hello", key=TOKEN)
        key = engine.store.sidecar_path("mask.key").read_bytes()
    for arguments in (
        ["export", task.uuid, "-o", "out/task.orihon", "--store", url],
        ["backup", "out/backup", "--store", url],
        ["copy", url, "out/copy"],
        ["doctor", "--store", url],
    ):
        (tmp_path / "out").mkdir(exist_ok=True)
        said = CliRunner().invoke(cli, arguments)
        assert said.exit_code == 0, (arguments, said.output)
    for path in (tmp_path / "out").rglob("*"):
        assert not path.is_file() or key not in path.read_bytes(), path
        assert "mask" not in path.name


def test_who_only_reads_does_not_see_the_key_of_the_database(postgres, postgres_url, tmp_path):
    """A role for the tasks of one user reads them; a worker that came before the table shares the key."""
    url, names = postgres(tmp_path), [f"{name}_{os.getpid()}_{os.urandom(4).hex()}" for name in ("reader", "worker")]
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        for name in names:
            admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        try:
            bring_up_to_date(url, role=names[0], user="alice")
            bring_up_to_date(url, role=names[1])
            with open_store(url) as store:
                masked = store.sanitiser.id(TOKEN)
            with open_store(url.replace("://postgres@", f"://{names[1]}@")) as store:
                assert store.sanitiser.id(TOKEN) == masked
            with (
                psycopg.connect(url.replace("://postgres@", f"://{names[0]}@")) as reader,
                pytest.raises(psycopg.errors.InsufficientPrivilege),
            ):
                reader.execute("SELECT key FROM mask_key")
        finally:
            for name in names:
                admin.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
                admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def test_a_worker_of_an_older_database_gets_the_key_with_the_table(postgres, postgres_url, tmp_path):
    """The migration that makes the table lets those use it who may make tasks."""
    url, name = postgres(tmp_path), f"worker_{os.getpid()}_{os.urandom(4).hex()}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        try:
            bring_up_to_date(url, role=name)
            with psycopg.connect(url, autocommit=True) as owner:
                owner.execute("DROP TABLE mask_key")
                owner.execute("DROP FUNCTION orihon_field, orihon_number CASCADE")
                owner.execute("ALTER TABLE tasks DROP COLUMN retention_count, DROP COLUMN retention_sum")
                owner.execute("DELETE FROM orihon_migrations WHERE number >= 7")
            assert bring_up_to_date(url).applied == ["007 mask_key", "008 fields", "009 retention"]
            with open_store(url.replace("://postgres@", f"://{name}@")) as store:
                assert store.sanitiser.id(TOKEN).startswith("[GITHUB_TOKEN]-")
        finally:
            admin.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))
