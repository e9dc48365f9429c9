"""The PostgreSQL database: error messages, migrations, and the contents of its tables."""

import json
import logging
import os
import subprocess
import sys
from contextlib import closing
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

import orihon
from orihon.errors import NotFound, OrihonError, SchemaMismatch, StoreUnavailable, UsageError
from orihon.records import Message
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.base import Options, Query
from orihon.stores.sql import migrations
from orihon.stores.sql.migrations import Migration, bring_up_to_date
from orihon.stores.sql.postgres_pool import Server
from orihon.testing.samples import a_message, a_task
from support.postgres_server import schema

SECRET = "pa:ss@w/ö rd%"


@pytest.fixture
def url(postgres, tmp_path):
    return postgres(tmp_path)


@pytest.fixture
def admin(url):
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def role(admin):
    """A role of its own, that may log in and no more."""
    name = f"role_{os.getpid()}_{os.urandom(4).hex()}"
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), sql.Literal(SECRET)))
    yield name
    admin.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
    admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def as_role(url, name, password=""):
    head, tail = url.split("://", 1)[1].split("/", 1)
    host = head.rpartition("@")[2]
    return f"postgresql://{name}{':' + quote(password, safe='') if password else ''}@{host}/{tail}"


def refusal(url, kind=OrihonError):
    with pytest.raises(kind) as caught:
        open_store(url).close()
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert SECRET not in f"{caught.value}{caught.value.hint}"
    assert quote(SECRET, safe="") not in f"{caught.value}{caught.value.hint}"
    return caught.value


# errors


@pytest.mark.parametrize(
    "wrong",
    [
        "postgresql://u:{}@h:port/db",
        "postgresql://u:{}@[::1/db",
        "postgresql://u:{}@/x?colour=red",
        "postgres://{}:1:2/",
        "postgresql://u:pass@word@host/db",
        "postgresql://u:12/34@host/db",
    ],
)
def test_a_url_that_cannot_be_read(wrong):
    """The message does not contain the URL, because a password may be part of it."""
    assert "cannot be read" in refusal(wrong.format(quote(SECRET, safe="")), UsageError).message


def test_nobody_answers(tmp_path):
    """A missing server is reported at once, and the error is worth a retry."""
    error = refusal(f"postgresql://u:{quote(SECRET, safe='')}@/db?host={tmp_path}", StoreUnavailable)
    assert error.retryable
    assert "No such file or directory" in error.message
    assert refusal("postgresql://127.0.0.1:1/db", StoreUnavailable).retryable


def test_wrong_names(url):
    """The message names the missing database or role, and what to check."""
    error = refusal(url.replace("/postgres?", "/nowhere?") if "/postgres?" in url else url + "&dbname=nowhere")
    assert 'database "nowhere" does not exist' in error.message
    assert not error.retryable
    assert 'role "nobody_here" does not exist' in refusal(as_role(url, "nobody_here")).message


def test_a_wrong_password(url, admin, role):
    """The message says that the password is wrong and does not contain it; the right one opens the store."""
    if admin.execute("SELECT 1 FROM pg_roles WHERE rolname = 'with_password'").fetchone() is None:
        pytest.fail("the server must ask the members of the role with_password for one; docs/scale.md says how")
    admin.execute(sql.SQL("GRANT with_password TO {}").format(sql.Identifier(role)))
    for given in ("", "wrong-one-1234"):
        error = refusal(as_role(url, role, given), StoreUnavailable)
        assert "password" in error.message
        assert "wrong-one-1234" not in f"{error}{error.hint}"
        assert not error.retryable
    open_store(url).close()
    grant(admin, role)
    with open_store(as_role(url, role, SECRET)) as store:
        assert list(store.find()) == []
        assert "p" not in store.url.split("@")[0].removeprefix("postgresql://").replace(role, "")


def grant(admin, role):
    (name,) = admin.execute("SELECT current_schema()").fetchone()
    for statement in ("GRANT USAGE ON SCHEMA {} TO {}", "GRANT SELECT ON ALL TABLES IN SCHEMA {} TO {}"):
        admin.execute(sql.SQL(statement).format(sql.Identifier(name), sql.Identifier(role)))


def test_missing_rights(url, admin, role):
    """A role that may not create tables, read or write gets an error that names the missing right."""
    error = refusal(as_role(url, role))
    assert "permission denied" in error.message or "no schema has been selected" in error.message
    open_store(url).close()
    refusal(as_role(url, role))
    grant(admin, role)
    with open_store(as_role(url, role)) as store:
        with pytest.raises(StoreUnavailable, match="permission denied for table") as caught:
            store.lease((task := a_task()).uuid, create=task)
        assert not caught.value.retryable
        assert "grants rights" in caught.value.hint


def test_the_command_says_it_in_a_sentence(tmp_path):
    """No stack, no password, and an exit code of its own."""
    url = f"postgresql://u:{quote(SECRET, safe='')}@/db?host={tmp_path}"
    for arguments in (["migrate", url], ["doctor", "--store", url], ["copy", url, str(tmp_path / "x")]):
        shown = subprocess.run(
            [sys.executable, "-m", "orihon", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert shown.returncode == 3, shown
        assert shown.stderr.startswith("orihon: PostgreSQL at postgresql://u@/db?host=")
        assert "Traceback" not in shown.stderr
        assert quote(SECRET, safe="") not in shown.stderr + shown.stdout


def test_another_encoding(postgres_url):
    """A database that cannot hold every text is refused."""
    name = f"latin_{os.getpid()}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            assert "LATIN1" in refusal(postgres_url.replace("/postgres?", f"/{name}?"), UsageError).message
        finally:
            connection.execute(f"DROP DATABASE {name}")


# its tables


def test_an_empty_database_gets_its_tables(url):
    """The first open creates the tables; `migrate` finds nothing to do and reports the version."""
    open_store(url).close()
    done = bring_up_to_date(url)
    assert (done.applied, done.version) == ([], migrations.load_migrations()[-1].number)


def test_the_command_migrate(url, tmp_path):
    """The command prints text or JSON; a second run does nothing, and other stores need no migration."""

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "orihon", "migrate", *arguments],
            capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip

    assert "applied  001 store\n" in run(url).stdout
    again = json.loads(run(url, "--json").stdout)
    assert again["applied"] == []
    assert again["version"] == migrations.load_migrations()[-1].number
    assert run("sqlite:///x.db").returncode == 2
    assert run().returncode == 2


def test_older_and_newer_tables_are_refused(url, monkeypatch):
    """Older code refuses newer tables; newer code refuses older tables until `migrate` is run."""
    open_store(url).close()
    known = migrations.load_migrations()
    newer = Migration(known[-1].number + 1, "later", "ALTER TABLE tasks ADD COLUMN colour text")
    monkeypatch.setattr(migrations, "load_migrations", lambda: [*known, newer])
    assert "orihon migrate" in refusal(url, SchemaMismatch).hint
    assert bring_up_to_date(url).applied == [f"{newer.number:03} later"]
    open_store(url).close()
    monkeypatch.undo()
    assert f"have version {newer.number}" in refusal(url, SchemaMismatch).message
    with pytest.raises(SchemaMismatch):
        bring_up_to_date(url)


def test_tasks_of_the_first_version_stay(url, admin, monkeypatch):
    """A database from before the counters of a row is brought up to date, with its contents."""
    known = migrations.load_migrations()
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "load_migrations", lambda: known[:3])
        bring_up_to_date(url)
    admin.execute(
        "INSERT INTO tasks (uuid, task_source, owner, repo, task_type, task_id, status, created_at, started_at, "
        "task_key, completed_at) VALUES ('t1', 'local', '', '', 'issue', 'x', 'completed', "
        "'2024-01-01T00:00:00.000000Z', '2024-01-01T00:00:00.000000Z', 'local/issue/x', '2024-01-01T00:01:30.500000Z')"
    )
    assert "orihon migrate" in refusal(url, SchemaMismatch).hint
    assert len(bring_up_to_date(url).applied) == len(known) - 3
    with open_store(url) as store:
        row = store.row("t1")
        assert (row.archived, row.message_count, row.packed_bytes) == ("", 0, None)
        assert store.totals(Query(), "status")["completed"].seconds == 90.5
        admin.execute("UPDATE tasks SET started_at = 'by hand'")
        assert store.totals(Query(), "status")["completed"].timed == 0
        assert store.count(Query(ended_before="2024-01-02")) == (1, 0)


def test_a_migration_that_fails_leaves_nothing(url, admin, monkeypatch):
    """A migration and its record are one transaction."""
    open_store(url).close()
    known = migrations.load_migrations()
    number = known[-1].number + 1
    half = Migration(number, "half", "ALTER TABLE tasks ADD COLUMN colour text; SELECT 1 / 0")
    monkeypatch.setattr(migrations, "load_migrations", lambda: [*known, half])
    with pytest.raises(OrihonError, match="division by zero"):
        bring_up_to_date(url)
    assert admin.execute("SELECT max(number) FROM orihon_migrations").fetchone() == (known[-1].number,)
    assert admin.execute("SELECT 1 FROM information_schema.columns WHERE column_name = 'colour'").fetchall() == []


@pytest.mark.slow
def test_many_make_the_tables_at_once(url):
    """One process migrates, and the others wait for it."""
    program = f"import orihon; orihon.open({url!r}).close()"
    started = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) for _ in range(4)]
    assert [(child.communicate()[1], child.returncode) for child in started] == [(b"", 0)] * 4


def test_tables_of_another_program(url, admin):
    """Tables of another program are not changed."""
    admin.execute("CREATE TABLE tasks (id integer)")
    error = refusal(url, SchemaMismatch)
    assert "another program" in error.message
    assert "search_path" in error.hint
    assert admin.execute("SELECT to_regclass('messages')").fetchone() == (None,)


def test_without_the_driver(url, tmp_path):
    """Without psycopg the error says what to install."""
    (tmp_path / "psycopg.py").write_text("raise ImportError('not here')")
    program = f"import orihon\ntry: orihon.open({url!r})\nexcept orihon.OrihonError as error: print(error.hint)"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert shown.stdout == "pip install 'orihon[postgres]'\n"


# contents


def test_people_can_ask_it(url, admin):
    """A line is the record, byte for byte, and can be read as JSON where it is."""
    with open_store(url) as store, store.lease((task := a_task()).uuid, create=task) as lease:
        lease.append(a_message("日本語\u2028\\u0000", unknown={"x": [1.5, None]}))
        ((_, line),) = store.lines(task.uuid, "messages", 1, None)
    assert admin.execute("SELECT line FROM messages").fetchone() == (line.rstrip(b"\n"),)
    said = "SELECT convert_from(line, 'UTF8')::json ->> 'content' FROM messages WHERE role = 'user'"
    assert admin.execute("SELECT count(*) FROM messages").fetchone() == (1,)
    assert admin.execute(said).fetchone() == ("日本語\u2028\\u0000",)


def test_odd_questions(url):
    """A value that cannot be stored is not found, and raises no error."""
    with open_store(url) as store:
        task = a_task(user="a\0b")
        store.lease(task.uuid, create=task).close()
        for odd in ("\0", "\ud83d", "%", "'", "x" * 10_000, ""):
            assert [row.uuid for row in store.find(Query(user=odd))] == []
            assert [row.uuid for row in store.find(Query(key=odd))] == []
        assert [row.user for row in store.find(Query(user="a\0b"))] == ["a␀b"]
        assert list(store.find(Query(uuid="\0"))) == []
        with pytest.raises(NotFound):
            store.blob(task.uuid, "x")


def test_a_long_list_is_read_in_pages(url):
    """About a megabyte at a time, whatever the lines are like, and none is left out at the seams."""
    with open_store(url, Options(durability="os")) as store, store.lease((task := a_task()).uuid, create=task) as lease:
        with lease.batch():
            for number in range(3000):
                lease.append(a_message("x" * (100_000 if number % 100 == 7 else 10)))
        sizes = []
        real = store.server.all

        def watched(*arguments, **named):
            found = real(*arguments, **named)
            sizes.append(sum(len(line) for _, line in found))
            return found

        store.server.all = watched
        assert [message.seq for message in store.read(task.uuid, Message)] == list(range(1, 3001))
        assert max(sizes) < 1_200_000
        assert len(sizes) >= 4


def test_records_that_travel_together(url):
    """A batch is stored when the block ends, in one transaction; a change of the row sends it first."""
    with open_store(url) as store, store.lease((task := a_task()).uuid, create=task) as lease:
        with lease.batch():
            numbers = [lease.append(a_message(f"{number}", key=f"k{number % 5}")) for number in range(10)]
            assert numbers == [1, 2, 3, 4, 5] * 2
        with lease.batch():
            lease.append(a_message("one"))
            assert len(list(store.read(task.uuid, Message))) == 5
            lease.update(activity="processing")
            assert len(list(store.read(task.uuid, Message))) == 6
        with pytest.raises(ZeroDivisionError), lease.batch():
            lease.append(a_message("before the error"))
            _ = 1 / 0
        assert [message.content for message in store.read(task.uuid, Message)][5:] == ["one", "before the error"]
        assert lease.append(a_message("after")) == 8


def test_nothing_is_held_while_the_caller_thinks(url, admin):
    """A reader that stopped in the middle, or a task at work, leaves no transaction open."""
    with orihon.open(url, settings=Settings()) as engine, engine.start("local/issue/x") as task:
        task.add("user", "Go.")
        with task.writer.lease.batch():
            for number in range(1500):
                task.writer.lease.append(a_message(str(number)))
        reading = engine.store.read(task.uuid, Message)
        next(reading)
        task.window()
        open_ones = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%' AND datname = current_database()"
        assert admin.execute(open_ones).fetchone() == (0,)
        reading.close()


def test_logs_hold_no_password(url, admin, role, caplog):
    """Not at any level."""
    caplog.set_level(logging.DEBUG)
    open_store(url).close()
    grant(admin, role)
    with open_store(as_role(url, role, SECRET)) as store, pytest.raises(StoreUnavailable):
        store.lease((task := a_task()).uuid, create=task)
    assert SECRET not in caplog.text
    assert quote(SECRET, safe="") not in caplog.text


def test_how_it_is_synced(url):
    """Every commit is on disk when it returns, unless the durability is `os`."""
    for durability, expected in (("turn", "on"), ("message", "on"), ("os", "off")):
        with open_store(url, Options(durability=durability)) as store:
            assert store.server.all("SELECT current_setting('synchronous_commit')") == [(expected,)]
            assert len(list(store.find())) == 0


def test_a_schema_that_is_not_there(postgres_url):
    """The sentence says so."""
    with schema(postgres_url) as url:
        pass
    assert "no schema has been selected" in refusal(url).message


def test_few_connections(url):
    """A store keeps one idle connection and closes it when it is closed."""
    with open_store(url) as store, closing(Server(url, retry_seconds=0)):
        assert len(store.server._idle) == 1
        list(store.find())
        assert len(store.server._idle) == 1
    with pytest.raises(StoreUnavailable, match="closed"):
        list(store.find())
