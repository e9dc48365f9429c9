"""`orihon init`: write a small `config.yaml`, and try the model and the store that it names."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import click

from orihon.cli._command import Session, refuse_memory, store_command
from orihon.cli._output import say, say_line
from orihon.cli._translate import translate
from orihon.cli.maintenance import report
from orihon.errors import RunError, UsageError
from orihon.ops.doctor.check_installation import KEY_VARIABLES, SETTINGS_FILE, try_model
from orihon.settings.load import Settings, load
from orihon.settings.schema import Llm

PROVIDERS: tuple[str, ...] = get_args(get_type_hints(Llm)["provider"])
MODELS = {"anthropic": "claude-sonnet-5"}  # suggested where the settings have no default


@store_command(json='One {"level", "where", "sentence", "fixable"} per line.')
@click.option("--provider", type=click.Choice(PROVIDERS), help="Default: openai.")
@click.option("--model", help="Name of the model. Default: that of the provider.")
@click.option("--base-url", metavar="URL", help="Address of the model's server, if it is not the provider's own.")
@click.option("--check/--no-check", default=True, help="Try the model and the store. Default: --check.")
def init(session: Session, provider: str | None, model: str | None, base_url: str | None, *, check: bool) -> int:
    """Write a small config.yaml, then try it: write a task, count its tokens, and let the model answer.

    At a terminal it asks for the provider, the model and the store, unless an option names them. Elsewhere it asks
    nothing. The key of the model stays in the environment. An existing config.yaml is never changed.

    The exit code is 0, or 5 if the model did not answer; config.yaml is written in both cases.

    \b
    orihon init
    orihon init --provider anthropic --model claude-sonnet-5
    orihon init --provider ollama --model qwen3 --store sqlite:///contexts.db
    orihon init --no-check --json
    """
    path = Path(SETTINGS_FILE)
    if path.exists():
        raise UsageError(f"{path} exists.", hint="`orihon config` shows its settings. Delete it to start again.")
    defaults = Settings()
    provider = provider or _ask("Provider", PROVIDERS[0], PROVIDERS)
    suggested = getattr(defaults.llm, provider).model or MODELS[provider]
    model = model or _ask("Model", suggested)
    store = session.store or _ask("Store", defaults.context_storage.base_dir)
    refuse_memory(store)
    with path.open("x", encoding="utf-8") as file:
        file.write(make_config(provider, model, store, base_url or getattr(defaults.llm, provider).base_url))
    if not session.as_json:
        say_line(translate(f"{path} is written."))
    if not check:
        return 0
    session.settings = load()
    session.url = session.settings.store_url
    if report(session, try_model(session.engine, session.settings)):
        return RunError.exit_code
    if not session.as_json:
        next_step = '`orihon run "Fix the tests"` works on a task, `orihon chat` talks with the model.'
        say(f"\n{translate(next_step)}")
    return 0


def _ask(question: str, default: str, choices: tuple[str, ...] = ()) -> str:
    """Ask a question at a terminal. Return the default for an empty answer, and where there is no terminal."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return default
    listed = f" ({', '.join(choices)})" if choices else ""
    while True:
        say(f"{translate(question)}{listed} [{default}]: ", err=True, nl=False)
        line = sys.stdin.readline()
        if not line:
            raise click.Abort
        answer = line.strip() or default
        if not choices or answer in choices:
            return answer
        say_line(translate(f"Choose one of {', '.join(choices)}."), err=True)


def make_config(provider: str, model: str, store: str, base_url: str) -> str:
    """Return the text of a `config.yaml`."""
    length = getattr(Settings().llm, provider).context_length
    lines = [
        "# Settings of Orihon. `orihon config` shows all of them; docs/settings.md describes them.",
        "",
        "llm:",
        f"  provider: {provider}",
        f"  {provider}:",
        f"    model: {_quote(model)}",
        f"    context_length: {length}  # tokens that the model accepts; windows are folded to fit",
    ]
    if base_url:
        lines.append(f"    base_url: {_quote(base_url)}")
    if variable := KEY_VARIABLES.get(provider):
        lines.append(f'    api_key: "${{{variable}}}"  # read from the environment, so that no key is in this file')
    lines += ["", "context_storage:", f"  base_dir: {_quote(store)}  # a directory, sqlite:///FILE, postgresql://…"]
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
