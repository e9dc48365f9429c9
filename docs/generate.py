# ruff: noqa: INP001 - a script, not a package
"""Writes the pages that are made from the code: `python docs/generate.py`."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Literal, Union, get_args, get_origin

import click
import msgspec

from orihon.cli import COMMANDS, cli
from orihon.ops.copy import Copied
from orihon.ops.doctor import Finding
from orihon.ops.listing import Overview, TaskListing, TaskPage
from orihon.ops.similar import Similar
from orihon.ops.stats import Measure, Statistics, User
from orihon.records import TaskRow
from orihon.settings.load import ENVIRONMENT, Settings
from orihon.settings.section import Section, Setting, each, each_of

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent

INTRODUCTION = """\
# Settings

Made by `make docs` from `src/orihon/settings.py`.

Orihon reads `config.yaml` in the working directory, if there is one; every setting has a default.
`config.example.yaml` shows the same settings as a file.

- The environment beats the file, and the file beats the defaults. An empty variable counts as not set.
- `${NAME}` inside a text is replaced by a variable of the environment; `$${NAME}` stays as `${NAME}`. A missing
  variable is an error, except in an `api_key` or a `token`, which is then unset.
- Unknown keys, doubled keys, wrong types and values out of range are errors, and all of them are told at once.
  YAML aliases and tags are refused. A file may have 1 MB.
- Secrets are shown as `[hidden]`, and so are credentials inside a URL.
"""


def settings_page() -> str:
    """`settings.md`: each setting, what is allowed, its default and its meaning."""
    return "\n".join([INTRODUCTION, *_environment(), *_sections(Settings(), "")]) + "\n"


def _environment() -> Iterator[str]:
    yield "## The environment\n\n| variable | sets |\n|---|---|"
    yield from (f"| `{name}` | `{path}` |" for name, path in ENVIRONMENT.items())


def _sections(section: Section, path: str) -> Iterator[str]:
    own = [setting for setting in each(section) if "." not in setting.path]
    if own:
        yield f"\n## `{path}`\n\n{section.__doc__}\n" if path else "\n## Outside of any section\n"
        yield "| setting | allowed | default | meaning |\n|---|---|---|---|"
    yield from map(_row, own)
    for setting in own:
        if setting.item is not None:
            yield f"\n## Each of `{setting.path}`\n\n{setting.item.__doc__}\n"
            yield "| setting | allowed | default | meaning |\n|---|---|---|---|"
            yield from map(_row, each_of(setting.item))
    for name in section.__struct_fields__:
        inner = getattr(section, name)
        if isinstance(inner, Section):
            yield from _sections(inner, f"{path}.{name}".lstrip("."))


def _row(setting: Setting) -> str:
    return f"| `{setting.path}` | {setting.allowed} | {_default(setting.value)} | {setting.meaning} |"


def _default(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return f"`{value}`".lower()
    if isinstance(value, float):
        return f"`{value:g}`"
    if isinstance(value, tuple) and value:
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`" if value not in ("", (), {}) else "empty"


CLI_INTRODUCTION = """\
# The command

Made by `make docs` from the commands themselves.

`orihon COMMAND --help` says what stands here. Exit codes: 0 when it went well, 2 for what cannot be understood or is
not allowed, 3 for the store, 4 for the window, 5 for a run, 1 where a check found something, 130 after Ctrl-C, and 70
for what nobody expected. With `--debug` before the command a traceback shows where an error came from.

**Who asks.** On one machine the owner of the files sees everything. A service that reads for others says for whom by
`ORIHON_USER`. If `access.tokens` are configured, nothing but `ORIHON_TOKEN` counts, and without it there is no access.
A user sees that user's tasks; users in `access.admins` see all. Each look, and each refusal, is written to the audit.
[Access](access.md) says what this protects and what it does not.

**Language.** Durations are shown as `15m 23s`, or as `15分23秒` where `LC_ALL`, `LC_MESSAGES` or `LANG` begins with
`ja`, or with `--lang ja`. Times are those of this machine's clock; `--json` gives them as they are stored, in UTC.

**Programs.** What `--json` prints is kept stable: fields may be added, none is renamed or removed. Of a list, one
object per line is printed as soon as it is known. Characters that steer a terminal, or cannot be seen, are escaped.

**Completion.** To have the shell complete commands, options and the ids of tasks, put this into `~/.bashrc`,
`~/.zshrc` or `~/.config/fish/completions/orihon.fish`:

    eval "$(_ORIHON_COMPLETE=bash_source orihon)"    # bash 4.4 or newer
    eval "$(_ORIHON_COMPLETE=zsh_source orihon)"     # zsh
    _ORIHON_COMPLETE=fish_source orihon | source     # fish
"""

# the objects that `--json` prints, and those inside them
OBJECTS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "copy": (Copied,),
    "doctor": (Finding,),
    "ls": (TaskPage, TaskListing),
    "similar": (Similar, TaskListing),
    "show": (Overview, TaskRow),
    "stats": (Statistics, User, Measure),
}


def cli_page() -> str:
    """`cli.md`: each command with its help, its examples, its options, and what it prints for programs."""
    context = click.Context(cli, info_name="orihon", **cli.context_settings)
    commands = [(name, cli.get_command(context, name)) for name in cli.list_commands(context)]
    listed = [f"| [`orihon {name}`](#orihon-{name}) | {COMMANDS[name]} |" for name, _ in commands]
    sections = [line for name, command in commands if command is not None for line in _command(context, name, command)]
    return "\n".join([CLI_INTRODUCTION, "| command | what |", "|---|---|", *listed, *sections]) + "\n"


def _command(parent: click.Context, name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    words, _, examples = inspect.cleandoc(command.help or "").partition("\b\n")
    yield f"\n## orihon {name}\n"
    yield f"    orihon {name} {' '.join(command.collect_usage_pieces(context))}\n"
    yield f"{words.strip()}\n"
    yield f"```sh\n{examples.strip()}\n```\n"
    yield "| option | meaning |\n|---|---|"
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield f"| `{record[0].replace('|', chr(92) + '|')}` | {record[1].replace('|', chr(92) + '|')} |"
    for place, kind in enumerate(OBJECTS.get(name, ())):
        about = (kind.__doc__ or "").strip().splitlines()[0].rstrip(".")
        yield f"\n{'`--json` prints' if not place else 'Inside,'} {about[0].lower()}{about[1:]}:\n"
        fields = [field for field in msgspec.structs.fields(kind) if field.name != "unknown"]
        listed = ", ".join(f"`{field.encode_name}` ({_kind(field.type)})" for field in fields)
        left_out = (
            " What has its default (0, false, null, empty) is left out." if kind.__struct_config__.omit_defaults else ""
        )
        yield f"{listed}.{left_out}"


def _kind(kind: object) -> str:
    """A type in the words of JSON."""
    names = {str: "text", int: "number", float: "number", bool: "true or false", type(None): "null"}
    if get_origin(kind) is Annotated:
        return _kind(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(kind)) if "" not in get_args(kind) else "text"
    if get_origin(kind) in {Union, UnionType}:
        return " or ".join(_kind(one) for one in get_args(kind))
    if get_origin(kind) in {list, tuple}:
        return "list"
    return names.get(kind, "object") if isinstance(kind, type) else "object"


if __name__ == "__main__":
    (HERE / "cli.md").write_text(cli_page(), encoding="utf-8")
    (HERE / "settings.md").write_text(settings_page(), encoding="utf-8")
