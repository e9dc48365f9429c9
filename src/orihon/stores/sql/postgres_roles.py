"""Rights of other roles on the tables: all tasks to work on, or the tasks of one user to read.

The database enforces it: a policy on `tasks` named after the role shows it its rows, and the lists show what belongs to
a task that is shown. A role without a policy sees nothing. Whoever works on all tasks has a policy on every table,
because a statement that makes a task with its metadata does not see the task yet.
"""

from __future__ import annotations

from psycopg import sql

from orihon.stores.sql.postgres_pool import Connection
from orihon.stores.sql.store import TABLES

REVOKE = "REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role}"
USE = "GRANT USAGE ON SCHEMA {schema} TO {role}"
READ = "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"
WORK = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"
ONLY_ADDS = "REVOKE ALL ON audit FROM {role}"  # as everybody does
HIDDEN = "REVOKE ALL ON mask_key FROM {role}"  # whoever reads has no id to mask
FORGET = "DROP POLICY IF EXISTS {role} ON {table}"
SHOW_ALL = "CREATE POLICY {role} ON {table} TO {role} USING (true)"
SHOW_ONE = 'CREATE POLICY {role} ON tasks TO {role} USING ("user" = {user})'


def grant(connection: Connection, role: str, user: str | None) -> None:
    """Give a role its rights, in place of those that it had."""
    with connection.transaction():
        found = connection.execute(
            "SELECT schemaname FROM pg_tables WHERE tablename = 'orihon_migrations' "
            "AND schemaname = ANY(current_schemas(false)) LIMIT 1"
        ).fetchone()
        names = {
            "schema": sql.Identifier(found[0] if found else "public"),
            "role": sql.Identifier(role),
            "user": sql.Literal(user or ""),
        }
        for table in ("tasks", "blobs", *(table for table, _ in TABLES.values())):
            for statement in (FORGET, SHOW_ALL) if user is None else (FORGET,):
                connection.execute(sql.SQL(statement).format(table=sql.Identifier(table), **names))
        for statement in (REVOKE, USE, *((WORK,) if user is None else (READ, HIDDEN, SHOW_ONE)), ONLY_ADDS):
            connection.execute(sql.SQL(statement).format(**names))
