"""Streams: what another process appends appears, and a browser that comes back misses nothing."""

import json
import re
import subprocess
import sys
from http.client import HTTPConnection

import pytest

import orihon
from orihon.settings.schema import Settings
from support.folded_task import UUID, play
from support.viewing import viewing

WRITER = """
import sys, orihon
from orihon.settings.schema import Settings
with orihon.open(sys.argv[1], settings=Settings()) as engine:
    with engine.resume(sys.argv[2]) as task:
        for number in range(int(sys.argv[3])):
            task.add("user", f"news {number} <script>alert(1)</script>")
"""


class Stream:
    """An open stream of server-sent events."""

    def __init__(self, client, path, **headers):
        self._connection = HTTPConnection("127.0.0.1", client.server.port, timeout=60)
        host = f"127.0.0.1:{client.server.port}"
        self._connection.request("GET", path, headers={"Cookie": client.cookie, "Host": host} | headers)
        self.response = self._connection.getresponse()
        assert self.response.headers["content-type"].startswith("text/event-stream")

    def events(self):
        """Yield (id, event, data)."""
        event = {}
        for line in iter(self.response.readline, b""):
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if line == b"\n":
                if "data" in event:
                    yield event.get("id"), event["event"], json.loads(event["data"])
                event = {}
            else:
                event[name] = value

    def messages(self, count):
        """Return so many messages."""
        found = []
        for number, name, data in self.events():
            if name == "message":
                assert number == str(data["seq"])
                found.append(data)
            if len(found) == count:
                return found
        raise AssertionError(f"the stream ended after {found}")

    def close(self):
        self._connection.close()
        self.response.close()


@pytest.fixture(params=["jsonl", "sqlite", "postgres"])
def place(request, url_at, tmp_path):
    url = url_at(request.param, tmp_path)
    with orihon.open(url, settings=Settings()) as engine, engine.start("local/issue/live", uuid=UUID) as task:
        task.add("user", "Wait for me.")
        task.pause()
    return url


def write(url, count):
    subprocess.run([sys.executable, "-c", WRITER, url, UUID, str(count)], check=True)


def test_what_another_process_appends_is_streamed(place):
    """Each message comes once, in order, with its number as the id and its text escaped."""
    with viewing(place) as client:
        stream = Stream(client, f"/t/{UUID}/live?after=1")
        write(place, 3)
        found = stream.messages(3)
        assert [data["seq"] for data in found] == [2, 3, 4]
        assert "news 0" in found[0]["html"]
        assert "<script" not in found[0]["html"]
        stream.close()


def test_a_browser_that_comes_back_misses_nothing(place):
    """`Last-Event-ID` decides, not the address."""
    with viewing(place) as client:
        write(place, 5)
        stream = Stream(client, f"/t/{UUID}/live?after=1", **{"Last-Event-ID": "4"})
        assert [data["seq"] for data in stream.messages(2)] == [5, 6]
        stream.close()


def test_the_list_hears_of_changes(place):
    """A task that goes on makes the list look again."""
    with viewing(place) as client:
        stream = Stream(client, "/live")
        events = stream.events()
        write(place, 1)
        assert next(events)[1] == "change"
        stream.close()


def test_a_stream_ends_with_the_server(place):
    """The server does not wait for browsers that stay."""
    with viewing(place) as client:
        stream = Stream(client, f"/t/{UUID}/live")
        stream.messages(1)
    assert stream.response.read() is not None
    stream.close()


def test_a_task_that_is_not_there_has_no_stream(place):
    """The answer is 404, so that a browser does not try again."""
    with viewing(place) as client:
        assert client.get("/t/ffff/live").status == 404


def test_the_figures_of_a_row(tmp_path):
    """How full the windows were, and what the calls cost, as on the page of the task."""
    url = str(tmp_path / "contexts")
    with orihon.open(url, settings=Settings()) as engine:
        play(engine, turns=6)
        play(engine, turns=2, uuid="other-1", model="my-own-model", key="local/issue/1")
    with viewing(url) as client:
        figures = client.get(f"/figures.json?ids={UUID},other-1,none").json
        assert set(figures) == {UUID, "other-1"}
        task = client.get(f"/t/{UUID}.json").json
        assert figures[UUID]["dollars"] == pytest.approx(task["cost"]["dollars"])
        assert task["cost"]["dollars"] > 0
        assert len(re.findall(r"[ML]", figures[UUID]["sparkline"])) == task["calls"]
        assert 0 < figures[UUID]["fill"] <= 1
