"""Commands that change where the conversation stands: what is visible, who answers, which one it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from orihon.chat import book, document
from orihon.chat.conversation import STOPPED
from orihon.chat.prompts import system
from orihon.chat.terminal import saving
from orihon.chat.terminal.looking import number
from orihon.chat.terminal.undisturbed import undisturbed
from orihon.errors import UsageError
from orihon.terminal import duration

if TYPE_CHECKING:
    from orihon.chat.terminal.sitting import Chat

_END = re.compile(r"end(?:\s+(none|tail|summary))?")
_FROM = re.compile(r"from\s+(\S+)")


def compact(chat: Chat, focus: str) -> None:
    """Summarise what is older; by the summariser of the settings, or by the model itself when it has to know why."""
    task = chat.conversation.task
    before = task.summariser
    if focus and before is None:
        task.summariser = chat.model.ask
    try:
        made = task.compact(focus=focus)
    finally:
        task.summariser = before
    if made is None:
        chat.face.show(chat.words("nothing to compact"))
        return
    chat.face.show(made.outcome.text)
    counts = {"before": made.outcome.original_tokens, "after": made.outcome.tokens}
    chat.face.note(chat.words("compacted", messages=made.messages, **counts))


def undo(chat: Chat, _: str) -> None:
    """Take back the last step."""
    task = chat.conversation.task
    possible = task.history.view.undoable
    restored = None
    with undisturbed():
        if possible and chat.files.checkpoints is not None:
            restored = chat.files.checkpoints.undo(possible[-1].event)
        task.undo()  # it says when there is none
    if restored is not None:
        saving.tell(chat, restored)
    chat.files.went_back()
    chat.face.note(chat.words("undone", what=chat.words(possible[-1].type)))


def rewind(chat: Chat, argument: str) -> None:
    """Back to a message; without one, to before the last question."""
    task = chat.conversation.task
    if argument:
        seq = number(chat, argument)
    else:
        visible = task.history.backwards(task.history.view.state.ranges)
        asked = next((message for message in visible if message.role == "user"), None)
        if asked is None:
            raise UsageError(chat.words("nothing to rewind"))
        seq = asked.seq - 1
    task.rewind(seq)
    chat.face.note(chat.words("rewound", seq=seq))
    if task.wants_reply():
        chat.face.note(chat.words("unanswered"))


def clear(chat: Chat, _: str) -> None:
    """Begin anew."""
    chat.conversation.clear()
    chat.face.note(chat.words("cleared"))


def tangent(chat: Chat, argument: str) -> None:
    """Open a side conversation, say that one has begun already, or leave it."""
    if ended := _END.fullmatch(argument):
        _end(chat, ended[1] or "none")
    elif begun := _FROM.fullmatch(argument):
        seq = number(chat, begun[1])
        chat.conversation.enter_tangent(after=seq)
        chat.face.note(chat.words("tangent from", seq=seq))
    elif argument == "back":
        _put_back(chat)
    else:
        chat.conversation.enter_tangent(
            commit=chat.files.checkpoints.opened() if chat.files.checkpoints is not None else ""
        )
        chat.face.note(chat.words("tangent begun"))
        if argument:
            chat.say(argument)


def _end(chat: Chat, keep: str) -> None:
    seconds = chat.conversation.tangent_seconds or 0
    opened = chat.conversation.tangents[-1:]
    chat.conversation.leave_tangent(keep)  # type: ignore[arg-type]  # the pattern allows no other
    chat.files.went_back()
    kept = chat.words("kept summary" if keep == "summary" else keep)
    place = "tangent deeper" if chat.conversation.is_in_tangent else "tangent ended"
    chat.face.note(chat.words(place, duration=duration(seconds, chat.words.language), kept=kept))
    if chat.files.checkpoints is not None:
        chat.before_tangent, changes = chat.files.checkpoints.changed_inside(opened[0].event, opened[0].after)
        if changes:
            chat.face.note(chat.words("changed inside", paths=saving.changed(changes)))


def _put_back(chat: Chat) -> None:
    """The files as they were before the tangent that was left last."""
    if not chat.before_tangent:
        raise UsageError(chat.words("nothing to put back"), hint=chat.words("checkpoints off hint"))
    with undisturbed():
        restored = saving.needed(chat).put_back(chat.before_tangent)
    saving.tell(chat, restored)
    chat.before_tangent = ""
    chat.face.note(chat.words("files back"))


def retry(chat: Chat, _: str) -> None:
    """Ask for the answer that is missing, or was cancelled."""
    task = chat.conversation.task
    newest = next(task.history.backwards(task.history.view.state.ranges), None)
    if newest is not None and newest.role == "assistant" and newest.text.endswith(STOPPED):
        task.rewind(newest.seq - 1)
    elif not task.wants_reply():
        raise UsageError(chat.words("again"))
    chat.answer("/retry")


def model(chat: Chat, argument: str) -> None:
    """Show the model, or go on with another one."""
    if argument:
        chat.use(argument)
    window = chat.conversation.task.config.context_length
    chat.face.show(chat.words("model", model=chat.model.name, window=window))


def resume(chat: Chat, argument: str) -> None:
    """Go on in another conversation."""
    found = book.find(chat.engine, chat.directory, argument, user=chat.user)
    if found.uuid == chat.conversation.conversation_id:
        raise UsageError(chat.words("already open"), hint=chat.words("named", name=found.name, uuid=found.uuid))
    chat.open(book.resume(chat.engine, found.uuid, tell=chat.face.note))


def save(chat: Chat, argument: str) -> None:
    """Write the conversation to a file."""
    path = _path(chat, argument)
    count = document.write(chat.conversation, path, chat.files.parts())
    chat.face.note(chat.words("saved", path=path, count=count))


def load(chat: Chat, argument: str) -> None:
    """Go on in a new conversation with what a file holds; model and tools are those of now."""
    task, setup = chat.conversation.task, chat.setup
    kept = {name: getattr(task.config, name) for name in ("model", "llm_provider", "context_length")}
    loaded = document.read(
        chat.engine,
        _path(chat, argument),
        chat.directory,
        tell=chat.face.note,
        user=task.row.user,
        tools=setup.tools.schemas,
        system=system(chat.words.language, setup.settings.system_prompt),
        **kept,
    )
    chat.open(loaded)


def _path(chat: Chat, argument: str) -> Path:
    if not argument:
        raise UsageError(chat.words("no file"), hint=chat.words("no file hint"))
    return chat.directory / Path(argument).expanduser()
