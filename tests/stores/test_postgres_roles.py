"""The rights of a role: it sees the tasks of its user, and no row of another user in any table."""

import os
import subprocess
import sys

import psycopg
import pytest
from psycopg import sql

from orihon.errors import NotFound, OrihonError, StoreUnavailable, UsageError
from orihon.ops.access import open_authorized_store
from orihon.records import Message
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.audit import Filter, looks
from orihon.stores.sql.migrations import bring_up_to_date
from orihon.testing.samples import a_message, a_task, one_of_each


@pytest.fixture
def url(postgres, tmp_path):
    return postgres(tmp_path)


@pytest.fixture
def roles(postgres_url):
    """Create three roles that may log in."""
    names = [f"{name}_{os.getpid()}_{os.urandom(4).hex()}" for name in ("alice", "bob", "worker")]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name in names:
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        yield names
        for name in names:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def as_role(url, name):
    return url.replace("://postgres@", f"://{name}@", 1)


@pytest.fixture
def filled(url, roles):
    """Create a complete task for each user; return the ids."""
    for role, user in zip(roles, ("alice", "bob", None), strict=True):
        bring_up_to_date(url, role=role, user=user)
    uuids = []
    with open_store(url) as store:
        for user in ("alice", "bob", None):
            task = a_task(user=user)
            with store.lease(task.uuid, create=task) as lease:
                for record in one_of_each():
                    lease.append(record)
                lease.put(f"blob of {user}".encode())
            uuids.append(task.uuid)
    return uuids


def tables(url):
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        return sorted(name for (name,) in found if name not in {"orihon_migrations", "audit", "mask_key"})


def test_no_table_shows_what_is_not_ones_own(url, roles, filled):
    """Every table, those of later versions included, has rows of each task, and shows each role its user's only."""
    assert len(tables(url)) == 9
    for role, uuid in zip(roles[:2], filled, strict=False):
        with psycopg.connect(as_role(url, role)) as connection:
            for table in tables(url):
                seen = {found for (found,) in connection.execute(f"SELECT uuid FROM {table}")}  # noqa: S608
                assert seen == {uuid}, table


def test_what_a_reader_hears(url, roles, filled):
    """The task of another user is not found, and a reader cannot change its own."""
    alice, bob, _ = filled
    with open_store(as_role(url, roles[0])) as store:
        assert [row.uuid for row in store.find()] == [alice]
        assert len(list(store.read(alice, Message))) == 1
        with pytest.raises(NotFound):
            list(store.read(bob, Message))
        with pytest.raises(NotFound):
            store.row(bob)
        for write in (lambda: store.lease(alice), lambda: store.delete(alice)):
            with pytest.raises(StoreUnavailable, match="permission denied"):
                write()


def test_no_way_around(url, roles, filled):
    """A reader cannot switch the policies off, change its role, or learn from an error which rows exist."""
    _, bob, _ = filled
    with psycopg.connect(as_role(url, roles[0]), autocommit=True) as connection:
        for statement in (
            "ALTER TABLE tasks DISABLE ROW LEVEL SECURITY",
            f'SET ROLE "{roles[1]}"',
            f'DROP POLICY "{roles[0]}" ON tasks',
            f'CREATE POLICY more ON tasks TO "{roles[0]}" USING (true)',
            "UPDATE tasks SET \"user\" = 'alice'",
            f"INSERT INTO messages (uuid, seq, role, tokens, timestamp, line) VALUES ('{bob}', 9, 'user', 1, '', '')",  # noqa: S608
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
        connection.execute("SET row_security = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM tasks")


def test_a_worker_works_on_all(url, roles, filled):
    """A role without a user reads and writes every task, and owns nothing."""
    with open_store(as_role(url, roles[2])) as store:
        assert {row.uuid for row in store.find()} == set(filled)
        with store.lease(filled[0]) as lease:
            lease.append(a_message("more"))
            lease.update(add={"total_tokens": 1})
        task = a_task(user="carol")
        with store.lease(task.uuid, create=task) as lease:
            with lease.batch():
                lease.append(a_message("one"))
            lease.put(b"data")
        store.delete(task.uuid)
    with psycopg.connect(as_role(url, roles[2])) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("DROP TABLE tasks")


def test_the_audit_can_be_added_to_and_not_read(url, roles, filled):
    """Every access is in the audit; neither a reader nor a worker can read it or delete a line."""
    for role in roles:
        with open_authorized_store(Settings(), as_role(url, role), command="show") as authorized:
            authorized.reader(next(authorized.rows()).uuid)
        with psycopg.connect(as_role(url, role), autocommit=True) as connection:
            for statement in ("SELECT * FROM audit", "UPDATE audit SET line = ''", "DELETE FROM audit"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)
    with open_authorized_store(Settings(), url, command="audit") as authorized:
        assert [look.uuid for look in looks(authorized.audit, Filter(), 10)][:2] == filled[:2]


def test_rights_are_replaced(url, roles, filled):
    """A role that is granted another user sees the tasks of that user, and no longer those of the first."""
    bring_up_to_date(url, role=roles[0], user="bob")
    with open_store(as_role(url, roles[0])) as store:
        assert [row.uuid for row in store.find()] == [filled[1]]


def test_wrong_names(url, tmp_path):
    """The error names a missing role; a user without a role is refused."""
    with pytest.raises(UsageError, match='Role "nobody\'; DROP TABLE tasks" does not exist'):
        bring_up_to_date(url, role="nobody'; DROP TABLE tasks")
    with pytest.raises(OrihonError):
        bring_up_to_date(url, role="")
    shown = subprocess.run(
        [sys.executable, "-m", "orihon", "migrate", url, "--user", "alice"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (shown.returncode, "--role" in shown.stderr) == (2, True)
