"""Issues and merge requests on GitLab.

Labels are changed with `add_labels` and `remove_labels` in one request, so that nobody else's are lost. A line that
GitLab would carry out as a quick action, such as `/close`, is defused before it is written.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from msgspec import Struct

from orihon.agent.sources.base import Comment, Item, moment, same
from orihon.agent.sources.code_host import ForgeSource
from orihon.agent.sources.labels import Change
from orihon.agent.sources.rest_client import HURRY_SECONDS, PATIENCE_SECONDS, Client
from orihon.codec import clean_text
from orihon.errors import SourceError, UsageError
from orihon.ingest import Sanitiser
from orihon.settings.schema import Forge
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

PUBLIC = "https://gitlab.com"
API = "/api/v4"
LISTS = {"issue": "issues", "merge_request": "merge_requests"}

_QUICK_ACTION = re.compile(r"^([ \t]*)/(?=[A-Za-z_]+(?:\s|$))", re.MULTILINE)
# accounts that GitLab makes for the access tokens of projects and groups
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


class _Other(Struct, frozen=True):
    """What a list of links holds: an issue or merge request, or something of another tracker."""

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


class GitLab(ForgeSource):
    """The source `gitlab`."""

    max_comment_chars: ClassVar[int] = 200_000

    def __init__(
        self, forge: Forge, *, sanitiser: Sanitiser, sleep: Callable[[float], None], now: Callable[[], float]
    ) -> None:
        base = (forge.base_url or PUBLIC).rstrip("/")
        base = base if urlsplit(base).path.endswith(API) else base + API
        client = Client(base, forge.token, name="GitLab", headers={}, sleep=sleep, now=now)
        super().__init__(forge, client, sanitiser, sleep)

    def find(self) -> Iterator[Item]:
        # all of them first: what is marked while the list is read would move its pages
        found = {key: issue for kind in LISTS for key, issue in self._listed(kind)}
        for key, issue in found.items():
            try:
                yield self._item(key, issue)
            except SourceError as error:
                if error.retryable:
                    raise
                log.warning("%s is left out: %s", key, error)

    def get(self, key: TaskKey) -> Item:
        item = self._item(key, self._issue(key))
        if self._has_bot(item.assignees):
            self._remember(key)
        return item

    def linked(self, what: Item | TaskKey) -> TaskKey | None:
        key = what.key if isinstance(what, Item) else what
        path, kind = ("closes_issues", "issue") if key.task_type == "merge_request" else ("closed_by", "merge_request")
        others = [one for page in self.client.pages(f"{_path(key)}/{path}", list[_Other]) for one in page]
        if not others:
            return None
        here = key.project_id or self._issue(key).project_id
        # only of the same project; not what was closed unmerged; the newest, the bot's own before those of others
        found = [one for one in others if one.iid and one.project_id == here]
        if kind == "merge_request":
            found = [one for one in found if one.state != "closed"]
            found.sort(key=lambda one: (self._is_bot(_name(one.author)), one.iid))
        chosen = found[-1 if kind == "merge_request" else 0].iid if found else 0
        number: dict[str, Any] = {kind: chosen}
        return TaskKey.gitlab(key.owner, key.repo, project_id=key.project_id, **number) if chosen else None

    def _listed(self, kind: str) -> Iterator[tuple[TaskKey, _Issue]]:
        query: dict[str, Any] = {"state": "opened", "labels": self.forge.bot_label, "scope": "created_by_me"}
        if self.bot:
            query |= {"scope": "all", "assignee_username[]": self.bot}
        if self.forge.query:
            query["search"] = self.forge.query
        for page in self.client.pages(f"/{LISTS[kind]}", list[_Issue], query):
            for issue in page:
                if self._asks(issue) and (key := _key(kind, issue)) is not None:
                    yield key, issue

    def _asks(self, issue: _Issue) -> bool:
        labelled = any(same(label, self.forge.bot_label) for label in issue.labels)
        assigned = not self.bot or self._has_bot(map(_name, issue.assignees))
        place, owner = issue.references.full if issue.references else "", self.forge.owner.strip("/")
        inside = not owner or place.casefold().startswith(f"{owner}/".casefold())
        return issue.state == "opened" and labelled and assigned and inside

    def _item(self, key: TaskKey, issue: _Issue) -> Item:
        return Item(
            key=key,
            title=clean_text(issue.title),
            body=clean_text(issue.description or ""),
            author=_name(issue.author),
            assignees=tuple(map(_name, issue.assignees)),
            labels=tuple(issue.labels),
            url=issue.web_url,
            comments=self._of_people(self._comments(key, "")),
        )

    def _issue(self, key: TaskKey, patience: float = PATIENCE_SECONDS) -> _Issue:
        return self.client.get(_path(key), _Issue, patience=patience)

    def _labels(self, key: TaskKey) -> tuple[str, ...]:
        return tuple(self._issue(key).labels)

    def _relabel(self, key: TaskKey, wanted: Change) -> None:
        lists = {"add_labels": wanted.add, "remove_labels": wanted.remove}
        self.client.send("PUT", _path(key), {name: ",".join(labels) for name, labels in lists.items() if labels})

    def _post(self, key: TaskKey, body: str) -> str:
        made = self.client.send("POST", f"{_path(key)}/notes", {"body": body}, _Note, again=False)
        return str(made.id if made else "")

    def _replace(self, key: TaskKey, comment_id: str, body: str) -> None:
        if not comment_id.isdecimal():
            raise UsageError(f"A comment on GitLab cannot be {comment_id!a:.40}.", hint="Allowed is a number.")
        self.client.send("PUT", f"{_path(key)}/notes/{comment_id}", {"body": body}, patience=HURRY_SECONDS)

    def _comments(self, key: TaskKey, since: str, patience: float = PATIENCE_SECONDS) -> Iterator[Comment]:
        order = {"sort": "desc", "order_by": "updated_at"} if since else {"sort": "asc", "order_by": "created_at"}
        for page in self.client.pages(f"{_path(key)}/notes", list[_Note], order, patience=patience):
            for note in page:
                if since and moment(note.updated_at) < since:
                    return
                if not note.system and not _TOKEN_ACCOUNT.match(_name(note.author)):
                    yield _comment(note)

    def _newest(self, key: TaskKey) -> Iterator[Comment]:
        query = {"sort": "desc", "order_by": "created_at"}
        yield from map(_comment, next(self.client.pages(f"{_path(key)}/notes", list[_Note], query)))

    def _assignees(self, key: TaskKey, patience: float) -> tuple[str, ...]:
        return tuple(map(_name, self._issue(key, patience).assignees))

    def _reviewers(self, key: TaskKey) -> tuple[str, ...]:
        return tuple(map(_name, self._issue(key).reviewers)) if key.task_type == "merge_request" else ()

    @staticmethod
    def _harmless(text: str) -> str:
        return _QUICK_ACTION.sub(r"\1\\/", text)


def _path(key: TaskKey) -> str:
    project = key.project_id if key.project_id is not None else quote(f"{key.owner}/{key.repo}", safe="")
    return f"/projects/{project}/{LISTS[key.task_type]}/{key.task_id}"


def _key(kind: str, issue: _Issue) -> TaskKey | None:
    """By path, which people can read; by project id where GitLab does not name the path."""
    number: dict[str, Any] = {kind: issue.iid}
    place = re.split("[#!]", issue.references.full)[0] if issue.references else ""
    owner, _, repo = place.rpartition("/")
    try:
        return TaskKey.gitlab(owner, repo, **number)
    except UsageError:
        pass
    try:
        return TaskKey.gitlab(project_id=issue.project_id, **number)
    except UsageError as error:
        log.warning("An item that GitLab found is left out: %s", error)
        return None


def _comment(note: _Note) -> Comment:
    body = clean_text(note.body or "")
    return Comment(str(note.id), _name(note.author), body, moment(note.created_at), moment(note.updated_at))


def _name(user: _User | None) -> str:
    return user.username if user is not None else "ghost"
