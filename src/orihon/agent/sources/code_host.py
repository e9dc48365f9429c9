"""What GitHub and GitLab have in common: who is the bot, what it may say, and when it is no longer wanted.

What goes out is masked, fits into a comment, and ends in a mark by which it is known as ours again, also where the bot
uses the account of a person. A comment is written once: when an attempt ends without an answer, the source looks for
the mark of that very comment before it tries again.
"""

from __future__ import annotations

import logging
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

from orihon.agent.sources.base import Comment, Item, Outcome, masked, same
from orihon.agent.sources.issue_prompt import MARK, is_ours, prompt_of, shortened
from orihon.agent.sources.labels import Change, change
from orihon.agent.sources.rest_client import HURRY_SECONDS, PATIENCE_SECONDS, PAUSES, Client
from orihon.errors import SourceError
from orihon.ingest import Sanitiser
from orihon.settings.schema import Forge
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

MAX_REMEMBERED = 10_000


class ForgeSource(ABC):
    """A source over HTTP; what differs between forges is below."""

    max_comment_chars: ClassVar[int] = 65_000

    def __init__(self, forge: Forge, client: Client, sanitiser: Sanitiser, sleep: Callable[[float], None]) -> None:
        self.forge, self.client, self.sanitiser, self._sleep = forge, client, sanitiser, sleep
        self.bot = forge.bot_name
        self._assigned: dict[TaskKey, None] = {}

    def prompt(self, item: Item) -> str:
        return prompt_of(masked(item, self.sanitiser), self.bot)

    def mark(self, key: TaskKey, outcome: Outcome) -> None:
        # first add, then remove: whoever dies in between leaves a label too many, which the next call mends
        wanted = change(self.forge, self._labels(key), outcome)
        if wanted.add or wanted.remove:
            self._relabel(key, wanted)

    def say(self, key: TaskKey, text: str) -> str:
        nonce = uuid.uuid4().hex[:16]
        body = self._outgoing(text, f":{nonce}")
        for pause in (*PAUSES[:3], None):
            try:
                return self._post(key, body)
            except SourceError as error:
                if not error.retryable or pause is None:
                    raise
                log.info("%s Looking whether the comment was written.", error)
                self._sleep(pause)
                if found := self._written(key, nonce):
                    return found
        raise AssertionError  # pragma: no cover - the last round returns or raises

    def edit(self, key: TaskKey, comment_id: str, text: str) -> None:
        self._replace(key, comment_id, self._outgoing(text, ""))

    def new_comments(self, key: TaskKey, since: str) -> list[Comment]:
        found = [one for one in self._comments(key, since, HURRY_SECONDS) if one.updated_at >= since]
        return sorted(self._of_people(found), key=lambda one: (one.updated_at, one.created_at, len(one.id), one.id))

    def is_wanted(self, key: TaskKey, *, was_assigned: bool | None = None) -> bool:
        if not self.bot:
            return True
        try:
            assigned = self._has_bot(self._assignees(key, HURRY_SECONDS))
        except SourceError as error:
            log.warning("The assignees of %s are not known now, so it goes on: %s", key, error)
            return True
        if assigned:
            self._remember(key)
        return assigned or not (key in self._assigned if was_assigned is None else was_assigned)

    def user_of(self, item: Item) -> str:
        if not self._is_bot(item.author):
            return item.author
        # the bot opened it for somebody: a reviewer, an assignee, or the author of the issue that it came from
        people = [name for name in (*self._reviewers(item.key), *item.assignees) if not self._is_bot(name)]
        if not people and (issue := self.linked(item)) is not None:
            people = [name for name in (self.get(issue).author,) if not self._is_bot(name)]
        return people[0] if people else ""

    def close(self) -> None:
        self.client.close()

    def _of_people(self, comments: Iterable[Comment]) -> tuple[Comment, ...]:
        return tuple(one for one in comments if one.body.strip() and not is_ours(one, self.bot))

    def _is_bot(self, name: str) -> bool:
        return bool(self.bot) and same(name, self.bot)

    def _has_bot(self, names: Iterable[str]) -> bool:
        return any(map(self._is_bot, names))

    def _remember(self, key: TaskKey) -> None:
        self._assigned[key] = None
        if len(self._assigned) > MAX_REMEMBERED:
            del self._assigned[next(iter(self._assigned))]

    def _outgoing(self, text: str, nonce: str) -> str:
        return f"{shortened(self._harmless(self.sanitiser.text(text)), self.max_comment_chars)}\n\n{MARK.format(nonce)}"

    @staticmethod
    def _harmless(text: str) -> str:
        """The text without what the forge would take for a command."""
        return text

    def _written(self, key: TaskKey, nonce: str) -> str | None:
        mark = MARK.format(f":{nonce}")
        return next((one.id for one in self._newest(key) if mark in one.body), None)

    # what differs

    @abstractmethod
    def find(self) -> Iterator[Item]: ...

    @abstractmethod
    def get(self, key: TaskKey) -> Item: ...

    @abstractmethod
    def linked(self, what: Item | TaskKey) -> TaskKey | None: ...

    @abstractmethod
    def _labels(self, key: TaskKey) -> tuple[str, ...]: ...

    @abstractmethod
    def _relabel(self, key: TaskKey, wanted: Change) -> None: ...

    @abstractmethod
    def _post(self, key: TaskKey, body: str) -> str: ...

    @abstractmethod
    def _replace(self, key: TaskKey, comment_id: str, body: str) -> None: ...

    @abstractmethod
    def _comments(self, key: TaskKey, since: str, patience: float = PATIENCE_SECONDS) -> Iterator[Comment]:
        """What is no message of the system, with our own."""

    @abstractmethod
    def _newest(self, key: TaskKey) -> Iterator[Comment]:
        """The comments of the last hour, or more."""

    @abstractmethod
    def _assignees(self, key: TaskKey, patience: float) -> tuple[str, ...]: ...

    @abstractmethod
    def _reviewers(self, key: TaskKey) -> tuple[str, ...]: ...


_CLOSES = re.compile(
    r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?[ \t]+"
    r"(?:(?P<place>[\w.-]+/[\w.-]+)?#|https?://[^\s/]+/(?P<path>[\w.-]+/[\w.-]+)/issues/)(?P<number>[1-9]\d{0,18})\b",
    re.IGNORECASE | re.ASCII,
)


def closes(body: str, place: str) -> list[int]:
    """The issues of the same repository that a pull request says it closes; others do not count.

    Somebody could otherwise name an issue of a repository that they may not read, and be told what was done there.
    """
    text = _without(_without(_without(body, "<!--", "-->"), "```", "```"), "`", "`")
    found = _CLOSES.finditer(text)
    return [int(one["number"]) for one in found if same(one["place"] or one["path"] or place, place)]


def _without(text: str, begin: str, end: str) -> str:
    """The text without what stands between two marks."""
    kept, at = [], 0
    while (start := text.find(begin, at)) >= 0 and (stop := text.find(end, start + len(begin))) >= 0:
        kept.append(text[at:start])
        at = stop + len(end)
    return " ".join([*kept, text[at:]])
