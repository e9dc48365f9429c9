# ruff: noqa: INP001 - a script, not a package
"""Writes the pages that are made from the code: `python docs/generate.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orihon.config import ENVIRONMENT, Settings
from orihon.section import Section, Setting, each, each_of

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
    return f"`{value}`" if value not in ("", (), {}) else "empty"


if __name__ == "__main__":
    (HERE / "settings.md").write_text(settings_page(), encoding="utf-8")
