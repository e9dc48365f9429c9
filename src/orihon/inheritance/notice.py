"""The comment that says that a task inherits from an earlier run. The Japanese text is that of the specification."""

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
📋 **Inherited the context of an earlier run**

- From: #{short}
- Date of that run: {ended}
- Inherited: its final summary

The current request is handled with the earlier work in mind."""


def render_notice(previous: Previous, language: Language = "ja") -> str:
    """Return the text of the comment."""
    text = _JA if language == "ja" else _EN
    return text.format(short=previous.short, ended=format_end(previous))


def format_end(previous: Previous) -> str:
    """Return when a run ended, as in `2024-01-15 10:45 UTC`."""
    return f"{previous.ended[:10]} {previous.ended[11:16]} UTC"
