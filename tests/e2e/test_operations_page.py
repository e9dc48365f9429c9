"""Every command of docs/operations.md is run on a real store, and prints what the page says.

A block begins with ```console; each `$ ` line in it is run by bash, and what follows is its output. Ids, times, sizes
and the like are compared by their kind. Each section of the page has a store of its own, so that one can be added
without a look at the others. `make golden` writes the outputs anew.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.operations_store import a_store

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)

KINDS = [
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
    (r"\b(?=[0-9a-f]*\d)[0-9a-f]{8}\b", "SHORT"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?([.,]\d+)?Z?", "TIME"),
    (r"\b\d{4}-\d\d-\d\d\b", "DAY"),
    (r"\b\d+[dhms]( \d+[hms])?\b", "DURATION"),
    (r"\d+(日|時間|分|秒)(\d+(時間|分|秒))?", "DURATION"),
    (r"\b[\d,.]+ (bytes|kB|MB|GB)\b", "SIZE"),
    (r"^[\d.]+[KMG]?\t", "SIZE\t"),
    (r"\b[\d,]+ ms\b", "MS"),
    (r"\b\d+\.\d+(e-\d+)?\b", "FRACTION"),
    (r"[ \t]+", " "),
]

# for machines that have neither; they do what the page needs of them
STAND_INS = {
    "jq": "import json, sys\n"
    "for line in sys.stdin:\n    print(json.dumps(json.loads(line), indent=2, ensure_ascii=False))\n",
    "sqlite3": "import sqlite3, sys\n"
    "for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]):\n"
    "    print('|'.join('' if cell is None else str(cell) for cell in row))\n",
}


def sections():
    """The parts of the page under a heading each."""
    parts = re.split(r"^(?=## )", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {part.splitlines()[0].lstrip("# "): part for part in parts if "```console" in part}


def steps(block):
    """Commands and what they print."""
    found = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append([line[2:].rstrip("\n"), ""])
        else:
            found[-1][1] += line
    return found


def kinds(text):
    for pattern, kind in KINDS:
        text = re.sub(pattern, kind, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines())


@pytest.fixture
def shell(tmp_path):
    """Run a command where the store is, as somebody does who has Orihon installed."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in STAND_INS.items():
        if not any((Path(place) / name).exists() for place in os.environ["PATH"].split(os.pathsep)):
            (programs / name).write_text(f"#!{sys.executable}\n{text}")
            (programs / name).chmod(0o755)
    kept = {name: os.environ[name] for name in ("HOME",) if name in os.environ}
    path = os.pathsep.join((str(Path(sys.executable).parent), str(programs), os.environ["PATH"]))
    env = kept | {"PATH": path, "TZ": "UTC", "LC_ALL": "C.UTF-8", "COLUMNS": "100"}

    def run(command):
        done = subprocess.run(
            ["bash", "-c", f"{command} 2>&1"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
            timeout=60, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return done.stdout

    with a_store(tmp_path):
        yield run


@pytest.mark.slow
@pytest.mark.parametrize("section", sections())
def test_the_page_says_what_is_printed(section, shell):
    """Each command in turn."""
    text = new = sections()[section]
    for block in BLOCK.findall(text):
        shown = [(command, said, shell(command)) for command, said in steps(block)]
        new = new.replace(block, "".join(f"$ {command}\n{printed}" for command, _, printed in shown))
        if not os.environ.get("ORIHON_GOLDEN"):
            for command, said, printed in shown:
                assert kinds(printed) == kinds(said), command
    if os.environ.get("ORIHON_GOLDEN"):
        PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(text, new), encoding="utf-8")


def test_the_comparison_can_fail():
    """A word, a number or a line that differs is seen; an id or a time that differs is not."""
    assert kinds("Task 550e8400 took 15m 23s") == kinds("Task 7c9e6679 took 2s")
    assert kinds("Messages: 13") != kinds("Messages: 12")
    assert kinds("a\nb") != kinds("a")


def test_every_command_of_the_seeds_is_there():
    """000 §9 and 002 §8 and §10, each as it is printed there but for the place of the module and the braces."""
    page = PAGE.read_text(encoding="utf-8")
    for command in (
        "python -m orihon.tools.context_viewer --uuid 550e8400-e29b-41d4-a716-446655440000",
        "--messages", "--summaries", "--tools",
        "python -m orihon.tools.context_stats --summary",
        "context_stats --user notfolder", "context_stats --from 2024-01-01 --to 2024-01-31",
        "context_stats --status failed",
        "grep '\"role\":\"assistant\"' logs/contexts/completed/550e8400-e29b-41d4-a716-446655440000/messages.jsonl",
        "SELECT uuid, task_source, owner, repo, task_type, task_id, started_at FROM tasks WHERE status = 'running'",
        "SELECT user, status, COUNT(*) as count FROM tasks GROUP BY user, status",
        "SELECT uuid, error_message, created_at FROM tasks WHERE status = 'failed' ORDER BY created_at DESC LIMIT 10",
        "SELECT status, COUNT(*) FROM tasks GROUP BY status",
        "SELECT AVG(julianday(completed_at) - julianday(started_at)) * 24 * 60 as avg_minutes",
        "SELECT SUM(total_tokens) as total, AVG(total_tokens) as average FROM tasks WHERE status = 'completed'",
    ):  # fmt: skip
        assert command in page, command
