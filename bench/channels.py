"""The channels through which a string can reach the disk, a log, a screen or a model, and what of it is found there.

`CHANNELS` are the ways in: each is a function that puts texts into a `Scene` by one way alone. `leaks` puts texts with
secrets into all of them, a secret of its own for each channel and shape, takes everything along every way out, and says
which secrets are left, and where. `make bench ARGS=channels` prints them for each kind of store.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import logging
import os
import random
import string
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from bench.artefacts import Leak, Needle, Scene
from orihon.agent import queue
from orihon.agent.handler import TaskHandler, Work
from orihon.agent.models.cache import ReplyCache
from orihon.agent.progress_comment import ProgressComment, Report
from orihon.agent.sources import Comment, open_source
from orihon.agent.targets import parse_targets
from orihon.agent.tools.workspace import Workspace
from orihon.chat import document, file_tracker, registry
from orihon.chat.checkpoints import Checkpoints
from orihon.chat.conversation import Conversation
from orihon.chat.terminal.ui_terminal import InputHistory, find_history
from orihon.chat.workspace_checkpoints import WorkspaceCheckpoints
from orihon.errors import OrihonError
from orihon.ingest import sanitiser_for
from orihon.planning.schema import Goal, Plan, Reflection, make_entry
from orihon.records import Message, Metadata, Part
from orihon.redaction import mask
from orihon.stores.base import FORMAT
from orihon.task.task import Task
from orihon.task_key import TaskKey

SHAPES = int(os.environ.get("BENCH_SHAPES", "60"))  # for each channel
Make = Callable[[random.Random], Iterable[Any]]
Channel = Callable[[Scene, list[str]], None]

SPILLED = "word " * 60_000  # more than a line holds
MAX_NAME_BYTES = 200
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Shape(NamedTuple):
    """A text with a secret in it."""

    kind: str
    text: str
    secret: str


def shapes(dice: random.Random) -> list[Shape]:
    """A handful of shapes, made anew for every channel; `bench/shapes.py` has all of them."""

    def letters(count: int, of: str = string.ascii_letters + string.digits) -> str:
        return "".join(dice.choice(of) for _ in range(count))

    password, token = letters(16, string.ascii_lowercase + string.digits), f"ghp_{letters(36)}"
    key, mail = (
        f"AKIA{letters(16, string.ascii_uppercase + '234567')}",
        f"{letters(9, string.ascii_lowercase)}@corp.co.jp",
    )
    return [
        Shape("password", f"Log in with DB_PASSWORD={password} first", password),
        Shape("token", f"push with {token} now", token),
        Shape("bare token", token.swapcase().replace("GHP_", "ghp_"), token.swapcase().replace("GHP_", "ghp_")),
        Shape("aws", f"aws configure set aws_access_key_id {key}", key),
        Shape("mail", f"set the author to {mail}", mail),
    ]


def _words(text: str) -> str:
    return f"{text}\n"


def check(fact: bool, sentence: str) -> None:  # noqa: FBT001 - a fact
    """Say what does not hold: an id that was masked names the same thing as before."""
    if not fact:
        raise AssertionError(f"It does not hold that {sentence}.")


# messages and their parts


def content(role: str, scene: Scene, texts: list[str]) -> None:
    """The words of a message."""
    task = scene.task()
    for text in texts:
        task.add(role, text)
    scene.send(task)


def parts(make: Callable[[str], Any], scene: Scene, texts: list[str]) -> None:
    """One part of a message."""
    task = scene.task()
    for text in texts:
        task.add("user", [make(text)])
    scene.send(task)


def _base64(text: str, encoding: str = "utf-8") -> str:
    return base64.b64encode(f"a file\n{text}\n".encode(encoding, "replace")).decode()


def _file(media_type: str | None, text: str, encoding: str = "utf-8") -> Part:
    return Part(type="file", name="notes.txt", media_type=media_type, data=_base64(text, encoding))


def _in_lines(text: str) -> Part:
    return Part(type="file", media_type="text/plain", data=base64.encodebytes(f"in lines\n{text}\n".encode()).decode())


def _url_safe(text: str) -> Part:
    data = base64.urlsafe_b64encode(f"??>>\n{text}\n".encode()).decode().rstrip("=")
    return Part(type="file", media_type="text/plain", data=data)


def _document(text: str) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "text/plain", "data": _base64(text)}
    return {"type": "document", "source": source}


def _plain_document(text: str) -> dict[str, Any]:
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}


def _data_url(text: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:text/plain;base64,{_base64(text)}"}}


def _odd_data_url(text: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:text/plain;charset=utf-8;base64,{_base64(text)}"}}


def _image(text: str) -> Part:
    """A picture whose name holds the text; its bytes are not masked."""
    return Part(type="image", media_type="image/png", name=text, data=base64.b64encode(PNG).decode())


def message_field(name: str, scene: Scene, texts: list[str]) -> None:
    """A field of a message beside its words."""
    task = scene.task()
    for text in texts:
        task.add("tool" if name.startswith("tool") else "user", "words", **{name: text})
    scene.send(task)


def unknown_field(scene: Scene, texts: list[str]) -> None:
    """A field that this version does not know."""
    task = scene.task()
    for text in texts:
        task.writer.append(Message(seq=0, role="user", content="x", timestamp="", tokens=0, unknown={"later": [text]}))


def timestamp(scene: Scene, texts: list[str]) -> None:
    """A timestamp that is none."""
    task = scene.task()
    for text in texts:
        task.writer.append(Message(seq=0, role="user", content="x", timestamp=text, tokens=0))


# replies


def _reply(text: str = "ok", **message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text, **message}}], "model": "gpt-4o"}


def _called(id: str = "call_1", name: str = "read", arguments: str = "{}") -> dict[str, Any]:
    return _reply(tool_calls=[{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}])


_READ = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}


def replies(make: Callable[[str], dict[str, Any]], scene: Scene, texts: list[str]) -> None:
    """A reply of a model, with its calls answered."""
    task = scene.task()
    for text in texts:
        task.add_reply(make(text))
        for call in task.pending_calls():
            with task.tool(call) as run:
                run.result = "done"
        task.add("user", "Go on.")
    scene.send(task)


def _thinking(text: str) -> dict[str, Any]:
    thought = {"type": "thinking", "thinking": f"I think {text}", "signature": "c2lnbmVk"}
    return {"type": "message", "model": "claude", "content": [thought, {"type": "text", "text": "ok"}]}


def _reasoning(text: str) -> dict[str, Any]:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": text}]}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
    return {"model": "o3", "output": [reasoning, said]}


def _thought(text: str) -> dict[str, Any]:
    said = {"parts": [{"text": text, "thought": True}, {"text": "ok", "thoughtSignature": "c2ln"}]}
    return {"candidates": [{"content": said}], "modelVersion": "gemini"}


def _ollama(text: str) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": "ok", "thinking": text}, "done": True, "model": "qwen"}


def result_of_raw_call(scene: Scene, texts: list[str]) -> None:
    """A result that names its call by the id that the provider gave."""
    task = scene.task()
    for text in texts:
        task.add_reply(_called(id=text))
        task.add("tool", "done", tool_call_id=text)
    scene.send(task)


# tools


def results(give: Callable[[str], Any], scene: Scene, texts: list[str]) -> None:
    """What a tool gives."""
    task = scene.task(tools=[_READ])
    for number, text in enumerate(texts):
        task.add_reply(_called(id=f"call_{number}"))
        with task.tool(task.pending_calls()[0]) as run:
            run.result = give(text)
    scene.send(task)


def _raised(text: str) -> Any:
    raise ValueError(f"the server said: {text}")


def tool_schema(scene: Scene, texts: list[str]) -> None:
    """What a tool says of itself."""
    for text in texts:
        described = {"name": "read", "description": text, "parameters": {"type": "object", "properties": {}}}
        scene.send(scene.task(tools=[{"type": "function", "function": described}]))


# tasks


def start(name: str, scene: Scene, texts: list[str]) -> None:
    """What a task is started with."""
    for text in texts:
        scene.send(scene.task(**{name: text}))


def user(scene: Scene, texts: list[str]) -> None:
    """The user of a task, and who asks for the tasks of that user. An address stays: it names the account."""
    for text in texts:
        if "@" not in text:
            task = scene.task(user=text)
            check([row.uuid for row in scene.engine.tasks(user=text)] == [task.uuid], "the user's task is found")


def switch(scene: Scene, texts: list[str]) -> None:
    """Another model."""
    task = scene.task()
    for text in texts:
        task.reconfigure(model=text)
    scene.send(task)


def metadata(scene: Scene, texts: list[str]) -> None:
    """What the metadata hold beside the settings."""
    for text in texts:
        about = Metadata(
            uuid=f"by-hand-{random.getrandbits(64):x}",
            task_key=TaskKey.parse(scene.key()),
            hostname=text,
            config={"by hand": [text], text: 1},
            format=FORMAT,
            unknown={"made by": text},
        )
        scene.engine.store.lease(about.uuid, create=about).close()


def row(scene: Scene, texts: list[str]) -> None:
    """The columns that a task sets itself."""
    for text in texts:
        task = scene.task()
        for name in ("last_activity", "reason", "error_message", "final_summary", "handoff", "model", "llm_provider"):
            task.writer.update(**{name: text})


def uuid(scene: Scene, texts: list[str]) -> None:
    """An id of the caller's."""
    for text in texts:
        for given in (text, *_tokens(text)):
            with suppress(OrihonError):
                scene.engine.start(scene.key(), uuid=given)


def key_of_text(scene: Scene, texts: list[str]) -> None:
    """A request, whose first line names the task."""
    for text in texts:
        with suppress(OrihonError):  # an address of no forge
            (target,) = parse_targets(text, scene.settings)
            queue.enqueue(scene.engine, target.key, queue.Job(request=target.request))


def _names(texts: list[str]) -> list[str]:
    """The texts as names of files, in the midst of other words; those that no file system takes are left out."""
    named = [f"of {' '.join(text.split())} here" for text in texts]
    return [name for name in named if len(name.encode()) <= MAX_NAME_BYTES and not {"\0", "/"} & set(name)]


def _tokens(text: str) -> list[str]:
    """The words of a text that are secrets by themselves."""
    return [word for word in text.split() if mask(word) != word]


def key_of_file(scene: Scene, texts: list[str]) -> None:
    """The name of a file that is an issue."""
    for name in _names(texts):
        path = scene.place.parent / "issues" / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text("# Mend it\n", "utf-8")
        (target,) = parse_targets(str(path), scene.settings)
        queue.enqueue(scene.engine, target.key, queue.Job(file=target.file))


def key_of_directory(scene: Scene, texts: list[str]) -> None:
    """The name of a directory of issues."""
    for name in _names(texts):
        path = scene.place.parent / "issues" / name / "login.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# Mend it\n", "utf-8")
        (target,) = parse_targets(str(path), scene.settings)
        queue.enqueue(scene.engine, target.key, queue.Job(file=target.file))


def key_by_hand(scene: Scene, texts: list[str]) -> None:
    """A key that holds a token; the same key finds the task again."""
    for text in texts:
        for word in _tokens(text):
            with suppress(OrihonError):
                key = TaskKey.local(word, workspace=word)
                scene.engine.start(key).close()
                check(any(scene.engine.tasks(key=key)), "the key finds its task")


def linked_key(scene: Scene, texts: list[str]) -> None:
    """The key of what a task became."""
    for text in texts:
        for word in _tokens(text):
            with suppress(OrihonError):
                scene.task().link(TaskKey.github("acme", word, pull_request=1))


# what is visible


def sticky(scene: Scene, texts: list[str]) -> None:
    """The text of a sticky file."""
    task = scene.task()
    task.sticky({f"file_{number}.txt": text for number, text in enumerate(texts)})
    scene.send(task)


def sticky_path(scene: Scene, texts: list[str]) -> None:
    """The name of a sticky file."""
    task = scene.task()
    task.sticky(dict.fromkeys(texts, "words"), declared=texts)
    scene.send(task)


def checkpoint(scene: Scene, texts: list[str]) -> None:
    """The name of a checkpoint, and what else it keeps."""
    task = scene.task()
    for text in texts:
        task.checkpoint(text, beside=text)


def event(scene: Scene, texts: list[str]) -> None:
    """A note, and the type of an event."""
    task = scene.task()
    for text in texts:
        task.writer.event("note", anything={"of": [text], text: "x"})
        task.writer.event(text)


def tangent(scene: Scene, texts: list[str]) -> None:
    """A side conversation, of which a summary stays."""
    task = scene.task()
    for text in texts:
        with task.tangent(text, keep="summary"):
            task.add("assistant", f"About {text}: yes.")
    scene.send(task)


def pin(scene: Scene, texts: list[str]) -> None:
    """A pinned message."""
    task = scene.task(context_length=1_000_000)
    for text in texts:
        task.add("user", text, pinned=True)
    scene.send(task)


def fold(scene: Scene, texts: list[str]) -> None:
    """A long result, of which the window shows a stand-in."""
    task = scene.task(context_length=16_000, reserved_output=1000, tools=[_READ])
    for number, text in enumerate(texts):
        task.add_reply(_called(id=f"call_{number}", arguments=json.dumps({"path": text})))
        with task.tool(task.pending_calls()[0]) as run:
            run.result = f"ERROR: {text}\n" + "\n".join(f"line {line} of a log" for line in range(900))
    scene.send(task)


def snapshot(scene: Scene, texts: list[str]) -> None:
    """How far a task is."""
    task = scene.task()
    for text in texts:
        task.snapshot(goal=text, completed_actions=[text], current_phase=text, key_observations=[text])
    scene.send(task)


# summaries


def extract(scene: Scene, texts: list[str]) -> None:
    """The summary that needs no model."""
    task = scene.task(context_length=32_000, reserved_output=1000)
    for text in texts:
        task.add("user", f"The decision is: {text}")
        task.add("assistant", f"I did it with {text}.")
    task.compact(keep_recent=1)
    scene.send(task)


def summarise(scene: Scene, texts: list[str]) -> None:
    """The summary of a model, which is sent the log, and what it should look at."""
    for text in texts:

        def ask(prompt: str, text: str = text) -> str:
            scene.note("model (summariser)", prompt)
            return f"The user asked to do many things, and it was done. Remember: {text}"

        task = scene.task(summariser=ask)
        for number in range(30):
            task.add("user", f"Please do step number {number} of the work now, and say how it went.")
        task.compact(focus=text, keep_recent=1)


def broken_summariser(scene: Scene, texts: list[str]) -> None:
    """What goes wrong in a summariser."""
    for text in texts:

        def ask(_: str, text: str = text) -> str:
            raise RuntimeError(f"the provider refuses {text}")

        task = scene.task(summariser=ask)
        for number in range(30):
            task.add("user", f"Please do step number {number} of the work now, and say how it went.")
        task.compact(keep_recent=1)


def handoff(scene: Scene, texts: list[str]) -> None:
    """The final summary, which the next task on the same thing inherits."""
    for text in texts:
        key = scene.key()
        with scene.engine.start(key) as task:
            task.add("user", f"Remember {text}")
            task.add("assistant", f"It is done: {text}")
        following = scene.engine.start(key)
        following.add("user", "Go on.")
        scene.send(following)


# the end


def end(way: Callable[[Task, str], None], scene: Scene, texts: list[str]) -> None:
    """Why a task ended, or waits."""
    for text in texts:
        way(scene.task(), text)


def _exception(task: Task, text: str) -> None:
    with suppress(RuntimeError), task:
        raise RuntimeError(text)


def hook(scene: Scene, texts: list[str]) -> None:
    """A hook that fails."""

    class Broken:
        def after_reply(self, _: Task, message: Message) -> None:
            raise RuntimeError(f"it cannot use {texts[message.seq % len(texts)]}")

    task = scene.task()
    task._hooks = (Broken(),)  # noqa: SLF001 - a hook that fails in the middle
    for _ in texts:
        task.add_reply(_reply())


# plans


def plan(scene: Scene, texts: list[str]) -> None:
    """The entries of a plan."""
    task = scene.task()
    for text in texts:
        task.plan(make_entry(Plan(goal_understanding=Goal(main_objective=text, success_criteria=(text,)))))
        task.plan(make_entry(Reflection(evaluation=text)))


# conversations


def conversation(scene: Scene, texts: list[str]) -> None:
    """The name of a conversation, what waits to be sent, what went wrong, and its document."""
    for text in texts:
        for name in (text, *_tokens(text)):
            with suppress(OrihonError), registry.start(scene.engine, scene.work, name=name) as one:
                one.say("hello")
                one.task.add_reply(_reply())
                one.set_next(text)
                one.add_error(text)
                scene.note("transcript", "\n".join(one.transcript))
                document.write(
                    one, scene.place / f"{one.conversation_id}.json", {"tools": [text], "context_manager": text}
                )


def directory(scene: Scene, texts: list[str]) -> None:
    """The directory of a conversation, and what was typed there."""
    for number, name in enumerate(_names(texts)):  # two directories can be the same once their secrets are masked
        place = scene.place.parent / "homes" / name
        place.mkdir(parents=True, exist_ok=True)
        registry.start(scene.engine, place, name=f"shop {number}").close()
        InputHistory(find_history(place, {"XDG_STATE_HOME": str(scene.place / "state")})).store_string(name)


def tracked_path(scene: Scene, texts: list[str]) -> None:
    """A path that the agent knows."""
    task = scene.task()
    tracker = file_tracker.FileLineTracker(Workspace(scene.work))
    for text in texts:
        tracker.record_read(text, b"words\n")
    file_tracker.save(Conversation(task, name="tracked", workspace=scene.work), tracker.export())


def checkpoint_of_files(scene: Scene, texts: list[str]) -> None:
    """The labels of checkpoints, which git keeps as well."""
    with registry.start(scene.engine, scene.work, name=f"shop {len(texts)}") as one:
        files = WorkspaceCheckpoints(scene.place / "repository", scene.work, exclude=[])
        checkpoints = Checkpoints(one, files)
        checkpoints.begin()
        for number, text in enumerate(texts):
            (scene.work / "counter.txt").write_text(str(number), "ascii")
            checkpoints.take(text)
            (scene.work / "counter.txt").write_text(f"{number}.", "ascii")
            checkpoints.end_turn(f"{'x' * 30} {text}")
        scene.note("screen (checkpoints)", str(checkpoints.list_checkpoints()))


def imported_document(scene: Scene, texts: list[str]) -> None:
    """A conversation out of a document."""
    for number, text in enumerate(texts):
        said = {"user": {"content": {"Prompt": {"prompt": text}}}, "assistant": {"Response": {"content": text}}}
        value = {"history": [said], "transcript": [f"> {text}", text], "later": text, "latest_summary": [text, {}]}
        path = scene.place.parent / f"document {number}.json"
        path.write_text(json.dumps(value), "utf-8")
        with suppress(OrihonError):
            document.read(scene.engine, path, scene.work, name=f"read {number} {len(texts)}").close()


# the agent


class _Model:
    """Answers with a call, then with words; what it is sent is kept."""

    name = "bench"

    def __init__(self, scene: Scene, text: str) -> None:
        self._scene, self._text, self._turn = scene, text, 0

    def reply(self, window: Any, *, on_text: Any = None) -> Any:
        del on_text
        self._scene.note("model (run)", json.dumps(window.openai(), ensure_ascii=False))
        self._turn += 1
        arguments = json.dumps({"padding": "x" * 90, "command": self._text})
        return _called(arguments=arguments) if self._turn == 1 else _reply(f"Done: {self._text}")


class _Tools:
    """One tool that repeats what it is told, and fails."""

    schemas: ClassVar[list[dict[str, Any]]] = []

    def run(self, call: Any) -> Any:
        raise RuntimeError(f"{'x' * 150} {call.arguments['command']}")


def run(scene: Scene, texts: list[str]) -> None:
    """A run with its request, its comments, its steps, and its progress comment."""
    for number, text in enumerate(texts):
        path = scene.place / "issues" / f"issue_{number}_{len(texts)}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text("# Mend it\n", "utf-8")
        source = open_source("local", scene.settings, what=path)
        (key,) = source.keys()  # type: ignore[attr-defined]
        handler = TaskHandler(
            scene.engine,
            _Model(scene, text),
            _Tools(),
            source=source,
            on_step=lambda step: scene.note("screen (run)", "" if step.kind == "text" else step.text),
        )
        handler.handle(
            Work(key=key, request=text, system=text, comments=(Comment("1", text, text, "", ""),), notes={"n": text})
        )


def request_of_an_issue(scene: Scene, texts: list[str]) -> None:
    """An issue as the model reads it: its title is cut."""
    for number, text in enumerate(texts):
        path = scene.place.parent / "pages" / f"page_{number}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {'x ' * 92}{' '.join(text.split())}\n\n{text}\n", "utf-8")
        source = open_source("local", scene.settings, what=path)
        item = next(iter(source.find()))
        task = scene.task()
        task.add("user", source.render_prompt(item))
        scene.send(task)


def progress(scene: Scene, texts: list[str]) -> None:
    """A comment that shows how far a task is."""
    path = scene.place / "issues" / "progress.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("# Mend it\n", "utf-8")
    source = open_source("local", scene.settings, what=path)
    shown = ProgressComment(source, source.keys()[0], min_seconds=0)  # type: ignore[attr-defined]
    for text in texts:
        shown.show(Report(title=text, status=text, text=text, steps=((text, True),)), text)


def queued(scene: Scene, texts: list[str]) -> None:
    """What a queued task is to do."""
    for text in texts:
        queue.enqueue(scene.engine, TaskKey.parse(scene.key()), queue.Job(request=text, model=text, workspace=text))


def reply_cache(scene: Scene, texts: list[str]) -> None:
    """Replies that are kept for a run that is repeated."""
    cache = ReplyCache(scene.place / "cache", sanitiser_for(scene.settings))
    for text in texts:
        cache.put("gpt-4o", {"messages": []}, _reply(text))
        cache.put(text, {"messages": [text]}, _reply("ok"))


# sessions of other agents


def _session(format: str, text: str) -> str:
    when = "2026-02-03T04:05:06.000Z"
    user = {"role": "user", "content": text}
    said = {"role": "assistant", "content": f"Yes, {text}"}
    records: dict[str, list[Any]] = {
        "claude-code": [
            {"type": "user", "uuid": "u1", "sessionId": "s", "timestamp": when, "message": user, "cwd": text},
            {"type": "assistant", "uuid": "u2", "sessionId": "s", "timestamp": when, "message": said | {"id": "m"}},
        ],
        "codex": [
            {"timestamp": when, "type": "session_meta", "payload": {"id": "c", "cwd": text}},
            {
                "timestamp": when,
                "type": "response_item",
                "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
            },
        ],
        "mini-swe-agent": [{"messages": [user, said], "trajectory_format": "mini-swe-agent-1", "info": {"x": text}}],
        "swe-agent": [{"trajectory": [], "history": [user | {"agent": "main"}, said], "info": {"x": text}}],
        "openhands": [{"instance_id": "x", "history": [{"content": text, "action": "message"}], "git_patch": text}],
        "openai": [user, said | {"annotations": [text]}],
    }
    return "".join(json.dumps(record) + "\n" for record in records[format])


def session(format: str, scene: Scene, texts: list[str]) -> None:
    """The session file of another agent."""
    for number, text in enumerate(texts):
        path = scene.place.parent / "sessions" / f"{format}-{number}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(_session(format, text), "utf-8")
        scene.command("import", str(path), "--format", format, "--store", scene.url)


def session_name(scene: Scene, texts: list[str]) -> None:
    """The name of a session file."""
    for name in _names(texts):
        path = scene.place.parent / "sessions" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(_session("openai", f"hello {random.random()}"), "utf-8")  # noqa: S311 - only to be another one
        scene.command("import", str(path), "--format", "openai", "--store", scene.url)


# logs and screens


def log(_: Scene, texts: list[str]) -> None:
    """Lines of every level, with values and with an error."""
    for text in texts:
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logging.getLogger("orihon").log(level, "it said %s", text)
        try:
            _raised(text)
        except ValueError:
            logging.getLogger("orihon").exception("it failed")


def command(arguments: list[str], scene: Scene, texts: list[str]) -> None:
    """A command that is given the text, and says something about it."""
    for text in texts:
        scene.command(*[one.replace("{}", text) for one in arguments], "--store", scene.url)


def stop(scene: Scene, texts: list[str]) -> None:
    """Why a task that runs is to stop, which a file says."""
    for text in texts:
        scene.command("stop", scene.task().uuid, "--reason", text, "--store", scene.url)


def _fields() -> dict[str, Channel]:
    """Channels that differ in one name."""
    makers: dict[str, Callable[[str], Any]] = {
        "part: text": lambda text: Part(type="text", text=text),
        "part: name": _image,
        "part: url": lambda text: Part(type="image", url=f"https://example.org/?{text}"),
        "part: type": lambda text: Part(type=text, text="x"),
        "part: media type": lambda text: Part(type="file", media_type=text, data=_base64("x")),
        "part: file of text": partial(_file, "text/plain"),
        "part: file of JSON": lambda text: _file("application/json", json.dumps({"said": text})),
        "part: file without a type": partial(_file, None),
        "part: file of bytes": partial(_file, "application/octet-stream"),
        "part: file in UTF-16": lambda text: _file("text/plain", text, "utf-16"),
        "part: file in Latin-1": lambda text: _file("text/plain", f"caf\xe9 {text}", "latin-1"),
        "part: base64 in lines": _in_lines,
        "part: base64 of URLs": _url_safe,
        "part: data that is no base64": lambda text: Part(type="file", media_type="text/plain", data=text),
        "part: document": _document,
        "part: document as text": _plain_document,
        "part: data URL": _data_url,
        "part: data URL with a charset": _odd_data_url,
        "part: text in a blob": lambda text: Part(type="text", text=f"{SPILLED}{text}"),
    }
    answers: dict[str, Callable[[str], dict[str, Any]]] = {
        "reply: text": _reply,
        "reply: model": lambda text: _reply() | {"model": text},
        "reply: call id": lambda text: _called(id=text),
        "reply: call name": lambda text: _called(name=text),
        "reply: call arguments": lambda text: _called(arguments=json.dumps({"command": text})),
        "reply: broken arguments": lambda text: _called(arguments=f'{{"command": "{text}'),
        "reply: long arguments": lambda text: _called(arguments=json.dumps({"x": SPILLED, "command": text})),
        "reply: reasoning (openai)": lambda text: _reply(reasoning_content=text),
        "reply: thinking (anthropic)": _thinking,
        "reply: reasoning (responses)": _reasoning,
        "reply: thought (gemini)": _thought,
        "reply: thinking (ollama)": _ollama,
    }
    gives: dict[str, Callable[[str], Any]] = {
        "tool: text": _words,
        "tool: value": lambda text: {"said": [text], text: 1},
        "tool: parts": lambda text: [Part(type="text", text=text), Part(type="file", data=_base64(text))],
        "tool: error": _raised,
    }
    ways: dict[str, Callable[[Task, str], None]] = {
        "end: failed": lambda task, text: task.fail(text, reason=text),
        "end: stopped": lambda task, text: task.stop(text),
        "end: paused": lambda task, text: task.pause(text),
        "end: exception": _exception,
    }
    commands = {
        "command: unknown task": ["show", "{}"],
        "command: bad key": ["inherit", "{}"],
        "command: search": ["search", "{}"],
        "command: enqueue": ["enqueue", "{}"],
        "command: run without a model": ["run", "{}", "--model", "scripted:of {} here"],
        "command: traceback": ["--debug", "show", "{}"],
        "command: bad option": ["ls", "--status", "{}"],
    }
    return (
        {f"message: {role}": partial(content, role) for role in ("user", "system", "assistant", "tool")}
        | {"message: long text": lambda scene, texts: content("user", scene, [f"{SPILLED}{text}" for text in texts])}
        | {f"message: {name}": partial(message_field, name) for name in ("key", "tool_name", "tool_call_id")}
        | {name: partial(parts, make) for name, make in makers.items()}
        | {name: partial(replies, make) for name, make in answers.items()}
        | {name: partial(results, give) for name, give in gives.items()}
        | {f"task: {name}": partial(start, name) for name in ("model", "summary_prompt", "llm_provider")}
        | {name: partial(end, way) for name, way in ways.items()}
        | {f"import: {name}": partial(session, name) for name in _FORMATS}
        | {name: partial(command, arguments) for name, arguments in commands.items()}
    )


_FORMATS = ("claude-code", "codex", "mini-swe-agent", "swe-agent", "openhands", "openai")

CHANNELS: dict[str, Channel] = _fields() | {
    "message: unknown field": unknown_field,
    "message: timestamp": timestamp,
    "message: id of a raw call": result_of_raw_call,
    "tool: schema": tool_schema,
    "task: user": user,
    "task: switch": switch,
    "task: metadata": metadata,
    "task: row": row,
    "task: uuid": uuid,
    "key: request": key_of_text,
    "key: file": key_of_file,
    "key: directory": key_of_directory,
    "key: by hand": key_by_hand,
    "key: linked": linked_key,
    "view: sticky file": sticky,
    "view: sticky path": sticky_path,
    "view: checkpoint": checkpoint,
    "view: event": event,
    "view: tangent": tangent,
    "view: pin": pin,
    "view: fold": fold,
    "view: snapshot": snapshot,
    "summary: extractive": extract,
    "summary: model and focus": summarise,
    "summary: broken": broken_summariser,
    "summary: handoff": handoff,
    "log: hook": hook,
    "log: line": log,
    "plan: entries": plan,
    "conversation: name, next, error, document": conversation,
    "conversation: directory and typed": directory,
    "conversation: tracked path": tracked_path,
    "conversation: checkpoint labels": checkpoint_of_files,
    "conversation: imported document": imported_document,
    "agent: run": run,
    "agent: issue": request_of_an_issue,
    "agent: progress comment": progress,
    "agent: queue": queued,
    "agent: reply cache": reply_cache,
    "import: file name": session_name,
    "command: stop": stop,
}


# Channels that take a few milliseconds for a text: all kinds of shapes can be put into each of them.
_SLOW = {"message: long text", "part: text in a blob", "reply: long arguments", "summary: handoff", "summary: broken"}
QUICK = [
    name
    for name in CHANNELS
    if name.partition(":")[0] in ("message", "part", "reply", "tool", "view", "log", "plan", "summary")
    and name not in _SLOW
]


def leaks(
    scene: Scene, make: Make = shapes, decoys: Make = shapes, names: Iterable[str] = CHANNELS, *, carry: bool = True
) -> tuple[list[Leak], int]:
    """Put secrets into channels, take them along every way out, and look for them; and how many there were.

    What a secret has in common with a decoy belongs to its shape, and tells nothing. Without `carry`, only the store,
    the log and the windows are searched.
    """
    needles: list[Needle] = []
    for name in names:
        made = list(make(random.Random(name)))  # noqa: S311 - the same ones every time
        needles += [Needle(name, shape.kind, shape.secret) for shape in made]
        scene.put(name, CHANNELS[name], [shape.text for shape in made])
    if carry:
        scene.carry()
    scene.close()
    apart = [Needle("", shape.kind, shape.secret) for shape in decoys(random.Random("decoy"))]  # noqa: S311
    return [leak for leak in scene.found([*needles, *apart]) if leak.channel], len(needles)


def all_shapes(dice: random.Random) -> list[Any]:
    """The shapes of `bench/shapes.py`; where it is not, our own."""
    there = importlib.util.find_spec("bench.shapes") is not None
    return list(importlib.import_module("bench.shapes").shapes(dice) if there else shapes(dice))


def some_shapes(dice: random.Random) -> list[Any]:
    """Some of them, others for every channel, so that all channels together see all shapes."""
    made = all_shapes(dice)
    return dice.sample(made, min(SHAPES, len(made)))


def each_kind(dice: random.Random) -> list[Any]:
    """One shape of every kind."""
    return list({shape.kind: shape for shape in all_shapes(dice)}.values())


def main() -> None:
    """Print, for each kind of store, how many secrets survived, and in which channels."""
    for kind in ("jsonl", "sqlite"):
        report(kind)


def report(
    kind: str,
    make: Make = some_shapes,
    decoys: Make = all_shapes,
    names: Collection[str] = CHANNELS,
    *,
    carry: bool = True,
) -> None:
    """Print how many secrets survived in one kind of store, and in which channels."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "scene"
        url = str(place / "store") if kind == "jsonl" else f"sqlite:///{place}/store.db"
        copies = ["{place}/copy-{number}", "sqlite:///{place}/copy-{number}.db", "memory:"]
        began = time.perf_counter()
        place.mkdir()
        found, count = leaks(Scene(url, place, copies=copies), make, decoys, names, carry=carry)
    print(f"{kind}: {len(names)} channels, {count // len(names)} shapes in each")
    _print(found, count, time.perf_counter() - began)


def _print(found: list[Leak], count: int, seconds: float) -> None:
    left = {leak._replace(place="") for leak in found}
    channels = Counter(leak.channel for leak in left)
    print(f"  {count:,} secrets, recall {1 - len(left) / count:.4f} (target: 0.97)")
    print(f"  {len(channels)} channels leak ({seconds:.0f} s)")
    for name, number in channels.most_common():
        kinds = ", ".join(sorted({leak.kind for leak in found if leak.channel == name}))
        places = ", ".join(sorted({leak.place for leak in found if leak.channel == name}))
        print(f"  {name}: {number} shapes ({kinds:.80}) in {places:.200}")


if __name__ == "__main__":
    main()
