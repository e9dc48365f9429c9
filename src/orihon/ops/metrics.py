"""Prometheus metrics: the newest report of the monitor, served over HTTP. Needs the extra `metrics`.

The metrics contain counts only, never the name of a user, a repository or a task. On a loopback address the server
answers only requests whose Host header names a loopback address, so that no web page can read it through a browser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, Gauge, make_wsgi_app, start_http_server

from orihon.errors import UsageError
from orihon.ops.monitor import LEVELS, MonitorReport

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
IDLE_SECONDS = 10  # after which a client that sends nothing is disconnected


class MetricsServer:
    """Serves the report of the last `update` until it is closed."""

    def __init__(self, host: str, port: int) -> None:
        self._is_local = host in LOOPBACK
        self._app = make_wsgi_app(CollectorRegistry())
        try:
            self._server, self._thread = start_http_server(port, host, CollectorRegistry())
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            sentence = f"Metrics cannot be served at {host}:{port}: {reason}."
            raise UsageError(sentence, hint="Use another port.") from error
        self._server.RequestHandlerClass = _Handler
        self._server.set_app(self._respond)
        self.port = self._server.server_port

    def update(self, report: MonitorReport) -> None:
        """Serve another report."""
        registry = CollectorRegistry()
        tasks = Gauge("orihon_tasks", "Tasks in the store by status.", ["status"], registry=registry)
        for status, count in report.tasks.items():
            tasks.labels(status).set(count)
        levels = Gauge("orihon_check_level", "0 ok, 1 warning, 2 critical.", ["check"], registry=registry)
        for check in report.checks:
            levels.labels(check.name).set(LEVELS.index(check.level))
        for name, meaning, value in (
            ("disk_bytes", "Disk usage of the store.", report.disk_bytes),
            ("active_bytes", "Size of the records of tasks that have not ended.", report.active_bytes),
            ("ended_bytes", "Size of the records of ended tasks.", report.ended_bytes),
            ("failure_ratio", "Share of failed tasks among those that ended recently.", report.failure_rate),
            ("task_seconds_average", "Average time from start to end.", report.average_seconds),
            ("long_running_tasks", "Tasks that run longer than allowed.", len(report.long_running)),
            ("interrupted_tasks", "Tasks whose process the last check found dead.", len(report.interrupted)),
            ("last_look_timestamp_seconds", "Time of the last check.", datetime.fromisoformat(report.at).timestamp()),
        ):
            Gauge(f"orihon_{name}", meaning, registry=registry).set(float("nan") if value is None else value)
        self._app = make_wsgi_app(registry)

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _respond(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        if self._is_local and (host.rpartition(":")[0] or host).strip("[]") not in LOOPBACK:
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"This address answers to localhost only.\n"]
        response: Iterable[bytes] = self._app(environ, start_response)
        return response


class _Handler(WSGIRequestHandler):
    timeout = IDLE_SECONDS

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
