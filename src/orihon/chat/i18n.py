"""Texts for users and for the model in English and Japanese. They are in `texts.LANGUAGE.txt`, one per line."""

from __future__ import annotations

from typing import Any

from orihon._prompts import read, read_table
from orihon.terminal import Language, escape_line


class Texts:
    """The texts of one language."""

    def __init__(self, language: Language) -> None:
        self.language: Language = language
        self.texts = read_table("orihon.chat", "texts", language)

    def __call__(self, name: str, /, **values: Any) -> str:
        """Return a text with its values filled in. A value cannot contain a line break."""
        values = {key: escape_line(value) if isinstance(value, str) else value for key, value in values.items()}
        return self.texts[name].format(**values)

    @property
    def system_prompt(self) -> str:
        """The system prompt of a conversation."""
        return read("orihon.chat", "system_prompt", self.language).strip()
