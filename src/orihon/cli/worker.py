"""`orihon worker`: take tasks out of the queue, one process each."""

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
from orihon.agent.run_setup import announce, run_queued
from orihon.agent.sources import Source, open_source
from orihon.agent.worker import ALREADY_TAKEN, Worker
from orihon.cli import show_log
from orihon.cli.jobs import job, job_options
from orihon.engine import Engine
from orihon.errors import StoreError, UsageError
from orihon.ops.access import AccessGate
from orihon.ops.search import update_index
from orihon.settings.load import load
from orihon.settings.schema import Settings
from orihon.stores.base import Store

log = logging.getLogger("orihon")

IDLE_SECONDS = 0.2  # at once; then the queue is looked at again
INDEX_SECONDS = 60.0  # between two looks for something new


@click.command()
@click.option("--once", is_flag=True, help="End when nothing waits any more.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Tasks at the same time.")
@click.option(
    "--health", type=click.Path(dir_okay=False, path_type=Path), help="A file that holds the time, while all is well."
)
@click.option("--source", "place", metavar="github|gitlab|DIRECTORY", help="Look for new work there, once a minute.")
@job_options
@click.option("--task", "uuid", hidden=True, help="Run this one task of the queue, and end.")
@click.pass_context
def worker(
    context: click.Context,
    /,
    place: str | None,
    uuid: str | None,
    health: Path | None,
    *,
    once: bool,
    jobs: int,
    **options: Any,
) -> None:
    """Take tasks out of the queue and run them, each in a process of its own; several workers may share a store.

    A task whose process died goes back, and has failed when that happened three times. SIGTERM and Ctrl-C pause what
    runs, and the next worker goes on with it. The options of a run are for the work that --source finds.

    \b
    orihon worker --once                          what waits now
    orihon worker --jobs 4 --health worker.health
    orihon worker --source github --approve all   also what has the bot's label
    """
    show_log(logging.INFO)
    settings = load()
    url = shared(options["store"], settings)
    gate = AccessGate(settings, url, command="worker")
    gate.require_admin("work on the tasks of all")
    if uuid is not None:
        drain = Drain()
        drain.listen()
        with gate.open_engine() as engine:
            engine.trail.record("task", ["everything"], uuid=uuid)
            context.exit(0 if run_queued(engine, uuid, checks=[drain]) is not None else ALREADY_TAKEN)
    child = [sys.executable, "-m", "orihon", *(["--debug"] if context.find_root().params.get("debug") else [])]
    # what the settings say the child reads for itself, so that no password gets on its command line by us
    child += ["worker", *(["--store", url] if options["store"] else []), "--task"]
    source = _source(place, settings) if place else None
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
    """What a worker does when nothing waits: it fills the index of `orihon search`, a moment at a time."""
    next_at = 0.0

    def idle() -> None:
        nonlocal next_at
        if time.monotonic() < next_at:
            return
        try:
            done = update_index(store, IDLE_SECONDS)
        except StoreError as error:
            log.warning("The search index could not be filled: %s", error)
            done = True
        next_at = time.monotonic() + (INDEX_SECONDS if done else 0)

    return idle


def shared(store: str | None, settings: Settings) -> str:
    """The store, if other processes can see it."""
    url = store or settings.store_url
    if url.startswith("memory:"):
        raise UsageError(
            "A queue in memory is seen by nobody else.",
            hint="Give a directory, sqlite:///FILE or postgresql://HOST/DATABASE.",
        )
    return url


def _source(place: str, settings: Settings) -> Source:
    if place in {"github", "gitlab"}:
        return open_source(cast("Literal['github', 'gitlab']", place), settings)
    if not Path(place).is_dir():
        raise UsageError(f"There is no source {place!a}.", hint="It is `github`, `gitlab` or a directory.")
    return open_source("local", settings, what=Path(place).resolve())


def _finder(engine: Engine, source: Source, options: dict[str, Any]) -> Any:
    made = job(options, approve="edits")
    return lambda: queue.enqueue_new_items(engine, source, made)
