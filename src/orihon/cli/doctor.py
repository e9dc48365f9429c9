"""`orihon doctor`: is all well with a store?"""

from __future__ import annotations

from collections import Counter

import click

from orihon.cli.output import say_json, say_line
from orihon.cli.progress import Progress, amount
from orihon.ops.access import require_admin
from orihon.ops.doctor import Finding, examine
from orihon.ops.progress import ProgressCounter
from orihon.settings.load import load

PROBLEMS = 1


@click.command()
@click.option("--store", help="The store to look at instead of that of the settings.")
@click.option("--fix", is_flag=True, help="Repair what can be repaired without losing anything.")
@click.option("--rebuild", is_flag=True, help="First make tasks.db again from the files; the old one is kept.")
@click.option("--json", "as_json", is_flag=True, help='One {"level", "where", "sentence", "fixable"} per line.')
@click.pass_context
def doctor(context: click.Context, store: str | None, *, fix: bool, rebuild: bool, as_json: bool) -> None:
    """Look at everything in a store, checksums included, and say what is wrong.

    Nothing is changed without --fix or --rebuild. The levels are `problem`, `fixed`, `note` (good to know) and `ok`.
    The exit code is 0 when all is well, after --fix: when all is well now, and 1 when a problem remains.

    \b
    orihon doctor                            look
    orihon doctor --fix                      and repair
    orihon doctor --rebuild                  make tasks.db again from the files
    orihon doctor --store sqlite:///old.db   another store
    orihon doctor --json | jq -c 'select(.level == "problem")'
    """
    settings = load()
    gate = require_admin(settings, "look at all of a store", store, command="doctor")
    gate.record_access("doctor", ["everything"])
    counts: Counter[str] = Counter()
    with Progress() as progress:

        def on_progress(counter: ProgressCounter) -> None:
            progress.show(f"{counter.tasks:,} tasks, {counter.records:,} records, {amount(counter.size_bytes)}")

        for finding in examine(store or settings.store_url, fix=fix, rebuild=rebuild, on_progress=on_progress):
            progress.clear()
            counts[finding.level] += 1
            counts["fixable"] += finding.level == "problem" and finding.fixable
            if as_json:
                say_json(finding)
            else:
                say_line(_line(finding))
    if not as_json:
        say_line(_verdict(counts))
    context.exit(PROBLEMS if counts["problem"] else 0)


def _line(finding: Finding) -> str:
    return f"{finding.level:8} {finding.where}: {finding.sentence}"


def _verdict(counts: Counter[str]) -> str:
    if not counts["problem"]:
        return "All is well now." if counts["fixed"] else "All is well."
    found = "1 problem." if counts["problem"] == 1 else f"{counts['problem']:,} problems."
    return f"{found} `--fix` can repair {counts['fixable']:,}." if counts["fixable"] else found
