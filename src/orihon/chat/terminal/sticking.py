"""`/context`: the files that are in every window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from orihon.chat.sticky import Changes, Listing
from orihon.chat.terminal.paths import paths
from orihon.errors import UsageError

if TYPE_CHECKING:
    from orihon.chat.terminal.sitting import Chat
    from orihon.chat.weighing import Row

FORCE = "--force "  # also what is not there yet


def context(chat: Chat, argument: str) -> None:
    """Add something, take it out, or show what there is."""
    verb, _, given = argument.partition(" ")
    given = given.strip()
    if verb in {"", "show"} and not given:
        _show(chat, chat.files.sticky.refresh().listing)
    elif verb == "add" and given:
        _tell(chat, chat.files.sticky.add(given.removeprefix(FORCE).strip(), force=given.startswith(FORCE)))
    elif verb == "remove" and given:
        _tell(chat, chat.files.sticky.remove(given))
    else:
        raise UsageError(chat.words("context how"), hint=chat.words("context hint"))


def offered(chat: Chat, argument: str) -> Iterable[str]:
    """How Tab goes on."""
    verb, space, given = argument.partition(" ")
    if not space:
        return ["add ", "remove ", "show"]
    found = paths(given, chat.directory) if verb == "add" else chat.files.sticky.declared if verb == "remove" else ()
    return [f"{verb} {one}" for one in found]


def _tell(chat: Chat, changes: Changes) -> None:
    for name in ("added", "removed"):
        if found := getattr(changes, name):
            chat.face.note(chat.words(f"sticky {name}", files=", ".join(found)))
    _show(chat, changes.listing)


def _show(chat: Chat, listing: Listing) -> None:
    head = chat.words(
        "sticky",
        tokens=listing.tokens,
        most=listing.max_tokens,
        percent=round(100 * listing.tokens / listing.max_tokens),
    )
    chat.face.show("\n".join([head, *map(_line, listing.rows)]))


def _line(row: Row) -> str:
    size = f"{row.tokens:>9,}  {100 * row.share:>4.1f} %" if row.shown else f"{'—':>9}  {'':>6}"
    return f"  {size}  {row.path}" + (f": {row.note}" if row.note else "")
