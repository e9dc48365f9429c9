"""A task as one HTML page that needs nothing else: no script, no address that is fetched, and every word escaped.

Calls and results can be folded away. Pictures are in the page; only the four kinds that browsers draw as pictures, and
only from their bytes. A policy in the head forbids everything else, should anything slip through.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from html import escape

from orihon.context.wire.pieces import IMAGES
from orihon.ops.formats.passage import EXPLAINED, Passage, passages
from orihon.ops.plain import plain
from orihon.records import Message, Part, Summary
from orihon.task.reader import Reader

OPEN_CHARS = 600  # a longer result is folded away

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: #8886; --soft: #8881; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.4rem; overflow-wrap: anywhere; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0 0 2rem; }}
dt {{ opacity: .7; }} dd {{ margin: 0; overflow-wrap: anywhere; }}
article {{ border-left: 3px solid var(--line); padding: .2rem 0 .2rem 1rem; margin: 1.2rem 0; }}
article.user {{ border-color: #2a7de1; }} article.assistant {{ border-color: #2e9e5b; }}
article.summary {{ background: var(--soft); border-color: #b7791f; padding: .6rem 1rem; }}
article.error {{ border-color: #c53030; }}
article.aside {{ opacity: .6; }}
header {{ font-size: .85rem; margin-bottom: .3rem; }} header a {{ color: inherit; text-decoration: none; }}
header time, header em {{ opacity: .7; margin-left: .6rem; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font: inherit; unicode-bidi: isolate; }}
pre.code {{ font: .85rem/1.45 ui-monospace, monospace; background: var(--soft); padding: .6rem; border-radius: 4px; }}
details {{ margin: .4rem 0; }} summary {{ cursor: pointer; }} img {{ max-width: 100%; }}
</style>
</head>
<body>
"""


def html(reader: Reader) -> Iterator[str]:
    """The page, piece by piece."""
    row = reader.row
    yield _HEAD.format(title=_safe(row.task_key))
    yield f"<h1>{_safe(row.task_key)}</h1>\n<dl>\n"
    facts = {"task": row.uuid, "status": row.status, "user": row.user, "model": row.model, "created": row.created_at}
    yield from (f"<dt>{name}</dt><dd>{_safe(str(value))}</dd>\n" for name, value in facts.items() if value)
    yield "</dl>\n<main>\n"
    for passage in passages(reader):
        yield from _passage(passage)
    yield "</main>\n</body>\n</html>\n"


def _passage(passage: Passage) -> Iterator[str]:
    record, fate = passage.record, passage.fate
    if isinstance(record, Summary):
        current = "the model sees it" if fate == "shown" else "an earlier one"
        yield f'<article class="summary" id="s{record.id}">\n<header>'
        yield f"<b>summary of {record.start_seq} to {record.end_seq}</b><em>{current}</em></header>\n"
        yield f"{_text(record.summary)}</article>\n"
        return
    classes = " ".join([record.role, *["error"] * record.is_error, *["aside"] * (fate == "left out")])
    note = f"<em>{EXPLAINED[fate]}</em>" if fate in EXPLAINED else ""
    yield f'<article class="{classes}" id="m{record.seq}">\n<header><a href="#m{record.seq}">{record.seq}</a> '
    yield f"<b>{_speaker(record)}</b><time>{_safe(record.timestamp)}</time>{note}</header>\n"
    yield from _content(record)
    for call in record.tool_calls:
        yield f"<details>\n<summary>calls <b>{_safe(call.name)}</b></summary>\n{_code(call.arguments)}</details>\n"
    yield "</article>\n"


def _speaker(message: Message) -> str:
    if message.role != "tool":
        return message.role
    return f"{'error' if message.is_error else 'result'} of {_safe(message.tool_name or 'a tool')}"


def _content(message: Message) -> Iterator[str]:
    if message.role == "tool":
        text = message.text
        is_open = " open" if len(text) <= OPEN_CHARS else ""
        yield f"<details{is_open}>\n<summary>{len(text):,} characters</summary>\n{_code(text)}</details>\n"
    elif message.text:
        yield _text(message.text)
    for part in message.content if isinstance(message.content, list) else ():
        if part.text is None:
            yield _picture(part)


def _picture(part: Part) -> str:
    """A picture; what is none, or is not here, is a line of text."""
    if part.media_type in IMAGES and part.data is not None:
        try:
            data = base64.b64encode(base64.b64decode(part.data, validate=True)).decode()
        except binascii.Error:
            return "<p>[a picture that cannot be shown]</p>\n"
        return f'<img alt="" src="data:{part.media_type};base64,{data}">\n'
    return f"<p>[{_safe(part.type)} {_safe(part.media_type or part.name or '')} {_safe(part.url or '')}]</p>\n"


def _text(text: str) -> str:
    return f"<pre>{_safe(text)}</pre>\n"


def _code(text: str) -> str:
    return f'<pre class="code">{_safe(text)}</pre>\n'


def _safe(text: str) -> str:
    return escape(plain(text), quote=True)
