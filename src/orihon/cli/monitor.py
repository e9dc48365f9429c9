"""`orihon monitor`: recover tasks whose process died, and report the state of a store."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

import click

from orihon.agent.run_setup import announce
from orihon.agent.signals import temporary_handler
from orihon.cli._command import emit, json_option, language_option, store_option
from orihon.cli._format import choose_language, format_duration, format_size, format_time
from orihon.cli._output import say_line
from orihon.errors import StoreError, UsageError
from orihon.ops.access import open_authorized_store
from orihon.ops.monitor import MonitorReport, check_store
from orihon.settings.load import load
from orihon.terminal import Language

if TYPE_CHECKING:
    from orihon.ops.metrics import MetricsServer

log = logging.getLogger("orihon")

HOST = "127.0.0.1"


@click.command()
@click.option("--once", is_flag=True, help="Check once, and exit with the code of the level.")
@click.option("--metrics", metavar="[HOST:]PORT", help="Serve metrics for Prometheus. Default host: 127.0.0.1.")
@store_option()
@language_option
@json_option("One object per check, one per line.")
@click.pass_context
def monitor(
    context: click.Context, metrics: str | None, url: str | None, lang: str | None, *, once: bool, as_json: bool
) -> None:
    """Check a store every `monitor.interval_seconds` (5 minutes) until Ctrl-C or SIGTERM.

    A task whose process died gets its final summary and fails as `interrupted`, and can be resumed; a task of the queue
    is requeued, at most three times. Long-running tasks, the disk, the failure rate and the backlog are compared with
    the limits in `monitor`. With --once the exit code is 0 for ok, 1 for a warning and 2 for a critical state.

    \b
    orihon monitor --once || mail -s "orihon: look" me@example.org
    orihon monitor --metrics 9464
    orihon monitor --once --json | jq -r '.checks[] | select(.level != "ok") | .sentence'
    """
    settings = load()
    with ExitStack() as stack:
        authorized = stack.enter_context(open_authorized_store(settings, url, command="monitor"))
        authorized.require_admin("watch a store")
        server = stack.enter_context(closing(_serve_metrics(metrics))) if metrics is not None else None
        stop = stack.enter_context(_stop_event())

        def check() -> MonitorReport:
            report = check_store(authorized, settings, on_recovered=lambda task: announce(settings, task))
            if server is not None:
                server.update(report)
            emit(report, lambda report: _print_report(report, choose_language(lang)), as_json=as_json)
            return report

        if once:
            context.exit(check().exit_code)
        _repeat(check, stop, settings.monitor.interval_seconds)


def _repeat(check: Callable[[], MonitorReport], stop: threading.Event, seconds: float) -> None:
    while not stop.is_set():
        try:
            check()
        except StoreError as error:
            if not error.retryable:
                raise
            log.warning("The store is not available: %s", error)
        stop.wait(seconds)


@contextmanager
def _stop_event() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()
    with temporary_handler(lambda *_: stop.set(), signal.SIGTERM, signal.SIGINT):
        yield stop


def _serve_metrics(address: str) -> MetricsServer:
    try:
        from orihon.ops.metrics import MetricsServer  # noqa: PLC0415 - only with the extra
    except ImportError as error:
        raise UsageError(f"Metrics need prometheus-client: {error}.", hint="pip install 'orihon[metrics]'") from error
    host, port = _parse_address(address)
    server = MetricsServer(host, port)
    say_line(f"Metrics are at http://{host}:{server.port}/metrics.", err=True)
    return server


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004 - the last port
        raise UsageError(f"{text!a} is not a port.", hint="Such as --metrics 9464, or --metrics 0.0.0.0:9464.")
    return host.strip("[]") or HOST, int(port)


def _print_report(report: MonitorReport, lang: Language) -> None:
    say_line(f"{format_time(report.at)}  {report.level}")
    for check in report.checks:
        say_line(f"  {check.level:9} {check.sentence}")
    tasks = ", ".join(f"{count:,} {status}" for status, count in report.tasks.items() if count)
    say_line(
        f"  {tasks or 'no tasks'}; {format_size(report.disk_bytes)}; "
        f"{format_duration(report.average_seconds, lang)} on average"
    )
