"""Issues and pull requests on GitHub. Labels are added and removed one by one, so that those of others are kept."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from msgspec import Struct, structs

from orihon.agent.sources.code_host import CodeHost, HostItem, find_closed_issues
from orihon.agent.sources.issue import Comment, Item, LabelChange, is_same_name, normalise_time
from orihon.agent.sources.rest_client import GONE, MAX_WAIT_SECONDS, NOT_FOUND, SHORT_WAIT_SECONDS, RestClient
from orihon.codec import clean_text
from orihon.errors import SourceError, UsageError
from orihon.ingest import Sanitiser
from orihon.settings.schema import Forge
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

PUBLIC = "https://api.github.com"
HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
MAX_HITS = 1000  # GitHub's limit of a search


class _User(Struct, frozen=True):
    login: str = ""
    type: str = "User"


class _Label(Struct, frozen=True):
    name: str | None = ""


class _Pull(Struct, frozen=True):
    merged_at: str | None = None


class _Repository(Struct, frozen=True):
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
    repository: _Repository | None = None
    pull_request: _Pull | None = None


class _Hits(Struct, frozen=True):
    items: list[_Issue]
    total_count: int = 0


class _Comment(Struct, frozen=True):
    id: int
    created_at: str
    updated_at: str
    body: str | None = ""
    user: _User | None = None
    path: str = ""  # of a comment on a line
    line: int | None = None


class _Review(Struct, frozen=True):
    id: int
    body: str | None = ""
    user: _User | None = None
    submitted_at: str | None = None  # None for a draft


class _Origin(Struct, frozen=True):
    issue: _Issue | None = None


class _Event(Struct, frozen=True):
    event: str = ""
    source: _Origin | None = None


class _PullRequest(Struct, frozen=True):
    requested_reviewers: list[_User] | None = None


class GitHub(CodeHost):
    """The source `github`."""

    def __init__(
        self, forge: Forge, *, sanitiser: Sanitiser, sleep: Callable[[float], None], now: Callable[[], float]
    ) -> None:
        base_url = forge.base_url or PUBLIC
        client = RestClient(base_url, forge.token, name="GitHub", headers=HEADERS, sleep=sleep, now=now)
        super().__init__(forge, client, sanitiser, sleep)
        self._now = now

    def find_linked(self, key: TaskKey) -> TaskKey | None:
        repo = f"{key.owner}/{key.repo}"
        if key.task_type == "pull_request":
            numbers = find_closed_issues(self._fetch(key).item.body, repo)
            return TaskKey.github(key.owner, key.repo, issue=numbers[0]) if numbers else None
        pulls = [
            pull for pull in self._iter_pulls(key) if int(key.task_id) in find_closed_issues(pull.body or "", repo)
        ]
        pulls.sort(key=lambda pull: self.is_bot(_get_login(pull.user)))  # the bot's own last, and the newest of them
        return TaskKey.github(key.owner, key.repo, pull_request=pulls[-1].number) if pulls else None

    def _list_keys(self) -> Iterator[TaskKey]:
        label = self.forge.bot_label.replace('"', "")
        who = f"assignee:{self.bot}" if self.bot else "author:@me"
        owner = f"user:{self.forge.owner}" if self.forge.owner else ""
        for kind in ("issue", "pull-request"):
            words = (f"is:{kind}", "is:open", "archived:false", f'label:"{label}"', who, owner, self.forge.query)
            for page in self.client.iter_pages("/search/issues", _Hits, {"q": " ".join(filter(None, words))}):
                if page.total_count > MAX_HITS:
                    log.warning("GitHub found %d items and lists %d of them.", page.total_count, MAX_HITS)
                yield from filter(None, map(_make_key, page.items))

    def _fetch(self, key: TaskKey, max_wait: float = MAX_WAIT_SECONDS) -> HostItem:
        issue = self.client.get(_make_path(key), _Issue, max_wait=max_wait)
        labels = (label if isinstance(label, str) else label.name for label in issue.labels)
        item = Item(
            key=key,
            title=clean_text(issue.title),
            body=clean_text(issue.body or ""),
            author=_get_login(issue.user),
            assignees=_get_logins(issue.assignees),
            labels=tuple(filter(None, labels)),
            url=issue.html_url,
        )
        return HostItem(item, is_open=issue.state == "open")

    def _change_labels(self, key: TaskKey, change: LabelChange) -> None:
        if change.add:
            self.client.send("POST", f"{_make_path(key)}/labels", {"labels": list(change.add)})
        for name in change.remove:
            try:
                self.client.send("DELETE", f"{_make_path(key)}/labels/{quote(name, safe='')}")
            except SourceError as error:
                if error.status not in {NOT_FOUND, GONE}:  # already removed
                    raise

    def _post_comment(self, key: TaskKey, body: str) -> str:
        path = f"{_make_path(key)}/comments"
        comment = self.client.send("POST", path, {"body": body}, _Comment, idempotent=False)
        return str(comment.id if comment else "")

    def _replace_comment(self, key: TaskKey, comment_id: str, body: str) -> None:
        path = f"/repos/{key.owner}/{key.repo}/issues/comments/{comment_id}"
        self.client.send("PATCH", path, {"body": body}, max_wait=SHORT_WAIT_SECONDS)

    def _iter_comments(self, key: TaskKey, since: str, max_wait: float = MAX_WAIT_SECONDS) -> Iterator[Comment]:
        query = {"since": f"{since[:19]}Z"} if since else {}
        paths = [f"{_make_path(key)}/comments"]
        pull = f"/repos/{key.owner}/{key.repo}/pulls/{key.task_id}"
        if key.task_type == "pull_request":
            paths.append(f"{pull}/comments")
        for path in paths:
            for page in self.client.iter_pages(path, list[_Comment], query, max_wait=max_wait):
                yield from (_make_comment(comment) for comment in page if not _is_machine(comment.user))
        if key.task_type == "pull_request":
            for reviews in self.client.iter_pages(f"{pull}/reviews", list[_Review], max_wait=max_wait):
                yield from (_make_review(one) for one in reviews if one.submitted_at and not _is_machine(one.user))

    def _iter_newest(self, key: TaskKey) -> Iterator[Comment]:
        hour_ago = datetime.fromtimestamp(self._now(), UTC) - timedelta(hours=1)
        query = {"since": hour_ago.strftime("%Y-%m-%dT%H:%M:%SZ")}
        for page in self.client.iter_pages(f"{_make_path(key)}/comments", list[_Comment], query):
            yield from map(_make_comment, page)

    def _list_reviewers(self, key: TaskKey) -> tuple[str, ...]:
        if key.task_type != "pull_request":
            return ()
        path = f"/repos/{key.owner}/{key.repo}/pulls/{key.task_id}"
        return _get_logins(self.client.get(path, _PullRequest).requested_reviewers)

    def _iter_pulls(self, key: TaskKey) -> Iterator[_Issue]:
        """Yield the open and merged pull requests of the same repository that mention an issue."""
        for page in self.client.iter_pages(f"{_make_path(key)}/timeline", list[_Event]):
            for event in page:
                pull = event.source.issue if event.event == "cross-referenced" and event.source else None
                if pull is None or pull.pull_request is None:
                    continue
                repo = pull.repository.full_name if pull.repository else _get_repo(pull)
                if is_same_name(repo, f"{key.owner}/{key.repo}") and (
                    pull.state == "open" or pull.pull_request.merged_at
                ):
                    yield pull


def _make_path(key: TaskKey) -> str:
    return f"/repos/{key.owner}/{key.repo}/issues/{key.task_id}"


def _make_key(issue: _Issue) -> TaskKey | None:
    owner, _, repo = _get_repo(issue).partition("/")
    number: dict[str, Any] = {"pull_request" if issue.pull_request else "issue": issue.number}
    try:
        return TaskKey.github(owner, repo, **number)
    except UsageError as error:
        log.warning("An item that GitHub found is skipped: %s", error)
        return None


def _get_repo(issue: _Issue) -> str:
    """Return `acme/shop`, from the address of the repository."""
    match = re.search(r"/repos/([^/]+/[^/]+)/?$", issue.repository_url)
    return match[1] if match else ""


def _make_comment(comment: _Comment) -> Comment:
    body, times = clean_text(comment.body or ""), map(normalise_time, (comment.created_at, comment.updated_at))
    plain = Comment(str(comment.id), _get_login(comment.user), body, *times)
    if not comment.path:
        return plain
    place = f"{comment.path}, line {comment.line}" if comment.line else comment.path
    return structs.replace(plain, id=f"line-{comment.id}", body=f"On {place}:\n{body}" if body else "")


def _make_review(review: _Review) -> Comment:
    time = normalise_time(review.submitted_at or "")
    return Comment(f"review-{review.id}", _get_login(review.user), clean_text(review.body or ""), time, time)


def _is_machine(user: _User | None) -> bool:
    return user is not None and user.type == "Bot"


def _get_login(user: _User | None) -> str:
    return user.login if user is not None else "ghost"  # GitHub's name for deleted accounts


def _get_logins(users: list[_User] | None) -> tuple[str, ...]:
    return tuple(user.login for user in users or ())
