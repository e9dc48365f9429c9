"""What frameworks pass in: subclasses, enumerations, numbers of arrays, models, data classes, mappings.

Where it is clear what is meant, the plain value is stored, in every store, and read back. Where it is not, the error is
Orihon's and says what to give. No call dies of a type.
"""

import collections
import dataclasses
import enum
import itertools
import json
import types

import msgspec
import pytest

import orihon
from orihon import TaskKey, codec
from orihon.coerce import to_json_value, unwrap
from orihon.errors import OrihonError, UsageError
from orihon.records import Event, Message
from orihon.settings.schema import Settings

KINDS = ["memory", "jsonl", "sqlite", "postgres"]


class Text(str):
    """As LangChain has it: a text that is also a call."""

    __slots__ = ("extra",)

    def __call__(self):
        return str(self)


class Liar(str):
    """One that says something else about itself."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __str__(self):
        return "another text"

    def __eq__(self, other):
        return False


class Colour(str, enum.Enum):  # noqa: UP042 - as many write it
    RED = "red"


class Role(enum.StrEnum):
    USER = "user"


class Size(enum.IntEnum):
    LARGE = 3


class Whole(int):
    pass


class Share(float):
    pass


class Fields(dict):
    pass


class Items(list):
    pass


class Number:
    """As an array of numbers gives one."""

    dtype = "int64"

    def tolist(self):
        return 7


@dataclasses.dataclass
class Part:
    type: str
    text: str


class Model:
    """As pydantic's."""

    def __init__(self, **fields):
        self.__dict__.update(fields)

    def model_dump(self, **_):
        return dict(self.__dict__)


class Struct(msgspec.Struct):
    type: str
    text: str


class Broken:
    """One that cannot even be shown."""

    def __str__(self):
        raise RuntimeError("no")


TEXTS = [Text("red"), Liar("red"), Colour.RED]
SAME_PART = [
    Fields(type="text", text="red"), collections.UserDict(type="text", text="red"), Part("text", "red"),
    types.MappingProxyType({"type": "text", "text": Text("red")}), Model(type="text", text=Liar("red")),
    Struct("text", "red"), {"type": Text("text"), "text": Colour.RED}, Text("red"),
]  # fmt: skip
STRANGE = [b"red", 3, Whole(3), 1.5, True, object(), Broken(), {"x"}, iter("ab"), Number(), Size.LARGE, str, [Broken()]]


@pytest.fixture(params=KINDS)
def engine(request, url_at, tmp_path):
    with orihon.open(url_at(request.param, tmp_path), settings=Settings()) as engine:
        yield engine


@pytest.fixture
def task(engine):
    task = engine.start("local/issue/one")
    task.add("user", "hello")
    return task


def newest(task):
    return list(task.writer.lease.store.read(task.uuid, Message))[-1]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: type(text).__name__)
def test_a_text_of_a_subclass(engine, task, text):
    """In every place that takes a text, it is stored as the plain text, and the window can be sent."""
    task.add("user", text)
    assert type(newest(task).content) is str
    assert newest(task).content == "red"
    assert type(task.log.one(newest(task).seq).content) is str, "also in memory"
    task.add(Role.USER, [text, {"type": "text", "text": text}])
    assert newest(task).text == "red\nred"
    task.add("assistant", text, tool_calls=[{"id": text, "name": text, "arguments": {text: text}}], key=text)
    assert newest(task).tool_calls[0].arguments == '{"red":"red"}'
    assert newest(task).key == "red"
    (call,) = task.pending_calls()
    with task.tool(call) as run:
        run.result = text
    assert newest(task).content == "red"
    task.add_reply({"choices": [{"message": {"role": "assistant", "content": text}}], "model": text}, key=text + "2")
    assert newest(task).text == "red"
    with task.tangent(text):
        task.add("assistant", text)
    number = task.checkpoint(text)
    assert next(task.writer.lease.store.read(task.uuid, Event, first=number, last=number)).data["label"] == "red"
    task.snapshot(goal=text, key_observations=[text])
    task.sticky({text: text})
    task.writer.event("note", here=text)
    task.reconfigure(model=text)
    assert task.recall(text)
    json.dumps(task.window().openai())
    task.pause(text)
    assert (task.row.reason, type(task.row.reason)) == ("red", str)
    again = engine.resume(Text(task.uuid))
    assert again.config.model == "red"
    again.stop(text)
    with engine.start(TaskKey.local(text), user=text, model=text, uuid=Text("my-id")) as other:
        other.add("user", text)
    assert [(row.user, row.task_id, type(row.user)) for row in engine.tasks(user=text)] == [("red", "red", str)]
    assert engine.row(Text("my-id")).key == TaskKey.local("red")


@pytest.mark.parametrize("part", SAME_PART, ids=lambda part: type(part).__name__)
def test_a_part_of_any_shape(task, part):
    """In a list, in a tuple, in a subclass of either, or alone."""
    for content in ([part], (part,), Items([part]), *([part] if not isinstance(part, str) else [])):
        task.add("user", content)
        (stored,) = newest(task).content
        assert (stored.type, stored.text) == ("text", "red")


def test_values_inside_a_result(task):
    """Whatever a tool gives back is stored as values of JSON."""
    task.add("assistant", "", tool_calls=[{"id": "c", "name": "n", "arguments": Fields(size=Size.LARGE, n=Number())}])
    (call,) = task.pending_calls()
    assert call.arguments == {"size": 3, "n": 7}
    with task.tool(call) as run:
        run.result = {
            "a": Whole(3),
            "b": Share(0.5),
            "c": Part("x", Text("y")),
            "d": Model(z=[Colour.RED]),
            "e": Broken(),
        }
    stored = json.loads(newest(task).content)
    assert stored["a"] == 3
    assert stored["b"] == 0.5
    assert stored["c"] == {"type": "x", "text": "y"}
    assert stored["d"] == {"z": ["red"]}
    assert "cannot be shown" in stored["e"]


def test_a_reply_of_subclasses(task):
    """Objects and mappings of a framework, with texts of its own."""
    message = types.SimpleNamespace(role=Role.USER, content=Text("red"), tool_calls=None)
    task.add_reply(types.SimpleNamespace(choices=[types.SimpleNamespace(message=message)], model=Text("m")))
    assert newest(task).text == "red"
    task.add_reply(types.MappingProxyType({"choices": [Fields(message=Fields(role="assistant", content=Liar("red")))]}))
    assert newest(task).text == "red"


CALLS = {
    "add role": lambda task, value: task.add(value, "x"),
    "add content": lambda task, value: task.add("user", value),
    "add part": lambda task, value: task.add("user", [value]),
    "part text": lambda task, value: task.add("user", [{"type": "text", "text": value}]),
    "part url": lambda task, value: task.add("user", [{"type": "image_url", "image_url": {"url": value}}]),
    "key": lambda task, value: task.add("user", "x", key=value),
    "tool_name": lambda task, value: task.add("tool", "x", tool_call_id="c", tool_name=value),
    "tool_call_id": lambda task, value: task.add("tool", "x", tool_call_id=value),
    "is_error": lambda task, value: task.add("tool", "x", tool_call_id="c", is_error=value),
    "usage": lambda task, value: task.add("assistant", "x", usage=value),
    "tool_calls": lambda task, value: task.add("assistant", "x", tool_calls=value),
    "call": lambda task, value: task.add("assistant", "x", tool_calls=[value]),
    "call name": lambda task, value: task.add("assistant", "x", tool_calls=[{"name": value}]),
    "reply": lambda task, value: task.add_reply(value),
    "reply key": lambda task, value: task.add_reply({"choices": [{"message": {"content": "x"}}]}, key=value),
    "reply api": lambda task, value: task.add_reply({"choices": [{"message": {"content": "x"}}]}, api=value),
    "checkpoint": lambda task, value: task.checkpoint(value),
    "restore": lambda task, value: task.restore(value),
    "rewind": lambda task, value: task.rewind(value),
    "pin": lambda task, value: task.pin(value),
    "unfold": lambda task, value: task.unfold(value),
    "recall": lambda task, value: task.recall(value),
    "sticky": lambda task, value: task.sticky(value),
    "sticky text": lambda task, value: task.sticky({"path": value}),
    "snapshot": lambda task, value: task.snapshot(goal=value),
    "switch": lambda task, value: task.reconfigure(model=value),
    "tools": lambda task, value: task.reconfigure(tools=value),
    "link": lambda task, value: task.link(value),
    "plan": lambda task, value: task.plan(value),
    "event": lambda task, value: task.writer.event("note", value=value),
}
ENGINE_CALLS = {
    "start key": lambda engine, value: engine.start(value),
    "start user": lambda engine, value: engine.start("local/issue/x", user=value),
    "start model": lambda engine, value: engine.start("local/issue/x", model=value),
    "start tools": lambda engine, value: engine.start("local/issue/x", tools=value),
    "start uuid": lambda engine, value: engine.start("local/issue/x", uuid=value),
    "start length": lambda engine, value: engine.start("local/issue/x", context_length=value),
    "resume": lambda engine, value: engine.resume(value),
    "row": lambda engine, value: engine.row(value),
    "tasks status": lambda engine, value: engine.tasks(status=value),
    "tasks key": lambda engine, value: engine.tasks(key=value),
    "handoff": lambda engine, value: engine.inheritance(value),
    "open user": lambda _, value: orihon.open("memory:", settings=Settings(), user=value),
    "open token": lambda _, value: orihon.open("memory:", settings=Settings(), token=value),
    "key local": lambda _, value: TaskKey.local(value),
    "key github": lambda _, value: TaskKey.github(value, "shop", issue=1),
    "key issue": lambda _, value: TaskKey.github("acme", "shop", issue=value),
    "key parse": lambda _, value: TaskKey.parse(value),
}


def test_what_is_not_clear_is_refused_in_a_sentence(tmp_path):
    """Every call, with every strange value: it does what is meant, or the error is Orihon's and says what to give."""
    with orihon.open(tmp_path / "contexts", settings=Settings()) as engine:
        task = engine.start("local/issue/strange")
        for (name, act), value in itertools.product(CALLS.items(), (*STRANGE, *SAME_PART, None)):
            _try(name, act, task, value)
        for (name, act), value in itertools.product(ENGINE_CALLS.items(), (*STRANGE, *SAME_PART)):
            made = _try(name, act, engine, value)
            if isinstance(made, orihon.Task):
                made.close()
        assert task.window().messages is not None
        for message in task.writer.lease.store.read(task.uuid, Message):
            codec.decode_line(codec.encode_line(message), Message)


def _try(name, act, on, value):
    try:
        return act(on, value)
    except OrihonError as error:
        assert error.message.endswith((".", "…")), (name, error.message)
        assert error.hint, (name, error.message)
    except Exception as error:
        raise AssertionError(f"{name} with {type(value).__name__}: {type(error).__name__}: {error}") from error
    return None


def test_a_record_made_by_hand(task):
    """Also one that no call made is stored as plain values, or refused."""
    said = Message(
        seq=0, role="user", content=Text("red"), timestamp="", tokens=0, key=Liar("k"), unknown={"x": Whole(3)}
    )
    task.writer.lease.append(said)
    assert newest(task).content == "red"
    assert newest(task).unknown == {"x": 3}
    with pytest.raises(UsageError, match="cannot be stored"):
        task.writer.lease.append(Message(seq=0, role="user", content="x", timestamp="", tokens=0, is_error=object()))


def test_one_level_and_all_of_them():
    """`unwrap` never fails, `to_json_value` refuses what stands for no value."""
    assert unwrap(Liar("x")) == "x"
    assert unwrap(Broken()).startswith("[a Broken")
    assert to_json_value({Text("a"): (Size.LARGE, Share(0.5), None, Number())}, "x") == {"a": [3, 0.5, None, 7]}
    for value in ({"a": object()}, {"a": {1}}, {1: 2}, {"type": str}, [b"x"]):
        with pytest.raises(UsageError):
            to_json_value(value, "x")
    endless = []
    endless.append(endless)
    with pytest.raises(UsageError):
        to_json_value(endless, "x")
