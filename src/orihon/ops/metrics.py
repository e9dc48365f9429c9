"""Prometheus metrics: the newest report of the monitor, served at `/metrics`. Needs the extra `metrics`.

The metrics contain counts only, never the name of a user, a repository or a task. On a loopback address the server
answers only requests whose Host header names a loopback address, so that no web page can read it through a browser.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from socketserver import ThreadingMixIn
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from orihon.errors import UsageError
from orihon.ops.monitor import LEVELS, MonitorReport

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
IDLE_SECONDS = 10  # after which a client that sends nothing is disconnected

StartResponse = Callable[..., Any]


class MetricsServer(Collector):
    """Serves `report` at `http://host:port/metrics` until it is closed."""

    def __init__(self, host: str, port: int) -> None:
        self.report: MonitorReport | None = None
        registry = CollectorRegistry()
        registry.register(self)
        self._metrics_app = make_wsgi_app(registry)
        self._local_only = host in LOOPBACK
        try:
            self._server = make_server(host, port, self._app, _Server, _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"Metrics cannot be served at {host}:{port}: {reason}.", hint="Choose another port."
            ) from error
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="orihon-metrics", daemon=True)
        self._thread.start()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of the newest report."""
        report = self.report
        if report is None:
            return
        tasks = GaugeMetricFamily("orihon_tasks", "Tasks in the store by status.", labels=["status"])
        for status, count in report.tasks.items():
            tasks.add_metric([status], count)
        yield tasks
        meaning = "Level of a check: 0 ok, 1 warning, 2 critical."
        levels = GaugeMetricFamily("orihon_check_level", meaning, labels=["check"])
        for check in report.checks:
            levels.add_metric([check.name], LEVELS.index(check.level))
        yield levels
        checked_at = datetime.fromisoformat(report.at).timestamp()
        average = float("nan") if report.average_seconds is None else report.average_seconds
        for name, meaning, value in (
            ("disk_bytes", "Disk usage of the store.", report.disk_bytes),
            ("failure_ratio", "Share of failed tasks among those that ended.", report.failure_rate),
            ("task_seconds_average", "Average time from start to end.", average),
            ("long_running_tasks", "Tasks that run longer than allowed.", len(report.long_running)),
            ("interrupted_tasks", "Tasks whose process was found dead by the last check.", len(report.interrupted)),
            ("last_look_timestamp_seconds", "Time of the last check.", checked_at),
        ):
            yield GaugeMetricFamily(f"orihon_{name}", meaning, value)

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _app(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        host = (host.rpartition(":")[0] or host).strip("[]")
        if self._local_only and host not in LOOPBACK:
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"This address answers to localhost only.\n"]
        if environ["PATH_INFO"] != "/metrics":
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"There is only /metrics.\n"]
        response: Iterable[bytes] = self._metrics_app(environ, start_response)
        return response

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = IDLE_SECONDS

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
