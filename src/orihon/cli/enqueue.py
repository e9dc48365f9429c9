"""`orihon enqueue`: put a task into the queue."""

from __future__ import annotations

from typing import Any

import click

from orihon.agent import queue
from orihon.agent.run_setup import open_task_source
from orihon.agent.targets import parse_targets
from orihon.cli.jobs import job, job_options
from orihon.cli.options import json_option
from orihon.cli.output import say_json, say_line
from orihon.cli.worker import shared
from orihon.ops.access import AccessGate
from orihon.settings.load import load


@click.command()
@click.argument("what", metavar="TEXT|FILE|DIRECTORY|URL")
@job_options
@click.option("--priority", type=int, default=0, show_default=True, help="The highest is taken first.")
@json_option('One {"uuid", "task_key"} per line.')
def enqueue(what: str, *, priority: int, as_json: bool, **options: Any) -> None:
    """Put a task into the queue, for `orihon worker`, and print its id; of a directory, each file that asks for work.

    Nobody can be asked while it runs, so without --approve the model may edit files, and nothing else.

    \b
    orihon enqueue "Mend the shop" --approve all
    orihon enqueue issues/ --priority 5
    orihon enqueue https://github.com/acme/shop/issues/27
    """
    settings = load()
    gate = AccessGate(settings, shared(options["store"], settings), command="enqueue")
    owner = gate.owner_for(options["user"])
    with gate.open_engine() as engine:
        for target in parse_targets(what, settings):
            made = job(options, request=target.request, file=target.file, approve="edits")
            user = owner
            source = open_task_source(target.key, made, settings)
            if source is not None:
                try:
                    user = user or source.find_user(source.get(target.key)) or None
                finally:
                    source.close()
            uuid = queue.enqueue(engine, target.key, made, user=user, priority=priority)
            if as_json:
                say_json({"uuid": uuid, "task_key": str(target.key)})
            else:
                say_line(uuid)
