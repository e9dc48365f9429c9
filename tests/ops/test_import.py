"""Sessions of other agents come in whole: every word of the file can be told again, and each prefix can go on."""

import json

import pytest

import orihon
from orihon import codec
from orihon.context.repair import INTERRUPTED
from orihon.engine import Engine
from orihon.errors import NotFound, UsageError
from orihon.ops import import_task
from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.blobs import load_blobs
from orihon.ops.export import export_pieces
from orihon.ops.formats.original import MARK, extract_texts, insert_texts, iter_originals, rebuild_value
from orihon.ops.formats.session_file import SessionFile, parse_value
from orihon.ops.import_task import import_file
from orihon.ops.task_file import write_task_file
from orihon.records import Event, Message, Metadata
from orihon.redaction import mask_value
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.audit import open_audit
from orihon.task.reader import Reader
from orihon.task_key import TaskKey
from support.session_files import CLAUDE, CODEX_SCREEN, OPENAI, SAMPLES, TOKEN
from support.wire_rules import violations

ALICE, BOB, ROOT = Principal("alice"), Principal("bob"), Principal("root", admin=True)


@pytest.fixture(params=["jsonl", "sqlite", "postgres", "memory"])
def store(request, url_at, tmp_path):
    with open_store(url_at(request.param, tmp_path)) as opened:
        yield opened


@pytest.fixture
def memory():
    with open_store("memory:") as opened:
        yield opened


def desk_of(store, who=ALICE):
    return AuthorizedStore(store, who, command="test", audit=open_audit(store))


def written(tmp_path, text, name="session.jsonl"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def brought(store, tmp_path, text, who=ALICE, **given):
    return import_file(desk_of(store, who), Settings(), written(tmp_path, text), **given)


def file_again(store, tasks):
    """The whole file, from what the store has of it."""
    records = [found for task in tasks for found in iter_originals(store, task.uuid)]
    return rebuild_value(iter(sorted(records, key=lambda found: found[0])))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_word_comes_in(tmp_path, store, name):
    """The format is known by the content, the messages are the conversation, and the file can be told again, masked."""
    kind, text, roles = SAMPLES[name]
    tasks = brought(store, tmp_path, text)
    assert [task.format for task in tasks] == [kind] * len(roles)
    assert [" ".join(message.role for message in store.read(task.uuid, Message)) for task in tasks] == roles
    file = SessionFile(tmp_path / "session.jsonl")
    said = (
        file.document if file.is_document else [parse_value(line.encode()) for line in text.split("\n") if line.strip()]
    )
    told = file_again(store, tasks)
    told = [line for line in told if line is not None] if isinstance(told, list) else told
    assert told == mask_value(codec.clean_value(said))
    assert TOKEN not in json.dumps(told)
    for task in tasks:
        row = store.row(task.uuid)
        assert (row.user, row.status, row.last_activity) == ("alice", "paused", "imported")
        source = next(store.read(task.uuid, Metadata)).unknown["imported"]
        assert (source["file"], source["format"], source["sha256"]) == ("session.jsonl", kind, file.sha256)


@pytest.mark.parametrize("name", SAMPLES)
def test_each_prefix_can_go_on(tmp_path, memory, name):
    """However early a session broke off, it can be resumed, and its window is valid for every provider."""
    _, text, _ = SAMPLES[name]
    for task in brought(memory, tmp_path, text):
        log = [load_blobs(memory, task.uuid, message) for message in memory.read(task.uuid, Message)]
        for length in range(1, len(log) + 1):
            with orihon.open("memory:", settings=Settings()) as engine:
                begun = engine.start(TaskKey.local("prefix"))
                for message in log[:length]:
                    begun.writer.lease.append(message)
                begun.pause()
                going_on = engine.resume(begun.uuid)
                window = going_on.window()
                for api in ("openai", "responses", "anthropic", "gemini"):
                    assert violations(api, getattr(window, api)(), model="") == []
                going_on.add("user", "go on")


def test_claude_code_in_particular(tmp_path, memory):
    """A reply in several records is one message; pictures, errors, times, names and figures are where they belong."""
    (task,) = brought(memory, tmp_path, CLAUDE)
    user, reply, read, shot, words, done, last, interrupted = memory.read(task.uuid, Message)
    assert [call.name for call in reply.tool_calls] == ["Read", "Screenshot"]
    assert (reply.model, reply.usage.input_tokens, reply.usage.cache_read_tokens) == ("claude-made-up", 907, 900)
    assert (read.tool_name, shot.tool_name, shot.content[0].media_type) == ("Read", "Screenshot", "image/png")
    assert user.timestamp == "2026-02-03T04:05:01.678000Z"
    assert (words.content, done.content) == ("Look at the picture too.", "It is done.")
    assert (last.tool_calls[0].name, interrupted.content, interrupted.is_error) == ("Bash", INTERRUPTED, True)
    assert "I am a helper." not in "".join(message.text for message in memory.read(task.uuid, Message))
    assert memory.row(task.uuid).model == "claude-made-up"
    assert memory.row(task.uuid).llm_call_count == 3


def test_nothing_runs_that_was_asked_for_elsewhere(tmp_path, memory):
    """The last call of a session, which nobody answered, is not run when the task is resumed."""
    (task,) = brought(memory, tmp_path, CLAUDE)
    assert Engine(memory, Settings()).resume(task.uuid).pending_calls() == []


def test_twice_is_once(tmp_path, store):
    """The same file again changes nothing; the same file for somebody else is his own."""
    (first,) = brought(store, tmp_path, OPENAI)
    (again,) = brought(store, tmp_path, OPENAI)
    (bobs,) = brought(store, tmp_path, OPENAI, BOB)
    assert (first.already, again.already, bobs.already) == (False, True, False)
    assert first.uuid == again.uuid != bobs.uuid
    assert again.messages == 5
    assert sorted(row.user for row in store.find()) == ["alice", "bob"]


def test_completed(tmp_path, store):
    """A session can come in as one that is over; then it has a summary to inherit, and its own key."""
    (task,) = brought(store, tmp_path, OPENAI, key=TaskKey.github("acme", "shop", issue=27), status="completed")
    row = store.row(task.uuid)
    assert (row.status, row.task_key) == ("completed", "github/acme/shop/issue/27")
    assert row.final_summary


def test_a_crash_in_the_middle_is_mended_by_the_next_import(tmp_path, store, monkeypatch):
    """What a killed import left behind is taken away and done again."""
    half = import_task.make_message("user", "half")
    monkeypatch.setattr(import_task._SessionImport, "_fill", lambda _, lease, *__: lease.append(half))
    brought(store, tmp_path, OPENAI)
    assert [row.activity for row in store.find()] == ["initializing"]
    monkeypatch.undo()
    (task,) = brought(store, tmp_path, OPENAI)
    assert (task.already, task.messages) == (False, 5)


REFUSED = {
    "the log of a screen": (CODEX_SCREEN, "terminal log of Codex"),
    "nothing": ("", "no format that can be imported"),
    "text": ("hello\nworld\n", "no format that can be imported"),
    "other JSON": ('{"a": 1}\n{"b": 2}\n', "no format that can be imported"),
    "half a document": ('{"messages": [', "no format that can be imported"),
    "deep": ("[" * 100_000, "no format that can be imported"),
    "a number": ("1", "no format that can be imported"),
    "numbers": ("[1, 2]", "no format that can be imported"),
    "no message": ('{"type": "summary", "leafUuid": "x", "summary": "s"}\n', "no message"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path, store, name):
    """What cannot be understood is refused with a sentence, and leaves nothing behind."""
    text, words = REFUSED[name]
    with pytest.raises(UsageError, match=words):
        brought(store, tmp_path, text)
    assert not list(store.find())


@pytest.mark.parametrize("format", import_task.SESSIONS)
@pytest.mark.parametrize("name", [*SAMPLES, "text", "other JSON", "numbers", "deep"])
def test_forced_into_another_format(tmp_path, memory, format, name):
    """A format that is forced on a file that has another gives messages or a sentence, never anything else."""
    text = SAMPLES[name][1] if name in SAMPLES else REFUSED[name][0]
    try:
        tasks = brought(memory, tmp_path, text, format=format)
    except UsageError:
        assert not list(memory.find())
    else:
        assert all(task.messages for task in tasks)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {MARK: [0, "content"]},
        {"input": {MARK: "x"}, "text": "t" * 100},
        ["t" * 100, {"input": {"a": "b" * 100}, "arguments": 5, "args": None}],
        {"text": "short"},
    ],
)
def test_marks_can_be_undone(value):
    """Whatever a record looks like, the rest and the messages give it back."""
    call = import_task.Call(id="c", name="n", arguments=json.dumps({"a": "b" * 100}, separators=(",", ":")))
    messages = [import_task.make_message("assistant", "t" * 100, tool_calls=[call])]
    assert insert_texts(extract_texts(value, messages), messages) == value


def test_large_records_live_in_blobs(tmp_path, store):
    """A record that is too large for a line is still there, with a long text and a long message beside it."""
    long = "a long line of words\n" * 20_000
    text = json.dumps({"role": "user", "content": long, "extra": {"log": long + "more", "same": long}}) + "\n"
    (task,) = brought(store, tmp_path, text)
    assert file_again(store, [task]) == [json.loads(text)]
    (event,) = store.read(task.uuid, Event)
    assert event.data["blob"]["size_bytes"] > 400_000


def test_portable_for_a_user(tmp_path, memory):
    """Alice brings in a file of Bob's: it is hers, under another id, and she learns nothing of what Bob has here."""
    (bobs,) = brought(memory, tmp_path, OPENAI, BOB)
    path = tmp_path / "task.orihon"
    write_task_file(memory, memory.row(bobs.uuid), path)
    (hers,) = import_file(desk_of(memory), Settings(), path)
    assert (hers.user, hers.already, hers.messages) == ("alice", False, 5)
    assert hers.uuid != bobs.uuid
    with open_store("memory:") as empty:
        (elsewhere,) = import_file(desk_of(empty), Settings(), path)
        assert elsewhere == hers
    (again,) = import_file(desk_of(memory), Settings(), path)
    assert again.already
    with open_store("memory:") as empty:
        (kept,) = import_file(desk_of(empty, ROOT), Settings(), path)
        assert (kept.uuid, kept.user) == (bobs.uuid, "bob")


def test_only_an_administrator_imports_for_others(tmp_path, memory):
    """A user cannot put a task under another's name."""
    with pytest.raises(UsageError, match="Only an administrator"):
        brought(memory, tmp_path, OPENAI, user="bob")
    (task,) = brought(memory, tmp_path, OPENAI, ROOT, user="bob")
    assert task.user == "bob"
    with pytest.raises(NotFound):
        desk_of(memory).row(task.uuid)


@pytest.mark.parametrize("name", SAMPLES)
def test_out_again_as_it_was(tmp_path, memory, name):
    """`original` writes the file that came in, and that is the same session when it comes in again."""
    kind, text, roles = SAMPLES[name]
    for task, expected in zip(brought(memory, tmp_path, text), roles, strict=True):
        again = "".join(export_pieces(Reader(memory, memory.row(task.uuid)), "original"))
        with open_store("memory:") as other:
            (back,) = brought(other, tmp_path, again, format=kind)
            assert " ".join(message.role for message in other.read(back.uuid, Message)) == expected


def test_each_import_is_written_down(tmp_path):
    """The audit names the file and the task."""
    with open_store(str(tmp_path / "contexts")) as store:
        (task,) = brought(store, tmp_path, OPENAI)
    (line,) = (tmp_path / "contexts" / "audit.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["at"], found["uuid"], found["file"], found["user"]) == ("import", task.uuid, "session.jsonl", "alice")
