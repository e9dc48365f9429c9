"""Files from elsewhere, with every value in them replaced by each of many that do not belong there.

A file is taken in, as far as it can be understood, or refused in a sentence that leaves the store as it was. What was
taken in can be looked at, exported and gone on with. Nothing ends in a traceback, and nothing hangs. `make test-deep`
tries many more.
"""

import gzip
import hashlib
import json
import random

import msgspec
import pytest
from click.testing import CliRunner

import orihon
from orihon.agent import queue
from orihon.chat import document, registry
from orihon.cli import cli
from orihon.context.events import SCHEMAS, problem
from orihon.engine import Engine
from orihon.errors import BudgetTooSmall, Corrupt, OrihonError, UsageError
from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.backup import backup, restore
from orihon.ops.export import FORMATS, export_pieces
from orihon.ops.formats import SESSIONS
from orihon.ops.import_task import import_file
from orihon.ops.listing import build_overview
from orihon.ops.task_file import write_task_file
from orihon.records import Event, Metadata
from orihon.settings.load import load
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.base import FORMAT
from orihon.task.reader import Reader
from orihon.task_key import TaskKey
from support.hostile_files import UUID, fill, packed, portable, reply
from support.mutations import DEEP, Raw, at, changed, dumped, mutations, nested, places, removed
from support.session_files import SAMPLES

ROOT = Principal("root", admin=True)
MOST = 300 if DEEP else 15
ENV = {"ORIHON_USER": None, "ORIHON_TOKEN": None}


def desk_of(store):
    return AuthorizedStore(store, ROOT, command="test")


def parse_value(text):
    """A sample as one value: a document, or a list of its lines."""
    try:
        return json.loads(text), True
    except json.JSONDecodeError:
        lines = [line for line in text.splitlines() if line.strip() and not line.endswith("torn")]
        return [json.loads(line) for line in lines], False


def file_of(value, *, is_document):
    if is_document or not isinstance(value, list):
        return dumped(value)
    return "\n".join(map(dumped, value))


def taken(path, what, **given):
    """Take a file into an empty store and use it; or it is refused, and the store is empty still."""
    with open_store("memory:") as store:
        try:
            brought = import_file(desk_of(store), Settings(), path, **given)
        except OrihonError as error:
            assert error.exit_code in {2, 3}, (what, error)
            assert error.message, what
            assert not list(store.find()), what
            return False
        for one in brought:
            used(store, one.uuid)
    return True


def used(store, uuid):
    """What people do with a task; a sentence is allowed, a traceback is not."""
    row = store.row(uuid)
    for act in (
        lambda: build_overview(Reader(store, row)),
        lambda: Reader(store, row).window().openai(),
        *(lambda name=name: "".join(export_pieces(Reader(store, row), name)) for name in FORMATS),
        lambda: queue.load_job(Engine(store, Settings()), uuid),
        lambda: gone_on(store, uuid),
    ):
        try:
            act()
        except OrihonError as error:
            assert error.exit_code != OrihonError.exit_code, error


def gone_on(store, uuid):
    with Engine(store, Settings()).resume(uuid) as task:
        task.add("user", "go on")
        task.window()
        task.add_reply(reply("done"))
        task.pending_calls()


@pytest.mark.parametrize("name", SAMPLES)
def test_session_files(tmp_path, name):
    """Of every agent, recognised by their content and with their format forced."""
    chosen, text, _ = SAMPLES[name]
    value, is_document = parse_value(text)
    path = tmp_path / "session.jsonl"
    for what, wrong in mutations(value, most=MOST // 3):
        path.write_text(file_of(wrong, is_document=is_document), "utf-8", "surrogatepass")
        taken(path, what)
        taken(path, what, format=chosen)


@pytest.mark.parametrize("name", SAMPLES)
def test_half_a_character_in_the_arguments(tmp_path, name):
    """A session is imported although the arguments of its calls contain a lone surrogate."""
    _, text, _ = SAMPLES[name]
    value, is_document = parse_value(text)
    path = tmp_path / "session.jsonl"
    found = [where for where in places(value) if where and where[-1] in {"input", "args", "arguments"}]
    for where in found:
        inner = value
        for step in where[:-1]:
            inner = inner[step]
        if isinstance(inner[where[-1]], dict):
            inner[where[-1]]["note"] = "\ud800"
    path.write_text(file_of(value, is_document=is_document), "utf-8", "surrogatepass")
    assert taken(path, name)


@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize(
    "field", ["type", "role", "payload", "message", "content", "action", "observation", "messages"]
)
def test_a_type_that_is_no_text(tmp_path, name, field):
    """A list, a dict, a number or nothing where a reader looks for a word."""
    path = tmp_path / "session.jsonl"
    for sample, (chosen, text, _) in SAMPLES.items():
        value, is_document = parse_value(text)
        found = [where for where in places(value) if where and where[-1] == field][:2]
        for where in found if chosen == name else []:
            for wrong in ([], {}, [[]], {"a": []}, None, 0):
                path.write_text(file_of(changed(value, where, wrong), is_document=is_document))
                taken(path, f"{sample} {where}", format=name)


FIELDS = (
    *("tool_calls", "tool_call_ids", "tool_call_id", "function_call", "function", "arguments", "input", "args", "id"),
    *("name", "tool_name", "timestamp", "is_error", "model", "usage", "text", "call_id", "output", "tool_use_id"),
    *("cause", "extras", "tool_call_metadata", "thought", "history", "trajectory", "info", "isSidechain", "source"),
)


def everywhere(value, field, wrong):
    """The document with a field of this value in every object."""
    if isinstance(value, list):
        return [everywhere(item, field, wrong) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: everywhere(item, field, wrong) for name, item in value.items()} | {field: wrong}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_a_field_of_the_wrong_type_in_every_object(tmp_path, name):
    """Also a field that the sample does not have: no reader takes a value for what it should be."""
    chosen, text, _ = SAMPLES[name]
    value, is_document = parse_value(text)
    path = tmp_path / "session.jsonl"
    for field in FIELDS:
        for wrong in (5, [5, None, {}]):
            path.write_text(file_of(everywhere(value, field, wrong), is_document=is_document))
            taken(path, f"{field} {wrong}", format=chosen)


def test_calls_that_are_a_number(tmp_path):
    """As in the history of a trajectory that somebody edited."""
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x", "tool_calls": 5}]
    path = tmp_path / "x.traj"
    path.write_text(json.dumps({"history": said, "trajectory": [], "info": {}}))
    assert taken(path, "a trajectory", format="swe-agent")


@pytest.mark.parametrize("name", SESSIONS)
def test_what_is_no_file_of_the_kind(tmp_path, name):
    """Cut, doubled, nested without end, packed, empty, binary: refused, or taken as far as it goes."""
    text = next(text for chosen, text, _ in SAMPLES.values() if chosen == name)
    deep = nested(100_000)
    doubled = text.replace('"role"', '"role": {}, "role"').replace('"type"', '"type": [], "type"')
    for made in (text[: len(text) // 2], doubled, deep, '{"messages":' + deep + "}", '{"history":' + deep + "}", "",
                 "\0" * 99, "{}", "[]", "null", "[{}]", "\n" * 99, '{"a":' * 5000):  # fmt: skip
        path = tmp_path / "session.jsonl"
        path.write_text(made)
        taken(path, made[:40], format=name)
        taken(path, made[:40])
    path.write_bytes(gzip.compress(text.encode()))
    assert not taken(path, "packed")
    path.write_bytes(gzip.compress(text.encode())[:-9])
    assert not taken(path, "packed and cut")
    path.write_bytes(b"\xff\xfe" + text.encode("utf-16-le"))
    taken(path, "in another encoding", format=name)


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """The lines of a portable file with every kind of record."""
    return portable(tmp_path_factory.mktemp("portable"))


def telling(lines):
    """One line of each kind of record and of event, and all notes."""
    kinds = {}
    for number, line in enumerate(lines):
        (name, *_), record = line, next(iter(line.values()))
        kind = (name, record.get("type") or record.get("role", "") if isinstance(record, dict) else "")
        kinds.setdefault(kind, []).append(number)
    return sorted(
        {number for kind, all_of_it in kinds.items() for number in (all_of_it if "note" in kind else all_of_it[:1])}
    )


def test_every_kind_of_event_is_tried(lines):
    """The task that is written has them all, but for those that only a session file or files on disk make."""
    found = {line["events"]["type"] for line in lines if "events" in line}
    assert set(SCHEMAS) - found <= {"imported", "restoring", "error"}


def test_a_portable_file_that_is_whole_is_taken(lines, tmp_path):
    """The schema lets through what the engine writes."""
    (tmp_path / "task.orihon").write_bytes(packed(lines))
    assert taken(tmp_path / "task.orihon", "whole")
    assert not [line for line in lines if "events" in line and problem(msgspec.convert(line["events"], Event))]


@pytest.mark.slow
def test_portable_files(lines, tmp_path):
    """Every value of every kind of line, with the checksum made again."""
    path, chosen = tmp_path / "task.orihon", telling(lines)
    tried = [lines[number] for number in chosen]
    for what, wrong in mutations(tried, most=8 * MOST):
        made = list(lines)
        for number, line in zip(chosen, wrong if isinstance(wrong, list) else [], strict=False):
            made[number] = line
        path.write_bytes(packed(made))
        taken(path, what)


@pytest.mark.slow
def test_a_session_that_was_imported_and_carried_on(tmp_path):
    """What a task keeps of the file that it came from is not believed either, when that file is told again."""
    (tmp_path / "session.jsonl").write_text(SAMPLES["claude"][1])
    with open_store("memory:") as store:
        (one,) = import_file(desk_of(store), Settings(), tmp_path / "session.jsonl")
        write_task_file(store, store.row(one.uuid), tmp_path / "whole.orihon")
    plain = gzip.decompress((tmp_path / "whole.orihon").read_bytes()).splitlines()[:-1]
    lines = [json.loads(line) for line in plain]
    kept = [number for number, line in enumerate(lines) if "imported" in json.dumps(line)]
    tried = [lines[number] for number in kept]
    for what, wrong in mutations(tried, most=6 * MOST):
        made = list(lines)
        for number, line in zip(kept, wrong if isinstance(wrong, list) else [], strict=False):
            made[number] = line
        (tmp_path / "task.orihon").write_bytes(packed(made))
        taken(tmp_path / "task.orihon", what)


@pytest.mark.parametrize("field", ["scale", "least_scale"])
@pytest.mark.parametrize("wrong", [0, -1, "NaN", "Infinity", 1e308, 10**30, True, [], "1"])
def test_a_scale_that_is_none(lines, tmp_path, field, wrong):
    """In a note, and in the notes of a state that a checkpoint or the whole view remembers."""
    found = [where for where in places(lines) if where and where[-1] == field]
    assert len(found) >= 2
    for where in found:
        path = tmp_path / "task.orihon"
        path.write_bytes(packed(changed(lines, where, wrong)))
        with open_store("memory:") as store:
            with pytest.raises(Corrupt, match="cannot be used: Expected"):
                import_file(desk_of(store), Settings(), path)
            assert not list(store.find())


@pytest.mark.parametrize("length", [10**30, 0, -1, "x", None, 1.5, []])
def test_a_window_of_impossible_length(lines, tmp_path, length):
    """In the metadata, in the row, and in a note: refused, or the default."""
    for where in [where for where in places(lines) if where and where[-1] == "context_length"]:
        path = tmp_path / "task.orihon"
        path.write_bytes(packed(changed(lines, where, length)))
        taken(path, f"{where} = {length}")


STRANGE = (
    0,
    -1,
    2**53,
    2**63,
    Raw("1" + "0" * 30),
    Raw("1e30"),
    Raw("NaN"),
    1.5,
    "",
    "x",
    [],
    {},
    None,
    True,
    nested(),
)


@pytest.mark.parametrize("url", ["{place}/contexts", "sqlite:///{place}/contexts.db"])
@pytest.mark.parametrize("part", ["config", "metadata", "row", "messages", "summaries", "folds"])
def test_every_field_with_every_strange_value(lines, tmp_path, url, part):
    """On disk a number has a limit: the file is refused, or its window can be shown."""
    kind = {"config": "metadata"}.get(part, part)
    number = next(number for number, line in enumerate(lines) if kind in line)
    where = (number, "metadata", "config") if part == "config" else (number, kind)
    names = sorted({*at(lines, where), *({"model", "llm_provider", "context_length"} if part == "config" else ())})
    found = [(name, wrong) for name in names for wrong in STRANGE]
    path, store = tmp_path / "task.orihon", url.format(place=tmp_path)
    for name, wrong in found if DEEP else random.Random(part).sample(found, min(40, len(found))):
        path.write_bytes(packed(changed(lines, (*where, name), wrong)))
        imported = CliRunner().invoke(cli, ["import", str(path), "--store", store], env=ENV)
        assert refused_or_done(imported), (name, wrong, imported.exception)
        if imported.exception is None:
            shown = CliRunner().invoke(cli, ["show", UUID, "--window", "--store", store], env=ENV)
            assert refused_or_done(shown), (name, wrong, shown.exception)
            assert shown.exception is None or isinstance(shown.exception, BudgetTooSmall), (name, wrong)
            with open_store(store) as opened:
                opened.delete(UUID)


def refused_or_done(result):
    error = result.exception
    return error is None or (isinstance(error, OrihonError) and error.exit_code != OrihonError.exit_code)


@pytest.mark.parametrize("url", ["memory:", "{place}/contexts", "sqlite:///{place}/contexts.db"])
@pytest.mark.parametrize("field", ["context_length", "model", "llm_provider"])
@pytest.mark.parametrize("wrong", [2**63, Raw("1" + "0" * 30), -1, 0, 1.5, [], {}, True])
def test_a_config_that_no_task_can_have(lines, tmp_path, url, field, wrong):
    """It is refused in a sentence that names the field, and the store stays empty."""
    number = next(number for number, line in enumerate(lines) if "metadata" in line)
    path = tmp_path / "task.orihon"
    path.write_bytes(packed(changed(lines, (number, "metadata", "config", field), wrong)))
    with open_store(url.format(place=tmp_path)) as store:
        with pytest.raises(Corrupt, match=field):
            import_file(desk_of(store), Settings(), path)
        assert not list(store.find())


@pytest.mark.parametrize("url", ["memory:", "{place}/contexts", "sqlite:///{place}/contexts.db"])
@pytest.mark.parametrize("wrong", [2**63, 10**30, 1.5, "x", []])
def test_a_store_takes_no_task_whose_row_it_cannot_write(tmp_path, url, wrong):
    """Also from a backup or from another store."""
    metadata = Metadata(uuid=UUID, task_key=TaskKey.local("x"), config={"context_length": wrong}, format=FORMAT)
    with open_store(url.format(place=tmp_path)) as store:
        with pytest.raises(UsageError, match="context_length"):
            store.lease(UUID, create=metadata)
        assert not list(store.find())


def test_a_damaged_store_goes_on_without_the_event(caplog):
    """What a file may not bring in is left out with a warning where a store has it already."""
    with orihon.open("memory:", settings=Settings()) as engine:
        with engine.start("local/issue/x", uuid=UUID) as task:
            task.add("user", "hello")
            task.writer.lease.check = lambda _: None  # as a version that did not look stored it
            task.writer.event("note", scale=0)
            task.writer.event("note", kept=1)
            task.pause()
        shown = engine.read(UUID).window()
        assert [message.text for message in shown.messages] == ["hello"]
        assert "event 1 (note) cannot be used" in caplog.text
        task = engine.resume(UUID)
        assert task.log.scale == 1.0
        assert task.log.view.state.notes == {"kept": 1}


@pytest.mark.slow
def test_portable_files_that_are_broken(lines, tmp_path):
    """Cut at every place, doubled keys, lines of others, and gzip that is none."""
    data = packed(lines)
    path = tmp_path / "task.orihon"
    plain = gzip.decompress(data)
    cuts = range(0, len(data), 41 if DEEP else 1601)
    for made in (*(data[:cut] for cut in cuts), plain, data + data, b"\x1f\x8b" + b"\0" * 99, gzip.compress(b""), b""):
        path.write_bytes(made)
        taken(path, len(made), format="portable")
    for number in telling(lines):
        doubled = json.dumps(lines[number])
        name = next(iter(lines[number]))
        doubled = doubled.replace(f'{{"{name}":', f'{{"{name}":{{}},"{name}":', 1).encode()
        for line in (b"null", b"[]", b"{}", b'{"events":[]}', b'{"messages":{}}', dumped([nested(5000)]).encode(),
                     doubled, b"\xff\xfe"):  # fmt: skip
            path.write_bytes(packed([*lines[:number], line, *lines[number + 1 :]]))
            taken(path, line[:40])
            path.write_bytes(packed([*lines[: number + 1], line, *lines[number + 1 :]]))
            taken(path, line[:40])


@pytest.fixture(scope="module")
def conversation(tmp_path_factory):
    """A conversation as one document."""
    place = tmp_path_factory.mktemp("document")
    with orihon.open("memory:", settings=Settings()) as engine:
        fill(engine, place)
        with registry.resume(engine, UUID) as one:
            one.drop_next()
            one.say("hello again")
            one.task.add_reply(reply("yes", ("read", {"path": "x"})))
            one.task.add("tool", "text", tool_call_id="call_0")
            one.task.add_reply(reply("well"))
            one.set_next("typed")
            beside = {"file_line_tracker": {"a.py": {"x": 1}}, "context_manager": {"paths": ["*.py"]}}
            document.write(one, place / "document.json", beside)
    return json.loads((place / "document.json").read_text())


@pytest.mark.slow
def test_documents_of_conversations(conversation, tmp_path):
    """A document is read as far as it can be, or refused without a trace in the store."""
    path = tmp_path / "document.json"
    for what, wrong in mutations(conversation, most=3 * MOST):
        path.write_bytes(dumped(wrong).encode("utf-8", "surrogatepass"))
        with open_store("memory:") as store:
            engine = Engine(store, Settings())
            try:
                with document.read(engine, path, tmp_path) as read:
                    read.task.window()
                    assert read.transcript is not None
            except OrihonError as error:
                assert error.exit_code in {2, 3, 4}, (what, error)
                assert not list(store.find()), what
                continue
            with registry.resume(engine, read.task.uuid) as again:
                again.task.window()
                document.write(again, tmp_path / "again.json")


def test_manifests_of_backups(tmp_path):
    """A manifest that says something else is refused, or restores what it can; the store has no half of a task."""
    with orihon.open("memory:", settings=Settings()) as engine:
        with engine.start("local/issue/x", uuid=UUID, user="alice") as task:
            task.add("user", "hello")
        backup(AuthorizedStore(engine.store, ROOT, command="test"), tmp_path / "backups")
    (manifest,) = (tmp_path / "backups").glob("*/manifest.jsonl")
    value = [json.loads(line) for line in manifest.read_text().splitlines()]
    for what, wrong in mutations(value, most=4 * MOST):
        lines = wrong if isinstance(wrong, list) and wrong else [wrong]
        _write_manifest(manifest, lines, honest="sha256" not in what and "tasks" not in what)
        with open_store("memory:") as store:
            try:
                done = restore(tmp_path / "backups", desk_of(store))
            except OrihonError as error:
                assert error.exit_code in {2, 3}, (what, error)
                assert not list(store.find()), what
            else:
                assert done.failures or list(store.find()), what


def _write_manifest(path, lines, *, honest):
    *body, end = [dumped(line).encode("utf-8", "surrogatepass") + b"\n" for line in lines] or [b""]
    if honest and isinstance(lines[-1], dict) and "sha256" in lines[-1]:
        end = dumped(lines[-1] | {"sha256": hashlib.sha256(b"".join(body)).hexdigest()}).encode() + b"\n"
    path.write_bytes(b"".join(body) + end)


@pytest.mark.slow
def test_settings_files(tmp_path):
    """Every setting with every wrong value: accepted, or one error that names it."""
    value = json.loads(msgspec.json.encode(_settings()))
    path = tmp_path / "config.yaml"
    for what, wrong in mutations(value, most=3 * MOST):
        path.write_bytes(dumped(wrong).encode("utf-8", "surrogatepass"))
        try:
            load(path, environ={})
        except UsageError as error:
            assert error.exit_code == 2, (what, error)
            assert len(error.message) < 5000, what
    path.write_text("".join(f"unknown_{number}: 1\n" for number in range(5000)))
    with pytest.raises(UsageError, match="And 4990 more"):
        load(path, environ={})


def _settings():
    made = msgspec.to_builtins(Settings(), enc_hook=str)
    return {name: {key: item for key, item in part.items() if item is not None} if isinstance(part, dict) else part
            for name, part in made.items() if part is not None}  # fmt: skip


def test_the_command_refuses_in_a_sentence(lines, tmp_path):
    """With the exit code of a wrong file, and without a traceback."""
    where = next(where for where in places(lines) if where and where[-1] == "scale")
    (tmp_path / "task.orihon").write_bytes(packed(changed(lines, where, 0)))
    store = str(tmp_path / "contexts")
    done = CliRunner().invoke(cli, ["import", str(tmp_path / "task.orihon"), "--store", store], env=ENV)
    assert isinstance(done.exception, Corrupt)
    assert (done.exception.exit_code, "scale" in done.exception.message) == (3, True)
    assert not list((tmp_path / "contexts" / "running").iterdir())


def test_a_record_that_was_removed(lines, tmp_path):
    """A message, an event or a summary that others name is missing."""
    path = tmp_path / "task.orihon"
    numbers = range(1, len(lines), 1 if DEEP else 7)
    for number in numbers:
        path.write_bytes(packed(removed(lines, (number,))))
        taken(path, f"without line {number}")
