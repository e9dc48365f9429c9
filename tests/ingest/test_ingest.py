"""The sanitiser: every string of every record is masked, ids stay unique, and text inside base64 is text."""

import base64
import gzip
import hashlib
import json
import logging
import re
import types
import typing
from functools import partial
from pathlib import Path

import msgspec
import pytest

import orihon
from orihon import codec, ingest
from orihon.codec import _KINDS as KINDS
from orihon.ingest import Sanitiser
from orihon.records import Call, Event, Fold, Message, Metadata, Native, Part, Record, TaskRow, ToolCall
from orihon.redaction import MASKS, KnownSecrets, mask
from orihon.task_key import TaskKey
from orihon.testing.samples import TOKEN, a_message

PASSWORD = "k3y9f7q2w8e1r4t6"
ASSIGNED = f"DB_PASSWORD={PASSWORD}"
MAIL = "alice@corp.co.jp"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


# every field of every record


def minimal(kind):
    """A value of a type without a word of our own in it."""
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind(**{field.name: minimal(field.type) for field in msgspec.structs.fields(kind) if field.required})
    if kind is TaskKey:
        return TaskKey.github("acme", "shop", issue=1)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return minimal(inner[0])
    if origin is typing.Literal:
        return inner[0]
    if origin in {types.UnionType, typing.Union}:
        return minimal(inner[0])
    return {str: "x", int: 1, float: 1.0, bool: False, dict: {}, list: [], typing.Any: None}[origin or kind]


def places(kind):
    """Every place in a value of a type that can hold a text, as a function from the text to the value."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is str:
        return {"": lambda text: text}
    if kind is TaskKey:
        return KEYS
    if kind is typing.Any or origin is dict:
        values = inner[1] if inner else kind
        nested = (
            {"{…}": lambda text: {"of": [{"a": text}]}} if values is typing.Any else {"{…}": lambda text: {"a": text}}
        )
        is_text = values is typing.Any or bool(places(values))  # else there are numbers under the names
        return (nested if is_text else {}) | {"{key}": lambda text: {text: "x" if is_text else 1}}
    if isinstance(kind, type) and issubclass(kind, Record):
        return {
            f".{field.name}{place}": partial(with_field, kind, field.name, make)
            for field in msgspec.structs.fields(kind)
            for place, make in places(field.type).items()
        }
    if origin is list:
        return {f"[]{place}": lambda text, make=make: [make(text)] for place, make in places(inner[0]).items()}
    inner = inner[:1] if origin is typing.Annotated else () if origin is typing.Literal else inner
    return {place: make for one in inner for place, make in places(one).items()}


def with_field(kind, name, make, text):
    return msgspec.structs.replace(minimal(kind), **{name: make(text)})


KEYS = {
    ".owner": lambda text: TaskKey.github(text, "shop", issue=1),
    ".repo": lambda text: TaskKey.github("acme", text, issue=1),
    ".task_id": TaskKey.local,
    ".workspace": lambda text: TaskKey.local("x", workspace=text),
}
FIELDS = [
    pytest.param(kind, make, id=f"{kind.__name__}{place}") for kind in KINDS for place, make in places(kind).items()
]


def test_all_fields_are_listed():
    """The list below is no empty one: it has every kind of record, and the fields that once were forgotten."""
    ids = {parameter.id for parameter in FIELDS}
    assert {one.partition(".")[0] for one in ids} == {kind.__name__ for kind in KINDS}
    once = {"Message.key", "Message.model", "Message.tool_name", "Message.tool_call_id", "Message.tool_calls[].id"}
    assert once | {"Message.content[].type", "Message.content[].data", "Metadata.task_key.repo", "Metadata.user"} <= ids
    assert len(ids) > 100


@pytest.mark.parametrize(("kind", "make"), FIELDS)
def test_no_field_keeps_a_secret(kind, make):
    """A secret in any string of any record does not survive; a new field is tried here without being named."""
    given = make(TOKEN)
    assert TOKEN.lower() in codec.encode(given).decode().lower()
    if kind is TaskRow:
        changes = {name: value for name, value in msgspec.structs.asdict(given).items() if isinstance(value, str)}
        assert TOKEN.lower() not in str(Sanitiser().row_changes(changes)).lower()
    admitted = codec.encode(Sanitiser().record(given))
    assert TOKEN.lower() not in admitted.decode().lower()
    assert codec.decode_line(admitted, kind) is not None  # and what is left is still a record


def test_what_is_harmless_passes_as_the_same_object():
    """Nothing is made anew when there is nothing to hide, and our own forms are never touched."""
    call = Call(id="call_1", name="read", arguments='{"path": "a.py"}')
    native = Native(api="anthropic", model="claude", items=[{"type": "thinking", "thinking": "hm", "signature": "s"}])
    for record in (
        a_message("hello", tool_calls=[call], native=native, key="k", model="gpt-4o", unknown={"x": [1]}),
        a_message([Part(type="image", media_type="image/png", data=base64.b64encode(PNG).decode())]),
        ToolCall(seq=1, tool="read", args={"a": 1}, status="success", duration_ms=1, timestamp=codec.now()),
        Event(id=1, after=1, type="note", data={"blob": {"sha256": "a" * 64, "size_bytes": 3}}, timestamp=codec.now()),
        Fold(id=1, seq=1, text="[…]", arguments={"call_1": "{}"}, tokens=1, timestamp=codec.now()),
    ):
        assert Sanitiser().record(record) == record


def test_reasoning_that_was_masked_goes_whole():
    """A signature vouches for the very text."""
    thought = {"type": "thinking", "thinking": f"use {TOKEN}", "signature": "c2ln"}
    admitted = Sanitiser().record(a_message("ok", native=Native(api="anthropic", items=[thought])))
    assert admitted.native is None


def test_a_call_says_whether_it_may_run_again():
    """Hidden arguments or a hidden name make a call one that is never run again; another id does not."""
    plain = {"id": "call_1", "name": "run", "arguments": "{}"}
    for field, masked in (("id", False), ("name", True), ("arguments", True)):
        call = Call(**plain | {field: ASSIGNED})
        (admitted,) = Sanitiser().record(a_message("", role="assistant", tool_calls=[call])).tool_calls
        assert admitted.masked is masked, field


MANIFEST = f"apiVersion: v1\nkind: Secret\nstringData:\n  a: {PASSWORD * 2}\n"


def test_a_text_of_many_lines_is_looked_at_as_it_was_meant():
    """JSON writes line ends as `\\n`; what only the lines tell is found all the same, in arguments and in results."""
    assert PASSWORD not in mask(MANIFEST)
    assert PASSWORD in mask(json.dumps({"content": MANIFEST})), "else this shows nothing"
    reply = called("call_1")
    reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = json.dumps({"content": MANIFEST})
    with orihon.open("memory:") as engine:
        task = engine.start("local/x/issue/a")
        task.add("user", "Write it.")
        task.add_reply(reply)
        (call,) = task.pending_calls()
        assert call.arguments["content"] == MANIFEST, "the tool gets what the model wrote"
        with task.tool(call) as run:
            run.result = {"written": MANIFEST}
        assert PASSWORD not in str(list(engine.read(task.uuid).messages()))
        (kept,) = task.log.one(2).tool_calls
        assert kept.masked
        assert json.loads(kept.arguments)["content"].startswith("apiVersion")


def test_arguments_that_hold_no_secret_stay_byte_for_byte():
    """Also where they are written oddly."""
    for text in (
        '{"a" : "x\\ny",  "b": 1.50, "b": 2}',
        '{"broken": "x\\n',
        "[1,\\n]",
        '"\\u00e9"',
        '{"n": 12345678901234567890123}',
    ):
        (kept,) = (
            Sanitiser()
            .record(a_message("", role="assistant", tool_calls=[Call(id="c", name="n", arguments=text)]))
            .tool_calls
        )
        assert kept.arguments == text


# ids


def test_masked_ids_stay_unique():
    """Equal ids become equal ids, different ids different ones, and no piece of a secret is in them."""
    gate = Sanitiser(key=lambda: b"k" * 32)
    ids = [f"call-{number}-{ASSIGNED}" for number in range(500)]
    masked = [gate.id(one) for one in ids]
    assert len(set(masked)) == len(ids)
    assert masked == [Sanitiser(key=lambda: b"k" * 32).id(one) for one in ids]
    assert not any(PASSWORD[at : at + 4] in one for one in masked for at in range(len(PASSWORD) - 3))
    assert all(re.fullmatch(r"\[PASSWORD\]-[a-p]{16}", one) for one in masked)
    assert Sanitiser(key=lambda: b"l" * 32).id(ids[0]) != masked[0], "without the key no guess can be tried"


def test_a_masked_id_is_not_masked_again():
    """What a store gave is what it takes: in a result, in a copy, in another process."""
    gate = Sanitiser(key=lambda: b"k" * 32)
    for name in sorted(MASKS):
        for number in range(20):
            tag = hashlib.blake2b(b"%d" % number, digest_size=8).hexdigest().translate(ingest._LETTERS)
            assert gate.id(f"[{name}]-{tag}") == f"[{name}]-{tag}"
            assert gate.key(TaskKey.local(f"{name}-{tag}".lower())) == TaskKey.local(f"{name}-{tag}".lower())
            assert mask(json.dumps({"id": f"[{name}]-{tag}"})) == json.dumps({"id": f"[{name}]-{tag}"})


@pytest.fixture(params=["jsonl", "sqlite", "postgres"])
def url(request, url_at, tmp_path):
    return url_at(request.param, tmp_path)


def called(id, name="run"):
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return {"choices": [{"message": {"content": "", "tool_calls": [call]}}]}


def test_a_call_and_its_result_still_pair_up(url):
    """By the id that the provider gave, in the same process and after a resume with another engine."""
    ids = [f"call_{number}_{TOKEN}" for number in range(3)]
    with orihon.open(url) as engine:
        task = engine.start("local/x/issue/a")
        task.add("user", "Run them.")
        for one in ids[:2]:
            task.add_reply(called(one))
            task.add("tool", "done", tool_call_id=one)
        task.add_reply(called(ids[2]))
        task.pause()
    with orihon.open(url) as engine:
        task = engine.resume(task.uuid)
        task.add("tool", "done", tool_call_id=ids[2])
        messages = list(engine.read(task.uuid).messages())
        asked = [message.tool_calls[0].id for message in messages if message.tool_calls]
        answered = [message.tool_call_id for message in messages if message.role == "tool"]
        assert asked == answered
        assert len(set(asked)) == 3
        shown = task.window().openai()
        assert [one["tool_call_id"] for one in shown if one["role"] == "tool"] == [
            call["id"] for one in shown for call in one.get("tool_calls", ())
        ]
        assert "interrupted" not in str(shown)


def test_a_message_is_stored_once_by_a_key_that_holds_a_secret(url):
    """Also when the key is given again by another process; another key is another message."""
    with orihon.open(url) as engine:
        task = engine.start("local/x/issue/a")
        first = task.add("user", "mail", key=f"<1.{MAIL}>")
        assert task.add("user", "mail", key=f"<1.{MAIL}>") == first
        assert task.add("user", "mail", key=f"<2.{MAIL}>") == first + 1
        task.pause()
    with orihon.open(url) as engine:
        task = engine.resume(task.uuid)
        assert task.add("user", "mail", key=f"<2.{MAIL}>") == first + 1
        assert MAIL not in str(list(engine.read(task.uuid).messages()))


def test_a_tool_runs_with_what_the_model_wrote_and_is_not_run_again_after_a_crash(url):
    """Name and arguments are whole in memory until the tool has run; what is stored of them is not run."""
    with orihon.open(url) as engine:
        task = engine.start("local/x/issue/a")
        task.add("user", "Run it.")
        task.add_reply(called("call_1", name=f"run_{TOKEN}"))
        (call,) = task.pending_calls()
        assert call.name == f"run_{TOKEN}"
        task.writer.lease.close()
    with orihon.open(url) as engine:
        task = engine.resume(task.uuid)
        assert task.pending_calls() == []
        assert [message.is_error for message in engine.read(task.uuid).messages() if message.role == "tool"] == [True]


def test_keys_and_users_with_a_secret_find_their_tasks(url):
    """Two tasks on one key are on one key; another key is another one; a user is found by the name that was given."""
    with orihon.open(url) as engine:
        keys = [TaskKey.local(f"{TOKEN}{end}", workspace="Shop") for end in "ab"]
        rows = [engine.start(key, user=TOKEN).row for key in (*keys, keys[0])]
        assert rows[0].task_key == rows[2].task_key != rows[1].task_key
        assert {row.uuid for row in engine.tasks(key=keys[0])} == {rows[0].uuid, rows[2].uuid}
        assert {row.uuid for row in engine.tasks(key=str(keys[1]))} == {rows[1].uuid}
        assert len(list(engine.tasks(user=TOKEN))) == 3
        assert TOKEN not in str(rows)
        github = TaskKey.github("AKIA" + "QWERTYUIOPASDFGH", "shop", issue=1)
        engine.start(github)
        assert len(list(engine.tasks(key=github))) == 1


def test_an_address_is_a_fine_name_for_a_user(url):
    """Accounts, settings of users and roles of a database are compared by it, so it stays."""
    with orihon.open(url) as engine:
        task = engine.start("local/x/issue/a", user=MAIL)
        assert task.row.user == MAIL
        assert [row.uuid for row in engine.tasks(user=MAIL)] == [task.uuid]


def test_a_task_id_with_a_secret_is_refused(url):
    """It names a directory; the sentence does not repeat it."""
    with orihon.open(url) as engine:
        with pytest.raises(orihon.OrihonError, match="looks like a secret") as refused:
            engine.start("local/x/issue/a", uuid=TOKEN)
        assert TOKEN not in str(refused.value)
        assert list(engine.tasks()) == []


# text inside bytes


def part(data, media_type="text/plain", **fields):
    return Part(type="file", media_type=media_type, data=data, **fields)


def b64(text, encoding="utf-8"):
    return base64.b64encode(text.encode(encoding)).decode()


TEXTS = {
    "text": part(b64(f"a\n{ASSIGNED}\n")),
    "json": part(b64(json.dumps({"password": PASSWORD})), "application/json"),
    "json of another name": part(b64(json.dumps({"password": PASSWORD})), "application/vnd.acme+json"),
    "no type": part(b64(f"a\n{ASSIGNED}\n"), None),
    "bytes": part(b64(f"a\n{ASSIGNED}\n"), "application/octet-stream"),
    "a picture that is text": Part(
        type="image", media_type="image/svg+xml", data=b64(f"<svg><!-- {ASSIGNED} --></svg>")
    ),
    "utf-16": part(b64(f"a\r\n{ASSIGNED}\r\n", "utf-16")),
    "utf-16 without a mark": part(b64(f"a\r\n{ASSIGNED}\r\n", "utf-16-be")),
    "latin-1": part(base64.b64encode(f"caf\xe9\n{ASSIGNED}\n".encode("latin-1")).decode()),
    "in lines": part(base64.encodebytes(f"{'a' * 90}\n{ASSIGNED}\n".encode()).decode()),
    "of URLs": part(base64.urlsafe_b64encode(f"??>>\n{ASSIGNED}\n".encode()).decode().rstrip("=")),
    "no base64": part(ASSIGNED),
    "a token that decodes": part("AKIA" + "QWERTYUIOPASDFGH"),
    "data URL": Part(type="file", url=f"data:text/plain;charset=utf-8;base64,{b64(ASSIGNED)}"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_in_base64_is_masked(name):
    """Whatever it is called, in whatever encoding, and however its base64 is written."""
    admitted = Sanitiser().record(a_message([TEXTS[name]]))
    assert admitted.masked
    (kept,) = admitted.content
    data = kept.data if kept.data is not None else kept.url.partition("base64,")[2]
    plain = "".join(data.split()).translate(str.maketrans("-_", "+/")).rstrip("=")
    is_base64 = re.fullmatch(r"[A-Za-z0-9+/]+", plain)
    inside = base64.b64decode(plain + "=" * (-len(plain) % 4)) if is_base64 else data.encode()
    text = inside.replace(b"\0", b"") + data.encode()
    assert PASSWORD.encode() not in text
    assert b"QWERTYUIOPASDFGH" not in text
    assert re.search(rb"\[(PASSWORD|AWS_KEY)\]", text)


BINARIES = {
    "picture": PNG + MAIL.encode(),
    "pdf": b"%PDF-1.7\n" + MAIL.encode(),
    "gzip": gzip.compress(MAIL.encode()),
    "zip": b"PK\3\4" + MAIL.encode(),
    "program": b"\0\1\2\3 a program with " + MAIL.encode(),
}


@pytest.mark.parametrize("name", BINARIES)
def test_pictures_and_archives_are_left_alone(name):
    """What is no text keeps its bytes, on purpose."""
    given = a_message([part(base64.b64encode(BINARIES[name]).decode(), None)])
    assert Sanitiser().record(given) is given


def test_data_that_is_words_is_kept_as_it_came(url):
    """A document whose text stands where others have base64, in any language."""
    with orihon.open(url) as engine:
        task = engine.start("local/x/issue/a")
        seq = task.add("user", [{"type": "document", "source": {"type": "text", "data": f"日本語 {ASSIGNED}"}}])
        (kept,) = task.log.one(seq).content
        assert kept.text == "日本語 DB_PASSWORD=[PASSWORD]"


def test_bytes_around_a_secret_stay():
    """A text in another encoding loses its secret, and nothing else."""
    for encoding in ("latin-1", "utf-16", "utf-8"):
        given = f"caf\xe9 {ASSIGNED} na\xefve".encode(encoding)
        assert Sanitiser().data(given) == "caf\xe9 DB_PASSWORD=[PASSWORD] na\xefve".encode(encoding)


def test_a_file_of_text_is_masked_wherever_it_goes(url, tmp_path):
    """In the blob, in the window that decodes it, and in an export of a store that has it in clear."""
    from orihon.ops.task_file import open_task_file, write_task_file  # noqa: PLC0415 - only here

    with orihon.open(url) as engine:
        task = engine.start("local/x/issue/a")
        task.add("user", [{"type": "document", "source": {"media_type": "text/plain", "data": b64(ASSIGNED)}}])
        assert "[PASSWORD]" in str(task.window().anthropic())
        assert PASSWORD not in str(task.window().anthropic())
        # as an older version left it
        blob = task.writer.lease.put(ASSIGNED.encode())
        kept = msgspec.structs.replace(part(None), blob=blob)
        number = task.writer.lease.last(Message) + 1
        record = a_message([kept], seq=number, timestamp=codec.now(), tokens=1)
        task.writer.lease.write("messages", number, codec.encode_line(record), record)
        task.pause()
        write_task_file(engine.store, engine.row(task.uuid), tmp_path / "task.orihon")
        assert PASSWORD.encode() not in gzip.decompress((tmp_path / "task.orihon").read_bytes())
        with open_task_file(tmp_path / "task.orihon") as portable:
            (*_, last) = portable.read(task.uuid, Message)
            assert portable.blob(task.uuid, last.content[0].blob.sha256) == b"DB_PASSWORD=[PASSWORD]"


# the log


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.DEBUG, logger="orihon")
    return caplog


def broken(text):
    raise ValueError(text)


def test_every_line_of_the_log_is_masked(lines):
    """Its values, its error, and what its store knows to be secret, before any handler sees it."""
    gate = ingest.listen(Sanitiser(KnownSecrets(["correct-horse-battery"])))
    log = logging.getLogger("orihon")
    try:
        broken(f"refused {TOKEN}")
    except ValueError:
        log.exception("it said %s and %s", ASSIGNED, "correct-horse-battery")
    assert TOKEN not in lines.text
    assert PASSWORD not in lines.text
    assert "correct-horse-battery" not in lines.text
    assert "ValueError: refused [GITHUB_TOKEN]" in lines.text
    assert "Traceback" in lines.text
    del gate


def test_a_line_that_cannot_be_made_is_still_a_line(lines):
    """A value that breaks when it is read breaks neither the caller nor the log."""

    class Odd:
        def __str__(self):
            raise RuntimeError("no")

    logging.getLogger("orihon").warning("look at %s", Odd())
    assert "look at %s (RuntimeError: its values cannot be shown)" in lines.text


def test_an_error_without_a_secret_keeps_its_objects(lines):
    """Handlers that look at the error itself still can."""
    try:
        broken("nothing special")
    except ValueError:
        logging.getLogger("orihon").exception("it failed")
    assert lines.records[-1].exc_info[0] is ValueError


def test_nobody_logs_past_the_filter():
    """The filter is that of the logger `orihon`; a logger of another name would not have it."""
    package = Path(orihon.__file__).parent
    named = {
        name
        for path in package.rglob("*.py")
        for name in re.findall(r"getLogger\((.*?)\)", path.read_text(encoding="utf-8"))
    }
    assert named == {'"orihon"'}


@pytest.mark.parametrize("how", ["fail", "stop", "pause"])
def test_how_a_task_ended_is_logged_without_secrets(lines, how):
    """`Task failed: …`, `Task stopped: …` and `Task paused: …` are lines like any other."""
    with orihon.open("memory:") as engine:
        getattr(engine.start("local/x/issue/a"), how)(ASSIGNED)
    assert re.search(r"Task \w+: DB_PASSWORD=\[PASSWORD\]", lines.text)
    assert PASSWORD not in lines.text


# which kinds


def test_kinds_that_are_not_wanted_are_left_alone():
    """All but addresses; what the process was given as a secret is hidden in any case."""
    gate = Sanitiser(KnownSecrets([MAIL[::-1]]), frozenset(MASKS - {"EMAIL"}))
    text = f"{MAIL} {TOKEN} {MAIL[::-1]}"
    assert gate.text(text) == f"{MAIL} [GITHUB_TOKEN] [SECRET]"
    assert gate.value({"author": MAIL, "password": PASSWORD}) == {"author": MAIL, "password": "[PASSWORD]"}
    assert Sanitiser(kinds=frozenset()).value({"password": PASSWORD}) == {"password": PASSWORD}
    assert Sanitiser(kinds=frozenset({"EMAIL"})).text(text) == f"[EMAIL] {TOKEN} {MAIL[::-1]}"


def test_metadata_of_a_queued_task_hold_no_password(tmp_path, monkeypatch):
    """The key of a request is made of what is stored of it."""
    from click.testing import CliRunner  # noqa: PLC0415 - only here

    from orihon.cli import cli  # noqa: PLC0415

    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(cli, ["enqueue", f"Log in with {ASSIGNED} first", "--json", "--store", "store"])
    assert said.exit_code == 0, said.output
    assert "db_password-password" in json.loads(said.stdout)["task_key"]
    for path in (tmp_path / "store").rglob("*"):
        assert PASSWORD not in path.name
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path
    other = CliRunner().invoke(
        cli, ["enqueue", "Log in with DB_PASSWORD=an0therOne99x first", "--json", "--store", "store"]
    )
    assert json.loads(other.stdout)["task_key"] == json.loads(said.stdout)["task_key"], "the same request"


def test_metadata_are_admitted_whole():
    """A key, a user and a host name of a new task."""
    given = Metadata(
        uuid="u", task_key=TaskKey.local(TOKEN), user=TOKEN, hostname=ASSIGNED, config={"a": ASSIGNED}, format=1
    )
    encoded = codec.encode(Sanitiser().record(given)).decode()
    assert TOKEN not in encoded
    assert PASSWORD not in encoded
