"""`/checkpoint`, and what else touches the files: the way back to where they and the conversation were."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from orihon.chat.checkpoints import Checkpoint, Checkpoints, wish
from orihon.chat.terminal.undisturbed import undisturbed
from orihon.chat.workspace_checkpoints import FileChange, RestoreResult
from orihon.errors import UsageError

if TYPE_CHECKING:
    from orihon.chat.terminal.sitting import Chat

NAMED = 20  # files that are named; more are counted
LISTED = 50  # checkpoints that are listed
_RESTORE = re.compile(r"(\S+)(?:\s+(--hard))?")
_DIFF = re.compile(r"(\S+)(?:\s+(\S+))?")


def checkpoint(chat: Chat, argument: str) -> None:
    """Take one, or do with them what the first word says."""
    name, _, rest = argument.partition(" ")
    act = _ACTS.get(name)
    if act is not None:
        act(chat, rest.strip())
        return
    taken = needed(chat).take(argument)
    chat.face.note(chat.words("checkpoint taken", tag=taken.tag, label=taken.label))


def _list(chat: Chat, _: str) -> None:
    _show(chat, needed(chat).listing())


def _expand(chat: Chat, turn: str) -> None:
    if not turn:
        raise UsageError(chat.words("which checkpoint"), hint=chat.words("checkpoints hint"))
    _show(chat, needed(chat).listing(turn) or [needed(chat).find(turn)])


def _show(chat: Chat, found: Sequence[Checkpoint]) -> None:
    lines = [
        chat.words(
            "checkpoint line", tag=one.tag, label=one.label, files=one.files, when=one.timestamp[:16].replace("T", " ")
        )
        for one in found[-LISTED:]
    ]
    chat.face.show("\n".join(lines) or chat.words("no checkpoints"))


def _diff(chat: Chat, argument: str) -> None:
    asked = _DIFF.fullmatch(argument)
    if asked is None:
        raise UsageError(chat.words("which checkpoint"), hint=chat.words("checkpoints hint"))
    chat.face.show(needed(chat).diff(asked[1], asked[2] or "") or chat.words("no difference"))


def _restore(chat: Chat, argument: str) -> None:
    asked = _RESTORE.fullmatch(argument)
    if asked is None:
        raise UsageError(chat.words("which checkpoint"), hint=chat.words("checkpoints hint"))
    with undisturbed():
        restored = needed(chat).restore(asked[1], hard=bool(asked[2]))
    chat.files.went_back()
    chat.face.note(chat.words("restored", tag=asked[1]))
    tell(chat, restored)


def _clean(chat: Chat, _: str) -> None:
    chat.face.note(chat.words("cleaned", count=needed(chat).clean()))


def _on(chat: Chat, _: str) -> None:
    wish(chat.conversation, wanted=True)
    chat.files.open_checkpoints()
    chat.face.note(chat.words("checkpoints on"))


def _off(chat: Chat, _: str) -> None:
    wish(chat.conversation, wanted=False)
    chat.files.open_checkpoints()
    chat.face.note(chat.words("checkpoints off"))


def complete(chat: Chat, _: str) -> Iterable[str]:
    """The first words, and the numbers that there are."""
    tags = [one.tag for one in chat.files.checkpoints.listing()] if chat.files.checkpoints is not None else []
    acts = [*_ACTS, *(f"{name} {tag}" for name in ("expand", "diff", "restore") for tag in tags)]
    return [*acts, *(f"restore {tag} --hard" for tag in tags)]


def needed(chat: Chat) -> Checkpoints:
    """The checkpoints, where there are some."""
    if chat.files.checkpoints is None:
        raise UsageError(chat.words("checkpoints are off"), hint=chat.words("checkpoints off hint"))
    return chat.files.checkpoints


def tell(chat: Chat, restored: RestoreResult) -> None:
    """What a restore did to the files."""
    groups = {"written": restored.written, "removed": restored.removed, "kept files": restored.kept}
    for name, paths in groups.items():
        if paths:
            chat.face.note(chat.words(name, count=len(paths), paths=_named(paths)))
    for one in restored.skipped:
        chat.face.note(f"{one.path} {one.reason}")


def changed(changes: Sequence[FileChange]) -> str:
    """Files by name, as many as can be read."""
    return _named([f"{one.status} {one.path}" for one in changes])


def _named(paths: Sequence[str]) -> str:
    more = f", … (+{len(paths) - NAMED})" if len(paths) > NAMED else ""
    return ", ".join(ascii(path)[1:-1] if not path.isprintable() else path for path in paths[:NAMED]) + more


_ACTS: dict[str, Callable[[Chat, str], None]] = {
    "list": _list,
    "expand": _expand,
    "diff": _diff,
    "restore": _restore,
    "clean": _clean,
    "on": _on,
    "off": _off,
}
