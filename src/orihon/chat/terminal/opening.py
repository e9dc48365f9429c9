"""Sit down: a new conversation, or one that goes on, with the model and the tools that belong to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from orihon.agent.queue import Job
from orihon.agent.run_setup import RunSetup
from orihon.chat import book
from orihon.chat.modelinfo import context_length
from orihon.chat.names import TYPE, key_of
from orihon.chat.prompts import system
from orihon.chat.terminal.face import Face
from orihon.chat.terminal.sitting import Chat, name_of
from orihon.chat.terminal.words import Words
from orihon.engine import Engine
from orihon.task.history import load_config


@contextmanager
def begun(
    engine: Engine, job: Job, face: Face, words: Words, *, name: str = "", user: str | None = None, mcp: bool = True
) -> Iterator[Chat]:
    """In a new conversation; one in which nothing was said, and that nobody named, is not kept."""
    with _setup(engine, job, face, user=user, mcp=mcp) as setup:
        length = job.context_length or context_length(setup.model.name, setup.settings)
        conversation = book.start(
            setup.engine,
            Path(job.workspace),
            name=name,
            system=system(words.language, setup.settings.system_prompt),
            mcp_enabled=mcp,
            tell=face.note,
            user=user,
            tools=setup.tools.schemas,
            summariser=setup.summariser,
            **setup.options | {"context_length": length},
        )
        with Chat(conversation, setup, face, words) as chat:
            chat.begin()
            yield chat
        if not name and not conversation.turn:
            book.delete(setup.engine, conversation.conversation_id)


@contextmanager
def resumed(
    engine: Engine, job: Job, face: Face, words: Words, *, what: str = "", user: str | None = None, mcp: bool = True
) -> Iterator[Chat]:
    """In the conversation of this name or id; without either, in the one that was used last."""
    listed = book.find(engine, Path(job.workspace), what, user=user)
    reader = engine.read(listed.uuid)
    model = job.model or name_of(load_config(engine.store, reader.metadata))
    made = msgspec.structs.replace(job, model=model)
    with _setup(engine, made, face, user=user or reader.row.user, mcp=mcp and listed.mcp_enabled) as setup:
        if not job.model:
            setup.advance_script(reader.row)
        conversation = book.resume(setup.engine, listed.uuid, tell=face.note)
        with Chat(conversation, setup, face, words) as chat:
            if job.model:
                chat.use(job.model)
            chat.begin()
            yield chat


def _setup(engine: Engine, job: Job, face: Face, *, user: str | None, mcp: bool) -> RunSetup:
    ask = face.ask if face.interactive else None
    return RunSetup(engine, key_of(Path(job.workspace), TYPE), job, user=user, ask=ask, mcp=mcp)
