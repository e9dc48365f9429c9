"""The comment that says that a task goes on from an earlier run; the words are those of the specification."""

from __future__ import annotations

from typing import Literal

from orihon.inheritance.search import Previous

Language = Literal["ja", "en"]

_JA = """\
📋 **過去のコンテキストを引き継ぎました**

- 引き継ぎ元: #{short}
- 前回処理日時: {ended}
- 引き継ぎ内容: 最終要約

過去の処理内容を考慮して、現在の要求に対応します。"""
_EN = """\
📋 **Context of an earlier run was taken over**

- From: #{short}
- Date of that run: {ended}
- What was taken over: its final summary

The present request is handled with the earlier work in mind."""


def notice(previous: Previous, language: Language = "ja") -> str:
    """The text of the comment."""
    text = _JA if language == "ja" else _EN
    return text.format(short=previous.short, ended=date_of(previous))


def date_of(previous: Previous) -> str:
    """When a run ended, for people: `2024-01-15 10:45 UTC`."""
    return f"{previous.ended[:10]} {previous.ended[11:16]} UTC"
