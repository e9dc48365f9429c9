"""Findings about the installation: Python, extras, settings, the key of the model, and the place of the store.

`examine_installation` looks only. `try_model` writes a task and sends one request, which may cost a fraction of a cent.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from orihon.agent.models import Model, open_model
from orihon.engine import Engine
from orihon.errors import OrihonError
from orihon.ops.doctor.finding import Finding, note, problem
from orihon.retry import Backoff
from orihon.settings.schema import Settings
from orihon.stores import SQLITE_PREFIX
from orihon.task_key import TaskKey

SETTINGS_FILE = "config.yaml"
KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
EXTRAS = {  # a module of each, and what it is for
    "agent": ("openai", "models, MCP servers and the chat"),
    "postgres": ("psycopg", "stores in PostgreSQL"),
    "tokens": ("splintr", "exact token counts"),
    "view": ("starlette", "`orihon view`"),
    "prices": ("genai_prices", "the prices of calls"),
    "otel": ("opentelemetry.sdk", "telemetry"),
    "metrics": ("prometheus_client", "`orihon monitor --metrics`"),
}
QUESTION = "Reply with the word ready."
CONTEXT_LENGTH_OF_CHECK = 8_000


def examine_installation(settings: Settings, url: str) -> Iterator[Finding]:
    """Yield findings about everything that Orihon needs before there is a store."""
    python, version = platform.python_implementation(), platform.python_version()
    sentence = f"Version {metadata.version('orihon')}, {python} {version} on {platform.system()}."
    yield Finding("ok", "orihon", sentence)
    for extra in EXTRAS:
        yield _check_extra(extra)
    if shutil.which("git") is None:
        yield note("git", "It is not installed. Checkpoints of a workspace need it.")
    if Path(SETTINGS_FILE).exists():
        yield Finding("ok", SETTINGS_FILE, "It is valid. `orihon config --changed` shows what it changes.")
    else:
        yield note(SETTINGS_FILE, "It does not exist, and the defaults apply. `orihon init` writes it.")
    yield _check_model(settings)
    yield _check_place(url)


def note_missing(settings: Settings) -> Iterator[Finding]:
    """Yield what the model of `config.yaml` lacks. Those are notes, because a store can be used without a model."""
    if Path(SETTINGS_FILE).exists():
        for finding in (_check_extra("agent"), _check_model(settings)):
            if finding.level != "ok":
                yield note(finding.where, finding.sentence)


def _check_extra(extra: str) -> Finding:
    module, purpose = EXTRAS[extra]
    if not _is_installed(module):
        return note(f"orihon[{extra}]", f"It is not installed: pip install 'orihon[{extra}]', for {purpose}.")
    return Finding("ok", f"orihon[{extra}]", f"It is installed, for {purpose}.")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of its parent
        return False


def _check_model(settings: Settings) -> Finding:
    provider, chosen = settings.llm.provider, settings.llm.chosen
    where, variable = f"llm.{provider}", KEY_VARIABLES.get(provider, "")
    if not chosen.model:
        return problem(where, "No model is named. `orihon init` asks for one.")
    if variable and not chosen.base_url and chosen.api_key is None and not os.environ.get(variable):
        return problem(where, f"The model is {chosen.model}, and its key is missing. Set {variable}.")
    return Finding("ok", where, f"The model is {chosen.model}, with {chosen.context_length:,} tokens.")


def _check_place(url: str) -> Finding:
    path = Path(url.removeprefix(SQLITE_PREFIX)).absolute()
    parent = next(parent for parent in path.parents if parent.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        return problem(url, f"There is no store yet, and {parent} is not a directory that can be written.")
    return note(url, "There is no store yet. The first task creates it.")


def try_model(engine: Engine, settings: Settings) -> Iterator[Finding]:
    """Write a task, count its tokens, and let the configured model answer it."""
    provider, chosen = settings.llm.provider, settings.llm.chosen
    where = f"llm.{provider}"
    try:
        model = open_model("", settings, backoff=Backoff(tries=1))
    except OrihonError as error:
        yield problem(where, f"{error.message} {error.hint}")
        model = None
    try:
        yield from _run_check(engine, chosen.model, model, where)
    finally:
        if model is not None:
            model.close()


def _run_check(engine: Engine, name: str, model: Model | None, where: str) -> Iterator[Finding]:
    key = TaskKey.local("orihon-init")
    task = engine.start(key, model=name, context_length=CONTEXT_LENGTH_OF_CHECK, inherit=False)
    task.add("user", QUESTION)
    window = task.window()
    yield Finding("ok", "tokens", f"The window of the check has {window.tokens:,} tokens.")
    if model is None:
        task.stop("the model of `orihon init` cannot be opened")
    else:
        try:
            task.add_reply(model.reply(window))
        except OrihonError as error:
            task.fail(error.message)
            yield problem(where, f"{error.message} {error.hint}")
        else:
            task.complete()
            yield Finding("ok", where, f"{name} answered.")
    yield Finding("ok", "store", f"Task {task.uuid[:8]} is written and {task.row.status}.")
