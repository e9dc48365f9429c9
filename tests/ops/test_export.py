"""A task as a page or as lines: everything is there, what became of it is marked, and no content can break out."""

import base64
import json
import subprocess
import sys
from html.parser import HTMLParser

import pytest

import orihon
from orihon.chat import registry
from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.export import export_pieces
from orihon.ops.import_task import import_file
from orihon.records import Call, Event, Fold, Message, Part, Summary
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.task.reader import Reader
from orihon.terminal import escape_page_text
from orihon.testing.samples import a_message, a_task

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
HOSTILE = [
    "</pre></article><script>alert(1)</script>",
    "\" onload=\"alert(1)\" ' onerror='alert(1)'",
    "<img src=x onerror=alert(1)><svg/onload=alert(1)>",
    "]]><!--<style>body{display:none}</style>",
    "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\u2066\x00",
    "```\n# not a heading of the page\n<b>\n```\n~~~\n<i>",
    "&lt;script&gt; &#60;script&#62; javascript:alert(1)",
]


def a_long_task(store):
    """Ten messages: 1 to 3 summarised, 5 folded, 7 and 8 rewound; all of them hostile."""
    task = a_task()
    with store.lease(task.uuid, create=task) as lease:
        lease.append(a_message(HOSTILE[0], "system"))
        for number, text in enumerate(HOSTILE, 2):
            lease.append(a_message(f"{number} {text}", "assistant" if number % 2 else "user"))
        call = Call(id="c1", name=f"bash {HOSTILE[0]}", arguments=json.dumps({"command": HOSTILE[1]}))
        lease.append(a_message("", "assistant", tool_calls=[call]))
        lease.append(a_message(HOSTILE[2], "tool", tool_call_id="c1", tool_name=HOSTILE[2], is_error=True))
        bad = Part(type=HOSTILE[0], media_type=HOSTILE[1], url="javascript:alert(1)", data="x")
        lease.append(
            a_message([Part(type="text", text="see"), Part(type="image", media_type="image/png", data=PNG), bad])
        )
        covered = {"id": 1, "ranges": [[1, 3]], "kept": []}
        summary = Summary(
            id=0,
            start_seq=1,
            end_seq=3,
            summary=HOSTILE[0],
            original_tokens=9,
            summary_tokens=3,
            ratio=0.3,
            timestamp="",
        )
        lease.append(summary)
        lease.append(Event(id=0, after=6, type="summary", data=covered, timestamp=""))
        lease.append(Fold(id=0, seq=5, text="[…]", tokens=1, timestamp=""))
        lease.append(Event(id=0, after=6, type="folds", data={"first": 1, "last": 1, "hidden": []}, timestamp=""))
        lease.append(Event(id=0, after=8, type="rewind", data={"to": 6}, timestamp=""))
    return Reader(store, store.row(task.uuid))


@pytest.fixture
def reader():
    with open_store("memory:") as store:
        yield a_long_task(store)


class Page(HTMLParser):
    """What a browser would make of it."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.open, self.articles = [], [], [], {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "img"}:
            self.open.append(tag)
        if tag == "article":
            self.articles[dict(attrs)["id"]] = ""

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
        if "article" in self.open:
            last = next(reversed(self.articles))
            self.articles[last] += data


def test_html(reader):
    """Every word is there as a word; there is no tag but ours, nothing that runs, and nothing that is fetched."""
    text = "".join(export_pieces(reader, "html"))
    page = Page(text)
    assert page.open == []
    known = "html head meta title style body h1 dl dt dd main article header a b time em pre details summary img p"
    assert {tag for tag, _ in page.tags} == set(known.split())
    names = {name for _, attrs in page.tags for name in attrs}
    assert names <= {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "src", "alt", "open"}
    assert all(attrs["href"].startswith("#m") for tag, attrs in page.tags if tag == "a")
    assert [attrs["src"] for tag, attrs in page.tags if tag == "img"] == [f"data:image/png;base64,{PNG}"]
    assert "default-src 'none'" in text
    assert "\x1b" not in text
    for number, hostile in enumerate(HOSTILE, 2):
        assert escape_page_text(hostile) in page.articles[f"m{number}"]
    assert "summarised" in page.articles["m2"]
    assert "folded" in page.articles["m5"]
    assert "left out" in page.articles["m7"]
    assert "the model sees it" in page.articles["s1"]
    assert list(page.articles)[:5] == ["m1", "m2", "m3", "s1", "m4"]
    assert "calls" in page.articles["m9"]
    assert "command" in page.articles["m9"]


def test_markdown(reader):
    """A heading is one of ours, and a tag of somebody else's is text."""
    text = "".join(export_pieces(reader, "markdown"))
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert len(headings) == 1 + 11 + 1
    assert "\x1b" not in text
    outside = [line for line in text.splitlines() if line.startswith(">") and "<" in line]
    assert outside == ["> <i>"]  # inside a fence, where everything is text


def test_openai(reader):
    """What is visible, whole, and in the shape that OpenAI takes."""
    messages = [json.loads(line) for line in "".join(export_pieces(reader, "openai")).splitlines()]
    roles = [message["role"] for message in messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user", "assistant", "tool", "user"]
    assert messages[6]["tool_calls"][0]["function"]["arguments"] == json.dumps({"command": HOSTILE[1]})
    assert messages[0]["content"] == HOSTILE[0]


def test_openai_comes_back(tmp_path, reader):
    """What was written as OpenAI's messages can be imported again."""
    path = tmp_path / "chat.jsonl"
    path.write_text("".join(export_pieces(reader, "openai")), encoding="utf-8")
    with open_store("memory:") as store:
        (task,) = import_file(AuthorizedStore(store, Principal("alice"), command="test"), Settings(), path)
        assert [message.role for message in store.read(task.uuid, Message)][:3] == ["system", "user", "assistant"]


@pytest.mark.parametrize("text", ["plain", "日本語\ttab\nline", "👩\u200d👩\u200d👧"])
def test_plain_leaves_letters_alone(text):
    """Only what steers a terminal or reorders a line is changed."""
    assert escape_page_text(text) == text


def orihon_command(folder, *arguments, **environ):
    command = [sys.executable, "-m", "orihon", *arguments]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "ORIHON_USER": "alice"} | environ
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_the_commands(tmp_path):
    """Export, import, and what Bob gets: the same answer as for a task that is not there."""
    with orihon.open(tmp_path / "logs" / "contexts", settings=Settings()) as engine:
        with engine.start("local/issue/mine", user="alice") as task:
            task.add("user", "hello")
            task.add("assistant", "done")
        uuid = task.uuid
    made = orihon_command(tmp_path, "export", uuid[:8], "--json")
    assert json.loads(made.stdout)["file"] == f"{uuid}.orihon", made.stderr
    again = orihon_command(tmp_path, "export", uuid)
    assert (again.returncode, again.stdout) == (2, "")
    assert "already" in again.stderr
    page = orihon_command(tmp_path, "export", uuid, "--format", "markdown", "-o", "-")
    assert "> hello" in page.stdout
    for number in (1, 2):
        arguments = ("import", f"{uuid}.orihon", "--store", "other", "--json")
        brought = json.loads(orihon_command(tmp_path, *arguments).stdout)
        assert (brought["messages"], brought["already"], brought["user"]) == (2, number == 2, "alice")
    bobs = orihon_command(tmp_path, "export", uuid, ORIHON_USER="bob")
    nobodys = orihon_command(tmp_path, "export", "x" * 36, ORIHON_USER="bob")
    assert bobs.returncode == nobodys.returncode == 3
    assert bobs.stderr.replace(uuid, "") == nobodys.stderr.replace("x" * 36, "")
    several = orihon_command(tmp_path, "import", "nothing.jsonl", f"{uuid}.orihon", "--store", "third")
    assert several.returncode == 2
    assert "not a file" in several.stderr
    assert "2 messages" in several.stdout
    audit = (tmp_path / "logs" / "contexts" / "audit.jsonl").read_text()
    assert audit.count('"at":"export"') == 3
    assert audit.count('"denied":true') == 2


def test_the_document_of_a_conversation(tmp_path):
    """A conversation goes out as its document, untouched, whatever its state, and comes in as a new one."""
    with orihon.open(tmp_path / "logs" / "contexts", settings=Settings()) as engine:
        with registry.start(engine, tmp_path, name="mine", user="alice") as talk:
            talk.say("hello")
            talk.task.add("assistant", "good day")
        uuid = talk.task.uuid
        with engine.start("local/issue/other", user="alice") as task:
            task.add("user", "hello")
        before = engine.row(uuid)
    out = orihon_command(tmp_path, "export", uuid, "--format", "conversation", "-o", "talk.json", "--json")
    assert out.returncode == 0, out.stderr
    with orihon.open(tmp_path / "logs" / "contexts", settings=Settings()) as engine:
        assert engine.row(uuid) == before
    brought = json.loads(orihon_command(tmp_path, "import", "talk.json", "--json").stdout)
    assert (brought["messages"], brought["user"], brought["status"]) == (2, "alice", "paused")
    assert brought["uuid"] != uuid
    wrong = orihon_command(tmp_path, "export", task.uuid, "--format", "conversation", "-o", "no.json")
    assert "not a conversation" in wrong.stderr
    assert not (tmp_path / "no.json").exists()
