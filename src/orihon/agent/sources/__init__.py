"""Sources: where tasks come from. `open_source(name, settings)` returns one.

local     a Markdown file, a text, or a directory of issues
github    issues and pull requests with the bot's label
gitlab    issues and merge requests with the bot's label

Names of users are as the source writes them. Times have the form of `orihon.codec.now`, so that they sort as text. The
comments of an item are those of users: a source leaves out its own, those of bots and systems, and empty ones.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

import msgspec
from msgspec import Struct

from orihon.errors import UsageError
from orihon.ingest import Sanitiser, sanitiser_for, shown
from orihon.settings.schema import Forge, Settings
from orihon.task_key import TaskKey

Outcome = Literal["queued", "processing", "done", "failed", "paused", "stopped"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


class Comment(Struct, frozen=True):
    """A comment on an item."""

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


class Source(Protocol):
    """A place that tasks come from. Failures are `SourceError`s, unless a method says otherwise."""

    def find(self) -> Iterator[Item]:
        """Yield the open items that ask for work, including running ones that ask again."""

    def get(self, key: TaskKey) -> Item:
        """Return the item as it is now."""

    def render_prompt(self, item: Item) -> str:
        """Return the first message of a task on this item."""

    def mark(self, key: TaskKey, outcome: Outcome) -> None:
        """Set the label of an outcome. Labels of others are not changed."""

    def add_comment(self, key: TaskKey, text: str) -> str:
        """Write a comment, exactly once, and return its id."""

    def edit_comment(self, key: TaskKey, comment_id: str, text: str) -> None:
        """Replace a comment. A deleted one is a `SourceError` with status 404."""

    def list_comments(self, key: TaskKey, since: str) -> list[Comment]:
        """Return the comments written or changed at that time or later, the oldest first."""

    def is_wanted(self, key: TaskKey, *, was_assigned: bool | None = None) -> bool:
        """Return False once the bot is no longer assigned; True if it never was, or if the source does not answer.

        Without `was_assigned`, earlier calls on this object tell whether the bot was assigned.
        """

    def find_user(self, item: Item) -> str:
        """Return the user who asked for the work; empty if unknown."""

    def find_linked(self, key: TaskKey) -> TaskKey | None:
        """Return the pull or merge request of an issue, or the issue that such a request closes."""

    def close(self) -> None:
        """Close all connections."""


def open_source(
    name: Literal["local", "github", "gitlab"],
    settings: Settings,
    *,
    what: str | Path | None = None,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time,
) -> Source:
    """Return the source of this name. For `local`, `what` is a file, a directory or a text."""
    sanitiser = sanitiser_for(settings)
    if name == "local":
        from orihon.agent.sources.local import Local  # noqa: PLC0415 - only the source that is used is loaded

        if what is None:
            raise UsageError("The source local needs a file, a directory or a text.")
        return Local(what, forge=settings.github, sanitiser=sanitiser)
    if name == "github":
        from orihon.agent.sources.github import GitHub  # noqa: PLC0415

        return GitHub(settings.github, sanitiser=sanitiser, sleep=sleep, now=now)
    if name == "gitlab":
        from orihon.agent.sources.gitlab import GitLab  # noqa: PLC0415

        return GitLab(settings.gitlab, sanitiser=sanitiser, sleep=sleep, now=now)
    raise UsageError(f"There is no source {name!a}.", hint="Use local, github or gitlab.")


class SeenComments:
    """Tells new and changed comments from known ones; its state is stored with the task."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self.since: str = (state or {}).get("since", "")
        self._seen: dict[str, str] = dict((state or {}).get("seen", {}))

    def take_new(self, comments: Iterable[Comment]) -> list[Comment]:
        """Return the comments that are new or changed, and remember them."""
        new = []
        for comment in comments:
            # masked first: the hash of a few known words and one secret would let the secret be guessed
            digest = hashlib.sha256(shown(comment.body).encode("utf-8", "surrogatepass")).hexdigest()[:16]
            if self._seen.get(comment.id) != digest:
                self._seen[comment.id] = digest
                new.append(comment)
            self.since = max(self.since, comment.updated_at)
        return new

    def state(self) -> dict[str, Any]:
        """Return what to store while a task is paused."""
        return {"since": self.since, "seen": dict(self._seen)}


class LabelChange(NamedTuple):
    """Labels to add and to remove, as they are spelled."""

    add: tuple[str, ...]
    remove: tuple[str, ...]


def find_label(forge: Forge, outcome: Outcome) -> str:
    """Return the label of an outcome."""
    label: str = forge.bot_label if outcome == "queued" else getattr(forge, f"{outcome}_label")
    return label


def compute_label_change(forge: Forge, present: Iterable[str], outcome: Outcome) -> LabelChange:
    """Return the change that leaves the outcome's label as the only one of ours.

    `processing` also removes the bot's label. The final outcomes keep it: it was put there again during the run, and
    asks for another one.
    """
    spelled = {label.casefold(): label for label in present}
    ours = {find_label(forge, each).casefold() for each in OUTCOMES}
    wanted = find_label(forge, outcome)
    if outcome not in {"queued", "processing"}:
        ours.discard(forge.bot_label.casefold())
    ours.discard(wanted.casefold())
    return LabelChange(
        add=() if wanted.casefold() in spelled else (wanted,),
        remove=tuple(label for folded, label in spelled.items() if folded in ours),
    )


def mask_item(item: Item, sanitiser: Sanitiser) -> Item:
    """Return the item with its texts masked. This precedes shortening: half a secret is not recognised."""
    texts = {name: sanitiser.text(getattr(item, name)) for name in ("title", "body", "author", "url")}
    comments = tuple(
        msgspec.structs.replace(comment, body=sanitiser.text(comment.body), author=sanitiser.text(comment.author))
        for comment in item.comments
    )
    labels = tuple(map(sanitiser.text, item.labels))
    return msgspec.structs.replace(item, **texts, comments=comments, labels=labels)


def normalise_time(text: str) -> str:
    """Return a time in the one form that is compared; any other text is returned unchanged."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")[:-6] + "Z"


def is_same_name(first: str, second: str) -> bool:
    """Return whether two names of users or labels are equal; code hosts ignore case."""
    return first.casefold() == second.casefold()
