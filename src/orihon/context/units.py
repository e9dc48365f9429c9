"""A unit: calls and their results, or a message that stands alone. Units are never torn.

Some providers and session files give the items of one reply one by one: words, then a call, then another call. Such
neighbours, with no result between them, are one unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orihon.records import Message


def units_of(messages: Iterable[Message]) -> list[list[Message]]:
    """Return the units in the order in which they begin. A late result still belongs to its call."""
    units: list[list[Message]] = []
    owner: dict[str, int] = {}
    for message in messages:
        if message.role == "tool" and (place := _place(message, units, owner)) is not None:
            units[place].append(message)
            continue
        if units and is_same_reply(units[-1][-1], message):
            units[-1].append(message)
        else:
            units.append([message])
        owner |= {call.id: len(units) - 1 for call in message.tool_calls}
    return units


def is_same_reply(before: Message, message: Message) -> bool:
    """Return whether a message and the one right before it are items of one reply; words alone are a reply each."""
    return before.role == message.role == "assistant" and bool(before.tool_calls or message.tool_calls)


def exchanges_of(units: Sequence[Sequence[Message]]) -> dict[int, int]:
    """Return the place of each question by that of its answer: the last words before the user speaks again.

    While the answer to the last question may still come, the newest unit belongs to that question too.
    """
    found: dict[int, int] = {}
    question = answer = None
    for place, unit in enumerate(units):
        message = unit[0]
        if message.role == "user":
            if question is not None and answer is not None:
                found[answer] = question
            question, answer = place, None
        elif message.role == "assistant" and not message.tool_calls:
            answer = place
    if question is not None:
        found |= dict.fromkeys({answer or question, len(units) - 1} - {question}, question)
    return found


def questions_of(messages: Iterable[Message]) -> dict[int, int]:
    """Return the number of each question by those of the units that stand or are hidden with it."""
    units = units_of(messages)
    return {units[answer][0].seq: units[question][0].seq for answer, question in exchanges_of(units).items()}


def is_waiting(unit: Sequence[Message]) -> bool:
    """Return whether some call of a unit has no result yet."""
    return sum(message.role == "tool" for message in unit) < sum(len(message.tool_calls) for message in unit)


def after_prompt(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages after the system prompt, with which the log begins. Later system messages are notes."""
    place = 0
    while place < len(messages) and is_prompt(messages[place], place):
        place += 1
    return messages[place:]


def is_prompt(message: Message, place: int) -> bool:
    """Return whether a message belongs to the system prompt, given that all messages before it do."""
    return message.role == "system" and message.seq == place + 1


def unit_at(messages: Iterable[Message]) -> list[Message]:
    """Return the first message, with the neighbours that belong to the same reply, and what answers their calls."""
    unit: list[Message] = []
    waiting: set[str] = set()
    for message in messages:
        if not unit or is_same_reply(unit[-1], message):
            unit.append(message)
            waiting |= {call.id for call in message.tool_calls}
        elif message.tool_call_id in waiting:
            unit.append(message)
            waiting.remove(message.tool_call_id)  # some servers use the same id again in the next reply
        elif not waiting:
            break
    return unit


def _place(message: Message, units: list[list[Message]], owner: dict[str, int]) -> int | None:
    if message.tool_call_id in owner:
        return owner[message.tool_call_id]
    # results without an id, as older formats have them, belong to the calls right before them
    return len(units) - 1 if units and any(one.tool_calls for one in units[-1]) else None
