"""The texts that the chat shows, in the language of the terminal. They are in `texts.LANGUAGE.txt`, one per line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orihon._prompts import read
from orihon.chat.registry import ConversationListing
from orihon.terminal import Language, flat


class Texts:
    """The texts of one language."""

    def __init__(self, language: Language) -> None:
        self.language: Language = language
        lines = read(__package__, "texts", language).splitlines()
        self.texts = dict(line.split(" = ", 1) for line in lines if line)

    def __call__(self, name: str, /, **values: Any) -> str:
        """Return a text with its values filled in. A value cannot contain a line break."""
        values = {key: flat(value) if isinstance(value, str) else value for key, value in values.items()}
        return self.texts[name].format(**values)


def format_listings(listings: Sequence[ConversationListing], texts: Texts, *, current: str = "") -> str:
    """Return conversations, one per line; the current one is marked."""
    lines = [
        texts(
            "listing",
            mark="*" if listing.uuid == current else "-",
            name=listing.name,
            uuid=listing.uuid[:8],
            updated=listing.updated_at[:16].replace("T", " "),
            replies=listing.replies,
            tokens=listing.tokens,
            status=texts("in use") if listing.status == "running" and listing.uuid != current else "",
        )
        for listing in listings
    ]
    return "\n".join(lines) or texts("no conversations")
