"""`orihon demo`: an agent fixes a bug, is killed with kill -9, and resumes; a second run inherits.

It shows a window before and after a fold, writes the task as an HTML page, and counts what a list in memory would cost.

The demo runs offline in seconds. Only the model is scripted; the loop, the tools, the folds, the files and the kill are
real, and the command fails if one of the checks at the end fails. `sample/` holds the shop and the scripts. `agent.py`
is the agent, in a process of its own, so that it can be killed. The wheel contains this directory as `orihon.demo`.
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
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import click

from orihon.cli._output import say, say_line, truncate
from orihon.context.matter import INHERITED
from orihon.engine import Engine, open_engine
from orihon.errors import UsageError
from orihon.ops.doctor import examine
from orihon.ops.export import export_pieces
from orihon.records import Message
from orihon.settings.schema import Settings
from orihon.task.reader import Reader
from orihon.task.window import Item

from .agent import CONTEXT_LENGTH, KEY, RESERVED_OUTPUT, build_environment

SAMPLE = Path(__file__).parent / "sample"
AGENT = Path(__file__).parent / "agent.py"
KILL_AFTER = 35  # lines of the agent: its twelfth reply is stored, and the tool it calls is running
MAX_TEXT_CHARS = 50
MAX_LINE_CHARS = 74
MAX_FOLDED_LINES, MAX_INHERITED_LINES = 6, 6
FAILED = 1


@click.command()
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the files in this directory.")
@click.option("--kill-after", hidden=True, default=KILL_AFTER)
@click.option("--sample", hidden=True, default=SAMPLE, type=click.Path(path_type=Path))
@click.pass_context
def demo(context: click.Context, *, keep: Path | None, kill_after: int, sample: Path) -> None:
    """Show what Orihon does, offline: an agent fixes a bug, survives kill -9, and a second run inherits.

    \b
    orihon demo                    in a temporary directory
    orihon demo --keep ./demo      keep the files
    """
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UsageError(f"{keep} is not empty.", hint="Name a new or empty directory.")
    with tempfile.TemporaryDirectory(prefix="orihon-demo-") as temporary:
        stage = Stage((keep or Path(temporary)).resolve(), sample.resolve())
        succeeded = _play(stage, kill_after)
        say(f"\nThe first task as a page for your browser:\n  {_write_page(stage, keep).as_uri()}")
        say(_format_next_steps(stage) if keep else "`orihon demo --keep DIRECTORY` keeps all files.")
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
    with open_engine(stage.store, settings=Settings()) as engine:
        _print_fold(engine.read(first))
        inherited = engine.inheritance(KEY)
    say("\nThe same issue again, as a new task. It inherits what the first one learned:")
    for line in inherited.text.splitlines()[:MAX_INHERITED_LINES] if inherited else ():
        say_line(f"  | {truncate(line, MAX_LINE_CHARS)}")
    _run_act(stage, "second", second)
    after = _run_tests(stage)
    with open_engine(stage.store, settings=Settings()) as engine:
        tasks = engine.read(first), engine.read(second)
        _print_figures(*tasks, killed, resumed)
        _print_cost_of_a_list(tasks[0], killed)
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
    lines: list[dict[str, Any]] = []
    first_window = end = 0.0
    command = [sys.executable, str(AGENT), str(stage.folder), str(stage.sample), script, uuid]
    with subprocess.Popen(command, cwd=stage.folder, stdout=subprocess.PIPE, text=True) as agent:
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
    hidden = f"{in_log - in_window:,} folded or summarised"
    lost = max(0.0, resumed.first_window - killed.end) * 1000
    inherited = sum(message.tokens for message in _list_inherited(second))
    say("\nFigures:")
    _print_figure("messages stored", sum(1 for _ in first.messages()), "the whole history, in lines of JSON")
    _print_figure("tokens in the log", in_log)
    _print_figure("tokens in the last window", in_window, hidden)
    _print_figure("lost to the kill", f"{lost:,.0f} ms", "until the next request")
    _print_figure("memory of the agent", f"{resumed.last('memory') / 1e6:.0f} MB", "the history stays on disk")
    _print_figure("inherited by the second task", inherited, "tokens: what the first learned")


def _print_fold(task: Reader) -> None:
    """Print a window before and after a fold, message by message, and a message as it reads when it is folded."""
    windows = [_list_window(task, call) for call in range(1, task.row.llm_call_count + 1)]
    found = (
        (call, *pair) for call, pair in enumerate(pairwise(windows), 1) if _count_saved(*pair) > CONTEXT_LENGTH // 4
    )
    call, before, after = next(found, (0, {}, {}))
    if not call:
        return
    say_line("")
    say_line(f"What the model got in turn {call}, and after a fold in turn {call + 1}, in tokens:")
    for seq, item in sorted((before | after).items()):
        was, now = (f"{window[seq].message.tokens:,}" if seq in window else "-" for window in (before, after))
        change = "new" if was == "-" else "in the summary" if now == "-" else "folded" if was != now else ""
        line = f"m{seq:<4}{item.message.role:10} {_format_message(item.message)}"
        say_line(f"  {truncate(line, 46):46} {was:>7} {now:>7}  {change}".rstrip())
    longest = max(before, key=lambda seq: before[seq].message.tokens - after.get(seq, before[seq]).message.tokens)
    say_line(f'm{longest} as it reads now; unfold("m{longest}") gives the model all of it again:')
    for line in after[longest].message.text.splitlines()[:MAX_FOLDED_LINES]:
        say_line(f"  | {truncate(line, MAX_LINE_CHARS)}")


def _list_window(task: Reader, call: int) -> dict[int, Item]:
    """Return the messages of the log in the window of a call, by number."""
    return {item.seq: item for item in task.window(call=call).items() if item.seq and item.form != "mark"}


def _count_saved(before: dict[int, Item], after: dict[int, Item]) -> int:
    """Return the tokens by which a fold made messages shorter that are in both windows."""
    return sum(before[seq].message.tokens - after[seq].message.tokens for seq in before.keys() & after.keys())


def _format_message(message: Message) -> str:
    calls = " ".join(f"{call.name}(…)" for call in message.tool_calls)
    return " ".join(f"{calls} {message.text[: 2 * MAX_TEXT_CHARS]}".split())


def _print_cost_of_a_list(task: Reader, killed: Act) -> None:
    """Print what the run would have cost with all messages in a list, which is sent whole each time."""
    messages = list(task.messages())
    sizes = [sum(message.tokens for message in messages if message.seq < reply.seq) for reply in task.replies()]
    limit = CONTEXT_LENGTH - RESERVED_OUTPUT
    too_long = next((call for call, size in enumerate(sizes, 1) if size > limit), None)
    sent = sum(task.window(call=call).tokens for call in range(1, len(sizes) + 1))
    say("\nThe same run with its messages in a list in memory:")
    if too_long is not None:
        remark = f"of {len(sizes)}: {sizes[too_long - 1]:,} tokens, where {limit:,} fit"
        _print_figure("first turn that does not fit", too_long, remark)
    _print_figure("tokens sent, if all fitted", sum(sizes), f"with Orihon {sent:,}")
    _print_figure("messages left after kill -9", 0, f"with Orihon {killed.last('stored'):,}")


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
    return [message for message in task.messages() if message.key == INHERITED]


def _run_tests(stage: Stage) -> subprocess.CompletedProcess[str]:
    """Run the tests of the shop."""
    command = [sys.executable, "-m", "unittest"]
    return subprocess.run(
        command, cwd=stage.folder / "shop", env=build_environment(), capture_output=True, text=True, check=False
    )


def _write_page(stage: Stage, keep: Path | None) -> Path:
    """Write the first task as an HTML page, to the directory that is kept or to a new one for temporary files."""
    with open_engine(stage.store, settings=Settings()) as engine:
        *_, first = engine.tasks()
        page = "".join(export_pieces(engine.read(first.uuid), "html"))
    path = (stage.folder if keep else Path(tempfile.mkdtemp(prefix="orihon-demo-"))) / "task.html"
    path.write_text(page, encoding="utf-8")
    return path


def _format_next_steps(stage: Stage) -> str:
    with open_engine(stage.store, settings=Settings()) as engine:
        *_, first = (row.uuid[:8] for row in engine.tasks())
    return (
        "\nInspect the files:\n"
        f"  cd {stage.folder}\n"
        "  cat shop/shop/basket.py\n"
        "  orihon ls --store contexts\n"
        f"  orihon show {first} --store contexts --window\n"
        "  orihon stats --store contexts\n"
        "  jq -c '{seq, role, tokens, tool_name}' contexts/completed/*/messages.jsonl\n"
        "  jq -r .summary contexts/completed/*/summaries.jsonl\n"
        f"  orihon inherit {KEY} --store contexts\n"
        "  orihon doctor --store contexts"
    )
