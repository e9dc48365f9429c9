"""The agent of the demo: it works on one issue with real tools. Its model follows a script.

    python agent.py FOLDER SAMPLE SCRIPT UUID

Each line of the output reports a step that is stored. If the task exists, the agent resumes it.
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
from orihon.agent.models.scripted import ScriptedReplies
from orihon.agent.tools.toolbox import Toolbox
from orihon.context.matter import INHERITED
from orihon.context.repair import INTERRUPTED
from orihon.engine import open_engine
from orihon.errors import Conflict, NotFound
from orihon.records import Message
from orihon.settings.schema import Settings
from orihon.task.task import Task
from orihon.task.tool_run import ToolRun
from orihon.task.window import Window
from orihon.task_key import TaskKey

KEY = TaskKey.github("acme", "shop", issue=27)
CONTEXT_LENGTH = 4_000  # small enough that the log has to be folded and summarised
RESERVED_OUTPUT = 500


def run_agent(folder: Path, sample: Path, script: str, uuid: str) -> None:
    """Work on the issue. Resume the task if it exists."""
    model = Script(sample / f"{script}.yaml")
    with (
        open_engine(folder / "contexts", settings=Settings(), hooks=[Reporter()]) as engine,
        Toolbox(folder / "shop", approve="all", environ=build_environment()) as box,
    ):
        try:
            task = engine.resume(uuid, summariser=model.summarise)
        except NotFound:
            task = engine.start(
                KEY,
                uuid=uuid,
                tools=box.schemas,
                summariser=model.summarise,
                context_length=CONTEXT_LENGTH,
                reserved_output=RESERVED_OUTPUT,
                min_messages_to_summarize=6,
            )
        except Conflict:
            return  # the task had ended before the kill
        model.skip_stored(task.log.read(1, task.log.last))
        work = Work(key=KEY, request=(sample / "issue.md").read_text(encoding="utf-8"))
        tools: Any = box
        TaskHandler(engine, model, tools).run(task, work)


class Script(ScriptedReplies):
    """A model that returns the replies of a file. After a kill it continues after the stored replies."""

    def skip_stored(self, messages: Iterable[Message]) -> None:
        """Continue after the last stored reply. A reply whose tool call was interrupted is repeated."""
        used = 0
        for message in messages:
            used += message.role == "assistant" and message.key != INHERITED
            used -= message.role == "tool" and message.content == INTERRUPTED
        self.begin_after(used)

    def summarise(self, _: str) -> str:
        """Return a summary: the texts of all replies so far."""
        used = self.script.replies[: self.script.used]
        return "\n".join(f"- {reply if isinstance(reply, str) else reply['content']}" for reply in used)


class Reporter:
    """Reports the progress of the task on standard output."""

    def before_request(self, task: Task, window: Window) -> None:
        _report(task, "window", tokens=window.tokens)

    def after_reply(self, task: Task, message: Message) -> None:
        _report(task, "reply", text=_format_reply(message))

    def after_tool(self, task: Task, _: ToolRun) -> None:
        _report(task, "result")

    def on_completed(self, task: Task) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        _report(task, "completed", memory=peak if sys.platform == "darwin" else peak * 1024)


def _format_reply(message: Message) -> str:
    """Return a reply as one line: its first call, or its text."""
    if not message.tool_calls:
        return message.text
    call = message.tool_calls[0]
    return " ".join(f"{call.name} {' '.join(map(str, json.loads(call.arguments).values()))}".split())


def _report(task: Task, what: str, **more: Any) -> None:
    line = json.dumps({"what": what, "stored": task.log.last, "turn": task.row.llm_call_count, **more})
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def build_environment() -> dict[str, str]:
    """Return an environment in which `python` is this Python and writes no bytecode."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return os.environ | {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


if __name__ == "__main__":
    run_agent(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
