"""Export of one task in a form that people or programs read: Markdown, HTML, OpenAI messages, the imported file.

To add a form, add a function from a reader to pieces of text to `FORMATS`. `orihon.ops.task_file` exports a task
completely; `orihon.chat.document` writes the document of a conversation.

Markdown keeps the text of messages inside quotations and calls and results inside fences, so that their headings and
tags are text. The HTML page (`page.html`) is self-contained: it has no script, fetches nothing, escapes every text, and
embeds pictures of the four types that browsers draw; a policy in its head forbids everything else.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from html import escape
from importlib import resources
from itertools import groupby
from string import Template
from typing import Literal, NamedTuple

from orihon.context.ranges import contains
from orihon.context.view import View
from orihon.context.wire import openai
from orihon.context.wire.pieces import IMAGES
from orihon.errors import Corrupt, NotFound
from orihon.ops.blobs import load_blobs
from orihon.ops.formats.original import render_original
from orihon.records import Blob, Event, Fold, Message, Part, Summary
from orihon.task.log import last_number, load_view
from orihon.task.reader import Reader
from orihon.terminal import encode_json_line, escape_page_text

Visibility = Literal["shown", "folded", "summarised", "left out"]

EXPLANATIONS = {
    "folded": "folded: the model sees it shortened",
    "summarised": "summarised: the model sees the summary instead",
    "left out": "left out: it was rewound or cleared, or belongs to a tangent that ended",
}
OPEN_CHARS = 600  # a longer result is collapsed on the HTML page

_TICKS = re.compile(r"`+")
_FENCE = re.compile(r"(`{3,})[^`]*|(~{3,}).*")
_MARKDOWN_SYNTAX = re.compile(r"([\\`*_\[\]<>#|])")


def render_openai(reader: Reader) -> Iterator[str]:
    """Yield the visible messages, unfolded and without summaries, as one OpenAI message per line."""

    def load(blob: Blob) -> bytes:
        return reader.store.blob(reader.uuid, blob.sha256)

    view = _load_view(reader)
    visible = (message for message in reader.messages() if view.shows(message.seq))
    messages = (load_blobs(reader.store, reader.uuid, message) for message in visible)
    # consecutive results together: their pictures follow in a user message, where OpenAI accepts them
    for _, group in groupby(messages, key=lambda message: message.role == "tool" or message.seq):
        yield from (f"{encode_json_line(rendered)}\n" for rendered in openai(list(group), load=load))


# a task in the order in which people read it


class TimelineEntry(NamedTuple):
    """A message or a summary, and how the model sees it now."""

    record: Message | Summary
    visibility: Visibility


def iter_timeline(reader: Reader) -> Iterator[TimelineEntry]:
    """Yield the complete messages in order, and each summary after the last message that it covers."""
    view = _load_view(reader)
    folds = view.state.folds
    folded: set[int] = set()
    if folds is not None and folds.last:
        folded = {fold.seq for fold in reader.store.read(reader.uuid, Fold, first=folds.first, last=folds.last)}
    summaries = sorted(reader.summaries(), key=lambda summary: (summary.end_seq, summary.id))
    for message in reader.messages():
        while summaries and summaries[0].end_seq < message.seq:
            yield _summary_entry(summaries.pop(0), view)
        try:
            complete = load_blobs(reader.store, reader.uuid, message)
        except (Corrupt, NotFound):  # a lost blob: the line still has the beginning of the text
            complete = message
        yield TimelineEntry(complete, _find_visibility(message.seq, view, folded))
    yield from (_summary_entry(summary, view) for summary in summaries)


def _load_view(reader: Reader) -> View:
    return load_view(reader.store, reader.uuid, last_number(reader.store, reader.uuid, Event))


def _find_visibility(seq: int, view: View, folded: set[int]) -> Visibility:
    state = view.state
    if not view.shows(seq):
        return "left out"
    if state.summary is not None and contains(state.summary.ranges, seq) and seq not in state.summary.kept:
        return "summarised"
    hidden = state.folds is not None and contains(state.folds.hidden, seq)
    return "folded" if hidden or seq in folded else "shown"


def _summary_entry(summary: Summary, view: View) -> TimelineEntry:
    current = view.state.summary
    return TimelineEntry(summary, "shown" if current is not None and current.id == summary.id else "left out")


def _list_facts(reader: Reader) -> list[tuple[str, str]]:
    row = reader.row
    facts = {"task": row.uuid, "status": row.status, "user": row.user, "model": row.model, "created": row.created_at}
    return [(name, value) for name, value in facts.items() if value]


def _describe_summary(entry: TimelineEntry) -> str:
    return "the model sees it" if entry.visibility == "shown" else "superseded"


def _list_media(message: Message) -> list[Part]:
    return [part for part in message.content if part.text is None] if isinstance(message.content, list) else []


# Markdown


def render_markdown(reader: Reader) -> Iterator[str]:
    """Yield a Markdown page piece by piece."""
    yield f"# {escape_markdown(reader.row.task_key)}\n\n"
    yield from (f"- {name}: {escape_markdown(value)}\n" for name, value in _list_facts(reader))
    for entry in iter_timeline(reader):
        yield from render_markdown_entry(entry)


def render_markdown_entry(entry: TimelineEntry) -> Iterator[str]:
    """Yield a message or a summary under a heading of its own."""
    record = entry.record
    if isinstance(record, Summary):
        yield f"\n## Summary of {record.start_seq} to {record.end_seq} · _{_describe_summary(entry)}_\n\n"
        yield f"{quote(record.summary)}\n"
        return
    explanation = EXPLANATIONS.get(entry.visibility, "")
    speaker: str = record.role
    if record.role == "tool":
        name = escape_markdown(record.tool_name or "")
        speaker = f"tool {name}{' (error)' if record.is_error else ''}".rstrip()
    yield f"\n## {record.seq} {speaker}{f' · _{explanation}_' if explanation else ''}\n\n"
    if record.role == "tool":
        yield fence(record.text)
    elif record.text:
        yield f"{quote(record.text)}\n"
    for part in _list_media(record):
        yield f"\n_[{escape_markdown(part.type)} {escape_markdown(part.media_type or part.url or '')}]_\n"
    for call in record.tool_calls:
        yield f"\n**{escape_markdown(call.name)}**\n\n{fence(call.arguments, 'json')}"


def escape_markdown(text: str) -> str:
    """Return a short text that is only text inside a line."""
    return _MARKDOWN_SYNTAX.sub(r"\\\1", escape_page_text(text).replace("\n", " "))


def fence(text: str, language: str = "") -> str:
    """Return the text in a fence that is longer than any in it."""
    text = escape_page_text(text)
    fence = "`" * max(3, 1 + max((len(ticks) for ticks in _TICKS.findall(text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}\n"


def quote(text: str) -> str:
    """Return the text as a quotation. Tags are escaped, except inside fences, where they are text already."""
    lines = []
    fence = ""
    for line in escape_page_text(text).split("\n"):
        match = _FENCE.fullmatch(line)
        mark = (match[1] or match[2]) if match else ""
        lines.append(f"> {line}" if fence or mark else "> " + line.replace("&", "&amp;").replace("<", "&lt;"))
        if not fence:
            fence = mark
        elif mark.startswith(fence) and line.rstrip() == mark:
            fence = ""
    return "\n".join(lines)


# HTML


def render_html(reader: Reader) -> Iterator[str]:
    """Yield an HTML page piece by piece."""
    page = resources.files("orihon.ops").joinpath("page.html").read_text(encoding="utf-8")
    before, _, after = page.partition("$entries")
    facts = (f"<dt>{name}</dt><dd>{_escape_html(value)}</dd>\n" for name, value in _list_facts(reader))
    yield Template(before).substitute(title=_escape_html(reader.row.task_key), facts="".join(facts))
    for entry in iter_timeline(reader):
        yield from _render_html_entry(entry)
    yield after


def _render_html_entry(entry: TimelineEntry) -> Iterator[str]:
    record, visibility = entry.record, entry.visibility
    if isinstance(record, Summary):
        yield f'<article class="summary" id="s{record.id}">\n<header><b>summary of {record.start_seq} to '
        yield f"{record.end_seq}</b><em>{_describe_summary(entry)}</em></header>\n"
        yield f"<pre>{_escape_html(record.summary)}</pre>\n</article>\n"
        return
    classes = " ".join([record.role, *["error"] * record.is_error, *["aside"] * (visibility == "left out")])
    explanation = f"<em>{EXPLANATIONS[visibility]}</em>" if visibility in EXPLANATIONS else ""
    speaker: str = record.role
    if record.role == "tool":
        speaker = f"{'error' if record.is_error else 'result'} of {_escape_html(record.tool_name or 'a tool')}"
    yield f'<article class="{classes}" id="m{record.seq}">\n<header><a href="#m{record.seq}">{record.seq}</a> '
    yield f"<b>{speaker}</b><time>{_escape_html(record.timestamp)}</time>{explanation}</header>\n"
    if record.role == "tool":
        is_open = " open" if len(record.text) <= OPEN_CHARS else ""
        yield f"<details{is_open}>\n<summary>{len(record.text):,} characters</summary>\n"
        yield f"{_code(record.text)}</details>\n"
    elif record.text:
        yield f"<pre>{_escape_html(record.text)}</pre>\n"
    yield from map(_render_media, _list_media(record))
    for call in record.tool_calls:
        yield f"<details>\n<summary>calls <b>{_escape_html(call.name)}</b></summary>\n"
        yield f"{_code(call.arguments)}</details>\n"
    yield "</article>\n"


def _render_media(part: Part) -> str:
    """Return a picture, or a line of text for what is not one."""
    if part.media_type in IMAGES and part.data is not None:
        try:
            data = base64.b64encode(base64.b64decode(part.data, validate=True)).decode()
        except binascii.Error:
            return "<p>[a picture that cannot be shown]</p>\n"
        return f'<img alt="" src="data:{part.media_type};base64,{data}">\n'
    description = " ".join((part.type, part.media_type or part.name or "", part.url or ""))
    return f"<p>[{_escape_html(description)}]</p>\n"


def _code(text: str) -> str:
    return f'<pre class="code">{_escape_html(text)}</pre>\n'


def _escape_html(text: str) -> str:
    return escape(escape_page_text(text), quote=True)


FORMATS: dict[str, Callable[[Reader], Iterator[str]]] = {
    "openai": render_openai,
    "markdown": render_markdown,
    "html": render_html,
    "original": lambda reader: render_original(reader.store, reader.metadata),
}


def export_pieces(reader: Reader, format: str) -> Iterator[str]:
    """Yield the task in one of `FORMATS`, piece by piece. Text that an older version stored unmasked is masked."""
    return map(reader.store.sanitiser.text, FORMATS[format](reader))
