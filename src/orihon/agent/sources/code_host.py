"""What GitHub and GitLab have in common.

Comments of the bot are masked, fit into a comment, and end in a mark by which they are recognised, also where the bot
uses the account of a person. A comment is written once: when an attempt ends without an answer, the source looks for
the mark of that comment before it tries again.
"""

from __future__ import annotations

import logging
import re
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar

from msgspec import Struct, structs

from orihon.agent.sources import Source
from orihon.agent.sources.issue import (
    MARK,
    Comment,
    Item,
    LabelChange,
    Outcome,
    compute_label_change,
    is_same_name,
    shorten_middle,
)
from orihon.agent.sources.rest_client import MAX_WAIT_SECONDS, SHORT_WAIT_SECONDS, RestClient
from orihon.errors import SourceError, UsageError
from orihon.ingest import Sanitiser
from orihon.retry import Backoff
from orihon.settings.schema import Forge
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")


class HostItem(Struct, frozen=True):
    """An item without its comments, and what only code hosts know of it."""

    item: Item
    is_open: bool
    reviewers: tuple[str, ...] = ()
    project_id: int = 0


class CodeHost(Source):
    """A source over HTTP. Subclasses know one API."""

    max_comment_chars: ClassVar[int] = 65_000

    def __init__(self, forge: Forge, client: RestClient, sanitiser: Sanitiser, sleep: Callable[[float], None]) -> None:
        super().__init__(forge, sanitiser, forge.bot_name)
        self.client, self._sleep = client, sleep

    def find(self) -> Iterator[Item]:
        # The whole list first: labels that change while it is read would shift its pages. Each item is then read
        # itself, because the search index of a host lags behind.
        for key in dict.fromkeys(self._list_keys()):
            try:
                host_item = self._fetch(key)
                if self._asks_for_work(host_item):
                    yield self._add_comments(host_item.item)
            except SourceError as error:
                if error.retryable:
                    raise
                log.warning("%s is skipped: %s", key, error)

    def mark(self, key: TaskKey, outcome: Outcome) -> None:
        # added first: a process that dies in between leaves one label too many, which the next call removes
        change = compute_label_change(self.forge, self._fetch(key).item.labels, outcome)
        if change.add or change.remove:
            self._change_labels(key, change)

    def add_comment(self, key: TaskKey, text: str) -> str:
        nonce = uuid.uuid4().hex[:16]
        body, attempts = self._make_body(text, f":{nonce}"), 0

        def attempt() -> str:
            nonlocal attempts
            attempts += 1
            written = self._find_written(key, nonce) if attempts > 1 else None
            return written or self._post_comment(key, body)

        return Backoff(tries=4, jitter=0, sleep=self._sleep).call(
            attempt,
            should_retry=lambda error: isinstance(error, SourceError) and error.retryable,
            on_retry=lambda error, _: log.info("%s Checking whether the comment was written.", error),
        )

    def edit_comment(self, key: TaskKey, comment_id: str, text: str) -> None:
        if not comment_id.isdecimal():
            raise UsageError(f"{comment_id!a:.40} is not the id of a comment.", hint="It is a number.")
        self._replace_comment(key, comment_id, self._make_body(text, ""))

    def find_user(self, item: Item) -> str:
        if not self.is_bot(item.author):
            return item.author
        # the bot opened it for a reviewer, an assignee, or the author of the issue that it came from
        users = [name for name in (*self._list_reviewers(item.key), *item.assignees) if not self.is_bot(name)]
        if not users and (issue := self.find_linked(item.key)) is not None:
            users = [name for name in (self._fetch(issue).item.author,) if not self.is_bot(name)]
        return users[0] if users else ""

    def close(self) -> None:
        self.client.close()

    def _asks_for_work(self, host_item: HostItem) -> bool:
        is_labelled = any(is_same_name(label, self.forge.bot_label) for label in host_item.item.labels)
        return host_item.is_open and is_labelled and (not self.bot or self.has_bot(host_item.item.assignees))

    def _load(self, key: TaskKey) -> Item:
        return self._add_comments(self._fetch(key).item)

    def _iter_changed(self, key: TaskKey, since: str) -> Iterator[Comment]:
        return self._iter_comments(key, since, SHORT_WAIT_SECONDS)

    def _list_assignees(self, key: TaskKey) -> tuple[str, ...]:
        return self._fetch(key, SHORT_WAIT_SECONDS).item.assignees

    def _add_comments(self, item: Item) -> Item:
        comments = sorted(self._iter_comments(item.key, ""), key=lambda comment: comment.created_at)
        return structs.replace(item, comments=self._keep_users(comments))

    def _make_body(self, text: str, nonce: str) -> str:
        body = shorten_middle(self._escape_commands(self.sanitiser.text(text)), self.max_comment_chars)
        return f"{body}\n\n{MARK.format(nonce)}"

    def _find_written(self, key: TaskKey, nonce: str) -> str | None:
        mark = MARK.format(f":{nonce}")
        return next((comment.id for comment in self._iter_newest(key) if mark in comment.body), None)

    @staticmethod
    def _escape_commands(text: str) -> str:
        """Return the text without anything that the host would carry out as a command."""
        return text

    @abstractmethod
    def _list_keys(self) -> Iterator[TaskKey]:
        """Yield the keys of items that may ask for work."""

    @abstractmethod
    def _fetch(self, key: TaskKey, max_wait: float = MAX_WAIT_SECONDS) -> HostItem: ...

    @abstractmethod
    def _change_labels(self, key: TaskKey, change: LabelChange) -> None: ...

    @abstractmethod
    def _post_comment(self, key: TaskKey, body: str) -> str: ...

    @abstractmethod
    def _replace_comment(self, key: TaskKey, comment_id: str, body: str) -> None: ...

    @abstractmethod
    def _iter_comments(self, key: TaskKey, since: str, max_wait: float = MAX_WAIT_SECONDS) -> Iterator[Comment]:
        """Yield all comments but those of systems and of other bots."""

    @abstractmethod
    def _iter_newest(self, key: TaskKey) -> Iterator[Comment]:
        """Yield at least the comments of the last hour."""

    @abstractmethod
    def _list_reviewers(self, key: TaskKey) -> tuple[str, ...]: ...


_CLOSES = re.compile(
    r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?[ \t]+"
    r"(?:(?P<repo>[\w.-]+/[\w.-]+)?#|https?://[^\s/]+/(?P<path>[\w.-]+/[\w.-]+)/issues/)(?P<number>[1-9]\d{0,18})\b",
    re.IGNORECASE | re.ASCII,
)


def find_closed_issues(body: str, repo: str) -> list[int]:
    """Return the issues of the same repository that a pull request says it closes.

    Other repositories do not count: a link to a private one would reveal what was done there.
    """
    text = _remove_between(_remove_between(_remove_between(body, "<!--", "-->"), "```", "```"), "`", "`")
    matches = _CLOSES.finditer(text)
    return [int(match["number"]) for match in matches if is_same_name(match["repo"] or match["path"] or repo, repo)]


def _remove_between(text: str, begin: str, end: str) -> str:
    kept, at = [], 0
    while (start := text.find(begin, at)) >= 0 and (stop := text.find(end, start + len(begin))) >= 0:
        kept.append(text[at:start])
        at = stop + len(end)
    return " ".join([*kept, text[at:]])
