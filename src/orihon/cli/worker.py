"""`orihon worker` and `orihon enqueue`: the task queue, whose tasks run in a process each."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
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
from orihon.cli._command import json_option
from orihon.cli._output import say_json, say_line
from orihon.cli._run_options import build_job, run_options
from orihon.engine import Engine
from orihon.errors import StoreError, UsageError
from orihon.ops.access import AccessGate
from orihon.ops.search.index import update_index
from orihon.settings.load import load
from orihon.settings.schema import Settings
from orihon.stores.base import Store

log = logging.getLogger("orihon")

IDLE_SECONDS = 0.2  # of indexing before the queue is checked again
INDEX_SECONDS = 60.0  # between two checks for new records


@click.command()
@click.option("--once", is_flag=True, help="Exit when the queue is empty.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Tasks that run at the same time.")
@click.option("--health", type=click.Path(dir_okay=False, path_type=Path), help="File to which the time is written.")
@click.option("--source", "origin", metavar="github|gitlab|DIRECTORY", help="Check this for new work once a minute.")
@run_options()
@click.option("--task", "uuid", hidden=True, help="Run this task of the queue and exit.")
@click.pass_context
def worker(
    context: click.Context,
    /,
    origin: str | None,
    uuid: str | None,
    health: Path | None,
    *,
    once: bool,
    jobs: int,
    **options: Any,
) -> None:
    """Take tasks from the queue and run each in its own process. Several workers may share a store.

    A task whose process died is requeued, and fails after the third time. SIGTERM and Ctrl-C pause the running tasks,
    and the next worker continues them. The options of a run apply to the work that --source finds.

    \b
    orihon worker --once                          what is queued now
    orihon worker --jobs 4 --health worker.health
    orihon worker --source github --approve all   also issues with the bot's label
    """
    show_log(logging.INFO)
    settings = load()
    url = _require_shared(options["store"], settings)
    gate = AccessGate(settings, url, command="worker")
    gate.require_admin("work on the tasks of all")
    if uuid is not None:
        drain = Drain()
        drain.listen()
        with gate.open_engine() as engine:
            engine.trail.record("task", ["everything"], uuid=uuid)
            context.exit(0 if run_queued(engine, uuid, checks=[drain]) is not None else ALREADY_TAKEN)
    child = [sys.executable, "-m", "orihon", *(["--debug"] if context.find_root().params.get("debug") else [])]
    # the child reads the settings itself, so that no password appears on its command line
    child += ["worker", *(["--store", url] if options["store"] else []), "--task"]
    source = _open_source(origin, settings) if origin else None
    with gate.open_engine() as engine:
        engine.trail.record("queue", ["rows"])
        Worker(
            engine,
            lambda uuid: [*child, uuid],
            jobs=jobs,
            health=health,
            find=_finder(engine, source, options) if source else None,
            on_recovered=lambda task: announce(settings, task),
            on_idle=_indexer(engine.store),
        ).run(once=once)


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


def _require_shared(store: str | None, settings: Settings) -> str:
    """Return the URL of the store. Raise UsageError if other processes cannot open it."""
    url = store or settings.store_url
    if url.startswith("memory:"):
        raise UsageError(
            "Other processes cannot see a queue in memory.",
            hint="Give a directory, sqlite:///FILE or postgresql://HOST/DATABASE.",
        )
    return url


def _open_source(origin: str, settings: Settings) -> Source:
    if origin in {"github", "gitlab"}:
        return open_source(cast("Literal['github', 'gitlab']", origin), settings)
    if not Path(origin).is_dir():
        raise UsageError(f"There is no source {origin!a}.", hint="Use `github`, `gitlab` or a directory.")
    return open_source("local", settings, what=Path(origin).resolve())


def _finder(engine: Engine, source: Source, options: dict[str, Any]) -> Any:
    job = build_job(options, approve="edits")
    return lambda: queue.enqueue_new_items(engine, source, job)


@click.command()
@click.argument("what", metavar="TEXT|FILE|DIRECTORY|URL")
@run_options()
@click.option("--priority", type=int, default=0, show_default=True, help="Tasks with the highest priority run first.")
@json_option('One {"uuid", "task_key"} per line.')
def enqueue(what: str, *, priority: int, as_json: bool, **options: Any) -> None:
    """Put a task into the queue of `orihon worker` and print its id; for a directory, one task per file that asks for
    work.

    A worker cannot ask questions, so without --approve the model may only edit files.

    \b
    orihon enqueue "Fix the shop" --approve all
    orihon enqueue issues/ --priority 5
    orihon enqueue https://github.com/acme/shop/issues/27
    """
    settings = load()
    gate = AccessGate(settings, _require_shared(options["store"], settings), command="enqueue")
    owner = gate.owner_for(options["user"])
    with gate.open_engine() as engine:
        for target in parse_targets(what, settings):
            job = build_job(options, request=target.request, file=target.file, approve="edits")
            user = owner
            source = open_task_source(target.key, job, settings)
            if source is not None:
                try:
                    user = user or source.find_user(source.get(target.key)) or None
                finally:
                    source.close()
            uuid = queue.enqueue(engine, target.key, job, user=user, priority=priority)
            if as_json:
                say_json({"uuid": uuid, "task_key": str(target.key)})
            else:
                say_line(uuid)
