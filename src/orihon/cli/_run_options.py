"""The options of a run, for the commands that start one or put one into the queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from orihon.agent.queue import Job
from orihon.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = {
    "user": click.option("--user", help="Owner of the task. The settings of this user apply."),
    "model": click.option("--model", help="Such as `anthropic:claude-sonnet-5`, `ollama:qwen3`, or `scripted:FILE`."),
    "plan": click.option("--plan/--no-plan", default=None, help="Plan first, or not. Default: `planning.enabled`."),
    "workspace": click.option(
        "--workspace",
        type=click.Path(file_okay=False, exists=True),
        help="Directory in which the tools work. Default: the current directory.",
    ),
    "approve": click.option(
        "--approve",
        type=click.Choice(["ask", "edits", "all"]),
        help="What the model may do without asking: nothing, edit files, everything.",
    ),
    "reply_cache": click.option(
        "--reply-cache",
        type=click.Path(file_okay=False),
        help="Directory of replies: a request that was answered before is not sent again.",
    ),
    "context_length": click.option("--context-length", type=click.IntRange(1), help="Tokens that the model accepts."),
    "calls": click.option("--max-calls", "calls", type=click.IntRange(1), help="Maximum number of model calls."),
    "seconds": click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Maximum time."),
    "tokens": click.option("--tokens", "--budget", "tokens", type=click.IntRange(1), help="Maximum tokens, all calls."),
    "cost": click.option("--cost", type=click.FloatRange(0, min_open=True), help="Maximum cost; needs --prices."),
    "prices": click.option(
        "--prices", nargs=2, type=click.FloatRange(0), help="Of a million tokens, input and output."
    ),
}


def run_options(*names: str) -> Callable[[F], F]:
    """Return a decorator that adds the options of these names, or all."""

    def decorate(function: F) -> F:
        for name in reversed(names or tuple(_OPTIONS)):
            function = _OPTIONS[name](function)
        return function

    return decorate


def select_job_fields(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that the user set as fields of a Job, with absolute paths."""
    fields = {name: options[name] for name in Job.__struct_fields__ if options.get(name) is not None}
    if "cost" in fields and "prices" not in fields:
        raise UsageError("--cost needs the prices of tokens.", hint="Add --prices IN OUT, of a million tokens.")
    if fields.get("model", "").startswith("scripted:"):
        fields["model"] = f"scripted:{Path(fields['model'].removeprefix('scripted:')).resolve()}"
    for name in {"workspace", "reply_cache"} & fields.keys():
        fields[name] = str(Path(fields[name]).resolve())
    return fields


def build_job(options: dict[str, Any], **defaults: Any) -> Job:
    """Return a new job. Its workspace is the current directory unless an option names another."""
    return Job(**({"workspace": str(Path.cwd())} | defaults | select_job_fields(options)))
