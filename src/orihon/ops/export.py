"""`pages(reader, format)`: one task in one of the forms that people and programs read; `write_task_file` for the whole.

A new form is one more line in `FORMATS`: a function from a reader to pieces of text. The document of a conversation is
written by the conversation itself; the command calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

from orihon.ops.blobs import load_blobs
from orihon.ops.bring import origin_of, told_again
from orihon.ops.formats.html import html
from orihon.ops.formats.markdown import markdown
from orihon.ops.formats.openai import openai_lines
from orihon.ops.formats.origin import At, rebuilt
from orihon.ops.formats.passage import view_of
from orihon.task.reader import Reader
from orihon.terminal import json_line


def openai(reader: Reader) -> Iterator[str]:
    """The conversation as OpenAI's messages, one on each line: what is visible, unfolded and without summaries."""
    view = view_of(reader)
    shown = (message for message in reader.messages() if view.shows(message.seq))
    messages = (load_blobs(reader.store, reader.uuid, message) for message in shown)
    return (
        f"{line}\n" for line in openai_lines(messages, load=lambda blob: reader.store.blob(reader.uuid, blob.sha256))
    )


def original(reader: Reader) -> Iterator[str]:
    """The session file that the task was imported from, masked as it is stored."""
    origin_of(reader.metadata)
    for line, records in groupby(told_again(reader.store, reader.uuid), key=lambda found: _line(found[0])):
        value = rebuilt((at if line is None else at[1:], record) for at, record in records)
        yield (value if isinstance(value, str) else json_line(value)) + "\n"


def _line(at: At) -> int | None:
    """On which line of the file a record stands; None when the file is one document."""
    return at[0] if at and isinstance(at[0], int) else None


FORMATS: dict[str, Callable[[Reader], Iterator[str]]] = {
    "openai": openai,
    "markdown": markdown,
    "html": html,
    "original": original,
}


def pages(reader: Reader, format: str) -> Iterator[str]:
    """The task in one of `FORMATS`, piece by piece; what an older version left unmasked is masked on the way."""
    return map(reader.store.sanitiser.text, FORMATS[format](reader))
