"""Issues and pull requests on GitHub.

Its search is an index that lags behind: an item found there is looked at itself before it counts, so that one whose
label has just gone is not run again. Labels are added and removed one by one, so that nobody else's are lost.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from msgspec import Struct, structs

from orihon.agent.sources.base import Comment, Item, moment, same
from orihon.agent.sources.code_host import ForgeSource, closes
from orihon.agent.sources.labels import Change
from orihon.agent.sources.rest_client import GONE, HURRY_SECONDS, NOT_FOUND, PATIENCE_SECONDS, Client
from orihon.codec import clean_text
from orihon.errors import SourceError, UsageError
from orihon.ingest import Sanitiser
from orihon.settings.schema import Forge
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

PUBLIC = "https://api.github.com"
HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
MOST_HITS = 1000  # a search of GitHub gives no more


class _User(Struct, frozen=True):
    login: str = ""
    type: str = "User"


class _Label(Struct, frozen=True):
    name: str | None = ""


class _Pull(Struct, frozen=True):
    merged_at: str | None = None


class _Place(Struct, frozen=True):
    full_name: str = ""


class _Issue(Struct, frozen=True):
    number: int
    title: str = ""
    body: str | None = None
    state: str = "open"
    user: _User | None = None
    assignees: list[_User] | None = None
    labels: list[_Label | str] = []
    html_url: str = ""
    repository_url: str = ""
    repository: _Place | None = None
    pull_request: _Pull | None = None


class _Hits(Struct, frozen=True):
    items: list[_Issue]
    total_count: int = 0


class _Note(Struct, frozen=True):
    id: int
    created_at: str
    updated_at: str
    body: str | None = ""
    user: _User | None = None


class _Remark(_Note, frozen=True):
    """A comment on a line of a pull request."""

    path: str = ""
    line: int | None = None


class _Review(Struct, frozen=True):
    """What somebody wrote when they sent a review; one that is not sent yet has no time."""

    id: int
    body: str | None = ""
    user: _User | None = None
    submitted_at: str | None = None


class _Origin(Struct, frozen=True):
    issue: _Issue | None = None


class _Event(Struct, frozen=True):
    event: str = ""
    source: _Origin | None = None


class _Request(Struct, frozen=True):
    requested_reviewers: list[_User] | None = None


class GitHub(ForgeSource):
    """The source `github`."""

    def __init__(
        self, forge: Forge, *, sanitiser: Sanitiser, sleep: Callable[[float], None], now: Callable[[], float]
    ) -> None:
        client = Client(forge.base_url or PUBLIC, forge.token, name="GitHub", headers=HEADERS, sleep=sleep, now=now)
        super().__init__(forge, client, sanitiser, sleep)
        self._now = now

    def find(self) -> Iterator[Item]:
        # all of them first: what is marked while the list is read would move its pages
        keys = dict.fromkeys([*self._search("issue"), *self._search("pull-request")])
        for key in keys:
            try:
                issue = self._issue(key)
                if self._asks(issue):
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
        place = f"{key.owner}/{key.repo}"
        if key.task_type == "pull_request":
            body = what.body if isinstance(what, Item) else self._issue(key).body
            return next(
                (TaskKey.github(key.owner, key.repo, issue=number) for number in closes(body or "", place)), None
            )
        found = [pull for pull in self._references(key) if int(key.task_id) in closes(pull.body or "", place)]
        # the newest; one that the bot opened before those of others
        found.sort(key=lambda pull: self._is_bot(_login(pull.user)))
        return TaskKey.github(key.owner, key.repo, pull_request=found[-1].number) if found else None

    def _search(self, kind: str) -> Iterator[TaskKey]:
        label = self.forge.bot_label.replace('"', "")
        who = f"assignee:{self.bot}" if self.bot else "author:@me"
        owner = f"user:{self.forge.owner}" if self.forge.owner else ""
        words = (f"is:{kind}", "is:open", "archived:false", f'label:"{label}"', who, owner, self.forge.query)
        for page in self.client.pages("/search/issues", _Hits, {"q": " ".join(filter(None, words))}):
            if page.total_count > MOST_HITS:
                log.warning("GitHub found %d items and shows %d; the others follow later.", page.total_count, MOST_HITS)
            for hit in page.items:
                if key := _key(hit):
                    yield key

    def _asks(self, issue: _Issue) -> bool:
        labelled = any(same(name, self.forge.bot_label) for name in _names(issue))
        assigned = not self.bot or self._has_bot(_logins(issue.assignees))
        return issue.state == "open" and labelled and assigned

    def _item(self, key: TaskKey, issue: _Issue) -> Item:
        return Item(
            key=key,
            title=clean_text(issue.title),
            body=clean_text(issue.body or ""),
            author=_login(issue.user),
            assignees=_logins(issue.assignees),
            labels=_names(issue),
            url=issue.html_url,
            comments=self._of_people(sorted(self._comments(key, ""), key=lambda one: one.created_at)),
        )

    def _issue(self, key: TaskKey, patience: float = PATIENCE_SECONDS) -> _Issue:
        return self.client.get(_path(key), _Issue, patience=patience)

    def _labels(self, key: TaskKey) -> tuple[str, ...]:
        return _names(self._issue(key))

    def _relabel(self, key: TaskKey, wanted: Change) -> None:
        if wanted.add:
            self.client.send("POST", f"{_path(key)}/labels", {"labels": list(wanted.add)})
        for name in wanted.remove:
            try:
                self.client.send("DELETE", f"{_path(key)}/labels/{quote(name, safe='')}")
            except SourceError as error:
                if error.status not in {NOT_FOUND, GONE}:  # somebody else was faster
                    raise

    def _post(self, key: TaskKey, body: str) -> str:
        made = self.client.send("POST", f"{_path(key)}/comments", {"body": body}, _Note, again=False)
        return str(made.id if made else "")

    def _replace(self, key: TaskKey, comment_id: str, body: str) -> None:
        if not comment_id.isdecimal():
            raise UsageError(f"A comment on GitHub cannot be {comment_id!a:.40}.", hint="Allowed is a number.")
        path = f"/repos/{key.owner}/{key.repo}/issues/comments/{comment_id}"
        self.client.send("PATCH", path, {"body": body}, patience=HURRY_SECONDS)

    def _comments(self, key: TaskKey, since: str, patience: float = PATIENCE_SECONDS) -> Iterator[Comment]:
        query = {"since": f"{since[:19]}Z"} if since else {}
        for page in self.client.pages(f"{_path(key)}/comments", list[_Note], query, patience=patience):
            yield from (_comment(note) for note in page if not _is_machine(note.user))
        if key.task_type == "pull_request":
            yield from self._reviews(key, query, patience)

    def _reviews(self, key: TaskKey, query: dict[str, str], patience: float) -> Iterator[Comment]:
        """What people wrote on lines, and when they sent a review."""
        path = f"/repos/{key.owner}/{key.repo}/pulls/{key.task_id}"
        for page in self.client.pages(f"{path}/comments", list[_Remark], query, patience=patience):
            yield from (_remark(note) for note in page if not _is_machine(note.user))
        for reviews in self.client.pages(f"{path}/reviews", list[_Review], patience=patience):
            for one in reviews:
                if one.submitted_at and not _is_machine(one.user):
                    when = moment(one.submitted_at)
                    yield Comment(f"review-{one.id}", _login(one.user), clean_text(one.body or ""), when, when)

    def _newest(self, key: TaskKey) -> Iterator[Comment]:
        hour_ago = datetime.fromtimestamp(self._now(), UTC) - timedelta(hours=1)
        query = {"since": hour_ago.strftime("%Y-%m-%dT%H:%M:%SZ")}
        for page in self.client.pages(f"{_path(key)}/comments", list[_Note], query):
            yield from map(_comment, page)

    def _assignees(self, key: TaskKey, patience: float) -> tuple[str, ...]:
        return _logins(self._issue(key, patience).assignees)

    def _reviewers(self, key: TaskKey) -> tuple[str, ...]:
        if key.task_type != "pull_request":
            return ()
        path = f"/repos/{key.owner}/{key.repo}/pulls/{key.task_id}"
        return _logins(self.client.get(path, _Request).requested_reviewers)

    def _references(self, key: TaskKey) -> Iterator[_Issue]:
        """Pull requests of the same repository that name this issue, without those that were closed unmerged."""
        for page in self.client.pages(f"{_path(key)}/timeline", list[_Event]):
            for event in page:
                pull = event.source.issue if event.event == "cross-referenced" and event.source else None
                if pull is None or pull.pull_request is None:
                    continue
                place = pull.repository.full_name if pull.repository else _place(pull)
                if same(place, f"{key.owner}/{key.repo}") and (pull.state == "open" or pull.pull_request.merged_at):
                    yield pull


def _path(key: TaskKey) -> str:
    return f"/repos/{key.owner}/{key.repo}/issues/{key.task_id}"


def _key(hit: _Issue) -> TaskKey | None:
    owner, _, repo = _place(hit).partition("/")
    kind: dict[str, Any] = {"pull_request" if hit.pull_request else "issue": hit.number}
    try:
        return TaskKey.github(owner, repo, **kind)
    except UsageError as error:
        log.warning("An item that GitHub found is left out: %s", error)
        return None


def _place(issue: _Issue) -> str:
    """`acme/shop`, from the address of the repository."""
    found = re.search(r"/repos/([^/]+/[^/]+)/?$", issue.repository_url)
    return found[1] if found else ""


def _comment(note: _Note) -> Comment:
    body = clean_text(note.body or "")
    return Comment(str(note.id), _login(note.user), body, moment(note.created_at), moment(note.updated_at))


def _remark(note: _Remark) -> Comment:
    place = f"{note.path}, line {note.line}" if note.line else note.path
    plain = _comment(note)
    return structs.replace(plain, id=f"line-{note.id}", body=f"On {place}:\n{plain.body}" if plain.body else "")


def _is_machine(user: _User | None) -> bool:
    return user is not None and user.type == "Bot"


def _login(user: _User | None) -> str:
    return user.login if user is not None else "ghost"  # GitHub's own name for those who left


def _logins(users: list[_User] | None) -> tuple[str, ...]:
    return tuple(user.login for user in users or ())


def _names(issue: _Issue) -> tuple[str, ...]:
    return tuple(name for label in issue.labels if (name := label if isinstance(label, str) else label.name))
