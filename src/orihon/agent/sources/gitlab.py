"""Issues and merge requests on GitLab.

Labels are changed with `add_labels` and `remove_labels` in one request, so that those of others are kept. A line that
GitLab would carry out as a quick action, such as `/close`, is escaped.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from msgspec import Struct

from orihon.agent.sources.code_host import CodeHost, HostItem
from orihon.agent.sources.issue import Comment, Item, LabelChange, normalise_time
from orihon.agent.sources.rest_client import MAX_WAIT_SECONDS, SHORT_WAIT_SECONDS, RestClient
from orihon.codec import clean_text
from orihon.errors import UsageError
from orihon.ingest import Sanitiser
from orihon.settings.schema import Forge
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

PUBLIC = "https://gitlab.com"
API = "/api/v4"
LISTS = {"issue": "issues", "merge_request": "merge_requests"}

_QUICK_ACTION = re.compile(r"^([ \t]*)/(?=[A-Za-z_]+(?:\s|$))", re.MULTILINE)
# accounts that GitLab creates for the access tokens of projects and groups
_TOKEN_ACCOUNT = re.compile(r"(?:project|group)_\d+_bot(?:\d|_|$)")


class _User(Struct, frozen=True):
    username: str = ""


class _References(Struct, frozen=True):
    full: str = ""


class _Issue(Struct, frozen=True):
    iid: int
    project_id: int
    title: str = ""
    description: str | None = None
    state: str = "opened"
    author: _User | None = None
    assignees: list[_User] = []
    reviewers: list[_User] = []
    labels: list[str] = []
    web_url: str = ""
    references: _References | None = None


class _Link(Struct, frozen=True):
    """A linked issue or merge request; one of another tracker has no numbers."""

    iid: int = 0
    project_id: int = 0
    state: str = "opened"
    author: _User | None = None


class _Note(Struct, frozen=True):
    id: int
    created_at: str
    updated_at: str
    body: str | None = ""
    author: _User | None = None
    system: bool = False


class GitLab(CodeHost):
    """The source `gitlab`."""

    max_comment_chars: ClassVar[int] = 200_000

    def __init__(
        self, forge: Forge, *, sanitiser: Sanitiser, sleep: Callable[[float], None], now: Callable[[], float]
    ) -> None:
        base = (forge.base_url or PUBLIC).rstrip("/")
        base = base if urlsplit(base).path.endswith(API) else base + API
        client = RestClient(base, forge.token, name="GitLab", headers={}, sleep=sleep, now=now)
        super().__init__(forge, client, sanitiser, sleep)

    def find_linked(self, key: TaskKey) -> TaskKey | None:
        is_request = key.task_type == "merge_request"
        path = f"{_make_path(key)}/{'closes_issues' if is_request else 'closed_by'}"
        others = [one for page in self.client.iter_pages(path, list[_Link]) for one in page]
        if not others:
            return None
        project_id = key.project_id or self._fetch(key).project_id
        others = [one for one in others if one.iid and one.project_id == project_id]
        if not is_request:  # the newest that was not given up, the bot's own before those of others
            others = [one for one in others if one.state != "closed"]
            others.sort(key=lambda one: (self.is_bot(_get_name(one.author)), one.iid), reverse=True)
        if not others:
            return None
        number: dict[str, Any] = {"issue" if is_request else "merge_request": others[0].iid}
        return TaskKey.gitlab(key.owner, key.repo, project_id=key.project_id, **number)

    def _list_keys(self) -> Iterator[TaskKey]:
        query: dict[str, Any] = {"state": "opened", "labels": self.forge.bot_label, "scope": "created_by_me"}
        if self.bot:
            query |= {"scope": "all", "assignee_username[]": self.bot}
        if self.forge.query:
            query["search"] = self.forge.query
        owner = self.forge.owner.strip("/").casefold()
        for kind, path in LISTS.items():
            for page in self.client.iter_pages(f"/{path}", list[_Issue], query):
                for key in filter(None, (_make_key(kind, issue) for issue in page)):
                    if not owner or f"{key.owner}/".casefold().startswith(f"{owner}/"):
                        yield key

    def _fetch(self, key: TaskKey, max_wait: float = MAX_WAIT_SECONDS) -> HostItem:
        issue = self.client.get(_make_path(key), _Issue, max_wait=max_wait)
        item = Item(
            key=key,
            title=clean_text(issue.title),
            body=clean_text(issue.description or ""),
            author=_get_name(issue.author),
            assignees=tuple(map(_get_name, issue.assignees)),
            labels=tuple(issue.labels),
            url=issue.web_url,
        )
        reviewers = tuple(map(_get_name, issue.reviewers))
        return HostItem(item, is_open=issue.state == "opened", reviewers=reviewers, project_id=issue.project_id)

    def _change_labels(self, key: TaskKey, change: LabelChange) -> None:
        lists = {"add_labels": change.add, "remove_labels": change.remove}
        self.client.send("PUT", _make_path(key), {name: ",".join(labels) for name, labels in lists.items() if labels})

    def _post_comment(self, key: TaskKey, body: str) -> str:
        note = self.client.send("POST", f"{_make_path(key)}/notes", {"body": body}, _Note, idempotent=False)
        return str(note.id if note else "")

    def _replace_comment(self, key: TaskKey, comment_id: str, body: str) -> None:
        path = f"{_make_path(key)}/notes/{comment_id}"
        self.client.send("PUT", path, {"body": body}, max_wait=SHORT_WAIT_SECONDS)

    def _iter_comments(self, key: TaskKey, since: str, max_wait: float = MAX_WAIT_SECONDS) -> Iterator[Comment]:
        order = {"sort": "desc", "order_by": "updated_at"} if since else {"sort": "asc", "order_by": "created_at"}
        for page in self.client.iter_pages(f"{_make_path(key)}/notes", list[_Note], order, max_wait=max_wait):
            for note in page:
                if since and normalise_time(note.updated_at) < since:
                    return
                if not note.system and not _TOKEN_ACCOUNT.match(_get_name(note.author)):
                    yield _make_comment(note)

    def _iter_newest(self, key: TaskKey) -> Iterator[Comment]:
        query = {"sort": "desc", "order_by": "created_at"}
        yield from map(_make_comment, next(self.client.iter_pages(f"{_make_path(key)}/notes", list[_Note], query)))

    def _list_reviewers(self, key: TaskKey) -> tuple[str, ...]:
        return self._fetch(key).reviewers if key.task_type == "merge_request" else ()

    @staticmethod
    def _escape_commands(text: str) -> str:
        return _QUICK_ACTION.sub(r"\1\\/", text)


def _make_path(key: TaskKey) -> str:
    project = key.project_id if key.project_id is not None else quote(f"{key.owner}/{key.repo}", safe="")
    return f"/projects/{project}/{LISTS[key.task_type]}/{key.task_id}"


def _make_key(kind: str, issue: _Issue) -> TaskKey | None:
    """Return a key by path, which people can read, or by project id if GitLab does not name the path."""
    number: dict[str, Any] = {kind: issue.iid}
    path = re.split("[#!]", issue.references.full)[0] if issue.references else ""
    owner, _, repo = path.rpartition("/")
    try:
        return TaskKey.gitlab(owner, repo, **number)
    except UsageError:
        pass
    try:
        return TaskKey.gitlab(project_id=issue.project_id, **number)
    except UsageError as error:
        log.warning("An item that GitLab found is skipped: %s", error)
        return None


def _make_comment(note: _Note) -> Comment:
    times = map(normalise_time, (note.created_at, note.updated_at))
    return Comment(str(note.id), _get_name(note.author), clean_text(note.body or ""), *times)


def _get_name(user: _User | None) -> str:
    return user.username if user is not None else "ghost"
