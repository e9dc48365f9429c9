"""The chat at a terminal: a line that can be edited, with history and Tab, and answers as they come.

Nothing that a model or a tool says reaches the terminal but as text.
"""

from __future__ import annotations

import termios
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.shortcuts import CompleteStyle

from orihon.chat.terminal import typed
from orihon.chat.terminal.face import Lines, hung_up
from orihon.chat.terminal.words import Words
from orihon.terminal import printable

Offer = Callable[[str], Iterable[tuple[str, int]]]
PROMPT, MORE = "> ", "… "


class Screen(Lines):
    """A terminal."""

    interactive = True

    def __init__(self, words: Words, history: Path) -> None:
        self.words = words
        self.offer: Offer = lambda _: ()
        self._session: PromptSession[str] = PromptSession(
            history=_Typed(history),
            completer=_Offered(self),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            multiline=True,
            prompt_continuation=MORE,
            key_bindings=_keys(),
        )
        self._question: PromptSession[str] = PromptSession()

    def read(self, meter: str) -> str:
        """What is typed; Ctrl-C gives up a line that was begun, and is heard of when there is none."""
        while True:
            self.end()
            try:
                with patch_stdout():  # what other threads have to say stands above the line
                    return self._session.prompt(f"{printable(meter)}\n{PROMPT}")
            except KeyboardInterrupt:
                if not self._session.default_buffer.text:
                    raise
            except (OSError, termios.error):
                raise hung_up() from None

    note = Lines.show

    def error(self, message: str, hint: str) -> None:
        """As all commands of Orihon do."""
        self.show(f"orihon: {message}\n  {hint}")

    def ask(self, question: str) -> bool:
        """Whoever does not say yes says no."""
        self.show(question)
        try:
            return self._question.prompt(self.words("allow")).strip().lower() in {"y", "yes"}
        except EOFError:
            return False
        except (OSError, termios.error):
            raise hung_up() from None


class _Typed(History):
    """What was typed, in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        return reversed(typed.load(self._path))

    def store_string(self, string: str) -> None:
        typed.remember(self._path, string)


class _Offered(Completer):
    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
        for text, replaced in self._screen.offer(document.text_before_cursor):
            if text.isprintable():  # what would steer the terminal is not offered
                yield Completion(text, start_position=-replaced)


def _keys() -> KeyBindings:
    """Enter sends, unless a backslash ends the line; Esc and Enter begin a new line."""
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
