"""A chat session without a terminal: scripted input, and everything that is shown."""

import json
from pathlib import Path

from orihon.agent.queue import Job
from orihon.chat.i18n import Texts
from orihon.chat.terminal.commands import run_session
from orihon.chat.terminal.session import resume_session, start_session


class Typist:
    """A user interface with scripted lines; a function is called with the session and may return a line."""

    def __init__(self, *lines, interactive=True, allows=True):
        self.lines, self.interactive, self.allows = list(lines), interactive, allows
        self.chat = None
        self.meters, self.said, self.shown, self.notes, self.errors, self.asked = [], [], [], [], [], []
        self.stop_at = ""  # Ctrl-C is pressed when this is shown

    def read(self, meter):
        self.meters.append(meter)
        while self.lines:
            line = self.lines.pop(0)
            line = line(self.chat) if callable(line) else line
            if line is not None:
                return line
        raise EOFError

    def write_piece(self, text):
        self.said.append(text)
        self._press(text)

    def end_line(self):
        pass

    def show(self, text):
        self.shown.append(text)

    def note(self, text):
        self.notes.append(text)
        self._press(text)

    def show_error(self, message, hint):
        self.errors.append((message, hint))

    def ask(self, question):
        self.asked.append(question)
        return self.allows

    def _press(self, text):
        if self.stop_at and self.stop_at in text:
            self.stop_at = ""
            raise KeyboardInterrupt


class Table:
    """A directory with a script for the model, and chat sessions in it."""

    def __init__(self, engine, place: Path, language="en"):
        self.engine, self.place, self.texts = engine, place, Texts(language)
        self.script()

    def script(self, *replies, name="script.json"):
        (self.place / name).write_text(json.dumps(replies), "utf-8")
        return f"scripted:{self.place / name}"

    def sit(self, *lines, resume=None, face=None, user=None, mcp=True, name="shop", **job):
        face = face or Typist(*lines)
        given = {"model": "" if resume is not None else f"scripted:{self.place / 'script.json'}"} | job
        made = Job(workspace=str(self.place), **given)
        options = {"user": user, "mcp": mcp, "name": name if resume is None else resume}
        open_session = start_session if resume is None else resume_session
        with open_session(self.engine, made, face, self.texts, **options) as face.chat:
            face.code = run_session(face.chat)
        return face


def messages(engine, chat):
    """Return the log without the system prompt."""
    found = engine.read(chat.conversation.conversation_id).messages()
    return [(message.role, message.text) for message in found if message.role != "system"]
