"""Prometheus metrics: the newest report of the monitor, served at `/metrics`. Needs the extra `metrics`.

The metrics contain counts only, never the name of a user, a repository or a task. On a loopback address the server
answers only requests whose Host header names a loopback address, so that no web page can read it through a browser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from orihon.errors import UsageError
from orihon.ops.monitor import LEVELS, MonitorReport

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
IDLE_SECONDS = 10  # after which a client that sends nothing is disconnected

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class MetricsServer(Collector):
    """Serves `report` until it is closed."""

    def __init__(self, host: str, port: int) -> None:
        self.report: MonitorReport | None = None
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"Metrics cannot be served at {host}:{port}: {reason}.", hint="Use another port."
            ) from error
        self._server.RequestHandlerClass = _Handler
        self._server.set_app(_restrict(make_wsgi_app(registry), local_only=host in LOOPBACK))
        self.port = self._server.server_port

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of the newest report; nothing before there is one."""
        report = self.report
        if report is None:
            return
        tasks = GaugeMetricFamily("orihon_tasks", "Tasks in the store by status.", labels=["status"])
        for status, count in report.tasks.items():
            tasks.add_metric([status], count)
        yield tasks
        help_text = "Level of a check: 0 ok, 1 warning, 2 critical."
        levels = GaugeMetricFamily("orihon_check_level", help_text, labels=["check"])
        for check in report.checks:
            levels.add_metric([check.name], LEVELS.index(check.level))
        yield levels
        for name, help_text, value in (
            ("disk_bytes", "Disk usage of the store.", report.disk_bytes),
            ("failure_ratio", "Share of failed tasks among those that ended.", report.failure_rate),
            ("task_seconds_average", "Average time from start to end.", report.average_seconds),
            ("long_running_tasks", "Tasks that run longer than allowed.", len(report.long_running)),
            ("interrupted_tasks", "Tasks whose process the last check found dead.", len(report.interrupted)),
            ("last_look_timestamp_seconds", "Time of the last check.", datetime.fromisoformat(report.at).timestamp()),
        ):
            yield GaugeMetricFamily(f"orihon_{name}", help_text, float("nan") if value is None else value)

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Handler(WSGIRequestHandler):
    timeout = IDLE_SECONDS

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def _restrict(app: App, *, local_only: bool) -> App:
    """Return the app with a check of the Host header and of the path."""

    def restricted(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        if local_only and (host.rpartition(":")[0] or host).strip("[]") not in LOOPBACK:
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"This address answers to localhost only.\n"]
        if environ["PATH_INFO"] != "/metrics":
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"There is only /metrics.\n"]
        return app(environ, start_response)

    return restricted
