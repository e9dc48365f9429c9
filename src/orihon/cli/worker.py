"""`orihon worker` and `orihon enqueue`: the task queue, whose tasks run in a process each."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, cast

import click

from orihon.agent import queue
from orihon.agent.control import Drain
from orihon.agent.run_setup import announce, open_task_source, run_queued
from orihon.agent.sources import Source, open_source
from orihon.agent.targets import parse_targets
from orihon.agent.worker import ALREADY_TAKEN, Worker
from orihon.cli import show_log
from orihon.cli._command import Session, store_command
from orihon.cli._run_options import build_job, run_options
from orihon.engine import Engine
from orihon.errors import StoreError, UsageError
from orihon.ops.search.index import update_index
from orihon.settings.schema import Settings
from orihon.stores.base import Store

log = logging.getLogger("orihon")

IDLE_SECONDS = 0.2  # of indexing before the queue is checked again
INDEX_SECONDS = 60.0  # between two checks for new records


@store_command()
@click.option("--once", is_flag=True, help="Exit when the queue is empty.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Tasks that run at the same time.")
@click.option("--health", type=click.Path(dir_okay=False, path_type=Path), help="File to which the time is written.")
@click.option("--source", "origin", metavar="github|gitlab|DIRECTORY", help="Check this for new work once a minute.")
@run_options()
@click.option("--task", "uuid", hidden=True, help="Run this task of the queue and exit.")
def worker(
    session: Session,
    /,
    origin: str | None,
    uuid: str | None,
    health: Path | None,
    *,
    once: bool,
    jobs: int,
    **options: Any,
) -> int:
    """Take tasks from the queue and run each in its own process. Several workers may share a store.

    A task whose process died is requeued, and fails after the third time. SIGTERM and Ctrl-C pause the running tasks,
    and the next worker continues them. The options of a run apply to the work that --source finds.

    \b
    orihon worker --once                          what is queued now
    orihon worker --jobs 4 --health worker.health
    orihon worker --source github --approve all   also issues with the bot's label
    """
    show_log(logging.INFO)
    _require_shared(session.url)
    session.gate.require_admin("work on the tasks of all")
    if uuid is not None:
        drain = Drain()
        drain.listen()
        session.engine.trail.record("task", ["everything"], uuid=uuid)
        return 0 if run_queued(session.engine, uuid, checks=[drain]) is not None else ALREADY_TAKEN
    debug = click.get_current_context().find_root().params.get("debug")
    child = [sys.executable, "-m", "orihon", *(["--debug"] if debug else [])]
    # the child reads the settings itself, so that no password appears on its command line
    child += ["worker", *(["--store", session.store] if session.store else []), "--task"]
    source = _open_source(origin, session.settings) if origin else None
    engine = session.engine
    engine.trail.record("queue", ["rows"])
    Worker(
        engine,
        lambda uuid: [*child, uuid],
        jobs=jobs,
        health=health,
        find=_finder(engine, source, options) if source else None,
        on_recovered=lambda task: announce(session.settings, task),
        on_idle=_indexer(engine.store),
    ).run(once=once)
    return 0


def _indexer(store: Store) -> Callable[[], None]:
    """Return a function for an idle worker. It updates the index of `orihon search`, a moment at a time."""
    next_at = 0.0

    def idle() -> None:
        nonlocal next_at
        if time.monotonic() < next_at:
            return
        try:
            done = update_index(store, IDLE_SECONDS)
        except StoreError as error:
            log.warning("The search index could not be updated: %s", error)
            done = True
        next_at = time.monotonic() + (INDEX_SECONDS if done else 0)

    return idle


def _require_shared(url: str) -> None:
    """Raise UsageError for a store that other processes cannot open."""
    if url.startswith("memory:"):
        raise UsageError(
            "Other processes cannot see a queue in memory.",
            hint="Give a directory, sqlite:///FILE or postgresql://HOST/DATABASE.",
        )


def _open_source(origin: str, settings: Settings) -> Source:
    if origin in {"github", "gitlab"}:
        return open_source(cast("Literal['github', 'gitlab']", origin), settings)
    if not Path(origin).is_dir():
        raise UsageError(f"There is no source {origin!a}.", hint="Use `github`, `gitlab` or a directory.")
    return open_source("local", settings, what=Path(origin).resolve())


def _finder(engine: Engine, source: Source, options: dict[str, Any]) -> Any:
    job = build_job(options, approve="edits")
    return lambda: queue.enqueue_new_items(engine, source, job)


@store_command(json='One {"uuid", "task_key"} per line.')
@click.argument("what", metavar="TEXT|FILE|DIRECTORY|URL")
@run_options()
@click.option("--priority", type=int, default=0, show_default=True, help="Tasks with the highest priority run first.")
def enqueue(session: Session, /, what: str, *, priority: int, **options: Any) -> None:
    """Put a task into the queue of `orihon worker` and print its id; for a directory, one task per file that asks for
    work.

    A worker cannot ask questions, so without --approve the model may only edit files.

    \b
    orihon enqueue "Fix the shop" --approve all
    orihon enqueue issues/ --priority 5
    orihon enqueue https://github.com/acme/shop/issues/27
    """
    _require_shared(session.url)
    owner = session.gate.owner_for(options["user"])
    for target in parse_targets(what, session.settings):
        job = build_job(options, request=target.request, file=target.file, approve="edits")
        user = owner
        source = open_task_source(target.key, job, session.settings)
        if source is not None:
            with closing(source):
                user = user or source.find_user(source.get(target.key)) or None
        uuid = queue.enqueue(session.engine, target.key, job, user=user, priority=priority)
        session.emit({"uuid": uuid, "task_key": str(target.key)}, uuid)
