# ruff: noqa: INP001 - a script, not a package
"""Write the pages that are generated from the code: `python docs/generate.py`."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Literal, Union, get_args, get_origin

import click
import msgspec

import orihon
from orihon.cli import COMMANDS, cli
from orihon.errors import OrihonError
from orihon.ops.copy import Copied
from orihon.ops.doctor import Finding
from orihon.ops.listing import Overview, Similar, TaskListing, TaskPage
from orihon.ops.stats import Measure, Statistics, User
from orihon.records import TaskRow
from orihon.settings.load import ENVIRONMENT, Settings
from orihon.settings.section import Section, Setting, iter_list_settings, iter_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent

INTRODUCTION = """\
# Settings

`make docs` generates this page from `src/orihon/settings/schema.py`.

Orihon reads `config.yaml` in the working directory, if it exists. Every setting has a default. `config.example.yaml`
shows the same settings as a file.

- The environment overrides the file, and the file overrides the defaults. An empty variable counts as unset.
- `${NAME}` inside a text is replaced by the environment variable; `$${NAME}` stays as `${NAME}`. A missing variable is
  an error, except in an `api_key` or a `token`, which is then unset.
- Unknown keys, duplicate keys, wrong types and values out of range are errors. All of them are reported together.
  YAML aliases and tags are refused. The file may have 1 MB.
- Secrets, and credentials inside a URL, are shown as `[hidden]`.
"""


def settings_page() -> str:
    """Return `settings.md`: each setting with its allowed values, its default and its meaning."""
    return "\n".join([INTRODUCTION, *_environment(), *_sections(Settings(), "")]) + "\n"


def _environment() -> Iterator[str]:
    yield "## The environment\n\n| variable | sets |\n|---|---|"
    yield from (f"| `{name}` | `{path}` |" for name, path in ENVIRONMENT.items())


def _sections(section: Section, path: str) -> Iterator[str]:
    own = [setting for setting in iter_settings(section) if "." not in setting.path]
    if own:
        yield f"\n## `{path}`\n\n{section.__doc__}\n" if path else "\n## Outside any section\n"
        yield "| setting | allowed | default | meaning |\n|---|---|---|---|"
    yield from map(_row, own)
    for setting in own:
        if setting.item is not None:
            yield f"\n## Each of `{setting.path}`\n\n{setting.item.__doc__}\n"
            yield "| setting | allowed | default | meaning |\n|---|---|---|---|"
            yield from map(_row, iter_list_settings(setting.item))
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
# Commands

`make docs` generates this page from the commands. `orihon COMMAND --help` prints the same text.

**Exit codes.** 0 means success. 1 means that `doctor` found a problem or a check of `demo` failed. 2 is a usage error
or a refused access, 3 an error of the store, 4 of the window, 5 of a run. 130 follows Ctrl-C, 70 is unexpected;
`--debug` before the command prints its traceback. Every other error is one sentence and a hint. `monitor` has codes of
its own.

**Users.** On one machine the owner of the files sees everything. A service that reads for other users names the user in
`ORIHON_USER`. If `access.tokens` are configured, only `ORIHON_TOKEN` counts, and without it there is no access. A user
sees that user's tasks; users in `access.admins` see all tasks. Every access and every refusal is written to the audit.
[Access](access.md) describes what this protects and what it does not.

**Language.** If `LC_ALL`, `LC_MESSAGES` or `LANG` begins with `ja`, help and errors are Japanese, and durations are
shown as `15分23秒` instead of `15m 23s`; `--lang` chooses the language of durations. Times are in the local time
zone; `--json` gives them as they are stored, in UTC.

**Programs.** The output of `--json` is stable: fields may be added, none is renamed or removed. A list is printed as
one object per line, each as soon as it is available. Invisible and control characters are escaped.

**Completion.** To complete commands, options and task ids in your shell, put one of these lines into `~/.bashrc`,
`~/.zshrc` or `~/.config/fish/completions/orihon.fish`:

```sh
eval "$(_ORIHON_COMPLETE=bash_source orihon)"  # bash 4.4 or newer
eval "$(_ORIHON_COMPLETE=zsh_source orihon)"   # zsh
_ORIHON_COMPLETE=fish_source orihon | source   # fish
```
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
    """Return `cli.md`: each command with its help, examples, options and `--json` output."""
    context = click.Context(cli, info_name="orihon", **cli.context_settings)
    commands = [(name, cli.get_command(context, name)) for name in cli.list_commands(context)]
    listed = [f"| [`orihon {name}`](#orihon-{name}) | {COMMANDS[name]} |" for name, _ in commands]
    sections = [line for name, command in commands if command is not None for line in _command(context, name, command)]
    return "\n".join([CLI_INTRODUCTION, "| command | purpose |", "|---|---|", *listed, *sections]) + "\n"


def _command(parent: click.Context, name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    words, _, examples = inspect.cleandoc(command.help or "").partition("\b\n")
    yield f"\n## orihon {name}\n"
    yield f"```text\norihon {name} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield f"{words.strip()}\n"
    yield f"```sh\n{_mark_comments(examples.strip())}\n```\n"
    yield "| option | meaning |\n|---|---|"
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield f"| `{record[0].replace('|', chr(92) + '|')}` | {record[1].replace('|', chr(92) + '|')} |"
    for index, kind in enumerate(OBJECTS.get(name, ())):
        about = (kind.__doc__ or "").strip().splitlines()[0].rstrip(".")
        yield f"\n{'`--json` prints' if not index else 'Inside,'} {about[0].lower()}{about[1:]}:\n"
        fields = [field for field in msgspec.structs.fields(kind) if field.name != "unknown"]
        listed = ", ".join(f"`{field.encode_name}` ({_kind(field.type)})" for field in fields)
        left_out = (
            " Fields with their default (0, false, null, empty) are left out."
            if kind.__struct_config__.omit_defaults
            else ""
        )
        yield f"{listed}.{left_out}"


def _mark_comments(examples: str) -> str:
    """Return examples whose remarks, two spaces after the command, are comments of the shell."""
    return re.sub(r"^(.*?\S {2,})(?=\S)", r"\1# ", examples, flags=re.MULTILINE)


def _kind(kind: object) -> str:
    """Return the name of a type in JSON."""
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


MODULES_INTRODUCTION = """\
# Modules

`make docs` generates this page from the docstrings of the modules. [Architecture](architecture.md) shows how the
packages depend on each other.
"""
PACKAGE = HERE.parent / "src" / "orihon"


def modules_page() -> str:
    """Return `modules.md`: each package and module with the first line of its docstring."""
    packages: dict[Path, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        packages.setdefault(path.parent, []).append(path)
    return "\n".join([MODULES_INTRODUCTION, *(line for item in packages.items() for line in _package(*item))]) + "\n"


def _package(directory: Path, modules: list[Path]) -> Iterator[str]:
    yield f"## {'.'.join(directory.relative_to(PACKAGE.parent).parts)}\n\n{_first_line(directory / '__init__.py')}\n"
    others = [path for path in modules if path.name != "__init__.py"]
    if others:
        yield "| module | purpose |\n|---|---|"
        yield from (f"| `{path.name}` | {_first_line(path).replace('|', chr(92) + '|')} |" for path in others)
        yield ""


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


API = HERE / "api.md"
API_REGION = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def api_page() -> str:
    """Return `api.md` with its tables as the docstrings are now; the text between them is written by hand."""
    return API_REGION.sub(
        lambda match: f"{match[1]}\n{_api_region(match[2])}\n\n{match[3]}", API.read_text(encoding="utf-8")
    )


def _api_region(name: str) -> str:
    if name == "errors":
        rows = (
            f"| `{error.__name__}` | {_error_row(error)} |"
            for error in _errors(OrihonError)
            if error.__name__ in orihon.__all__
        )
        return "\n".join(["| class | is a | says | hint | retry |", "|---|---|---|---|---|", *rows])
    public = getattr(orihon, name)
    text = inspect.cleandoc(public.__doc__)
    if inspect.isfunction(public):
        return f"```text\norihon.{name}{_signature(public)}\n```\n\n{text}"
    rows = []
    if issubclass(public, msgspec.Struct):
        fields = [field for field in msgspec.structs.fields(public) if field.name != "unknown"]
        rows = ["| field | type |", "|---|---|", *(f"| `{field.name}` | {_api_type(field.type)} |" for field in fields)]
    members = list(_members(public))
    if members:
        rows += ([""] if rows else []) + ["| member | purpose |", "|---|---|"]
        rows += [f"| `{_cell(name)}` | {_cell(about)} |" for name, about in members]
    return "\n".join([text, "", *rows])


def _members(public: type) -> Iterator[tuple[str, str]]:
    """Yield the public methods and properties of a class with the first paragraph of their docstrings."""
    for name, member in vars(public).items():
        function = getattr(member, "__func__", getattr(member, "fget", getattr(member, "func", member)))
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        about = " ".join(inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].split())
        is_property = isinstance(member, property) or hasattr(member, "func")
        yield name if is_property else f"{name}{_signature(function)}", about


def _signature(function: object) -> str:
    """Return the names of the parameters, with the defaults of those that are optional."""
    parameters, keyword_only = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            parameters.append("*")
        star = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        parameters.append(f"{star}{parameter.name}{default}")
    return f"({', '.join(parameters)})"


def _api_type(kind: object) -> str:
    text = inspect.formatannotation(kind) if not isinstance(kind, type) else kind.__name__
    return f"`{_cell(re.sub(r'(?:[a-z_]+[.])+', '', text))}`"


def _errors(error: type[OrihonError]) -> Iterator[type[OrihonError]]:
    yield error
    for inner in error.__subclasses__():
        yield from _errors(inner)


def _error_row(error: type[OrihonError]) -> str:
    parent = "Exception" if error is OrihonError else f"`{error.__bases__[0].__name__}`"
    text = (error.__doc__ or "").strip().splitlines()[0]
    return " | ".join((parent, text, _cell(error.default_hint), "yes" if error.default_retryable else "no"))


def _cell(text: str) -> str:
    return text.replace("|", chr(92) + "|")


if __name__ == "__main__":
    API.write_text(api_page(), encoding="utf-8")
    (HERE / "cli.md").write_text(cli_page(), encoding="utf-8")
    (HERE / "modules.md").write_text(modules_page(), encoding="utf-8")
    (HERE / "settings.md").write_text(settings_page(), encoding="utf-8")
