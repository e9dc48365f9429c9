"""A sitting without a terminal: lines that are typed, and everything that is shown."""

import json
from pathlib import Path

from orihon.agent.queue import Job
from orihon.chat.terminal.opening import begun, resumed
from orihon.chat.terminal.words import Words


class Typist:
    """A face that types what it was given; a function is called with the chat, and gives the next line."""

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

    def piece(self, text):
        self.said.append(text)
        self._press(text)

    def end(self):
        pass

    def show(self, text):
        self.shown.append(text)

    def note(self, text):
        self.notes.append(text)
        self._press(text)

    def error(self, message, hint):
        self.errors.append((message, hint))

    def ask(self, question):
        self.asked.append(question)
        return self.allows

    def _press(self, text):
        if self.stop_at and self.stop_at in text:
            self.stop_at = ""
            raise KeyboardInterrupt


class Table:
    """A directory, a script for the model, and sittings in it."""

    def __init__(self, engine, place: Path, language="en"):
        self.engine, self.place, self.words = engine, place, Words(language)
        self.script()

    def script(self, *replies, name="script.json"):
        (self.place / name).write_text(json.dumps(replies), "utf-8")
        return f"scripted:{self.place / name}"

    def sit(self, *lines, resume=None, face=None, user=None, mcp=True, name="shop", **job):
        face = face or Typist(*lines)
        given = {"model": "" if resume is not None else f"scripted:{self.place / 'script.json'}"} | job
        made = Job(workspace=str(self.place), **given)
        wished = {"user": user, "mcp": mcp} | ({"name": name} if resume is None else {"what": resume})
        sitting = begun if resume is None else resumed
        with sitting(self.engine, made, face, self.words, **wished) as face.chat:
            face.code = face.chat.run()
        return face


def messages(engine, chat):
    """What is in the log, without the system prompt."""
    found = engine.read(chat.conversation.conversation_id).messages()
    return [(message.role, message.text) for message in found if message.role != "system"]
