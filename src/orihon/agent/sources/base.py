"""What every source gives and takes: items, comments, and the eleven verbs.

Names of people are as the source writes them. Times have the one form of `orihon.codec.now`, so that their order as
text is their order in time. The comments of an item are what people wrote: those of the bot, of other bots, of the
system and empty ones are left out by the source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from orihon.ingest import Sanitiser, shown
from orihon.task_key import TaskKey

Outcome = Literal["queued", "processing", "done", "failed", "paused", "stopped"]


class Comment(Struct, frozen=True):
    """What somebody wrote about an item."""

    id: str
    author: str
    body: str
    created_at: str
    updated_at: str


class Item(Struct, frozen=True):
    """An issue, a pull request or a merge request."""

    key: TaskKey
    title: str
    body: str
    author: str
    assignees: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    url: str = ""
    comments: tuple[Comment, ...] = ()


def masked(item: Item, sanitiser: Sanitiser) -> Item:
    """Return an item whose texts are masked, before they are cut: half a secret is not recognised any more."""
    texts = {name: sanitiser.text(getattr(item, name)) for name in ("title", "body", "author", "url")}
    comments = tuple(
        msgspec.structs.replace(one, body=sanitiser.text(one.body), author=sanitiser.text(one.author))
        for one in item.comments
    )
    labels = tuple(map(sanitiser.text, item.labels))
    return msgspec.structs.replace(item, **texts, comments=comments, labels=labels)


class Source(Protocol):
    """A place that tasks come from. What goes wrong is a `SourceError`, unless a method says otherwise."""

    def find(self) -> Iterator[Item]:
        """Open items that ask for work, those that run already included if somebody asked again."""

    def get(self, key: TaskKey) -> Item:
        """The item as it is now."""

    def prompt(self, item: Item) -> str:
        """The first message of a task on this item."""

    def mark(self, key: TaskKey, outcome: Outcome) -> None:
        """Say with a label what became of it; no label of anybody else is touched."""

    def say(self, key: TaskKey, text: str) -> str:
        """Write a comment, once, and give its id."""

    def edit(self, key: TaskKey, comment_id: str, text: str) -> None:
        """Replace a comment; one that is gone is a `SourceError` with status 404."""

    def new_comments(self, key: TaskKey, since: str) -> list[Comment]:
        """What people wrote or changed at that time or later, the oldest first; `Arrivals` knows which are new."""

    def is_wanted(self, key: TaskKey, *, was_assigned: bool | None = None) -> bool:
        """False once the bot is no longer assigned; True if it never was, or if the source does not answer.

        Whether it was is remembered from what this object saw. Who resumes a task in a new process knows better.
        """

    def user_of(self, item: Item) -> str:
        """Who asked for the work; empty if nobody can be named."""

    def linked(self, what: Item | TaskKey) -> TaskKey | None:
        """The pull or merge request that an issue became, or the issue that such a request closes."""

    def close(self) -> None:
        """Let go of connections."""


class Arrivals:
    """Tells comments that are new, or whose words changed, from those that were seen; its state fits into JSON."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self.since: str = (state or {}).get("since", "")
        self._seen: dict[str, str] = dict((state or {}).get("seen", {}))

    def fresh(self, comments: Iterable[Comment]) -> list[Comment]:
        """Those that were not seen in these words before; from now on they were."""
        found = []
        for comment in comments:
            # masked, because the hash of a few known words and one secret would let the secret be guessed
            words = hashlib.sha256(shown(comment.body).encode("utf-8", "surrogatepass")).hexdigest()[:16]
            if self._seen.get(comment.id) != words:
                self._seen[comment.id] = words
                found.append(comment)
            self.since = max(self.since, comment.updated_at)
        return found

    def state(self) -> dict[str, Any]:
        """What to keep while a task is paused."""
        return {"since": self.since, "seen": dict(self._seen)}


def moment(text: str) -> str:
    """A time in the one form that is compared; what is no time stays as it is."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    return when.isoformat(timespec="microseconds")[:-6] + "Z"


def same(one: str, other: str) -> bool:
    """Whether two names of users or labels are the same; forges do not tell `Bot` from `bot`."""
    return one.casefold() == other.casefold()
