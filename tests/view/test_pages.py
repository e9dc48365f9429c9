"""The pages, asked for over HTTP on each kind of store."""

import json
import re

import msgspec
import pytest

import orihon
from orihon.settings.schema import Settings
from support.folded_task import UUID, play
from support.viewing import viewing

KINDS = ["jsonl", "sqlite", "postgres"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A store of files with the task, and the windows that were sent."""
    url = str(tmp_path_factory.mktemp("store") / "contexts")
    with orihon.open(url, settings=Settings()) as engine:
        return url, play(engine)


@pytest.fixture(scope="module")
def client(place):
    with viewing(place[0]) as client:
        yield client


def test_the_list_shows_the_task(client):
    """The first page has the task with a link, as HTML and as JSON."""
    page = client.get("/")
    assert page.status == 200
    assert f'href="/t/{UUID}"' in page.text
    (task,) = client.get("/tasks.json").json["tasks"]
    assert task["uuid"] == UUID
    assert task["status"] == "completed"


@pytest.mark.parametrize(("text", "found"), [("shop/issue", 1), ("550e84", 1), ("SHOP 21", 1), ("nothing", 0)])
def test_the_list_is_filtered_by_a_part_of_what_it_shows(client, text, found):
    """Key and id are searched, in any case; all words must occur."""
    assert len(client.get(f"/tasks.json?q={text.replace(' ', '+')}").json["tasks"]) == found


def test_the_list_is_filtered_by_status(client):
    """A status that no task has gives an empty list, and one that does not exist is an error."""
    assert client.get("/tasks.json?status=failed").json["tasks"] == []
    assert client.get("/?status=lost").status == 400


def test_the_conversation_has_every_message(place, client):
    """All messages stand on the page in order, each with its anchor, and their results with the call."""
    with orihon.open(place[0], settings=Settings()) as engine:
        stored = [message.seq for message in engine.read(UUID).messages()]
    page = client.get(f"/t/{UUID}").text
    places = [page.index(f'id="m{seq}"') for seq in stored]
    assert places == sorted(places)
    assert "<strong>fix</strong>" in page
    data = client.get(f"/t/{UUID}.json").json
    assert [message["seq"] for message in data["messages"]] == stored


def test_every_window_is_the_one_that_was_sent(place, client):
    """The items of each call are the messages that went out then, in order."""
    _, sent = place
    for number, window in enumerate(sent, 1):
        data = client.get(f"/t/{UUID}/call/{number}.json").json["window"]
        texts = [item["message"]["content"] for item in data["items"] if item["message"]]
        assert texts == [message["content"] or "" for message in window]
        assert client.get(f"/t/{UUID}/call/{number}").status == 200


def test_each_message_of_the_log_is_in_the_window_or_has_a_reason(place, client):
    """Whole, folded, or behind a mark, a summary, a rewind or a tangent: nothing is lost without a word."""
    _, sent = place
    reasons, states = set(), set()
    for number in range(1, len(sent) + 1):
        window = client.get(f"/t/{UUID}/call/{number}.json").json["window"]
        seen = [item["message"]["seq"] for item in window["items"] if (item["message"] or {}).get("seq")]
        gone = [seq for item in window["items"] if item["count"] for seq in range(item["first"], item["last"] + 1)]
        explained = set(seen) | set(gone)
        assert set(range(1, window["after"] + 1)) <= explained, number
        reasons |= {item["reason"] for item in window["items"] if item["reason"]}
        states |= {item["state"] for item in window["items"]}
    assert {"whole", "folded", "missing", "mark"} <= states
    assert {"rewind", "end", "folded"} <= reasons


@pytest.mark.parametrize("policy", ["importance", "plain"])
def test_what_a_policy_does_not_choose_has_a_reason_too(policy, tmp_path):
    """Windows of whole messages only are explained like the others."""
    url = str(tmp_path / "contexts")
    with orihon.open(url, settings=Settings()) as engine:
        sent = play(engine, turns=14, window=policy)
    with viewing(url) as client:
        reasons = set()
        for number in range(1, len(sent) + 1):
            window = client.get(f"/t/{UUID}/call/{number}.json").json["window"]
            assert client.get(f"/t/{UUID}/call/{number}").status == 200
            seen = {item["message"]["seq"] for item in window["items"] if item["message"]}
            gone = {seq for item in window["items"] for seq in range(item["first"], item["last"] + 1) if item["count"]}
            assert set(range(1, window["after"] + 1)) <= seen | gone
            reasons |= {item["reason"] for item in window["items"]}
        assert reasons & {"not chosen", "summarised"}


def test_a_fold_names_the_call_that_it_was_made_for(place, client):
    """The window of that call says why it was folded, and the windows after it say since when."""
    _, sent = place
    windows = [client.get(f"/t/{UUID}/call/{number}.json").json["window"] for number in range(1, len(sent) + 1)]
    folding = [window["call"] for window in windows if window["reasons"]]
    assert folding
    for window in windows:
        for item in window["items"]:
            if item["state"] == "folded":
                assert item["call"] in folding
                assert item["call"] <= window["call"]


def test_the_next_window_is_that_of_the_engine(place, client):
    """One call further is the window that the model would get now."""
    url, sent = place
    with orihon.open(url, settings=Settings()) as engine:
        window = engine.read(UUID).window()
    data = client.get(f"/t/{UUID}/call/{len(sent) + 1}.json").json
    assert data["is_next"]
    assert data["window"]["tokens"] == window.tokens


def test_the_first_byte_that_differs_is_that_of_the_requests(place, client):
    """Between two calls the requests differ where the page says; a window that only grew differs nowhere."""
    _, sent = place
    grew = 0
    for number in range(2, len(sent) + 1):
        old, new = (b",".join(map(msgspec.json.encode, window)) for window in sent[number - 2 : number])
        byte = client.get(f"/t/{UUID}/diff/{number - 1}/{number}.json").json["difference"]["first_byte"]
        if byte is None:
            grew += 1
            assert new.startswith(old)
        else:
            assert old[:byte] == new[:byte]
            assert old[byte : byte + 1] != new[byte : byte + 1]
        assert client.get(f"/t/{UUID}/call/{number}.json").json["first_byte"] == byte
    assert 0 < grew < len(sent) - 1


def test_a_difference_tells_what_a_fold_took(place, client):
    """What was whole before and shorter after is folded; what is in one window only is new or gone."""
    _, sent = place
    kinds = set()
    for number in range(2, len(sent) + 1):
        data = client.get(f"/t/{UUID}/diff/{number - 1}/{number}.json").json["difference"]
        changes = data["changes"]
        kinds |= {change["change"] for change in changes}
        assert sum(change["change"] == "gone" for change in changes) == len(sent[number - 2]) - sum(
            change["before"] is not None and change["after"] is not None for change in changes
        )
        for change in changes:
            if change["change"] == "folded":
                assert change["tokens_after"] < change["tokens_before"]
        assert client.get(f"/t/{UUID}/diff/{number - 1}/{number}").status == 200
    assert {"same", "new", "gone", "folded"} <= kinds


def test_the_timeline_has_every_call(place, client):
    """Each call is a point with its tokens by source, and the folds are those that the calls were sent with."""
    url, sent = place
    data = client.get(f"/t/{UUID}/timeline.json").json
    with orihon.open(url, settings=Settings()) as engine:
        recorded = [reply.window for reply in engine.read(UUID).replies()]
    assert [point["sources"] for point in data["points"]] == [window.sources for window in recorded]
    folding = {number for number, window in enumerate(recorded, 1) if window.reasons}
    assert folding <= set(data["folded"])
    page = client.get(f"/t/{UUID}/timeline").text
    assert page.count('class="hit"') == len(sent)
    assert page.count('class="fold"') >= len(folding)


@pytest.mark.parametrize(
    "path", ["/tasks", f"/t/{UUID}", f"/t/{UUID}/call/18", f"/t/{UUID}/diff/16/17", f"/t/{UUID}/m/4", f"/t/{UUID}/tree"]
)
def test_every_page_is_markdown_too(client, path):
    """The same page with `.md`: its texts are there, and no text of the transcript is markup."""
    answer = client.get(f"{path}.md")
    assert answer.headers["content-type"].startswith("text/markdown")
    assert "<article" not in answer.text
    assert UUID in answer.text


def test_the_markdown_of_a_window_has_its_messages(place, client):
    """Each message that was sent stands there, quoted or fenced."""
    _, sent = place
    text = client.get(f"/t/{UUID}/call/18.md").text
    for message in sent[17]:
        for line in (message["content"] or "").splitlines():
            assert line in text


@pytest.mark.parametrize("path", ["/t/0000/call/1", f"/t/{UUID}/call/0", f"/t/{UUID}/call/99", "/t/none", "/no/page"])
def test_what_does_not_exist_is_not_found(client, path):
    """The answer is a page with a sentence, in HTML and in JSON."""
    answer = client.get(path)
    assert answer.status == 404
    assert "<h1>" in answer.text


@pytest.mark.parametrize(("accepted", "word"), [("ja,en;q=0.5", "会話"), ("en-GB,ja", "Conversation"), ("", "Conv")])
def test_the_language_is_that_of_the_browser(client, accepted, word):
    """English and Japanese, in the order of the header."""
    page = client.get(f"/t/{UUID}", accept_language=accepted).text
    assert word in page
    assert f'<html lang="{"ja" if word == "会話" else "en"}">' in page


def test_both_languages_have_the_same_texts(root):
    """No text is missing in one of them, and the values that are filled in are the same."""
    tables = []
    for language in ("en", "ja"):
        lines = (root / f"src/orihon/view/texts.{language}.txt").read_text(encoding="utf-8").splitlines()
        tables.append(
            {name: set(re.findall(r"{\w+}", text)) for name, text in (line.split(" = ", 1) for line in lines)}
        )
    assert tables[0] == tables[1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_stores_show_the_same(kind, url_at, tmp_path):
    """Files, SQLite and PostgreSQL give the same windows."""
    url = url_at(kind, tmp_path)
    with orihon.open(url, settings=Settings()) as engine:
        sent = play(engine, turns=6)
    with viewing(url) as client:
        data = client.get(f"/t/{UUID}/call/4.json").json
        assert len([item for item in data["window"]["items"] if item["message"]]) == len(sent[3])
        assert client.get("/").status == 200
        assert json.loads(client.get(f"/t/{UUID}.json").body)["calls"] == len(sent)
