"""The options of a run, for the commands that make one now or put one into the queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from orihon.agent.queue import Job
from orihon.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = {
    "store": click.option("--store", help="The store instead of that of the settings."),
    "user": click.option("--user", help="Whose task it is; the user's own settings count."),
    "model": click.option("--model", help="Such as `anthropic:claude-sonnet-5`, `ollama:qwen3`, or `scripted:FILE`."),
    "plan": click.option(
        "--plan/--no-plan", default=None, help="Plan first, or not; else what `planning.enabled` says."
    ),
    "workspace": click.option(
        "--workspace", type=click.Path(file_okay=False, exists=True), help="Where the tools work; else here."
    ),
    "approve": click.option(
        "--approve",
        type=click.Choice(["ask", "edits", "all"]),
        help="What the model may do unasked: nothing, edits of files, everything.",
    ),
    "context_length": click.option(
        "--context-length", type=click.IntRange(1), help="The window of the model in tokens."
    ),
    "calls": click.option("--max-calls", "calls", type=click.IntRange(1), help="Model calls that it may take."),
    "seconds": click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Time that it may take."),
    "tokens": click.option(
        "--tokens", "--budget", "tokens", type=click.IntRange(1), help="Tokens that it may take, of all calls together."
    ),
    "cost": click.option(
        "--cost", type=click.FloatRange(0, min_open=True), help="Money that it may take; needs --prices."
    ),
    "prices": click.option("--prices", nargs=2, type=click.FloatRange(0), help="Of a million tokens, in and out."),
}


def job_options(function: F) -> F:
    """All options of a run."""
    return some_options(*_OPTIONS)(function)


def some_options(*names: str) -> Callable[[F], F]:
    """Those of these names."""

    def added(function: F) -> F:
        for name in reversed(names):
            function = _OPTIONS[name](function)
        return function

    return added


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The fields of a job that were given."""
    found = {name: options[name] for name in Job.__struct_fields__ if options.get(name) is not None}
    if found.get("cost") is not None and "prices" not in found:
        raise UsageError("--cost needs to know what tokens cost.", hint="Add --prices IN OUT, of a million tokens.")
    if found.get("model", "").startswith("scripted:"):
        found["model"] = f"scripted:{Path(found['model'].removeprefix('scripted:')).resolve()}"
    if "workspace" in found:
        found["workspace"] = str(Path(found["workspace"]).resolve())
    return found


def job(options: dict[str, Any], **defaults: Any) -> Job:
    """A new job, here unless it says where."""
    return Job(**({"workspace": str(Path.cwd())} | defaults | given(options)))
