"""Nothing in a store, a file or an argument steers the terminal of the user who looks at it.

A store in which every text is hostile is shown by every command, for people and for programs, on a real
pseudo-terminal. What arrives there holds none of the characters, but for the colours and the one line of progress
that are Orihon's own.
"""

import ast
import json
import os
import re
import sqlite3
import sys
from pathlib import Path

import pytest

import orihon
from orihon.chat import registry
from orihon.cli import COMMANDS
from orihon.records import PlanEntry, Summary, ToolCall
from orihon.settings.schema import Settings
from orihon.terminal import HOSTILE, encode_json_line, escape
from support.terminal import Terminal

ROOT = Path(__file__).parent.parent.parent
EVIL = (
    "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b[38;5;1m\x9b31m\x85\x7f\u202egnp.exe\u2066\u2069\u061c\r\b\tx\u200b\u200c\u200d"
    "\u2060\ufeff\u2028合計\U000e0041\nforged"
)
NAME = EVIL.replace("\n", " ")  # of what cannot have a newline
IDS = ["0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"]
TALK = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
KEY = "github/acme/shop/issue/27"
OURS = re.compile(
    r"\x1b\[(?:(?:1;)?3[1-6]|[012])m"  # colours
    r"|\r\x1b\[K|\r?(?:\x1b\[1A)?\x1b\[2K|\r(?=\n)"  # lines of progress
    r"|\x1b\[\?2004[hl]|\x1b\[\?1?2?5?[hl]"
)
BAD = re.compile(f"[{HOSTILE}]")

DRIVER = """
import json, sys
from orihon.cli import main
for number, arguments in enumerate(json.load(open("commands.json"))):
    print(f"<<{number}>>", flush=True)
    try:
        main(arguments)
    except SystemExit as end:
        print(f"<<exit {end.code or 0}>>", flush=True)
"""


@pytest.fixture
def place(tmp_path):
    """A directory with a hostile store, a hostile conversation, hostile files and hostile settings."""
    url = f"sqlite:///{tmp_path}/contexts.db"
    with orihon.open(url, settings=Settings()) as engine:
        for uuid, end in zip(IDS, (False, True), strict=True):
            task = engine.start(KEY, user=EVIL, uuid=uuid, model=EVIL, llm_provider=EVIL)
            task.add("system", EVIL)
            task.add("user", f"needle {EVIL}")
            task.add("assistant", EVIL, tool_calls=[{"id": EVIL, "name": EVIL, "arguments": json.dumps({EVIL: EVIL})}])
            task.add("tool", EVIL, tool_call_id=EVIL, tool_name=EVIL)
            task.snapshot(goal=EVIL, current_phase=EVIL)
            _append(task)
            task.add("assistant", f"done {EVIL}")
            if end:
                task.complete()
            else:
                task.pause(EVIL)
        conversation = registry.start(engine, tmp_path, name="talk", user=EVIL, uuid=TALK)
        conversation.task.add("user", f"needle {EVIL}")
        conversation.task.writer.event("note", about={"name": EVIL, "directory": EVIL})
        conversation.task.pause()
    _spoil(tmp_path / "contexts.db")
    (tmp_path / "config.yaml").write_text(
        json.dumps({"context_storage": {"base_dir": url}, "system_prompt": NAME.replace("\U000e0041", "")})
    )
    (tmp_path / f"{NAME.replace('/', '')}.jsonl").write_text(json.dumps({"role": "user", "content": EVIL}))
    (tmp_path / "broken.jsonl").write_text(f"{EVIL}\n{EVIL}")
    return tmp_path


def _append(task):
    task.writer.lease.append(
        ToolCall(seq=0, tool=EVIL, args={EVIL: EVIL}, status="error", error=EVIL, duration_ms=1, timestamp="")
    )
    task.writer.lease.append(PlanEntry(id=0, type="plan", task_uuid=task.uuid, data={EVIL: EVIL}, timestamp=""))
    task.writer.lease.append(
        Summary(
            id=0, start_seq=1, end_seq=2, summary=EVIL, original_tokens=9, summary_tokens=1, ratio=0.1, timestamp=""
        )
    )


def _spoil(path):
    """What no task can say of itself, in the database."""
    texts = ("hostname", "last_activity", "error_message", "reason", "final_summary", "model", "llm_provider", "user")
    mine = ("task_key", "owner", "repo", "task_id")
    with sqlite3.connect(path) as connection:
        for name in texts:
            connection.execute(f'UPDATE tasks SET "{name}" = ?', [EVIL])  # noqa: S608
        for name in mine:
            connection.execute(f"UPDATE tasks SET {name} = ? WHERE uuid = ?", [EVIL, IDS[0]])  # noqa: S608
    connection.close()


# what each command is given; of those in LINES, no line may begin with a field's own newline
TRIED = {
    "audit": [[]],
    "backup": [["backups"]],
    "chat": [["--list"], ["--search", "needle"], ["--delete", NAME]],
    "clean": [["--dry-run"], ["--dry-run", "--emergency"]],
    "compact": [[IDS[0]]],
    "config": [[], ["--file", NAME]],
    "copy": [["{url}", "copied"]],
    "demo": [],
    "doctor": [[], ["--store", NAME]],
    "enqueue": [[EVIL]],
    "export": [[IDS[1], "--force"], *([IDS[1], "--format", name, "-o", "-"] for name in ("markdown", "html", "openai")),
               [TALK, "--format", "conversation", "-o", "-"], [IDS[1], "-o", "-"],
               [IDS[1], "-o", NAME.replace("/", ""), "--force"]],
    "import": [["{evil}"], ["broken.jsonl"], ["broken.jsonl", "{evil}"]],
    "init": [["--no-check", "--store", NAME], ["--model", EVIL]],
    "inherit": [[KEY], [KEY, "--user", EVIL]],
    "keep": [[IDS[1]]],
    "ls": [[], ["--user", EVIL], ["--status", NAME]],
    "migrate": [[NAME]],
    "monitor": [["--once"]],
    "pause": [[IDS[0]]],
    "restore": [["backups", "--store", "restored"]],
    "resume": [[NAME]],
    "run": [["--resume", NAME]],
    "search": [["needle"], ["needle", "--user", EVIL], ["--from", NAME, "x"]],
    "show": [[IDS[0]], [IDS[1], "--messages", "--summaries", "--tools", "--events", "--plan"],
             [IDS[1], "--window"], [IDS[1], "--messages", "--full"], [NAME]],
    "similar": [[IDS[1]]],
    "stats": [[], ["--user", EVIL]],
    "stop": [[NAME]],
    "unkeep": [[IDS[1]]],
    "unpause": [[IDS[0]]],
    "view": [[NAME, "--no-browser"]],
    "worker": [["--once"]],
}  # fmt: skip
LINES = {"ls", "search", "stats", "similar", "audit", "doctor", "import", "chat", "keep", "monitor", "clean", "backup"}
NO_JSON = {"chat", "demo", "view", "worker"}


def test_every_command_is_tried():
    """A new command says here how it was tried."""
    assert set(TRIED) == set(COMMANDS)


@pytest.mark.slow
def test_no_command_prints_raw(place):
    """Every command, with and without `--json`, with and without `--debug`, at a real terminal."""
    url = f"sqlite:///{place}/contexts.db"
    evil = next(name for name in os.listdir(place) if name.startswith("\x1b"))
    commands = []
    for name, cases in TRIED.items():
        for case in cases:
            given = [name, *(part.replace("{url}", url).replace("{evil}", evil) for part in case)]
            commands.append(given)
            commands += [] if name in NO_JSON else [[*given, "--json"]]
    commands += [["--debug", "show", NAME], ["--debug", "ls", "--store", NAME], [NAME], ["ls", f"--{NAME}"]]
    commands += [["--debug"], ["audit"], ["audit", "--json"]]  # by now it has something to say
    (place / "commands.json").write_text(json.dumps(commands))
    (place / "driver.py").write_text(DRIVER)
    for number, shown in enumerate(_shown(place, "driver.py", len(commands))):
        found = BAD.search(OURS.sub("", shown))
        around = "" if found is None else ascii(shown[max(0, found.start() - 80) : found.end() + 40])
        assert found is None, (commands[number], around)
        assert "<<exit 70>>" not in shown, (commands[number], shown)
        if commands[number][0] in LINES and "--json" not in commands[number]:
            assert not re.search(r"^forged", shown.replace("\r", ""), re.MULTILINE), (commands[number], shown)
        if "--json" in commands[number] and "-" not in commands[number] and "<<exit 0>>" in shown:
            _check_json(shown.split("<<exit")[0])  # with `-o -` it is the document that is printed


def _shown(place, driver, count):
    terminal = Terminal(sys.executable, driver, cwd=place, env=os.environ | {"LC_ALL": "C.UTF-8", "COLUMNS": "200"})
    try:
        assert terminal.ended(300) == 0, terminal.raw[-2000:]
    finally:
        terminal.close()
    for number in range(count):
        yield terminal.raw.partition(f"<<{number}>>")[2].partition(f"<<{number + 1}>>")[0]


def _check_json(shown):
    """It is still JSON, one value on each line or one document."""
    lines = [line for line in OURS.sub("", shown).splitlines() if line.startswith(("{", "["))]
    try:
        json.loads("\n".join(OURS.sub("", shown).splitlines()))
    except json.JSONDecodeError:
        assert [json.loads(line) for line in lines] or not lines


def test_json_loses_nothing():
    """What is escaped for a terminal is the same value for a program."""
    assert json.loads(encode_json_line({EVIL: [EVIL, "合計 é \u3000 👩‍👩‍👧"]})) == {
        EVIL: [EVIL, "合計 é \u3000 👩‍👩‍👧"]
    }
    assert not BAD.search(encode_json_line({EVIL: EVIL}))
    assert encode_json_line(b'{"a":"\xc2\x9b"}') == '{"a":"\\u009b"}'


def test_what_is_readable_stays():
    """Letters of every script, and families of emoji, are shown as they are."""
    text = "合計を直す é \u3000 שלום مرحبا नमस्ते 👩‍👩‍👧 ❤️‍🔥\n\ttab"
    assert escape(text) == text
    assert escape("a\u200db") == "a\\u200db"


def test_a_run_asks_and_answers_without_steering(place):
    """The calls of a model, the question about them, its words and the answer."""
    reply = {"say": EVIL, "call": [{"name": "shell", "arguments": {"command": f"echo {NAME}"}}]}
    (place / "script.json").write_text(json.dumps([reply, f"done {EVIL}"]))
    terminal = Terminal(
        *(sys.executable, "-m", "orihon", "run", NAME, "--model", "scripted:script.json", "--no-plan"),
        cwd=place, env=os.environ | {"LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    try:
        terminal.until("Allow this?")
        terminal.type("n\r")
        assert terminal.ended() == 0
    finally:
        terminal.close()
    assert not BAD.search(OURS.sub("", terminal.raw)), ascii(terminal.raw)
    assert "done " in terminal.raw


def test_a_chat_shows_only_text(place):
    """Answers as they come, a name, a list and a transcript."""
    (place / "script.json").write_text(json.dumps([f"one {EVIL}", f"two {EVIL}"]))
    terminal = Terminal(
        *(sys.executable, "-m", "orihon", "chat", "--plain", "--no-mcp", "--model", "scripted:script.json"),
        cwd=place, env=os.environ | {"LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    try:
        terminal.until("> ")
        for line in ("hello", "/transcript", "/chats", "/usage", "/nothing", "/tools"):
            terminal.type(f"{line}\r")
            terminal.until("> ")
        terminal.type("\x04")
        terminal.ended()
    finally:
        terminal.close()
    assert "one " in terminal.raw
    assert not BAD.search(OURS.sub("", terminal.raw)), ascii(terminal.raw)


@pytest.mark.slow
def test_there_is_one_way_to_the_terminal():
    """Commands print through `orihon.cli._output` only; the listed modules are exceptions."""
    allowed = {"cli/_output.py", "cli/export.py", "agent/tools/_grep.py",
               "agent/tools/approval.py", "chat/terminal/ui.py", "cli/view.py",
               "view/rates.py"}  # fmt: skip
    package = ROOT / "src" / "orihon"
    found = set()
    for path in set(package.rglob("*.py")) - set((package / "testing").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {
                *("print", "click.echo", "click.secho", "click.style", "click.prompt", "click.confirm"),
                *("sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer.write", "stream.write"),
            }:
                found.add(str(path.relative_to(package)))
    assert found <= allowed, found - allowed
