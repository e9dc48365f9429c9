"""One sitting: what the person types is said, or is a command, until he leaves.

An answer that he does not want is cancelled, and what was heard of it stays. What goes wrong is a sentence in the
transcript, and the chat goes on. Leaving, by whatever way, pauses the conversation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from orihon.agent.loop import Limits, Loop, Step
from orihon.agent.models import Model
from orihon.agent.models.base import RESTART_NOTICE
from orihon.agent.run_setup import RunSetup
from orihon.chat.conversation import Conversation
from orihon.chat.files import Files
from orihon.chat.modelinfo import context_length
from orihon.chat.terminal import commands
from orihon.chat.terminal.face import Face
from orihon.chat.terminal.looking import newest
from orihon.chat.terminal.meter import Meter
from orihon.chat.terminal.undisturbed import undisturbed
from orihon.chat.terminal.words import Words
from orihon.errors import LeaseLost, OrihonError, StoreError, UsageError
from orihon.task.config import TaskConfig

LINE_CHARS = 160
REMINDED = 6  # entries that a resumed conversation shows


class Chat:
    """A person, a conversation, and the model and tools of a setup. Use it in a `with` block."""

    def __init__(self, conversation: Conversation, setup: RunSetup, face: Face, words: Words) -> None:
        self.setup, self.face, self.words = setup, face, words
        self.engine, self.directory = setup.engine, conversation.workspace
        self._turn_to(conversation)
        self.code = 0  # of the last thing that went wrong
        self.before_tangent = ""  # the files as they were before the tangent that was left last
        self._models = {setup.model.name: setup.model}
        self._heard: list[str] = []
        self._last = 0  # the newest message when the model was asked

    def run(self) -> int:
        """Until the person leaves; the exit code says whether something went wrong in a pipe."""
        while True:
            try:
                self.take(self.face.read(self.meter.line()))
            except KeyboardInterrupt:
                if not self.face.interactive:
                    raise
                self.face.note(self.words("leave"))
            except (EOFError, commands.Leave):
                break
        self.face.note(self.words("left", name=self.conversation.name))
        return 0 if self.face.interactive else self.code

    def take(self, line: str) -> None:
        """Carry out a command, or say it."""
        if not line.strip():
            return
        try:
            if line.startswith("/"):
                commands.run(self, line)
            else:
                self.say(line)
        except LeaseLost:
            raise  # somebody else has the conversation now
        except OrihonError as error:
            self._fail(error)

    def say(self, text: str) -> None:
        """Say something, and show what is answered."""
        self.conversation.say(text)
        self.answer(text)

    def answer(self, prompt: str) -> None:
        """Let the model answer what was said last, and keep how the files are then."""
        try:
            self._ask()
        except OrihonError:
            self.files.after_turn(prompt)
            raise
        self.files.after_turn(prompt)

    def _ask(self) -> None:
        """Ask the model, and run all the tools that it asks for."""
        task = self.conversation.task
        # a person who goes on may go on for ever; what runs away is stopped
        limits = Limits(calls=task.row.llm_call_count + self.setup.settings.max_llm_process_num)
        self._heard, self._last = [], task.history.last
        try:
            Loop(
                task,
                self.model,
                self.setup.tools,
                checks=(self.files.before_reply,),
                limits=limits,
                on_step=self._watch,
            ).run_until_done()
        except KeyboardInterrupt:
            with undisturbed():
                # what is stored already is not heard twice
                heard = "".join(self._heard) if task.history.last == self._last else ""
                self.conversation.cancel(heard)
            self.face.note(self.words("cancelled"))
            if not self.face.interactive:
                raise
        finally:
            self.face.end()

    @property
    def user(self) -> str | None:
        """Whose conversations these are; None where there is only one person."""
        return self.setup.user

    @property
    def model(self) -> Model:
        """The model of the conversation; leaving a tangent, or going back, may bring another one."""
        return self._opened(name_of(self.conversation.task.config))

    def use(self, name: str) -> None:
        """Go on with another model, whose window may be another one."""
        model = self._opened(name)
        length = self.setup.job.context_length or context_length(model.name, self.setup.settings)
        provider, _, rest = model.name.partition(":")
        changes = {"llm_provider": provider, "model": model.name if provider == "scripted" else rest}
        self.conversation.task.reconfigure(**changes, **({"context_length": length} if length else {}))

    def _opened(self, name: str) -> Model:
        if name not in self._models:
            model = self.setup.open_model(name)
            name = model.name
            self._models.setdefault(name, model)
        return self._models[name]

    def open(self, conversation: Conversation) -> None:
        """Go on in another conversation; this one is paused."""
        self.conversation.close()
        self._turn_to(conversation)
        self.begin()

    def _turn_to(self, conversation: Conversation) -> None:
        setup = self.setup
        self.conversation = conversation
        self.meter = Meter(conversation, self.words, setup.job.prices)
        self.files = Files(conversation, setup.tools, setup.settings)

    def begin(self) -> None:
        """Give the conversation the tools and the summariser of today, and show where it stands."""
        task, face = self.conversation.task, self.face
        task.summariser = self.setup.summariser
        task.reconfigure(tools=self.setup.tools.schemas)
        self.before_tangent = ""
        self.files.begin()
        if not self.conversation.turn and self.conversation.next_message is None:
            face.note(self.words("begun", name=self.conversation.name, model=name_of(task.config)))
            return
        face.note(self.words("resumed", name=self.conversation.name, model=name_of(task.config)))
        for text in newest(self.conversation, REMINDED):
            face.note(text)
        if self.conversation.next_message is not None:
            face.note(self.words("sent"))
            self.conversation.send()
        if task.wants_reply():
            face.note(self.words("unanswered"))

    def close(self) -> None:
        """Pause the conversation."""
        with undisturbed():
            self.conversation.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self, step: Step) -> None:
        match step.kind:
            case "turn":
                self._heard, self._last = [], self.conversation.task.history.last
            case "text":
                if step.text == RESTART_NOTICE:
                    self._heard = []
                else:
                    self._heard.append(step.text)
                self.face.piece(step.text)
            case "call" | "note":
                self.face.note(f"  {_line(step.text)}")
            case "result" if step.is_error:
                self.face.note(f"  {self.words('failed', text=_line(step.text))}")
            case "result":
                self.face.note(f"    {_line(step.text)}")

    def _fail(self, error: OrihonError) -> None:
        self.code = error.exit_code
        self.face.error(error.message, error.hint)
        if isinstance(error, UsageError):
            return  # what was mistyped is no part of the conversation
        with suppress(StoreError):  # which may be what is wrong
            self.conversation.error(error.message)


@contextmanager
def warnings_shown(face: Face) -> Iterator[None]:
    """What is logged as a warning, such as that a provider is tried again, is shown to the person."""
    handler = _Shown(face)
    log = logging.getLogger("orihon")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Shown(logging.Handler):
    def __init__(self, face: Face) -> None:
        super().__init__(logging.WARNING)
        self._face = face

    def emit(self, record: logging.LogRecord) -> None:
        self._face.note(record.getMessage())


def name_of(config: TaskConfig) -> str:
    """The model of a conversation, as `open_model` knows it."""
    return config.model if config.llm_provider == "scripted" else f"{config.llm_provider}:{config.model}"


def _line(text: str) -> str:
    shown = " ".join(text[: 4 * LINE_CHARS].split())
    return shown if len(shown) <= LINE_CHARS else f"{shown[: LINE_CHARS - 1]}…"
