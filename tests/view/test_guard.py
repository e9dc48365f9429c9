"""Who may ask: the token, the cookie, the Host and Origin headers, and what every answer forbids."""

import msgspec
import pytest

from orihon.ops.access import open_authorized_store
from orihon.settings.schema import Access, Settings
from orihon.settings.section import Secret
from support.cli_store import IDS, SECRET, fill
from support.viewing import viewing


@pytest.fixture
def url(tmp_path):
    url = str(tmp_path / "contexts")
    fill(url)
    return url


@pytest.fixture
def client(url):
    with viewing(url, enter=False) as client:
        yield client


PATHS = ["/", "/tasks.json", f"/t/{IDS['done']}", f"/t/{IDS['done']}/call/1", "/static/view.css", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_shown_without_the_cookie(client, path):
    """Not even whether a page exists."""
    assert client.get(path).status == 401
    assert client.get(path, cookie=f"orihon_view_{client.server.port}=x").status == 401


def test_the_token_works_once(client):
    """It is exchanged for a cookie that scripts cannot read and other sites cannot send."""
    answer = client.enter()
    assert answer.headers["location"] == "/"
    assert {"httponly", "samesite=strict"} <= {part.strip().lower() for part in answer.headers["set-cookie"].split(";")}
    assert client.get("/").status == 200
    assert client.get(f"/?token={client.server.keys.token}", cookie="").status == 401
    assert client.get("/?token=").status == 303  # who has the cookie is sent on
    assert client.get(f"/?token={client.server.keys.token[:-1]}", cookie="").status == 401


def test_the_redirect_stays_here(client):
    """A path that looks like another host does not lead there."""
    answer = client.get(f"//evil.example/x?token={client.server.keys.token}&q=1")
    assert answer.headers["location"] == "/evil.example/x?q=1"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "localhost.evil:{port}"]
)
def test_another_name_is_refused(client, host):
    """A page of another site that points its name here (DNS rebinding) gets nothing, even with the cookie."""
    client.enter()
    assert client.get("/", host=host.format(port=client.server.port) or "-").status == 421


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "LOCALHOST:{port}"])
def test_our_names_are_accepted(client, host):
    """The names of this machine for itself."""
    client.enter()
    assert client.get("/", host=host.format(port=client.server.port)).status == 200


def test_another_origin_is_refused(client):
    """A request that another site makes is refused; one of our own pages is not."""
    client.enter()
    ours = f"http://127.0.0.1:{client.server.port}"
    assert client.get("/", origin=ours).status == 200
    for origin in ("http://evil.example", "null", f"{ours}0", ours.replace("http", "https")):
        assert client.get("/", origin=origin).status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(client, method):
    """Only GET and HEAD are answered."""
    client.enter()
    assert client.get("/", method=method).status == 405


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_forbids_what_a_page_does_not_need(client, path):
    """No script or style inside the page, nothing from other hosts, no framing, no sniffing, no storing."""
    for enter in (False, True):
        if enter:
            client.enter()
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"


def test_each_read_is_audited(client, url):
    """The list, a task and a window leave a line each, with what was read; a task that is not there too."""
    client.enter()
    for path in ("/", f"/t/{IDS['done']}", f"/t/{IDS['done']}/call/1"):
        assert client.get(path).status == 200
    with open_authorized_store(Settings(), url, command="test") as authorized:
        lines = [msgspec.json.decode(line) for line in authorized.audit.lines()]
    seen = [(line["at"], line.get("read")) for line in lines if line["through"] == "view"]
    assert seen == [("tasks", ["rows"]), ("task", ["messages", "summaries"]), ("task", ["messages", "window"])]


def test_with_access_people_see_what_is_theirs(url, monkeypatch):
    """Alice finds her tasks, and bob's are not there: not in the list, not by id, not by a window."""
    settings = Settings(access=Access(tokens={"alice": Secret("a" * 20), "bob": Secret("b" * 20)}))
    monkeypatch.setenv("ORIHON_TOKEN", "a" * 20)
    with viewing(url, settings) as client:
        ids = {task["uuid"] for task in client.get("/tasks.json").json["tasks"]}
        assert ids == {IDS["done"], IDS["failed"], IDS["paused"]}
        for path in (f"/t/{IDS['bob']}", f"/t/{IDS['bob']}.json", f"/t/{IDS['bob']}/call/1"):
            answer = client.get(path)
            assert answer.status == 404
            assert SECRET not in answer.text
        assert IDS["bob"] not in client.get("/?q=bob").text
