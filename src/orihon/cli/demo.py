"""`orihon demo`: an agent fixes a bug, is killed with kill -9, and resumes; a second run inherits.

The demo runs offline in seconds. Only the model is scripted; the loop, the tools, the folds, the files and the kill are
real, and the command fails if one of the checks at the end fails. `sample/` holds the shop and the scripts.
The agent runs in a child process, so that it can be killed. Each line of its output reports a step that is stored.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid as uuids
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import click

from orihon.agent.handler import TaskHandler, Work
from orihon.agent.models.scripted import ScriptedReplies
from orihon.agent.tools.toolbox import Toolbox
from orihon.cli._output import say, say_line
from orihon.context.repair import INTERRUPTED
from orihon.engine import Engine, open_engine
from orihon.errors import Conflict, NotFound, UsageError
from orihon.ops.doctor import examine
from orihon.records import Message
from orihon.settings.schema import Settings
from orihon.task.reader import Reader
from orihon.task.task import INHERITANCE_KEY, Task
from orihon.task.tool_run import ToolRun
from orihon.task.window import Window
from orihon.task_key import TaskKey

SAMPLE = Path(__file__).parent / "sample"
KILL_AFTER = 35  # lines of the agent: its twelfth reply is stored, and the tool it calls is running
KEY = TaskKey.github("acme", "shop", issue=27)
CONTEXT_LENGTH = 4_000  # small enough that the log has to be folded and summarised
MAX_TEXT_CHARS = 68
FAILED = 1


@click.command()
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the files in this directory.")
@click.option("--kill-after", hidden=True, default=KILL_AFTER)
@click.option("--sample", hidden=True, default=SAMPLE, type=click.Path(path_type=Path))
@click.option("--agent", hidden=True, nargs=3)
@click.pass_context
def demo(
    context: click.Context, *, keep: Path | None, kill_after: int, sample: Path, agent: tuple[str, str, str] | None
) -> None:
    """Show what Orihon does, offline: an agent fixes a bug, survives kill -9, and a second run inherits.

    \b
    orihon demo                    in a temporary directory
    orihon demo --keep ./demo      keep the files
    """
    if agent is not None:
        run_agent(Path(agent[0]), sample, *agent[1:])
        return
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UsageError(f"{keep} is not empty.", hint="Name a new or empty directory.")
    with tempfile.TemporaryDirectory(prefix="orihon-demo-") as temporary:
        stage = Stage((keep or Path(temporary)).resolve(), sample.resolve())
        succeeded = _play(stage, kill_after)
        say(_format_next_steps(stage) if keep else "\n`orihon demo --keep DIRECTORY` keeps the files.")
    context.exit(0 if succeeded else FAILED)


class Stage(NamedTuple):
    """The directory of the demo and its sample."""

    folder: Path
    sample: Path

    @property
    def store(self) -> Path:
        return self.folder / "contexts"


class Act(NamedTuple):
    """The output of one agent process until it ended or was killed."""

    lines: list[dict[str, Any]]
    code: int
    first_window: float  # time of the first window
    end: float  # time of the end or the kill

    def last(self, name: str) -> Any:
        """Return the newest value of this name, or 0."""
        return next((line[name] for line in reversed(self.lines) if name in line), 0)


def _play(stage: Stage, kill_after: int) -> bool:
    """Play the demo and print what happens. Return whether all checks hold."""
    shutil.copytree(stage.sample / "shop", stage.folder / "shop", ignore=shutil.ignore_patterns("__pycache__"))
    first, second = str(uuids.uuid4()), str(uuids.uuid4())
    before = _run_tests(stage)
    say_line("A shop asks customers to pay for empty baskets. Its tests fail:")
    say_line(f"  python -m unittest: {before.stderr.strip().splitlines()[-1]}")
    say("")
    say_line(f"An agent fixes it in a window of {CONTEXT_LENGTH:,} tokens. Its model follows a script;")
    say_line("the loop, the tools, the folds, the files and the kill are real.")
    say("")
    say_line("  turn  tokens sent  stored  what the model asks for, or says")
    killed = _run_act(stage, "first", first, kill_after)
    with open_engine(stage.store, settings=Settings()) as engine:
        survived = _read_messages(engine, first)
    say_line(f"        kill -9: {killed.last('stored')} messages were acknowledged, {len(survived)} are in the log")
    resumed = _run_act(stage, "first", first)
    say("\nThe same issue comes again, as a new task:")
    _run_act(stage, "second", second)
    after = _run_tests(stage)
    with open_engine(stage.store, settings=Settings()) as engine:
        tasks = engine.read(first), engine.read(second)
        _print_figures(*tasks, killed, resumed)
        checks = {
            "the tests of the shop failed before": before.returncode != 0,
            "they pass now": after.returncode == 0,
            "the agent was killed with kill -9": killed.code == -signal.SIGKILL,
            "both tasks are completed": all(task.row.status == "completed" for task in tasks),
            "no acknowledged message is lost, changed or duplicated": is_intact(
                survived, list(tasks[0].messages()), killed.last("stored"), resumed.last("stored")
            ),
            "the window was folded and summarised": _count_folds(tasks[0]) > 0 and tasks[0].row.compression_count > 0,
            "the second task inherited from the first": first[:8]
            in "".join(message.text for message in _list_inherited(tasks[1])),
            "`orihon doctor` finds no problem": all(
                finding.level != "problem" for finding in examine(str(stage.store))
            ),
        }
    say("\nChecked:")
    for name, holds in checks.items():
        say_line(f"  {'ok    ' if holds else 'FAILED'}  {name}")
    return all(checks.values())


def _run_act(stage: Stage, script: str, uuid: str, kill_after: int | None = None) -> Act:
    """Start the agent and read its output. Kill it after this many lines."""
    arguments = ["demo", "--sample", str(stage.sample), "--agent", str(stage.folder), script, uuid]
    lines: list[dict[str, Any]] = []
    first_window = end = 0.0
    command = [sys.executable, "-m", "orihon", *arguments]
    with subprocess.Popen(command, cwd=stage.folder, stdout=subprocess.PIPE, text=True) as agent:  # noqa: S603 - ours
        if kill_after == 0:
            end = _kill(agent)
        for text in agent.stdout or ():
            if not text.endswith("\n"):
                break  # killed while it wrote the line
            lines.append(json.loads(text))
            if len(lines) == kill_after:
                end = _kill(agent)
            if lines[-1]["what"] == "window":
                first_window = first_window or time.monotonic()
            elif lines[-1]["what"] == "reply":
                _print_turn(lines)
        agent.wait()
    return Act(lines, agent.returncode, first_window, end or time.monotonic())


def _kill(agent: subprocess.Popen[str]) -> float:
    """Kill the agent and return the time. Its earlier output can still be read."""
    agent.send_signal(signal.SIGKILL)
    return time.monotonic()


def _print_turn(lines: list[dict[str, Any]]) -> None:
    reply = lines[-1]
    tokens = lines[-2]["tokens"] if len(lines) > 1 else 0
    text = reply["text"] if len(reply["text"]) <= MAX_TEXT_CHARS else f"{reply['text'][: MAX_TEXT_CHARS - 1]}…"
    say_line(f"  {reply['turn']:4}  {tokens:11,}  {reply['stored']:6}  {text}")


def _print_figures(first: Reader, second: Reader, killed: Act, resumed: Act) -> None:
    in_log = sum(message.tokens for message in first.messages())
    in_window = resumed.last("tokens") or killed.last("tokens")
    folds, compressions = _format_times(_count_folds(first)), _format_times(first.row.compression_count)
    hidden = f"{in_log - in_window:,} hidden: folded {folds}, summarised {compressions}"
    lost = max(0.0, resumed.first_window - killed.end) * 1000
    inherited = sum(message.tokens for message in _list_inherited(second))
    say("\nFigures:")
    _print_figure("messages stored", sum(1 for _ in first.messages()), "the whole history, as lines of JSON")
    _print_figure("tokens in the log", in_log)
    _print_figure("tokens in the last window", in_window, hidden)
    _print_figure("lost to the kill", f"{lost:,.0f} ms", "until the next window; an interrupted tool is run again")
    _print_figure("memory of the agent", f"{resumed.last('memory') / 1e6:.0f} MB", "the history stays on disk")
    _print_figure("inherited by the second task", inherited, "tokens: what the first learned")
    _print_figure("turns", f"{first.row.llm_call_count}, then {second.row.llm_call_count}")


def _format_times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _print_figure(name: str, value: object, remark: str = "") -> None:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    say_line(f"  {name:28} {text:>10}   {remark}".rstrip())


def is_intact(survived: list[Message], now: list[Message], before_kill: int, after_kill: int) -> bool:
    """Return whether a log holds all acknowledged messages, unchanged, in order and once."""
    numbers = [message.seq for message in now]
    return (
        len(survived) >= before_kill
        and len(now) >= after_kill
        and now[: len(survived)] == survived
        and numbers == list(range(1, len(now) + 1))
    )


def _read_messages(engine: Engine, uuid: str) -> list[Message]:
    """Return the log of a task. It is empty if the agent was killed before the task started."""
    return list(engine.store.read(uuid, Message)) if any(row.uuid == uuid for row in engine.tasks()) else []


def _count_folds(task: Reader) -> int:
    return sum(event.type == "folds" for event in task.events())


def _list_inherited(task: Reader) -> list[Message]:
    return [message for message in task.messages() if message.key == INHERITANCE_KEY]


def _run_tests(stage: Stage) -> subprocess.CompletedProcess[str]:
    """Run the tests of the shop."""
    command = [sys.executable, "-m", "unittest"]
    return subprocess.run(  # noqa: S603 - our own command
        command, cwd=stage.folder / "shop", env=build_environment(), capture_output=True, text=True, check=False
    )


def _format_next_steps(stage: Stage) -> str:
    with open_engine(stage.store, settings=Settings()) as engine:
        *_, first = (row.uuid[:8] for row in engine.tasks())
    return (
        "\nInspect the files:\n"
        f"  cd {stage.folder}\n"
        "  cat shop/shop/basket.py\n"
        "  orihon ls --store contexts\n"
        f"  orihon show {first} --store contexts            # or with --messages, --summaries, --tools, --window\n"
        "  orihon stats --store contexts\n"
        "  jq -c '{seq, role, tokens, tool_name}' contexts/completed/*/messages.jsonl\n"
        "  jq -r .summary contexts/completed/*/summaries.jsonl\n"
        f"  orihon inherit {KEY} --store contexts\n"
        "  orihon doctor --store contexts"
    )


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
                reserved_output=500,
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
            used += message.role == "assistant" and message.key != INHERITANCE_KEY
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
