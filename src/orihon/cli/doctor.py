"""`orihon doctor`: check a store for problems, and repair them."""

from __future__ import annotations

from collections import Counter

import click

from orihon.cli._command import emit, json_option, store_option
from orihon.cli._output import Progress, say_line
from orihon.ops.access import require_admin
from orihon.ops.doctor import examine
from orihon.settings.load import load

PROBLEMS = 1


@click.command()
@store_option()
@click.option("--fix", is_flag=True, help="Repair everything that can be repaired without losing data.")
@click.option("--rebuild", is_flag=True, help="First rebuild tasks.db from the files; the old one is kept.")
@json_option('One {"level", "where", "sentence", "fixable"} per line.')
@click.pass_context
def doctor(context: click.Context, url: str | None, *, fix: bool, rebuild: bool, as_json: bool) -> None:
    """Check everything in a store, including checksums, and report problems.

    Nothing is changed without --fix or --rebuild. The levels are `problem`, `fixed`, `note` (good to know) and `ok`.
    The exit code is 0 if no problem is left, and 1 otherwise.

    \b
    orihon doctor                            check
    orihon doctor --fix                      and repair
    orihon doctor --rebuild                  rebuild tasks.db from the files
    orihon doctor --store sqlite:///old.db   another store
    orihon doctor --json | jq -c 'select(.level == "problem")'
    """
    settings = load()
    gate = require_admin(settings, "look at all of a store", url, command="doctor")
    gate.record_access("doctor", ["everything"])
    counts: Counter[str] = Counter()
    with Progress() as progress:
        on_progress = progress.show_counts("{tasks:,} tasks, {records:,} records, {size}")
        for finding in examine(url or settings.store_url, fix=fix, rebuild=rebuild, on_progress=on_progress):
            progress.clear()
            counts[finding.level] += 1
            counts["fixable"] += finding.level == "problem" and finding.fixable
            emit(finding, f"{finding.level:8} {finding.where}: {finding.sentence}", as_json=as_json)
    if not as_json:
        say_line(_format_verdict(counts))
    context.exit(PROBLEMS if counts["problem"] else 0)


def _format_verdict(counts: Counter[str]) -> str:
    if not counts["problem"]:
        return "All is well now." if counts["fixed"] else "All is well."
    problems = "1 problem." if counts["problem"] == 1 else f"{counts['problem']:,} problems."
    return f"{problems} `--fix` can repair {counts['fixable']:,}." if counts["fixable"] else problems
