"""`orihon clean`, `keep`, `unkeep`, `doctor` and `monitor`: keep a store small, sound and watched."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from typing import TYPE_CHECKING

import click

from orihon.cli._command import Session, language_option, store_command, uuids_argument
from orihon.cli._format import choose_language, format_duration, format_size, format_time
from orihon.cli._output import Styled, say_line, say_problems
from orihon.cli._translate import translate
from orihon.errors import NotFound, StoreError, UsageError
from orihon.ops.clean import Cleaned, keep_task
from orihon.ops.clean import clean as clean_tasks
from orihon.ops.doctor import Finding, examine
from orihon.ops.doctor.check_installation import examine_installation, note_missing
from orihon.ops.progress import format_count
from orihon.stores import require_store

if TYPE_CHECKING:
    from orihon.agent.queue import RecoveredTask
    from orihon.ops.metrics import MetricsServer
    from orihon.ops.monitor import MonitorReport
    from orihon.terminal import Language

log = logging.getLogger("orihon")

PROBLEMS = 1  # the exit code of `doctor`
HOST = "127.0.0.1"
MAX_PORT = 65535
STYLES = {"problem": "red", "fixed": "green", "note": "yellow", "warning": "yellow", "critical": "red"}
CLEANED = {
    "deleted": "nothing of them is left",
    "reduced": "what a later task inherits stays for {days} days",
    "compressed": "they are read as before",
    "interrupted": "their process died; they failed, or are back in the queue",
    "held": "they are in use and left alone",
    "kept": "they are kept and left alone",
}


@store_command(json="The figures as one object; `failures` is empty on success.")
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@click.option("--older-than", type=click.IntRange(0), metavar="DAYS", help="Override `retention.delete_after_days`.")
@click.option("--emergency", is_flag=True, help="Delete after `retention.emergency_after_days`; compress all others.")
def clean(session: Session, older_than: int | None, *, dry_run: bool, emergency: bool) -> int:
    """Delete old tasks, compress younger ones, and recover tasks whose process died.

    A completed or stopped task leaves its final summary and the outline of its plan, which later tasks with the same
    key inherit, for `context_inheritance.context_expiry_days`; then nothing is left. Compressed tasks can be read like
    others. A task that is kept (`orihon keep`) or in use is never touched. A SQLite file is not compressed; its free
    pages are returned to the disk.

    The exit code is 0, or 3 if a task could not be cleaned.

    \b
    orihon clean --dry-run                 what would be done
    orihon clean                           every night
    orihon clean --older-than 10           delete after 10 days
    orihon clean --emergency               when the disk is full
    orihon clean --json | jq .freed_bytes
    """
    cleaned = clean_tasks(
        session.authorized,
        session.settings,
        dry_run=dry_run,
        older_than=older_than,
        emergency=emergency,
        on_recovered=_announcer(session),
        on_progress=session.show_progress("cleaning"),
    )
    session.emit(cleaned, _print_cleaned)
    return StoreError.exit_code if cleaned.failures else 0


def _announcer(session: Session) -> Callable[[RecoveredTask], None]:
    def announce_task(task: RecoveredTask) -> None:
        from orihon.agent.run_setup import announce  # noqa: PLC0415 - large, and rarely needed

        announce(session.settings, task)

    return announce_task


def _print_cleaned(cleaned: Cleaned) -> None:
    for name, meaning in CLEANED.items():
        if count := getattr(cleaned, name):
            say_line(f"{name:12} {format_count(count, 'task')}: {meaning.format(days=cleaned.keep_stub_days)}")
    say_problems(cleaned.failures)
    if cleaned.dry_run:
        say_line(f"About {format_size(cleaned.freed_bytes)} would be freed. Nothing was changed.")
    else:
        say_line(f"{format_size(cleaned.freed_bytes)} freed in {cleaned.seconds:.1f} seconds.")
    remaining = ", ".join(f"{count:,} {status}" for status, count in cleaned.left.items() if count)
    say_line(f"There are now: {remaining or 'no tasks'}.")
    if cleaned.report:
        say_line(f"The statistics are in {cleaned.report}.")


@store_command(json='One {"uuid", "kept"} per line.')
@uuids_argument
def keep(session: Session, uuids: tuple[str, ...]) -> None:
    """Keep tasks: `orihon clean` does not touch them, even with --emergency, until `orihon unkeep`.

    \b
    orihon keep 550e8400
    orihon keep 550e8400 7c9e6679 --json
    """
    _set_kept(session, uuids, kept=True)


@store_command(json='One {"uuid", "kept"} per line.')
@uuids_argument
def unkeep(session: Session, uuids: tuple[str, ...]) -> None:
    """Let `orihon clean` clean tasks that were kept.

    \b
    orihon unkeep 550e8400
    orihon unkeep 550e8400 7c9e6679 --json
    """
    _set_kept(session, uuids, kept=False)


def _set_kept(session: Session, uuids: tuple[str, ...], *, kept: bool) -> None:
    for uuid in uuids:
        row = keep_task(session.authorized, uuid, kept=kept)
        session.emit({"uuid": row.uuid, "kept": row.kept}, f"{row.uuid} is {'kept' if kept else 'no longer kept'}.")


@store_command(json='One {"level", "where", "sentence", "fixable"} per line.')
@click.option("--fix", is_flag=True, help="Repair everything that can be repaired without losing data.")
@click.option("--rebuild", is_flag=True, help="First rebuild tasks.db from the files; the old one is kept.")
def doctor(session: Session, *, fix: bool, rebuild: bool) -> int:
    """Check everything in a store, including checksums, and report problems.

    If no store is named and there is none yet, the installation is checked instead: Python, extras, settings, the key
    of the model. Later, what the model of config.yaml lacks is a note. Nothing is changed without --fix or --rebuild.
    The levels are `problem`, `fixed`, `note` (good to know) and `ok`. The exit code is 0 if no problem is left, and 1
    otherwise.

    \b
    orihon doctor                            check the store, or the installation before there is one
    orihon doctor --fix                      and repair
    orihon doctor --rebuild                  rebuild tasks.db from the files
    orihon doctor --store sqlite:///old.db   another store
    orihon doctor --json | jq -c 'select(.level == "problem")'
    """
    session.gate.require_admin("look at all of a store")
    is_named = session.store is not None or bool(os.environ.get("ORIHON_STORE"))
    if not is_named and not _has_store(session.url):
        return report(session, examine_installation(session.settings, session.url))
    session.gate.record_access("doctor", ["everything"])
    findings = examine(session.url, fix=fix, rebuild=rebuild, on_progress=session.show_progress("examining"))
    return report(session, findings if is_named else chain(note_missing(session.settings), findings))


def _has_store(url: str) -> bool:
    try:
        require_store(url)
    except NotFound:
        return False
    return True


def report(session: Session, findings: Iterable[Finding]) -> int:
    """Print findings and the verdict. Return the exit code."""
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.level] += 1
        counts["fixable"] += finding.level == "problem" and finding.fixable
        session.emit(finding, _print_finding)
    if not session.as_json:
        session.clear()
        say_line(_format_verdict(counts))
    return PROBLEMS if counts["problem"] else 0


def _print_finding(finding: Finding) -> None:
    style = STYLES.get(finding.level, "")
    say_line(Styled(f"{finding.level:8}", style), f" {finding.where}: {translate(finding.sentence)}")


def _format_verdict(counts: Counter[str]) -> str:
    if not counts["problem"]:
        return translate("All is well now." if counts["fixed"] else "All is well.")
    verdict = translate("1 problem." if counts["problem"] == 1 else f"{counts['problem']:,} problems.")
    repair = translate(f"`--fix` can repair {counts['fixable']:,}.")
    return f"{verdict} {repair}" if counts["fixable"] else verdict


@store_command(json="One object per check, one per line.")
@click.option("--once", is_flag=True, help="Check once, and exit with the code of the level.")
@click.option("--metrics", metavar="[HOST:]PORT", help="Serve metrics for Prometheus. Default host: 127.0.0.1.")
@language_option
def monitor(session: Session, metrics: str | None, lang: str | None, *, once: bool) -> int:
    """Check a store every `monitor.interval_seconds` (5 minutes) until Ctrl-C or SIGTERM.

    A task whose process died gets its final summary and fails as `interrupted`, and can be resumed; a task of the queue
    is requeued, at most three times. Long-running tasks, the disk, the failure rate and the backlog are compared with
    the limits in `monitor`. With --once the exit code is 0 for ok, 1 for a warning and 2 for a critical state.

    \b
    orihon monitor --once || mail -s "orihon: look" me@example.org
    orihon monitor --metrics 9464
    orihon monitor --once --json | jq -r '.checks[] | select(.level != "ok") | .sentence'
    """
    from orihon.ops.monitor import check_store  # noqa: PLC0415 - it loads the agent

    session.authorized.require_admin("watch a store")
    with ExitStack() as stack:
        server = stack.enter_context(closing(_serve_metrics(metrics))) if metrics is not None else None
        stop = stack.enter_context(_stop_event())

        def check() -> MonitorReport:
            report = check_store(session.authorized, session.settings, on_recovered=_announcer(session))
            if server is not None:
                server.update(report)
            session.emit(report, lambda report: _print_report(report, choose_language(lang)))
            return report

        if once:
            return check().exit_code
        _repeat(check, stop, session.settings.monitor.interval_seconds)
    return 0


def _repeat(check: Callable[[], object], stop: threading.Event, seconds: float) -> None:
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
    from orihon.agent.signals import temporary_handler  # noqa: PLC0415 - only for `monitor`

    stop = threading.Event()
    with temporary_handler(lambda *_: stop.set(), signal.SIGTERM, signal.SIGINT):
        yield stop


def _serve_metrics(address: str) -> MetricsServer:
    try:
        from orihon.ops.metrics import MetricsServer  # noqa: PLC0415 - only with the extra
    except ImportError as error:
        raise UsageError(f"Metrics need prometheus-client: {error}.", hint="pip install 'orihon[metrics]'") from error
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise UsageError(f"{address!a} is not a port.", hint="Such as --metrics 9464, or --metrics 0.0.0.0:9464.")
    host = host.strip("[]") or HOST
    server = MetricsServer(host, int(port))
    say_line(f"Metrics are at http://{host}:{server.port}/metrics.", err=True)
    return server


def _print_report(report: MonitorReport, lang: Language) -> None:
    say_line(f"{format_time(report.at)}  ", Styled(report.level, STYLES.get(report.level, "")))
    for check in report.checks:
        say_line("  ", Styled(f"{check.level:9}", STYLES.get(check.level, "")), f" {check.sentence}")
    tasks = ", ".join(f"{count:,} {status}" for status, count in report.tasks.items() if count)
    sizes = f"running {format_size(report.active_bytes)}, completed {format_size(report.ended_bytes)}"
    say_line(
        f"  {tasks or 'no tasks'}; {format_size(report.disk_bytes)} on disk, {sizes}; "
        f"{format_duration(report.average_seconds, lang)} on average"
    )
