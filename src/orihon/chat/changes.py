"""Files that are not what the agent knows, and what it is told of them, in so many words at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from orihon.agent.tools.diff import Difference
from orihon.context.sticky import shown_path

TOLD_CHARS = 8000  # of all that the agent is told at once
NAMED = 20  # files that are named where their differences would be too long

By = Literal["agent", "user"]

_WORDS = {
    "en": {
        "user": "Files that you know were changed by somebody else. What you remember of them is out of date:\n",
        "agent": "Files that you know have changed while a command of yours ran:\n",
        "gone": "{}: gone, or cannot be read any more\n",
        "unknown": "{}: changed; read it again to see how\n",
        "known": "{}: {:,} lines added, {:,} removed\n{}\n",
        "more": "And these, which are too many to be shown here; read them again when you need them: {}\n",
    },
    "ja": {
        "user": "あなたが知っているファイルがほかの誰かによって変更されました。覚えている内容は古くなっています:\n",
        "agent": "あなたのコマンドの実行中に、知っているファイルが変わりました:\n",
        "gone": "{}: なくなったか、読めなくなりました\n",
        "unknown": "{}: 変更されました。内容は読み直してください\n",
        "known": "{}: {:,} 行追加、{:,} 行削除\n{}\n",
        "more": "ほかに次のファイルも変わりました。必要なときに読み直してください: {}\n",
    },
}


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not what the agent knows."""

    path: str
    by: By  # the agent's own command, or else
    is_gone: bool = False
    difference: Difference | None = None  # None where one of the two versions is not known


def told(changes: Sequence[Changed], language: str) -> str:
    """What the agent is told of them, in so many words at most; nothing when there is nothing to tell."""
    words = _WORDS[language]
    parts: list[str] = []
    room, left = TOLD_CHARS, []
    for by in ("user", "agent"):
        mine = [(change.path, _sentence(change, words)) for change in changes if change.by == by]
        if mine:
            parts.append(words[by])
        for path, sentence in mine:
            if len(sentence) <= room:
                parts.append(sentence)
                room -= len(sentence)
            else:
                left.append(path)
    if left:
        names = [shown_path(path) for path in left[:NAMED]]
        names += [f"… ({len(left) - NAMED:,})"] if len(left) > NAMED else []
        parts.append(words["more"].format(", ".join(names)))
    return "".join(parts)


def _sentence(change: Changed, words: Mapping[str, str]) -> str:
    path = shown_path(change.path)
    if change.is_gone:
        return words["gone"].format(path)
    made = change.difference
    if made is None or not made.text:
        return words["unknown"].format(path)
    return words["known"].format(path, made.added, made.removed, made.text)
