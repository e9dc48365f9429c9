"""Real session files in: `ORIHON_DATA=DIRECTORY python -m bench imports`.

Each file below the directory that is one of the formats is imported and told again; what is told must equal what the
file says, masked. Then every prefix of its messages is made into a window, which must be valid for every provider.
Without ORIHON_DATA there is nothing to do: the files belong to others and are not here.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.wire_rules import violations

from orihon import codec
from orihon.context.repair import repair
from orihon.context.wire import anthropic, gemini, openai, responses
from orihon.errors import UsageError
from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.blobs import load_blobs
from orihon.ops.formats import detect_format
from orihon.ops.formats.original import iter_originals, rebuild_value
from orihon.ops.formats.session_file import SessionFile
from orihon.ops.import_task import ImportedTask, import_file
from orihon.records import Message
from orihon.redaction import mask_value
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.base import Store

APIS = {"openai": openai, "responses": responses, "anthropic": anthropic, "gemini": gemini}


def main() -> None:
    """Print the figures; leave with 1 if anything is not as it should be."""
    folder = os.environ.get("ORIHON_DATA")
    if not folder:
        print("ORIHON_DATA does not say where session files are.")
        return
    figures: dict[str, Counter[str]] = {}
    refused: list[str] = []
    for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
        try:
            name = detect_format(SessionFile(path))
            figures.setdefault(name, Counter()).update(_figures(path))
        except UsageError as error:
            refused.append(f"{path.relative_to(folder)}: {error.message.replace(str(path), 'it')}")
    columns = ["files", "tasks", "messages", "other records", "equal", "prefixes", "invalid windows", "ms"]
    print(f"| format | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name, counts in figures.items():
        print(f"| {name} | {' | '.join(f'{counts[column]:,}' for column in columns)} |")
    print(f"\n{len(refused)} other files are refused; those of a known agent:")
    print("\n".join(f"- {sentence}" for sentence in refused if "no format that can be imported" not in sentence))
    if any(counts["equal"] != counts["files"] or counts["invalid windows"] for counts in figures.values()):
        sys.exit(1)


def _figures(path: Path) -> dict[str, int]:
    with open_store("memory:") as store:
        began = time.perf_counter()
        brought = import_file(AuthorizedStore(store, Principal("bench"), command="bench"), Settings(), path)
        ms = (time.perf_counter() - began) * 1000
        windows = [invalid for task in brought for invalid in _invalid(store, task)]
        return {
            "files": 1,
            "tasks": len(brought),
            "messages": sum(task.messages for task in brought),
            "other records": sum(task.kept for task in brought),
            "equal": int(_is_equal(store, path, brought)),
            "prefixes": len(windows),
            "invalid windows": sum(windows),
            "ms": round(ms),
        }


def _is_equal(store: Store, path: Path, brought: list[ImportedTask]) -> bool:
    file = SessionFile(path)
    said: Any = file.document if file.is_document else rebuild_value(([at], value) for at, value in file.lines())
    records = sorted(
        (found for task in brought for found in iter_originals(store, task.uuid)), key=lambda found: found[0]
    )
    return bool(rebuild_value(iter(records)) == mask_value(codec.clean_value(said)))


def _invalid(store: Store, task: ImportedTask) -> Iterator[bool]:
    """For every prefix, whether a provider would refuse it."""
    log = [load_blobs(store, task.uuid, message) for message in store.read(task.uuid, Message)]
    for length in range(1, len(log) + 1):
        messages = repair(log[:length])
        yield any(violations(api, render(messages)) for api, render in APIS.items())
