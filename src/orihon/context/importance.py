"""How important a message is: 0.5, more for errors, ends, plans and pictures, less for what can be had again.

    +0.3  an error            +0.2  thinking in the planning phase      -0.1  a tree of user interface elements
    +0.3  "done"              +0.1  a picture

Signals come from structure first: the error flag of a result, the fields of its JSON, the name of a tool, the type of
a part. Words count where they report something, in English and Japanese: "no errors" is no error, "not done yet" is no
end, and a tool's output is an error if it begins or ends as one. What the user or the system says is neither.

The score of a message is that of the moment when it was added. Only the phase can change later; where it counted, the
message keeps its score.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from orihon.context.tree import is_ui_tool, parse
from orihon.records import Message, Part

BASE = 0.5
ERROR, DONE, PLANNING_THOUGHT, PICTURE, UI_TREE = 0.3, 0.3, 0.2, 0.1, -0.1
PLANNING = frozenset({"planning", "plan", "計画", "計画中"})
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
_TOOL_ERROR = re.compile(
    r"\A\W*(?:error|fatal|panic|traceback|exception|[a-z]\w*(?:error|exception):|エラー|例外|失敗)"
    r"|\A[^\n]{0,200}(?:に失敗しました|エラーが発生しました)"
    r"|^Traceback \(most recent call last\)"
    r"|\bexit(?:ed)?(?: with)?(?: code| status)?[:= ]+[1-9]\d*\W*\Z",
    re.IGNORECASE | re.MULTILINE,
)
_DONE = re.compile(
    r'"done"\s*:\s*true'
    r"|\A\W*(?:all |it is |it's )?(?:done|finished|completed?)\s*[.!]"
    r"|\b(?:task|work|job|everything|all (?:the )?(?:steps|tasks|changes)|implementation|request)\s+"
    r"(?:is|are|has been|have been|was|were)?\s*(?:now |all |fully |successfully )*(?:done|complete[d]?|finished)\b"
    r"|\b(?:successfully|have|has) (?:completed|finished)\b"
    r"|(?<!未)(?:完了|終了)(?:しました|です|。|$)|(?:すべて|全て)(?:終わり|でき)ました",
    re.IGNORECASE | re.MULTILINE,
)
_NOT_DONE = re.compile(
    r"\b(?:not|never|isn't|aren't|hasn't|haven't|wasn't|until|once|when|after|if|before)\b[^.\n]{0,60}"
    r"\b(?:done|completed?|finished)\b"
    r"|未完了|(?:完了|終了)(?:して(?:い)?ま?せん|していない|したら|すれば|するまで)",
    re.IGNORECASE,
)
_PLAN = re.compile(
    r"<think|^\W*(?:(?:my|the|our) )?(?:plan|approach|strategy|steps?)\b|^\W*1[.)]\s"
    r"|\b(?:first|then|next),? (?:I|we|let)\b|\bI(?:'ll| will| plan to| am going to)\b"
    r"|計画|方針|手順|まず|次に",
    re.IGNORECASE | re.MULTILINE,
)
_UI_TREE = re.compile(
    r'"(?:elementsJson|webElements|AXRole|axTree|children|views|nodes)"\s*:\s*[\[{].{0,400}"(?:role|tag|bounds)"',
    re.DOTALL,
)
_FAILED = frozenset({"error", "failed", "failure", "fail"})


def importance(message: Message, *, phase: str = "") -> float:
    """Return the importance of a message, between 0 and 1: the one it was added with, or the one in a phase."""
    if message.importance is not None:
        return message.importance
    score = BASE
    score += ERROR if _is_error(message) else 0
    score += DONE if _is_done(message) else 0
    score += PLANNING_THOUGHT if phase.lower() in PLANNING and _is_thought(message) else 0
    score += PICTURE if _has_picture(message) else 0
    score += UI_TREE if is_ui_tree(message) else 0
    return min(1.0, max(0.0, round(score, 2)))


def weigh(message: Message, *, phase: str) -> Message:
    """Return a message that is added in a phase; it keeps its importance if that is another one than later."""
    if phase.lower() not in PLANNING or not _is_thought(message):
        return message
    return msgspec.structs.replace(message, importance=importance(message, phase=phase))


def _is_error(message: Message) -> bool:
    if message.role in {"system", "user"}:  # an instruction that speaks of errors is not one
        return False
    if message.role == "tool":
        return message.is_error or _reports_failure(message.text)
    return bool(_ERROR.search(_NO_ERROR.sub("", _ends(message.text))))


def _reports_failure(text: str) -> bool:
    """Return whether a result says that the tool failed: by its fields if it is JSON, else by its words."""
    value = parse(text) if len(text) <= 2 * LOOK_CHARS else None
    if not isinstance(value, dict):
        return value is None and bool(_TOOL_ERROR.search(_NO_ERROR.sub("", _ends(text)).strip()))
    if any(value.get(name) is False for name in ("success", "ok", "succeeded")):
        return True
    if any(value.get(name) not in (None, False, 0, "", [], {}) for name in ("error", "errors", "isError", "is_error")):
        return True
    code: Any = next((value[name] for name in ("exit_code", "exitCode", "returncode") if name in value), 0)
    return (isinstance(code, int) and code != 0) or str(value.get("status")).lower() in _FAILED


def _is_done(message: Message) -> bool:
    if any(call.name.lower() in DONE_TOOLS for call in message.tool_calls):
        return True
    return message.role == "assistant" and bool(_DONE.search(_NOT_DONE.sub("", _ends(message.text))))


def _is_thought(message: Message) -> bool:
    if message.role != "assistant":
        return False
    if any(call.name.lower() in THINK_TOOLS for call in message.tool_calls):
        return True
    items = message.native.items if message.native is not None else []
    return any(map(_is_thinking, items)) or bool(_PLAN.search(_ends(message.text)))


def _is_thinking(item: Any) -> bool:
    """Return whether an item of a provider's payload is reasoning."""
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return kind in ("thinking", "redacted_thinking", "reasoning") or any(
        item.get(name) for name in ("thought", "reasoning_content", "reasoning_details", "reasoning")
    )


def _has_picture(message: Message) -> bool:
    return isinstance(message.content, list) and any(is_picture(part) for part in message.content)


def is_picture(part: Part) -> bool:
    """Return whether a part is a picture."""
    return part.type == "image" or (part.media_type or "").startswith("image/")


def is_ui_tree(message: Message) -> bool:
    """Return whether a message is a tree of user interface elements, which can be had again."""
    if message.role != "tool":
        return False
    return is_ui_tool(message.tool_name) or bool(_UI_TREE.search(message.text[:LOOK_CHARS]))


def _ends(text: str) -> str:
    return text if len(text) <= 2 * LOOK_CHARS else f"{text[:LOOK_CHARS]}\n{text[-LOOK_CHARS:]}"
