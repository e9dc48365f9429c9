"""A page as Markdown, to copy into an issue or a chat. Texts are quoted or fenced: none of them is a heading."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from orihon.ops.export import TimelineEntry, escape_markdown, fence, quote, render_markdown_entry
from orihon.records import Message
from orihon.view.page import Page, Words
from orihon.view.pages import Entry
from orihon.view.windows import Change, Difference, Item, SeenWindow


def render(page: Page, words: Words) -> str:
    """Return a page as Markdown. A page of figures is its JSON in a fence."""
    return "".join([*_heading(page), *_FORMS.get(page.template, _render_json)(page, words)])


def _heading(page: Page) -> Iterator[str]:
    task = page.data.get("task")
    if isinstance(task, dict):
        yield f"# {escape_markdown(task['task_key'])}\n\n{task['uuid']} · {task['status']}\n"


def _render_conversation(page: Page, words: Words) -> Iterator[str]:  # noqa: ARG001
    entries: list[Entry] = page.more["entries"]
    for entry in entries:
        visibility = "folded" if entry.visibility in {"folded", "changed"} else entry.visibility
        shown = visibility if visibility in {"shown", "folded", "summarised"} else "left out"
        yield from render_markdown_entry(TimelineEntry(entry.record, shown))  # type: ignore[arg-type]


def _render_message(page: Page, words: Words) -> Iterator[str]:  # noqa: ARG001
    message: Message = page.more["record"]
    whole = msgspec.structs.replace(message, content=page.data["text"]) if message.blob else message
    yield from render_markdown_entry(TimelineEntry(whole, "shown"))


def _render_window(page: Page, words: Words) -> Iterator[str]:
    seen: SeenWindow = page.more["seen"]
    title = words("window_now") if page.data["is_next"] else words("window_of", n=seen.call)
    yield f"\n{title}: {seen.tokens:,} {words('of_tokens', limit=f'{seen.limit:,}')}\n"
    for item in seen.items:
        yield from _render_item(item, words("state_" + item.state), words)


def _render_item(item: Item, state: str, words: Words) -> Iterator[str]:
    if item.message is None:
        reason = words("why_" + item.reason.replace(" ", "_"))
        yield f"\n_{words('hidden_n', n=item.count, first=item.first, last=item.last)}: {reason}_\n"
        return
    message = item.message
    name = f" {escape_markdown(message.tool_name)}" if message.tool_name else ""
    place = f"m{message.seq} " if message.seq else ""
    source = words("source_" + item.source.replace(" ", "_"))
    tokens = words("tokens_n", n=f"{item.tokens:,}")
    yield f"\n## {place}{source}{name} · _{state}_ · {tokens}\n\n"
    if message.text:
        yield fence(message.text) if message.role == "tool" else f"{quote(message.text)}\n"
    for call in message.tool_calls:
        yield f"\n**{escape_markdown(call.name)}**\n\n{fence(call.arguments, 'json')}"


def _render_difference(page: Page, words: Words) -> Iterator[str]:
    seen: Difference = page.more["seen"]
    yield f"\n{words('difference', before=page.data['before'], after=page.data['after'])}\n\n"
    yield f"- {words('tokens')}: {seen.before.tokens:,} → {seen.after.tokens:,}\n"
    place = words("only_grew")
    if seen.first_byte is not None:
        place = words("byte_of", byte=f"{seen.first_byte:,}", count=f"{seen.bytes_before:,}")
    yield f"- {words('first_byte')}: {place}\n"
    lost = 0 if seen.first_byte is None else seen.lost_tokens
    yield f"- {words('cache_lost')}: {words('tokens_n', n=f'{lost:,}')}\n"
    for change in seen.changes:
        yield from _render_change(change, words)


def _render_change(change: Change, words: Words) -> Iterator[str]:
    item = change.after or change.before
    if change.change != "same" and item is not None:
        yield from _render_item(item, words("change_" + change.change), words)


def _render_json(page: Page, words: Words) -> Iterator[str]:  # noqa: ARG001
    yield "\n" + fence(msgspec.json.format(msgspec.json.encode(page.data), indent=2).decode(), "json")


_FORMS: dict[str, Callable[[Page, Words], Iterator[str]]] = {
    "task.html": _render_conversation,
    "message.html": _render_message,
    "call.html": _render_window,
    "difference.html": _render_difference,
}
