"""A task without a store: lists in memory, and the same steps that a real one takes."""

import msgspec

from orihon.context.frame import Budget, Policy, Texts
from orihon.context.pick import StandIn
from orihon.context.shelf import Shelf
from orihon.context.sticky import StickyList
from orihon.context.view import View, step
from orihon.context.window import compose
from orihon.ingest import Sanitiser
from orihon.records import Event, Message
from orihon.task.sticky import FileVersion, StickyTexts
from orihon.tokens import counter


class Desk:
    """Messages, events and folds, and the window over them."""

    def __init__(self, context_length=16_000, tokens="bytes4", **budget):
        self.counter = counter(tokens)
        self.budget = Budget(context_length=context_length, **budget)
        self.log, self.events, self.folds = [], [], []
        self.view = View()
        self.texts = Texts()
        self.files = {}  # the texts of sticky files, by their hash
        self.sent = False
        self.handles = True
        self.policy = Policy()
        self.shelf = Shelf()

    def add(self, role, content="", **fields):
        made = Message(seq=len(self.log) + 1, role=role, content=content, timestamp="", tokens=0, **fields)
        self.log.append(msgspec.structs.replace(made, tokens=self.counter.message(made)))
        return made.seq

    def add_message(self, message):
        """A message of somebody else's history, numbered and counted anew."""
        made = msgspec.structs.replace(message, seq=len(self.log) + 1, tokens=0)
        self.log.append(msgspec.structs.replace(made, tokens=self.counter.message(made)))

    def event(self, kind, **data):
        made = Event(id=len(self.events) + 1, after=len(self.log), type=kind, data=data, timestamp="t")
        self.events.append(made)
        self.view = step(self.view, made)
        return made.id

    def stick(self, files, room=1_000_000):
        """The sticky files are these now, by path and text."""
        made = [
            FileVersion.make(path, text, sanitiser=Sanitiser(), counter=self.counter) for path, text in files.items()
        ]
        self.files |= {one.file.sha256: one.text for one in made}
        listed = StickyList(tuple(one.file for one in made), room=room, at_once=not self.sent)
        return self.event("sticky", **msgspec.to_builtins(listed))

    def sticky_texts(self):
        sticky = StickyTexts(self, "")
        for event in self.events:
            sticky.remember(event)
        return sticky

    def listed(self):
        """The sticky files now."""
        return self.sticky_texts().list_at(self.view.state.sticky)

    def blob(self, _, sha256):
        return self.files[sha256].encode()

    def read(self, first, last):
        return self.log[first - 1 : last]

    def stand_ins(self):
        folds = self.view.state.folds
        return {one.seq: one for one in self.folds[folds.first - 1 : folds.last]} if folds else {}

    def counted(self, composed):
        """What the messages cost, counted again, with the last word that some formats add."""
        messages = [msgspec.structs.replace(message, tokens=0) for message in composed.messages]
        if not messages or messages[-1].role in {"assistant", "system"}:
            messages.append(Message(seq=0, role="user", content="Continue.", timestamp="", tokens=0))
        return sum(map(self.counter.message, messages))

    def window(self):
        self.sent = True
        sticky, given = self.sticky_texts().texts(self.view.state, "en"), self.texts
        texts = msgspec.structs.replace(sticky, summary=given.summary, snapshot=given.snapshot, note=given.note)
        composed = compose(
            self.view, self.read, len(self.log), budget=self.budget, counter=self.counter, texts=texts,
            stand_ins=self.stand_ins(), handles=self.handles, policy=self.policy, shelf=self.shelf,
        )  # fmt: skip
        if composed.batch is not None:
            first = len(self.folds) + 1
            self.folds += [StandIn(one.seq, one.text, one.arguments, one.tokens) for one in composed.batch.stand_ins]
            self.event("folds", **composed.batch.event(first, len(self.folds)))
        return composed
