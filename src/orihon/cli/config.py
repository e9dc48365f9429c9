"""`orihon config`: show the effective settings and the origin of each."""

from __future__ import annotations

import click
import msgspec

from orihon.cli._output import say_json, say_line
from orihon.settings.load import iter_settings, load_with_origins
from orihon.settings.section import Secret, Section, redact


@click.command()
@click.option("--file", "path", help="Read this file instead of config.yaml.")
@click.option("--changed", is_flag=True, help="Only settings that differ from the defaults.")
@click.option("--json", "as_json", is_flag=True, help='A list of {"path", "value", "origin"}.')
def config(path: str | None, *, changed: bool, as_json: bool) -> None:
    """Show the effective settings and where each came from. Secrets are hidden.

    \b
    orihon config                    everything
    orihon config --changed          what config.yaml and the environment changed
    orihon config --json | jq        for programs
    """
    settings, origins = load_with_origins(path)
    listed = [
        {"path": setting.path, "value": _to_plain(setting.value), "origin": origins[setting.path]}
        for setting in iter_settings(settings)
        if not changed or origins[setting.path] != "default"
    ]
    if as_json:
        say_json(listed)
        return
    width = max((len(str(item["path"])) for item in listed), default=0)
    for item in listed:
        value = msgspec.json.encode(item["value"]).decode()
        say_line(f"{item['path']:{width}}  {value:24}  {item['origin']}")


def _to_plain(value: object) -> object:
    """Return a value of a setting as plain JSON, without secrets."""
    if isinstance(value, tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, Section):
        return {name: _to_plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: _to_plain(item) for name, item in value.items()}
    return str(value) if isinstance(value, Secret) else redact(value)
