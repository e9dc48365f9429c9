"""The agent of `orihon demo`: the usual loop with the usual tools, and a model that says what a file says.

It runs in a process of its own, so that it can be killed. Each line on its standard output says how far it has come,
and is written only after what it speaks of is stored.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orihon.agent.handler import TaskHandler, Work
from orihon.agent.tools.toolbox import Toolbox
from orihon.context.repair import INTERRUPTED
from orihon.engine import open_engine
from orihon.errors import Conflict, NotFound
from orihon.records import Message
from orihon.settings.schema import Settings
from orihon.task.task import INHERITANCE_KEY, Task
from orihon.task.tool_run import ToolRun
from orihon.task.window import Window
from orihon.task_key import TaskKey
from orihon.testing.model import ScriptedModel

KEY = TaskKey.github("acme", "shop", issue=27)
CONTEXT_LENGTH = 6_000  # so little that the log has to be folded and summarised


def run_agent(folder: Path, sample: Path, script: str, uuid: str) -> None:
    """Work on the issue; a task that was begun and left, in whatever way, is gone on with."""
    model = Script(sample / f"{script}.yaml")
    with (
        open_engine(folder / "contexts", settings=Settings(), hooks=[Reporter()]) as engine,
        Toolbox(folder / "shop", approve="all", environ=environment()) as box,
    ):
        try:
            task = engine.resume(uuid, summariser=model.ask)
        except NotFound:
            task = engine.start(
                KEY,
                uuid=uuid,
                tools=box.schemas,
                summariser=model.ask,
                context_length=CONTEXT_LENGTH,
                reserved_output=500,
                min_messages_to_summarize=6,
            )
        except Conflict:
            return  # it was killed when all was done
        model.find_place(task.log.read(1, task.log.last))
        work = Work(key=KEY, request=(sample / "issue.md").read_text(encoding="utf-8"))
        tools: Any = box
        TaskHandler(engine, model, tools).run(task, work)


class Script:
    """A model that gives the replies of a file. After a kill it knows by the log what it has said."""

    def __init__(self, path: Path) -> None:
        self.replies = ScriptedModel(path)

    def find_place(self, messages: Iterable[Message]) -> None:
        """Begin after the last reply; one whose call was interrupted is given again."""
        said = 0
        for message in messages:
            said += message.role == "assistant" and message.key != INHERITANCE_KEY
            said -= message.role == "tool" and message.content == INTERRUPTED
        self.replies.used = said

    def reply(self, window: Window, **_: Any) -> Any:
        """The next reply; what a provider would refuse is refused."""
        return self.replies(window.openai(), tools=window.tools())

    def ask(self, _: str) -> str:
        """A summary: all that it has said so far."""
        said = self.replies.replies[: self.replies.used]
        return "\n".join(f"- {reply if isinstance(reply, str) else reply['content']}" for reply in said)


class Reporter:
    """Says on standard output how far the task has come."""

    def before_request(self, task: Task, window: Window) -> None:
        _tell(task, "window", tokens=window.tokens)

    def after_reply(self, task: Task, message: Message) -> None:
        _tell(task, "reply", said=_shown(message))

    def after_tool(self, task: Task, _: ToolRun) -> None:
        _tell(task, "result")

    def on_completed(self, task: Task) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        _tell(task, "completed", memory=peak if sys.platform == "darwin" else peak * 1024)


def _shown(message: Message) -> str:
    """A reply in one line: what it asks for, or what it says."""
    if not message.tool_calls:
        return message.text
    call = message.tool_calls[0]
    return " ".join(f"{call.name} {' '.join(map(str, json.loads(call.arguments).values()))}".split())


def _tell(task: Task, what: str, **more: Any) -> None:
    line = json.dumps({"what": what, "stored": task.log.last, "turn": task.row.llm_call_count, **more})
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def environment() -> dict[str, str]:
    """Where `python` is this Python, and leaves no files beside the sources."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return os.environ | {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
