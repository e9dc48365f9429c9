"""Sources: where tasks come from. `open_source(name, settings)` returns one.

local     a Markdown file, a text, or a directory of issues
github    issues and pull requests with the bot's label
gitlab    issues and merge requests with the bot's label

Names of users are as the source writes them. Times have the form of `orihon.codec.now`, so that they sort as text. The
comments of an item are those of users: a source leaves out its own, those of bots and systems, and empty ones.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from orihon.agent.sources.issue import (
    Comment,
    Item,
    Outcome,
    SeenComments,
    is_own_comment,
    is_same_name,
    make_issue,
    mask_item,
    render_prompt,
)
from orihon.errors import SourceError, UsageError
from orihon.ingest import Sanitiser, sanitiser_for
from orihon.records import Issue
from orihon.settings.schema import Forge, Settings
from orihon.task_key import TaskKey

__all__ = ["Comment", "Item", "Outcome", "SeenComments", "Source", "open_source"]

log = logging.getLogger("orihon")


class Source(ABC):
    """A place that tasks come from. Failures are `SourceError`s, unless a method says otherwise."""

    def __init__(self, forge: Forge, sanitiser: Sanitiser, bot: str) -> None:
        self.forge, self.sanitiser, self.bot = forge, sanitiser, bot
        self._assigned: set[TaskKey] = set()

    @abstractmethod
    def find(self) -> Iterator[Item]:
        """Yield the open items that ask for work, including running ones that ask again."""

    def get(self, key: TaskKey) -> Item:
        """Return the item as it is now."""
        item = self._load(key)
        if self.has_bot(item.assignees):
            self._assigned.add(key)
        return item

    def render_prompt(self, item: Item) -> str:
        """Return the first message of a task on this item."""
        return render_prompt(mask_item(item, self.sanitiser), self.bot)

    def make_issue(self, item: Item) -> Issue:
        """Return the fields that the first message is rendered from."""
        return make_issue(mask_item(item, self.sanitiser), self.bot)

    @abstractmethod
    def mark(self, key: TaskKey, outcome: Outcome) -> None:
        """Set the label of an outcome. Labels of others are not changed."""

    @abstractmethod
    def add_comment(self, key: TaskKey, text: str) -> str:
        """Write a comment, exactly once, and return its id."""

    @abstractmethod
    def edit_comment(self, key: TaskKey, comment_id: str, text: str) -> None:
        """Replace a comment. A deleted one is a `SourceError` with status 404."""

    def list_comments(self, key: TaskKey, since: str) -> list[Comment]:
        """Return the comments written or changed at that time or later, the oldest first."""
        comments = self._keep_users(one for one in self._iter_changed(key, since) if one.updated_at >= since)
        return sorted(comments, key=lambda one: (one.updated_at, one.created_at, len(one.id), one.id))

    def is_wanted(self, key: TaskKey, *, was_assigned: bool | None = None) -> bool:
        """Return False once the bot is no longer assigned; True if it never was, or if the source does not answer.

        Without `was_assigned`, earlier calls on this object tell whether the bot was assigned.
        """
        if not self.bot:
            return True
        try:
            assignees = self._list_assignees(key)
        except SourceError as error:
            log.warning("The assignees of %s are unknown, so the task continues: %s", key, error)
            return True
        if assignees is not None and self.has_bot(assignees):
            self._assigned.add(key)
            return True
        return assignees is not None and not (key in self._assigned if was_assigned is None else was_assigned)

    def find_user(self, item: Item) -> str:
        """Return the user who asked for the work; empty if unknown."""
        return item.author

    def find_linked(self, key: TaskKey) -> TaskKey | None:  # noqa: ARG002 - not every source has links
        """Return the pull or merge request of an issue, or the issue that such a request closes."""
        return None

    def close(self) -> None:  # noqa: B027 - not every source has connections
        """Close all connections."""

    def is_bot(self, name: str) -> bool:
        """Return whether a user is the bot."""
        return bool(self.bot) and is_same_name(name, self.bot)

    def has_bot(self, names: Iterable[str]) -> bool:
        """Return whether the bot is among some users."""
        return any(map(self.is_bot, names))

    @abstractmethod
    def _load(self, key: TaskKey) -> Item: ...

    @abstractmethod
    def _iter_changed(self, key: TaskKey, since: str) -> Iterable[Comment]:
        """Return at least the comments written or changed since a time."""

    @abstractmethod
    def _list_assignees(self, key: TaskKey) -> tuple[str, ...] | None:
        """Return the assignees of an item, or None if its user asks to stop."""

    def _keep_users(self, comments: Iterable[Comment]) -> tuple[Comment, ...]:
        return tuple(one for one in comments if one.body.strip() and not is_own_comment(one, self.bot))


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
