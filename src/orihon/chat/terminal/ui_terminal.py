"""The chat at a terminal: a line editor with history and Tab completion.

The history of each directory is a file with one JSON string per line, readable by its owner only, with secrets masked.
Text from models and tools cannot control the terminal.
"""

from __future__ import annotations

import json
import os
import termios
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.shortcuts import CompleteStyle

from orihon.chat.i18n import Texts
from orihon.chat.registry import name_directory
from orihon.chat.terminal.ui import ChatUI, is_yes, make_hangup
from orihon.errors import StoreError
from orihon.ingest import mask_output
from orihon.stores.files import make_directory, open_file, warn_if_open
from orihon.terminal import escape

Complete = Callable[[str], Iterable[tuple[str, int]]]
PROMPT, CONTINUATION = "> ", "… "
MAX_LINES = 1000  # of the input history
MAX_BYTES = 4_000_000


class TerminalUI(ChatUI):
    """A terminal with a line editor."""

    def __init__(self, texts: Texts, history: Path) -> None:
        super().__init__(texts)
        self.complete: Complete = lambda _: ()
        self._session: PromptSession[str] = PromptSession(
            history=InputHistory(history),
            completer=_Completer(self),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            multiline=True,
            prompt_continuation=CONTINUATION,
            key_bindings=_bind_keys(),
        )
        self._question: PromptSession[str] = PromptSession()

    def read(self, meter: str) -> str:
        """Return the typed text. Ctrl-C discards a line; on an empty one it raises KeyboardInterrupt."""
        while True:
            self.end_line()
            try:
                with patch_stdout():  # output of other threads appears above the line
                    return self._session.prompt(f"{escape(meter)}\n{PROMPT}")
            except KeyboardInterrupt:
                if not self._session.default_buffer.text:
                    raise
            except (OSError, termios.error):
                raise make_hangup() from None

    def note(self, text: str) -> None:
        self.show(text)

    def ask(self, question: str) -> bool:
        self.show(question)
        try:
            return is_yes(self._question.prompt(f"{self.texts('allow')} "))
        except EOFError:
            return False
        except (OSError, termios.error):
            raise make_hangup() from None


class InputHistory(History):
    """The typed lines of one directory, in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return the stored lines, the newest first; unreadable ones are left out."""
        warn_if_open(self.path)
        texts = []
        for line in reversed(_read_tail(self.path, MAX_BYTES)[-MAX_LINES:]):
            with suppress(ValueError, RecursionError):
                text = json.loads(line)
                if isinstance(text, str):
                    texts.append(text)
        return texts

    def store_string(self, string: str) -> None:
        """Store a line. Errors are ignored, because the history is only a convenience."""
        with suppress(OSError, StoreError):
            if not self.path.parent.exists():
                make_directory(self.path.parent)
            _append(self.path, json.dumps(mask_output(string)).encode() + b"\n")
            if self.path.stat().st_size > MAX_BYTES:
                temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
                _append(temporary, b"".join(line + b"\n" for line in _read_tail(self.path, MAX_BYTES // 2)))
                temporary.replace(self.path)


def find_history(directory: Path, environ: Mapping[str, str]) -> Path:
    """Return the path of the input history of a directory."""
    home = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "orihon" / "chat" / f"{name_directory(directory)}.jsonl"


def _append(path: Path, data: bytes) -> None:
    with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
        file.write(data)


def _read_tail(path: Path, size_bytes: int) -> list[bytes]:
    """Return the last lines of a file; the first of them may be incomplete."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(fd, "rb") as file:
        file.seek(max(0, os.fstat(fd).st_size - size_bytes))
        return file.read(size_bytes).splitlines()


class _Completer(Completer):
    def __init__(self, ui: TerminalUI) -> None:
        self._ui = ui

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
        for text, length in self._ui.complete(document.text_before_cursor):
            if text.isprintable():
                yield Completion(text, start_position=-length)


def _bind_keys() -> KeyBindings:
    """Enter sends, or continues after a backslash; Esc Enter starts a new line."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys
