"""How important a message is: 0.5, more for errors, ends, plans and pictures, less for what can be had again.

    +0.3  an error            +0.2  thinking in the planning phase      -0.1  a tree of user interface elements
    +0.3  "done"              +0.1  a picture

Signals come from structure first: the error flag of a result, the name of a tool, the type of a part. Words are asked
only where a message has no structure to speak of, and "no errors" is not an error.
"""

from __future__ import annotations

import re

from orihon.context.tree import is_ui_tool
from orihon.records import Message, Part

BASE = 0.5
ERROR, DONE, PLANNING_THOUGHT, PICTURE, UI_TREE = 0.3, 0.3, 0.2, 0.1, -0.1
PLANNING = "planning"
LOOK_CHARS = 4000  # words are looked for at the beginning and at the end of a long text

DONE_TOOLS = frozenset({"done", "finish", "complete", "completed", "submit", "attempt_completion", "task_complete"})
THINK_TOOLS = frozenset({"think", "thinking", "plan"})

_ERROR = re.compile(
    r"\b(?:[A-Z]\w*(?:Error|Exception)\b|(?:error|fatal|panic|traceback|failed|failure)\b)|エラー|失敗|例外",
    re.IGNORECASE,
)
_NO_ERROR = re.compile(
    r"\b(?:no|without|zero|0|any|fixed(?: the)?|resolved(?: the)?)\s+(?:\w+\s+)?"
    r"(?:errors?|failures?|exceptions?|failed)\b"
    r"|\b(?:errors?|failures?|failed)\s*[:=]\s*0\b"
    r"|エラー(?:は|が)?(?:なし|無し|ありません|ない)|(?:失敗|例外)(?:なし|ありません)",
    re.IGNORECASE,
)
_DONE = re.compile(r'"done"\s*:\s*true|完了(?:しました|です|。|$)', re.MULTILINE)
_UI_TREE = re.compile(
    r'"(?:elementsJson|webElements|AXRole|axTree|children)"\s*:\s*[\[{].{0,400}"(?:role|tag|bounds)"', re.DOTALL
)


def importance(message: Message, *, phase: str = "") -> float:
    """Between 0 and 1."""
    score = BASE
    score += ERROR if _is_error(message) else 0
    score += DONE if _is_done(message) else 0
    score += PLANNING_THOUGHT if phase == PLANNING and _is_thought(message) else 0
    score += PICTURE if _has_picture(message) else 0
    score += UI_TREE if is_ui_tree(message) else 0
    return min(1.0, max(0.0, round(score, 2)))


def _is_error(message: Message) -> bool:
    if message.role == "tool":
        return message.is_error
    if message.role in {"system", "user"}:  # an instruction that speaks of errors is not one
        return False
    return bool(_ERROR.search(_NO_ERROR.sub("", _ends(message.text))))


def _is_done(message: Message) -> bool:
    if any(call.name.lower() in DONE_TOOLS for call in message.tool_calls):
        return True
    return message.role == "assistant" and bool(_DONE.search(_ends(message.text)))


def _is_thought(message: Message) -> bool:
    if message.role != "assistant":
        return False
    return message.native is not None or any(call.name.lower() in THINK_TOOLS for call in message.tool_calls)


def _has_picture(message: Message) -> bool:
    return isinstance(message.content, list) and any(is_picture(part) for part in message.content)


def is_picture(part: Part) -> bool:
    """Whether a part is a picture."""
    return part.type == "image" or (part.media_type or "").startswith("image/")


def is_ui_tree(message: Message) -> bool:
    """Whether a message is a tree of user interface elements, which can be had again."""
    if message.role != "tool":
        return False
    return is_ui_tool(message.tool_name) or bool(_UI_TREE.search(message.text[:LOOK_CHARS]))


def _ends(text: str) -> str:
    return text if len(text) <= 2 * LOOK_CHARS else f"{text[:LOOK_CHARS]}\n{text[-LOOK_CHARS:]}"
