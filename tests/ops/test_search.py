"""Whatever was said in any task is found, by whoever may see it, and nobody who writes notices."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
import zlib
from contextlib import closing
from datetime import timedelta

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import orihon
from orihon import codec
from orihon.agent.worker import Worker
from orihon.cli import cli
from orihon.cli.worker import _indexer
from orihon.errors import UsageError
from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.copy import copy_tasks
from orihon.ops.search import SearchQuery, purge, search, update_index
from orihon.ops.search.index import Index, fill_index, index_path
from orihon.ops.search.tokenize import parse_terms, split_words
from orihon.records import Call, Message, Summary
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.audit import open_audit
from orihon.stores.base import Options
from orihon.stores.jsonl.line_reader import PlainSource, compress
from orihon.testing.samples import a_message, a_task

ROOT, ALICE, BOB = Principal("root", admin=True), Principal("alice"), Principal("bob")
STORES = ["jsonl", "sqlite", "postgres", "memory"]
WITH_INDEX = ["jsonl", "sqlite", "postgres"]


@pytest.fixture
def opened(url_at):
    return lambda kind, place: open_store(url_at(kind, place), Options(durability="os"))


@pytest.fixture(params=STORES)
def store(request, opened, tmp_path):
    with opened(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=WITH_INDEX)
def lasting(request, opened, tmp_path):
    with opened(request.param, tmp_path) as made:
        yield made


def task_of(store, *texts, status="completed", **task):
    """A task in which these were said; its uuid."""
    made = a_task(**task)
    with store.lease(made.uuid, create=made) as lease:
        for text in texts:
            lease.append(text if isinstance(text, Message | Summary) else a_message(text))
        lease.update(status=status)
    return made.uuid


def found(store, text, who=ROOT, **wanted):
    authorized = AuthorizedStore(store, who, command="search", audit=open_audit(store))
    return search(authorized, SearchQuery(text=text, **wanted))


def uuids(store, text, who=ROOT, **wanted):
    return {one.uuid for one in found(store, text, who, **wanted)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The max_retries of HttpServer", "the max retries of httpserver"),
        ("設定画面を", "設定 定画 画面 面を を"),
        ("GPT設定", "gpt 設定 定"),
        ("ｶﾞｲﾄﾞ Ｆｕｌｌ", "ガイ イド ド full"),
        ("Café naïve ÅÄÖ", "cafe naive aao"),
        ("か\u3099", "が"),
        ("한국어", "한국 국어 어"),
        ("a" * 100, "a" * 64),
        ("\x00\ud800 ', \" * ^ -", ""),
    ],
)
def test_words(text, words):
    """Words of all scripts, without case, width and accents."""
    assert " ".join(split_words(text)) == words


@pytest.mark.parametrize("text", ["", "  ", '""', "*", "- ' ^ :", '"', "\0"])
def test_nothing_to_look_for(text):
    """A query without a letter is refused with a sentence."""
    with pytest.raises(UsageError, match="no word"):
        parse_terms(text)


SAID = "トップページの設定画面を開くと、合計がcafé Menuの「圧縮」後に2回丸められる。See shop/basket.py:42 max_retries=3"


@pytest.mark.parametrize(
    "query",
    [
        "設定", "圧縮", "画面", "面", "丸", "合計が", "トップページの設定", "ﾄｯﾌﾟ", "設定画面 圧縮", "圧縮 basket",
        '"basket.py:42"', "basket.py", '"max retries"', "max_retries", "retries", "shop/basket.py", "bask*", "2回",
        '"合計がcafé menu"', '"圧縮', "る。", "トップ*", "CAFE menu",
    ],
)  # fmt: skip
def test_found(store, query):
    """Words, parts of Japanese words, phrases, beginnings; in any order."""
    uuid = task_of(store, "something else", SAID)
    task_of(store, "unrelated words of another task")
    (one,) = found(store, query)
    assert (one.uuid, one.count, one.places[0].kind, one.places[0].number) == (uuid, 1, "user", 2)


@pytest.mark.parametrize(
    "query", ["設画", "定 retry", '"圧縮 合計"', '"retries max"', "baske", "basket nothing", "圧*縮"]
)
def test_not_found(store, query):
    """All words must occur, and a phrase must stand as it is."""
    task_of(store, SAID)
    assert found(store, query) == []


def test_every_store_finds_the_same(opened, tmp_path):
    """Words, phrases, beginnings, two Japanese letters or one: a database of many machines finds what a file finds."""
    said = [
        "設定画面を直す",
        "画面の設定",
        "定画",
        "max_retries = 3",
        "Retries: MAX",
        "ｶﾅの設定",
        "naïve 合計",
        "合",
        "計",
    ]
    queries = ["設定", "画面", "定画", "設", "合計", "カナ", "max retries", '"max retries"', "retr*", "naive", "面を"]
    answers = {}
    for kind in ("sqlite", "postgres"):
        with opened(kind, tmp_path) as store:
            for number, text in enumerate(said, 1):
                task_of(store, text, number=number)
            answers[kind] = [{one.task_key for one in found(store, query, limit=50)} for query in queries]
    assert answers["postgres"] == answers["sqlite"]
    assert all(answers["sqlite"])


def test_everything_is_searched(store):
    """What was said, called, answered and summarised; and texts that are too long for a line."""
    call = Call(id="c1", name="deploy_it", arguments='{"target": "staging-7"}')
    figures = {"original_tokens": 9, "summary_tokens": 3, "ratio": 0.3, "timestamp": ""}
    uuid = task_of(
        store,
        a_message("the answer", "assistant", tool_calls=[call]),
        a_message("tool output zebra", "tool", tool_call_id="c1", tool_name="deploy_it"),
        a_message("long " * 60_000 + "needle"),
        Summary(id=0, start_seq=1, end_seq=2, summary="要約: the giraffe", **figures),
    )
    for query, kind in [("staging", "assistant"), ("deploy", "assistant"), ("zebra", "tool"), ("giraffe", "summary")]:
        assert [(one.uuid, one.places[0].kind) for one in found(store, query)] == [(uuid, kind)]
    assert "needle" in found(store, "needle")[0].places[0].snippet


def test_the_best_first(store):
    """A summary before what was said, and that before what a tool printed; a short text before a long one."""
    figures = {"original_tokens": 9, "summary_tokens": 3, "ratio": 0.3, "timestamp": ""}
    long = task_of(store, "word " * 3000 + "zebra")
    tool = task_of(store, a_message("a zebra", "tool"))
    said = task_of(store, a_message("a zebra", "assistant"))
    summed = task_of(store, Summary(id=0, start_seq=1, end_seq=1, summary="a zebra", **figures))
    assert [one.uuid for one in found(store, "zebra")] == [summed, said, tool, long]
    assert [one.uuid for one in found(store, "zebra", limit=2)] == [summed, said]


def test_filters(store):
    """By user, status, key and date, each alone and together."""
    first = task_of(store, "zebra", user="alice", status="failed", number=1)
    second = task_of(store, "zebra", user="bob", number=2)
    assert uuids(store, "zebra") == {first, second}
    assert uuids(store, "zebra", user="alice") == {first}
    assert uuids(store, "zebra", status=("completed", "stopped")) == {second}
    assert uuids(store, "zebra", key="github/acme/shop/issue/2") == {second}
    assert uuids(store, "zebra", key="github/acme/shop/issue/2", user="alice") == set()
    assert uuids(store, "zebra", created_from="2020-01-01") == {first, second}
    assert uuids(store, "zebra", created_to="2020-01-01") == set()
    with store.lease(second) as lease:
        lease.update(status="stopped", completed_at=codec.now())
    assert uuids(store, "zebra", status=("stopped",)) == {second}


def test_a_snippet_is_harmless(store):
    """What would steer a terminal is shown, not sent."""
    task_of(store, "before\x1b[2J\x1b]0;owned\x07 zebra \u202eevil\r\nafter")
    (one,) = found(store, "zebra")
    assert "zebra" in one.places[0].snippet
    assert not set("\x1b\x07\r\n\u202e") & set(one.places[0].snippet)


def test_only_what_is_new_is_read(lasting, monkeypatch):
    """A second search reads nothing of a task that has not changed, and only the new messages of one that has."""
    quiet, busy = task_of(lasting, "zebra"), task_of(lasting, "giraffe", status="paused")
    found(lasting, "zebra")
    reads = []
    before = lasting.read

    def read(uuid, kind, *, first=1, last=None):
        reads.append((uuid, kind, first))
        return before(uuid, kind, first=first, last=last)

    monkeypatch.setattr(lasting, "read", read)
    monkeypatch.setattr("orihon.ops.search.index.CLOCK_MARGIN", timedelta(0))
    found(lasting, "zebra")
    reads.clear()
    with lasting.lease(busy) as lease:
        lease.append(a_message("elephant"))
        lease.update(last_activity="said more")
    assert uuids(lasting, "elephant") == {busy}
    assert (busy, Message, 2) in reads
    assert quiet not in {uuid for uuid, *_ in reads}


def test_a_running_task_is_always_looked_at(lasting):
    """What was appended without a change of the row is found at once."""
    task = a_task()
    with lasting.lease(task.uuid, create=task) as lease:
        for word in ("zebra", "giraffe", "elephant"):
            lease.append(a_message(word))
            assert uuids(lasting, word) == {task.uuid}


def test_deleted_tasks_leave(lasting):
    """A task that is gone is not found, and after a purge no word of it is in the file."""
    gone, stays = task_of(lasting, "zebra quokka"), task_of(lasting, "zebra wombat")
    assert uuids(lasting, "zebra") == {gone, stays}
    lasting.delete(gone)
    assert uuids(lasting, "zebra") == {stays}
    assert uuids(lasting, "quokka") == set()
    purge(lasting)
    path = index_path(lasting)
    with closing(Index(path)) as index:
        index.database.connection.execute("VACUUM")
        assert index.database.all("SELECT count(*) FROM docs") == [(1,)]
        index.database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"quokka" not in path.read_bytes()
    assert b"wombat" in path.read_bytes()


def test_made_again_under_the_same_id(lasting):
    """A new task with the id of an old one is another task."""
    task = a_task()
    for word in ("zebra", "wombat"):
        with lasting.lease(
            task.uuid, create=msgspec.structs.replace(task, created_at=f"2024-01-0{len(word)}")
        ) as lease:
            lease.append(a_message(word))
        assert uuids(lasting, word) == {task.uuid}
        if word == "zebra":
            lasting.delete(task.uuid)
    assert uuids(lasting, "zebra") == set()


def test_copied_tasks_are_found(opened, tmp_path, lasting):
    """A task that came from another store, with the dates of long ago, is new here."""
    task_of(lasting, "wombat")
    found(lasting, "wombat")
    (tmp_path / "other").mkdir()
    with opened("jsonl", tmp_path / "other") as other:
        uuid = task_of(other, "zebra")
        copy_tasks(other, lasting)
    assert uuids(lasting, "zebra") == {uuid}


def test_archives_are_read(opened, tmp_path):
    """A compressed task is searched like any other."""
    with opened("jsonl", tmp_path) as store:
        uuid = task_of(store, "zebra 縞馬")
        messages = store.task_path(uuid) / "messages.jsonl"
        source = PlainSource(os.open(messages, os.O_RDONLY))
        with (messages.parent / "messages.jsonl.gz").open("wb") as packed:
            compress(source, packed.fileno())
        source.close()
        messages.unlink()
        assert uuids(store, "縞馬") == {uuid}


@pytest.mark.parametrize("damage", ["empty", "noise", "middle", "another version", "another program", "torn texts"])
def test_a_broken_index_is_made_anew(lasting, damage):
    """Whatever happened to the file, the search finds what there is."""
    expected = {task_of(lasting, f"zebra {number} " * 50) for number in range(20)}
    found(lasting, "zebra")
    path = index_path(lasting)
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "noise":
        path.write_bytes(os.urandom(50_000))
    elif damage == "middle":
        data = bytearray(path.read_bytes())
        data[4096:] = os.urandom(len(data) - 4096)
        path.write_bytes(data)
    else:
        statement = {
            "another version": "UPDATE meta SET value = '0' WHERE name = 'version'",
            "another program": "DROP TABLE meta",
            "torn texts": "UPDATE docs SET text = x'00'",
        }[damage]
        with closing(Index(path)) as index:
            index.database.change(statement)
    assert uuids(lasting, "zebra", limit=50) == expected


def test_rebuild_and_modes(lasting):
    """`--rebuild` makes the index anew; it is for its owner alone."""
    uuid = task_of(lasting, "zebra")
    found(lasting, "zebra")
    path = index_path(lasting)
    with closing(Index(path)) as index:
        index.set_meta(mark="old")
    authorized = AuthorizedStore(lasting, ROOT, command="search")
    assert [one.uuid for one in search(authorized, SearchQuery(text="zebra"), rebuild=True)] == [uuid]
    with closing(Index(path)) as index:
        assert index.meta("mark") == ""
    for file in path.parent.glob(f"{path.name}*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_while_somebody_else_fills_it(lasting):
    """Whoever comes second does not wait; he sees what is there."""
    uuid = task_of(lasting, "zebra")
    found(lasting, "zebra")
    later = task_of(lasting, "wombat")
    with closing(Index(index_path(lasting))) as index, index.lock() as is_locked:
        assert is_locked
        assert uuids(lasting, "zebra") == {uuid}
        assert uuids(lasting, "wombat") == set()
    assert uuids(lasting, "wombat") == {later}


def test_in_small_steps(lasting):
    """An idle worker fills it a moment at a time, and stops when all is in it."""
    for number in range(10):
        task_of(lasting, f"zebra {number}", "x" * 300_000)
    steps = 0
    while not update_index(lasting, 0.0001):
        steps += 1
        assert steps < 100
    assert len(uuids(lasting, "zebra", limit=50)) == 10


def test_a_worker_with_nothing_to_do_fills_it(tmp_path):
    """When nothing waits, the worker's idle moments go to the index."""
    with orihon.open(tmp_path / "contexts", settings=Settings()) as engine:
        task_of(engine.store, "zebra")

        def idle():
            _indexer(engine.store)()
            worker.stop_requests = 1

        worker = Worker(engine, lambda uuid: [uuid], poll_seconds=0.01, on_idle=idle)
        worker.run()
        with closing(Index(index_path(engine.store))) as index:
            assert index.database.all("SELECT count(*) FROM docs") == [(1,)]


def test_idle_does_nothing_in_memory():
    """A store that has no place has no index to fill."""
    with open_store("memory:") as store:
        assert update_index(store, 1)


@pytest.mark.parametrize("kind", STORES)
def test_nothing_of_others_can_be_learned(opened, tmp_path, kind):
    """Alice gets the same answer, to the last figure, whether Bob has a thousand matching tasks or none."""
    answers = []
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
        with opened(kind, tmp_path / str(number)) as store:
            if number:
                for _ in range(30):
                    task_of(store, "zebra zebra zebra wombat", user="bob")
            task_of(store, "a zebra and more", user="alice")
            task_of(store, "zebra", "zebra zebra", user="alice", number=2)
            for query in ("zebra", "wombat", "zebra wombat", '"and more"'):
                for filters in ({}, {"user": "bob"}, {"user": "alice"}, {"status": ("failed",)}):
                    for one in found(store, query, ALICE, **filters):
                        assert one.user == "alice"
                        answers.append((number, query, one.task_key, one.score, one.count, one.places))
    with_bob = [answer[1:] for answer in answers if answer[0]]
    assert with_bob == [answer[1:] for answer in answers if not answer[0]]
    assert with_bob


def test_each_search_is_written_down(opened, tmp_path):
    """Who looked for what."""
    with opened("jsonl", tmp_path) as store:
        found(store, "zebra", ALICE)
    (line,) = (tmp_path / "contexts" / "audit.jsonl").read_text().splitlines()
    looked = json.loads(line)
    assert (looked["user"], looked["through"], looked["at"], looked["text"]) == ("alice", "search", "search", "zebra")


@pytest.fixture(scope="module")
def some_store():
    with open_store("memory:") as store:
        task_of(store, SAID)
        yield store


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=40) | st.text(alphabet='"*():^-+ANDORNEAT{}, 設定a', max_size=20))
def test_no_query_is_an_error(some_store, text):
    """Whatever is typed is words, or a sentence; never a message of the database."""
    try:
        found(some_store, text)
    except UsageError as error:
        assert "no word" in error.message


@settings(max_examples=100, deadline=None)
@given(text=st.text(min_size=1, max_size=60), data=st.data())
def test_any_part_of_a_japanese_text_is_found(text, data):
    """For every run of letters, any part of it matches the words that were indexed, as FTS5 would match them."""
    run = data.draw(st.text(alphabet="設定画面のを圧縮カナー", min_size=1, max_size=8))
    start = data.draw(st.integers(0, len(run) - 1))
    end = data.draw(st.integers(start + 1, len(run)))
    words = list(split_words(f"{text} {run} {text}"))
    (term,) = parse_terms(run[start:end])
    places = [words[at : at + len(term.words)] for at in range(len(words))]
    *fixed, last = term.words
    assert any(
        len(place) == len(term.words)
        and place[:-1] == fixed
        and (place[-1].startswith(last) if term.is_prefix else place[-1] == last)
        for place in places
    )


WRITER = """
import sys, time
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.testing.samples import a_message, a_task
worst = 0.0
with open_store(sys.argv[1], Options(durability="os")) as store:
    task = a_task(user="alice")
    with store.lease(task.uuid, create=task) as lease:
        for number in range(int(sys.argv[2])):
            began = time.monotonic()
            lease.append(a_message(f"zebra number {number} of many"))
            worst = max(worst, time.monotonic() - began)
        lease.update(status="completed")
print(task.uuid, round(worst * 1000, 1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", WITH_INDEX)
def test_while_eight_write(opened, tmp_path, kind):
    """Eight processes append while others search: nothing is lost, and in the end everything is found."""
    with opened(kind, tmp_path) as store:
        command = [sys.executable, "-c", WRITER, store.url, "60"]
        writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
        searches = 0
        while any(writer.poll() is None for writer in writers):
            found(store, "zebra number")
            searches += 1
        printed = [writer.communicate(timeout=60)[0] for writer in writers]
        assert [writer.returncode for writer in writers] == [0] * 8
        expected = {line.split()[0] for line in printed}
        assert searches
        for uuid in expected:
            assert [message.seq for message in store.read(uuid, Message)] == list(range(1, 61))
        assert uuids(store, '"number 59"', limit=50) == expected
        with closing(Index(index_path(store))) as index:
            fill_index(store, index)
            assert index.database.all("SELECT count(*), count(DISTINCT task * 1000 + number) FROM docs") == [(480, 480)]


SEARCHER = """
import sys
from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.search import SearchQuery, search
from orihon.stores import open_store
with open_store(sys.argv[1]) as store:
    print("begins", flush=True)
    while True:
        authorized = AuthorizedStore(store, Principal("root", admin=True), command="test")
        search(authorized, SearchQuery(text="zebra"), rebuild=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", WITH_INDEX)
def test_a_searcher_who_stops_stops_nobody(opened, tmp_path, kind):
    """Whatever he was doing when he was stopped, reading or filling, an append does not wait for him."""
    with opened(kind, tmp_path) as store:
        for number in range(20):
            task_of(store, *[f"zebra {number} {place}" for place in range(10)])
        searcher = subprocess.Popen([sys.executable, "-c", SEARCHER, store.url], stdout=subprocess.PIPE)
        try:
            assert searcher.stdout.readline() == b"begins\n"
            for moment in range(5):
                time.sleep(0.02 + moment / 70)
                os.kill(searcher.pid, signal.SIGSTOP)
                command = [sys.executable, "-c", WRITER, store.url, "20"]
                assert subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
                os.kill(searcher.pid, signal.SIGCONT)
        finally:
            searcher.kill()
            searcher.communicate(timeout=60)
        assert len(uuids(store, '"zebra number"', limit=50)) == 5


def test_texts_are_packed(lasting):
    """The index keeps its texts packed, and only those that the store has: masked."""
    task_of(lasting, "zebra ghp_" + "a1B2c3D4" * 4 + "e5F6")
    found(lasting, "zebra")
    with closing(Index(index_path(lasting))) as index:
        ((text,),) = index.database.all("SELECT text FROM docs")
    assert zlib.decompress(text).decode().startswith("zebra [")


def test_the_command(opened, tmp_path, monkeypatch):
    """What people type, and what programs read."""
    with opened("jsonl", tmp_path) as store:
        uuid = task_of(store, "The zebra was 圧縮.", user="alice")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORIHON_USER", raising=False)

    def run(*arguments):
        command = ["search", "--store", str(tmp_path / "contexts"), *arguments]
        return CliRunner().invoke(cli, command)

    shown = run("zebra", "圧縮").output
    assert uuid in shown
    assert "user 1: The zebra was 圧縮." in shown
    assert json.loads(run("zebra", "--json").output)["uuid"] == uuid
    assert run("nothing").output == "Nothing was found.\n"
    assert "not a date" in run("zebra", "--from", "yesterday").output
    assert uuid in run("zebra", "--from", "2024-01-01", "--status", "completed").output
    assert "no word" in str(run("***").exception)
    monkeypatch.setenv("ORIHON_USER", "bob")
    assert run("zebra", "--json").output == ""
