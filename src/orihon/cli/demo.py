"""`orihon demo`: an agent mends a bug, is killed with kill -9 half-way, goes on, and ends; a second run inherits.

Offline, in seconds. Only the model is played, by a script; the loop, the tools, the folds, the files and the kill are
real, and so are the checks at the end: if one fails, so does the command. The agent is in `orihon.cli.demoagent`, the
shop with the bug and the script of the model are in `sample/`.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid as uuids
from pathlib import Path
from typing import Any, NamedTuple

import click

from orihon.cli.demoagent import CONTEXT_LENGTH, KEY, environment, run_agent
from orihon.cli.output import say, say_line
from orihon.engine import Engine, open_engine
from orihon.errors import UsageError
from orihon.ops.doctor import examine
from orihon.records import Message
from orihon.settings.schema import Settings
from orihon.task.reader import Reader
from orihon.task.task import INHERITANCE_KEY

SAMPLE = Path(__file__).parent / "sample"
KILL_AFTER = 35  # lines of the agent's: its twelfth reply is stored, and the tool that it asks for has begun
FAILED = 1


@click.command()
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Where to leave what was written.")
@click.option("--kill-after", hidden=True, default=KILL_AFTER)
@click.option("--sample", hidden=True, default=SAMPLE, type=click.Path(path_type=Path))
@click.option("--agent", hidden=True, nargs=3)
@click.pass_context
def demo(
    context: click.Context, *, keep: Path | None, kill_after: int, sample: Path, agent: tuple[str, str, str] | None
) -> None:
    """Show what Orihon does, offline: an agent mends a bug, survives kill -9, and a second run inherits.

    \b
    orihon demo                    in a temporary directory
    orihon demo --keep ./demo      leave the files there to look at
    """
    if agent is not None:
        run_agent(Path(agent[0]), sample, *agent[1:])
        return
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UsageError(f"{keep} is not empty.", hint="Name a directory that is new, or empty.")
    with tempfile.TemporaryDirectory(prefix="orihon-demo-") as temporary:
        stage = Stage((keep or Path(temporary)).resolve(), sample.resolve())
        is_well = _play(stage, kill_after)
        say(_look(stage) if keep else "\n`orihon demo --keep DIRECTORY` leaves the files to look at.")
    context.exit(0 if is_well else FAILED)


class Stage(NamedTuple):
    """Where it is played, and what."""

    folder: Path
    sample: Path

    @property
    def store(self) -> Path:
        return self.folder / "contexts"


class Act(NamedTuple):
    """What one process of the agent's said until it ended, or was ended."""

    lines: list[dict[str, Any]]
    code: int
    first_window: float  # when it had its first window
    end: float  # when it ended, or was killed

    def last(self, name: str) -> Any:
        """The newest value of that name; 0 when there is none."""
        return next((line[name] for line in reversed(self.lines) if name in line), 0)


def _play(stage: Stage, kill_after: int) -> bool:
    """Play it, and say what happened; whether all of it is as it should be."""
    shutil.copytree(stage.sample / "shop", stage.folder / "shop", ignore=shutil.ignore_patterns("__pycache__"))
    first, second = str(uuids.uuid4()), str(uuids.uuid4())
    before = _tests(stage)
    say_line("A shop asks people to pay for empty baskets. Its tests say so as well:")
    say_line(f"  python -m unittest: {before.stderr.strip().splitlines()[-1]}")
    say("")
    say_line(f"An agent is to mend it, in a window of {CONTEXT_LENGTH:,} tokens. Its model only follows a")
    say_line("script. Nothing else is faked: the loop, the tools, the folds, the files and the kill are real.")
    say("")
    say_line("  turn  tokens sent  stored  what the model asks for, or says")
    killed = _act(stage, "first", first, kill_after)
    with open_engine(stage.store, settings=Settings()) as engine:
        survived = _messages(engine, first)
    say_line(f"        kill -9: {killed.last('stored')} messages were acknowledged, {len(survived)} are in the log")
    resumed = _act(stage, "first", first)
    say("\nThe same issue comes again, as a new task:")
    _act(stage, "second", second)
    after = _tests(stage)
    with open_engine(stage.store, settings=Settings()) as engine:
        tasks = engine.read(first), engine.read(second)
        _figures(*tasks, killed, resumed)
        checks = {
            "the tests of the shop failed before": before.returncode != 0,
            "they pass now": after.returncode == 0,
            "the agent was killed with kill -9": killed.code == -signal.SIGKILL,
            "both tasks are completed": all(task.row.status == "completed" for task in tasks),
            "no acknowledged message is lost, changed or there twice": is_whole(
                survived, list(tasks[0].messages()), killed.last("stored"), resumed.last("stored")
            ),
            "the window was folded and summarised": _folds(tasks[0]) > 0 and tasks[0].row.compression_count > 0,
            "the second task inherited from the first": first[:8] in _inherited(tasks[1]),
            "`orihon doctor` finds no problem": all(found.level != "problem" for found in examine(str(stage.store))),
        }
    say("\nChecked:")
    for what, holds in checks.items():
        say_line(f"  {'ok    ' if holds else 'FAILED'}  {what}")
    return all(checks.values())


def _act(stage: Stage, script: str, uuid: str, kill_after: int | None = None) -> Act:
    """Start the agent and follow what it says; kill it after so many lines."""
    arguments = ["demo", "--sample", str(stage.sample), "--agent", str(stage.folder), script, uuid]
    lines: list[dict[str, Any]] = []
    first_window = end = 0.0
    command = [sys.executable, "-m", "orihon", *arguments]
    with subprocess.Popen(command, cwd=stage.folder, stdout=subprocess.PIPE, text=True) as agent:  # noqa: S603 - ours
        if kill_after == 0:
            end = _kill(agent)
        for text in agent.stdout or ():
            if not text.endswith("\n"):
                break  # it died while it said that
            lines.append(json.loads(text))
            if len(lines) == kill_after:
                end = _kill(agent)
            if lines[-1]["what"] == "window":
                first_window = first_window or time.monotonic()
            elif lines[-1]["what"] == "reply":
                _tell_turn(lines)
        agent.wait()
    return Act(lines, agent.returncode, first_window, end or time.monotonic())


def _kill(agent: subprocess.Popen[str]) -> float:
    """Kill it now, and say when that was; what it has said before can still be read."""
    agent.send_signal(signal.SIGKILL)
    return time.monotonic()


def _tell_turn(lines: list[dict[str, Any]]) -> None:
    reply = lines[-1]
    tokens = lines[-2]["tokens"] if len(lines) > 1 else 0
    said = reply["said"] if len(reply["said"]) <= 68 else f"{reply['said'][:67]}…"  # noqa: PLR2004 - a line
    say_line(f"  {reply['turn']:4}  {tokens:11,}  {reply['stored']:6}  {said}")


def _figures(first: Reader, second: Reader, killed: Act, resumed: Act) -> None:
    in_log = sum(message.tokens for message in first.messages())
    in_window, compressions = resumed.last("tokens") or killed.last("tokens"), first.row.compression_count
    hidden = f"{in_log - in_window:,} hidden: folded {_times(_folds(first))}, summarised {_times(compressions)}"
    lost = max(0.0, resumed.first_window - killed.end) * 1000
    inherited = [message for message in second.messages() if message.key == INHERITANCE_KEY]
    say("\nWhat became of it:")
    _say("messages kept", sum(1 for _ in first.messages()), "all that was said and done, as plain lines of JSON")
    _say("tokens in the log", in_log)
    _say("tokens in the last window", in_window, hidden)
    _say("lost to the kill", f"{lost:,.0f} ms", "until the next window; a tool that was cut short is run again")
    _say("memory of the agent", f"{resumed.last('memory') / 1e6:.0f} MB", "the history stays on disk")
    _say("inherited by the second task", sum(message.tokens for message in inherited), "tokens: what the first learned")
    _say("turns", f"{first.row.llm_call_count}, then {second.row.llm_call_count}")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _say(what: str, value: object, remark: str = "") -> None:
    shown = f"{value:,}" if isinstance(value, int) else str(value)
    say_line(f"  {what:28} {shown:>10}   {remark}".rstrip())


def is_whole(survived: list[Message], now: list[Message], before_kill: int, after_it: int) -> bool:
    """Whether a log holds all that was acknowledged, unchanged, in order, and nothing twice."""
    numbers = [message.seq for message in now]
    return (
        len(survived) >= before_kill
        and len(now) >= after_it
        and now[: len(survived)] == survived
        and numbers == list(range(1, len(now) + 1))
    )


def _messages(engine: Engine, uuid: str) -> list[Message]:
    """The log of a task; empty when it was killed before it began."""
    return list(engine.store.read(uuid, Message)) if any(row.uuid == uuid for row in engine.tasks()) else []


def _folds(task: Reader) -> int:
    return sum(event.type == "folds" for event in task.events())


def _inherited(task: Reader) -> str:
    return "".join(message.text for message in task.messages() if message.key == INHERITANCE_KEY)


def _tests(stage: Stage) -> subprocess.CompletedProcess[str]:
    """Run the tests of the shop."""
    command = [sys.executable, "-m", "unittest"]
    return subprocess.run(  # noqa: S603 - our own command
        command, cwd=stage.folder / "shop", env=environment(), capture_output=True, text=True, check=False
    )


def _look(stage: Stage) -> str:
    with open_engine(stage.store, settings=Settings()) as engine:
        *_, first = (row.uuid[:8] for row in engine.tasks())
    return (
        "\nHow to look at it:\n"
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
