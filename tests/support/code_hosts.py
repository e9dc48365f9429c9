"""GitHub and GitLab in small: real HTTP servers with a memory, held to the published descriptions of the real ones.

Every request and every answer is checked against `data/`; what does not fit is in `problems`, and the fixtures refuse
to end with any. `faults` decides what goes wrong next.
"""

import copy
import hashlib
import json
import re
import socket
import threading
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import jsonschema

DATA = Path(__file__).parent / "code_host_data"
START = datetime(2026, 1, 15, 10, 0, tzinfo=UTC)


class Description:
    """A published description: which requests there are, and how they are answered."""

    def __init__(self, name):
        self.data = json.loads((DATA / name).read_text(encoding="utf-8"))
        self.examples = self.data.get("examples", {})
        self.operations = []
        for title, operation in self.data["operations"].items():
            method, _, path = title.partition(" ")
            pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))
            self.operations.append((method, pattern, title, operation))

    def operation(self, method, path):
        for known, pattern, title, operation in self.operations:
            if known == method and (found := pattern.fullmatch(path)):
                return title, operation, {name: unquote(value) for name, value in found.groupdict().items()}
        raise AssertionError(f"{method} {path} is not described")

    def check(self, value, schema, where):
        whole = {**schema, "schemas": self.data["schemas"]}
        for error in jsonschema.Draft202012Validator(whole).iter_errors(value):
            yield f"{where}: {error.json_path}: {error.message[:200]}"

    def check_request(self, operation, title, arguments, query, body):
        known = {(one["in"], one["name"]): one for one in operation["parameters"]}
        for place, values in (("path", arguments), ("query", query)):
            for name, value in values.items():
                if (place, name) not in known:
                    yield f"{title}: there is no {place} parameter {name}"
                    continue
                schema = known[place, name]["schema"]
                typed = int(value) if schema.get("type") == "integer" and value.isdecimal() else value
                yield from self.check(typed, schema, f"{title} {name}")
        for (place, name), one in known.items():
            if place == "query" and one["required"] and name not in query:
                yield f"{title}: {name} is required"
        if "body" in operation:
            yield from self.check(body, operation["body"], f"{title} body")
        elif body is not None:
            yield f"{title}: takes no body"

    def check_answer(self, operation, title, status, body):
        if str(status) not in operation["responses"]:
            yield f"{title}: an answer {status} is not described"
        elif (schema := operation["responses"][str(status)]) is not None:
            yield from self.check(body, schema, f"{title} answer")


@dataclass
class Fault:
    """Something that goes wrong with the next request that fits: an answer of its own, or a cut connection."""

    status: int = 0
    headers: dict = field(default_factory=dict)
    body: object = None
    match: str = ""
    after: bool = False  # what was asked for is done first
    raw: bytes | None = None


@dataclass
class Reply:
    status: int
    body: object = None
    headers: dict = field(default_factory=dict)


class Server:
    """What both have in common."""

    description = ""
    prefix = ""

    def __init__(self):
        self.spec = Description(self.description)
        self.requests, self.problems, self.faults = [], [], deque()
        self.time, self.lock = START, threading.RLock()
        self.page_cap = 100
        self.link_host = ""
        self.moved = ("", "")  # a beginning of paths that leads to another one, for ever
        self.before = None  # called with the title of each request: what somebody else does meanwhile
        handler = type("Handler", (_Handler,), {"forge": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def tick(self, seconds=1):
        self.time += timedelta(seconds=seconds)
        return self.stamp()

    def stamp(self):
        return self.time.strftime("%Y-%m-%dT%H:%M:%SZ")

    def titles(self, method=""):
        return [title for title, *_ in self.requests if title.startswith(method)]

    def fault(self, target, path):
        old, new = self.moved
        if old and path.startswith(old):
            return Fault(301, {"Location": new + path.removeprefix(old)})
        fault = next((one for one in self.faults if re.search(one.match, target)), None)
        if fault is not None:
            self.faults.remove(fault)
        return fault

    def answer(self, method, path, query, body, headers):
        title, operation, arguments = self.spec.operation(method, path)
        with self.lock:
            if self.before is not None:
                self.before(title)
            self.requests.append((title, arguments, query, body, headers))
            self.problems += self.spec.check_request(operation, title, arguments, query, body)
            reply = self.reply(title, arguments, query, body)
            reply = copy.deepcopy(reply)
        if reply.status < 300:
            self.problems += self.spec.check_answer(operation, title, reply.status, reply.body)
        etag = '"' + hashlib.sha256(json.dumps([reply.body, reply.headers]).encode()).hexdigest()[:16] + '"'
        if method == "GET" and reply.status == 200:
            reply.headers["ETag"] = etag
            if headers.get("If-None-Match") == etag:
                return Reply(304, None, reply.headers)
        return reply

    def paged(self, items, path, query, wrap=lambda part: part):
        size = min(int(query.get("per_page", 30)), self.page_cap)
        page = int(query.get("page", 1))
        part = items[(page - 1) * size : page * size]
        headers = {}
        if page * size < len(items):
            following = urlencode({**query, "page": page + 1})
            host = self.link_host or self.url
            headers["Link"] = f'<{host}{self.prefix}{path}?{following}>; rel="next", <{host}{path}?page=99>; rel="last"'
        return Reply(200, wrap(part), headers)


def content_of(body):
    if body is None or isinstance(body, bytes):
        return body or b""
    return json.dumps(body).encode()


class _Handler(BaseHTTPRequestHandler):
    forge = None
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (ConnectionError, ValueError):
            self.close_connection = True

    def serve(self):
        forge = self.forge
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        target = f"{self.command} {parts.path}"
        fault = forge.fault(target, parts.path)
        if fault is None or fault.after:
            try:
                reply = forge.answer(
                    self.command,
                    parts.path.removeprefix(forge.prefix),
                    dict(parse_qsl(parts.query, keep_blank_values=True)),
                    json.loads(raw) if raw else None,
                    self.headers,
                )
            except Exception as error:  # noqa: BLE001 - told at the end of the test
                forge.problems.append(f"{target}: {error!r}")
                reply = Reply(500, {"message": "the fake failed"})
        if fault is not None:
            if fault.raw is not None:
                self.wfile.write(fault.raw)
            if not fault.status:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            reply = Reply(fault.status, fault.body, fault.headers)
        content = content_of(reply.body)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status not in {204, 304}:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if reply.status not in {204, 304}:
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve  # noqa: N815


@dataclass
class Thing:
    """An issue, a pull request or a merge request."""

    number: int
    title: str = "A title"
    body: str | None = "A body."
    author: str = "alice"
    assignees: list = field(default_factory=lambda: ["the-bot"])
    labels: list = field(default_factory=lambda: ["coding agent"])
    reviewers: list = field(default_factory=list)
    state: str = "open"
    merged: bool = False
    pull: bool = False
    notes: list = field(default_factory=list)
    remarks: list = field(default_factory=list)
    reviews: list = field(default_factory=list)


@dataclass
class Note:
    id: int
    author: str
    body: str
    created: str
    updated: str
    system: bool = False


class World(Server):
    """Things and their comments."""

    def __init__(self):
        self.things, self.next_note, self.posts_as = {}, 1000, "the-bot"
        super().__init__()

    def add(self, number, **fields):
        thing = Thing(number, **fields)
        self.things[self.place(number, pull=thing.pull)] = thing
        return thing

    def comment(self, thing, author, body, **fields):
        self.next_note += 1
        where = fields.pop("where", "notes")
        note = Note(self.next_note, author, body, self.tick(), self.stamp(), **fields)
        getattr(thing, where).append(note)
        return note

    def rewrite(self, note, body):
        note.body, note.updated = body, self.tick()


class GitHubFake(World):
    """One repository, acme/shop."""

    description = "github-openapi.json"

    def __init__(self):
        super().__init__()
        self.stale = {}  # labels as the index of the search still has them
        one = self.spec.examples["GET /repos/{owner}/{repo}/issues/{issue_number}/comments"]
        self.example_note = one[0]
        self.example_issue = self.spec.examples["GET /search/issues"]["items"][0]
        self.example_pull = self.spec.examples["GET /repos/{owner}/{repo}/pulls/{pull_number}"]
        self.example_label = self.spec.examples["POST /repos/{owner}/{repo}/issues/{issue_number}/labels"][0]

    @staticmethod
    def place(number, *, pull):  # noqa: ARG004 - GitHub counts both together
        return number

    def reply(self, title, arguments, query, body):  # noqa: C901, PLR0911 - one line per request
        method, _, path = title.partition(" ")
        if path == "/search/issues":
            return self.search(query)
        if (arguments["owner"], arguments["repo"]) != ("acme", "shop"):
            return Reply(404, {"message": "Not Found"})
        if path.endswith("/comments/{comment_id}"):
            return self.rewritten(int(arguments["comment_id"]), body["body"])
        thing = self.things.get(int(arguments.get("issue_number") or arguments["pull_number"]))
        if thing is None:
            return Reply(404, {"message": "Not Found"})
        here = f"/repos/acme/shop/issues/{thing.number}"
        if "/pulls/" in path and not path.endswith("}"):
            return self.reviewed(thing, path, query)
        match method, path.rpartition("}")[2]:
            case "GET", "":
                return Reply(200, self.pull(thing) if "/pulls/" in path else self.issue(thing))
            case "GET", "/comments":
                since = query.get("since", "")
                return self.paged([self.note(one) for one in thing.notes if one.updated >= since], here, query)
            case "POST", "/comments":
                return Reply(201, self.note(self.comment(thing, self.posts_as, body["body"])))
            case "POST", "/labels":
                have = {name.lower() for name in thing.labels}
                thing.labels += [name for name in body["labels"] if name.lower() not in have]
                return Reply(200, [self.label(name) for name in thing.labels])
            case "GET", "/timeline":
                return self.paged(list(self.timeline(thing)), f"{here}/timeline", query)
        return self.unlabelled(thing, arguments["name"])

    def reviewed(self, thing, path, query):
        since = query.get("since", "")
        if path.endswith("/comments"):
            found = [self.remark(one) for one in thing.remarks if one.updated >= since]
        else:
            found = [self.review(one) for one in thing.reviews]
        return self.paged(found, path, query)

    def unlabelled(self, thing, name):
        if name not in thing.labels:
            return Reply(404, {"message": "Label does not exist"})
        thing.labels.remove(name)
        return Reply(200, [self.label(one) for one in thing.labels])

    def rewritten(self, number, text):
        for thing in self.things.values():
            for note in thing.notes:
                if note.id == number:
                    self.rewrite(note, text)
                    return Reply(200, self.note(note))
        return Reply(404, {"message": "Not Found"})

    def search(self, query):
        words = dict(re.findall(r'(\w+):("[^"]*"|\S+)', query["q"].replace("is:open", "")))
        found = []
        for thing in self.things.values():
            labels = self.stale.get(thing.number, thing.labels)
            fits = [
                thing.state == "open",
                thing.pull == (words["is"] == "pull-request"),
                words["label"].strip('"') in labels,
                "assignee" not in words or words["assignee"].lower() in [one.lower() for one in thing.assignees],
                "author" not in words or thing.author == "me",
                words.get("user", "acme") == "acme",
            ]
            if all(fits):
                hit = {**self.issue(thing), "score": 1.0, "labels": [self.label(one) for one in labels]}
                found.append({name: value for name, value in hit.items() if name != "body" or value is not None})
        whole = {"total_count": len(found), "incomplete_results": False, "search_type": "lexical"}
        return self.paged(found, "/search/issues", query, lambda part: {**whole, "items": part})

    def timeline(self, thing):
        for other in self.things.values():
            if re.search(rf"#{thing.number}\b", other.body or "") and other is not thing:
                issue = self.issue(other)
                where = copy.deepcopy(self.example_pull["base"]["repo"]) | {"full_name": "acme/shop", "name": "shop"}
                yield {
                    "event": "cross-referenced",
                    "actor": self.user(other.author),
                    "created_at": self.stamp(),
                    "updated_at": self.stamp(),
                    "source": {"type": "issue", "issue": {**issue, "repository": where}},
                }

    def user(self, login):
        kind = "Bot" if login.endswith("[bot]") else "User"
        return {**self.example_note["user"], "login": login, "type": kind}

    def label(self, name):
        return {**self.example_label, "name": name}

    def note(self, note):
        changes = {"id": note.id, "body": note.body, "created_at": note.created, "updated_at": note.updated}
        return {**self.example_note, **changes, "user": self.user(note.author)}

    def remark(self, note):
        example = self.spec.examples["GET /repos/{owner}/{repo}/pulls/{pull_number}/comments"][0]
        changes = {"id": note.id, "body": note.body, "created_at": note.created, "updated_at": note.updated}
        return {**example, **changes, "path": "login.py", "line": 7, "user": self.user(note.author)}

    def review(self, note):
        example = self.spec.examples["GET /repos/{owner}/{repo}/pulls/{pull_number}/reviews"][0]
        value = {**example, "id": note.id, "body": note.body, "user": self.user(note.author)}
        value.pop("submitted_at")
        return {**value, "submitted_at": note.updated} if note.updated else {**value, "state": "PENDING"}

    def issue(self, thing):
        value = {name: one for name, one in self.example_issue.items() if name not in {"score", "pull_request"}}
        value |= {
            "number": thing.number,
            "title": thing.title,
            "body": thing.body,
            "state": thing.state,
            "user": self.user(thing.author) if thing.author else None,
            "assignee": None,
            "assignees": [self.user(name) for name in thing.assignees],
            "labels": [self.label(name) for name in thing.labels],
            "repository_url": f"{self.url}/repos/acme/shop",
            "html_url": f"https://github.com/acme/shop/issues/{thing.number}",
        }
        if thing.pull:
            merged = self.stamp() if thing.merged else None
            links = dict.fromkeys(("diff_url", "html_url", "patch_url", "url"), "https://example.com")
            value["pull_request"] = {**links, "merged_at": merged}
        return value

    def pull(self, thing):
        reviewers = [self.user(name) for name in thing.reviewers]
        changes = {"number": thing.number, "body": thing.body, "user": self.user(thing.author)}
        return {**self.example_pull, **changes, "requested_reviewers": reviewers, "requested_teams": []}


class GitLabFake(World):
    """One project, 5, acme/tools/shop."""

    description = "gitlab-rest.json"
    prefix = "/api/v4"
    projects = ("5", "acme/tools/shop")

    @staticmethod
    def place(number, *, pull):
        return number, pull

    def reply(self, title, arguments, query, body):  # noqa: PLR0911 - one line per request
        method, _, path = title.partition(" ")
        pull = "merge_request" in path
        if "id" not in arguments:
            return self.listed(path, query, pull=pull)
        number = int(arguments["merge_request_iid" if pull else "issue_iid"])
        thing = self.things.get((number, pull))
        if arguments["id"] not in self.projects or thing is None:
            return Reply(404, {"message": "404 Not found"})
        here = f"/projects/{quote(arguments['id'], safe='')}/{'merge_requests' if pull else 'issues'}/{number}"
        match method, path.rpartition("_iid}")[2]:
            case "GET", "":
                return Reply(200, self.value(thing))
            case "PUT", "":
                return self.relabelled(thing, body)
            case "GET", "/notes":
                return self.paged(self.notes(thing, query), f"{here}/notes", query)
            case "POST", "/notes":
                return Reply(201, self.note(thing, self.comment(thing, self.posts_as, body["body"])))
            case "GET", "/closed_by":
                others = [one for one in self.things.values() if one.pull and f"#{number}" in (one.body or "")]
                return self.paged([self.value(one) for one in others], f"{here}/closed_by", query)
            case "GET", "/closes_issues":
                numbers = {int(found) for found in re.findall(r"#(\d+)", thing.body or "")}
                others = [one for one in self.things.values() if not one.pull and one.number in numbers]
                foreign = [{"id": "JIRA-7", "title": "Another tracker"}]
                return self.paged(foreign + [self.value(one) for one in others], f"{here}/closes_issues", query)
        note = next((one for one in thing.notes if one.id == int(arguments["note_id"])), None)
        if note is None:
            return Reply(404, {"message": "404 Not found"})
        self.rewrite(note, body["body"])
        return Reply(200, self.note(thing, note))

    def relabelled(self, thing, body):
        thing.labels += [one for one in body.get("add_labels", "").split(",") if one and one not in thing.labels]
        gone = body.get("remove_labels", "").split(",")
        thing.labels = [one for one in thing.labels if one not in gone]
        return Reply(200, self.value(thing))

    def listed(self, path, query, *, pull):
        who = query.get("assignee_username[]")
        found = [
            self.value(thing)
            for thing in self.things.values()
            if thing.pull == pull
            and thing.state == "open"
            and query["labels"] in thing.labels
            and (who is None or who.lower() in thing.assignees)
            and (query["scope"] == "all" or thing.author == "me")
            and query.get("search", "") in thing.title
        ]
        return self.paged(found, path, query)

    def notes(self, thing, query):
        field_ = {"created_at": "created", "updated_at": "updated"}[query.get("order_by", "created_at")]
        ordered = sorted(thing.notes, key=lambda note: (getattr(note, field_), note.id))
        if query.get("sort", "desc") == "desc":
            ordered.reverse()
        return [self.note(thing, note) for note in ordered]

    def user(self, name):
        place = f"https://gitlab.example.com/{name}"
        return {"id": 1, "username": name, "name": name, "state": "active", "avatar_url": None, "web_url": place}

    def note(self, thing, note):
        return {
            "id": note.id,
            "body": note.body,
            "author": self.user(note.author),
            "created_at": note.created.replace("Z", ".123Z"),
            "updated_at": note.updated.replace("Z", ".123Z"),
            "system": note.system,
            "noteable_id": 1,
            "noteable_type": "MergeRequest" if thing.pull else "Issue",
            "project_id": 5,
            "noteable_iid": thing.number,
            "resolvable": False,
        }

    def value(self, thing):
        mark, kind = ("!", "merge_requests") if thing.pull else ("#", "issues")
        full = f"acme/tools/shop{mark}{thing.number}"
        state = "merged" if thing.merged else {"open": "opened"}.get(thing.state, thing.state)
        value = {
            "id": 7000 + thing.number,
            "iid": thing.number,
            "project_id": 5,
            "title": thing.title,
            "description": thing.body,
            "state": state,
            "created_at": self.stamp(),
            "updated_at": self.stamp(),
            "labels": list(thing.labels),
            "author": self.user(thing.author),
            "assignees": [self.user(name) for name in thing.assignees],
            "web_url": f"https://gitlab.example.com/acme/tools/shop/-/{kind}/{thing.number}",
            "references": {"short": f"{mark}{thing.number}", "relative": full, "full": full},
            "user_notes_count": len(thing.notes),
        }
        if thing.pull:
            branches = {"source_branch": "fix", "target_branch": "main"}
            projects = {"source_project_id": 5, "target_project_id": 5}
            value |= branches | projects | {"reviewers": [self.user(name) for name in thing.reviewers]}
        return value
