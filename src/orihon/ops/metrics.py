"""What the monitor found, as Prometheus reads it: a text, and a small server for it.

The text has counts alone: no name of a user, a repository or a task. On a loopback address the server answers only
those who call it by such a name, so that no web page can read it by way of a browser.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from orihon.errors import UsageError
from orihon.ops.monitor import Report

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
SILENCE_SECONDS = 10  # after which a caller who says nothing is dropped


def text_of(report: Report) -> str:
    """The metrics of one look."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield "# HELP orihon_tasks Tasks in the store by status."
    yield "# TYPE orihon_tasks gauge"
    yield from (f'orihon_tasks{{status="{status}"}} {count}' for status, count in report.tasks.items())
    yield "# HELP orihon_check_level What a check says: 0 ok, 1 warning, 2 critical."
    yield "# TYPE orihon_check_level gauge"
    levels = {"ok": 0, "warning": 1, "critical": 2}
    yield from (f'orihon_check_level{{check="{check.name}"}} {levels[check.level]}' for check in report.checks)
    for name, meaning, value in (
        ("disk_bytes", "What the store takes on the disk.", report.disk_bytes),
        ("failure_ratio", "Share of failed tasks among those that ended.", report.failure_rate),
        ("task_seconds_average", "Time from start to end, on average.", report.average_seconds),
        ("long_running_tasks", "Tasks that run longer than allowed.", len(report.long_running)),
        ("interrupted_tasks", "Tasks whose process was found dead in the last look.", len(report.interrupted)),
        ("last_look_timestamp_seconds", "When the store was looked at.", datetime.fromisoformat(report.at).timestamp()),
    ):
        yield f"# HELP orihon_{name} {meaning}"
        yield f"# TYPE orihon_{name} gauge"
        yield f"orihon_{name} {'NaN' if value is None else value}"


@contextmanager
def served(host: str, port: int, text: Callable[[], str]) -> Iterator[int]:
    """Answer `GET /metrics` at this address while the block runs; gives the port."""
    handler = type("Handler", (_Handler,), {"text": staticmethod(text), "host": host})
    try:
        server = _Server((host, port), handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"Metrics cannot be served at {host}:{port}: {reason}.", hint="Give another port, or end who has this one."
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="orihon-metrics", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class _Handler(BaseHTTPRequestHandler):
    text: Callable[[], str]
    host: str
    timeout = SILENCE_SECONDS

    def do_GET(self) -> None:
        called = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if self.host in LOOPBACK and called.strip("[]") not in LOOPBACK:
            self._answer(403, "This address answers to localhost only.\n")
        elif self.path.partition("?")[0] != "/metrics":
            self._answer(404, "There is only /metrics.\n")
        else:
            self._answer(200, self.text())

    def _answer(self, code: int, text: str) -> None:
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(data)

    def version_string(self) -> str:
        return "orihon"

    def log_message(self, *_: Any) -> None:
        """Nobody needs a line for each call."""
