"""The two command names of the seeds do what the commands do, with the seeds' flags."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli_store import IDS, fill, url_of

BIN = Path(sys.executable).parent
FLAGS = {
    "context_viewer": [["--messages"], ["--summaries"], ["--tools"], []],
    "context_stats": [
        ["--summary"], ["--user", "alice"], ["--from", "2024-01-01", "--to", "2024-01-31"], ["--status", "failed"],
    ],
}  # fmt: skip
COMMANDS = {"context_viewer": ["show", IDS["done"]], "context_stats": ["stats"]}
NAMED = {"context_viewer": ["--uuid", IDS["done"]], "context_stats": []}


def ran(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "ORIHON_STORE": str(cwd / "contexts")},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FLAGS)
def test_an_alias_prints_the_same(name, tmp_path):
    """Each of the seeds' calls ends well and prints what the command prints."""
    fill(url_of("jsonl", tmp_path))
    for flags in FLAGS[name]:
        alias = ran(f"orihon.tools.{name}", *NAMED[name], *flags, cwd=tmp_path)
        assert (alias.returncode, alias.stderr) == (0, "")
        assert alias.stdout == ran("orihon", *COMMANDS[name], *flags, cwd=tmp_path).stdout


def test_without_a_uuid_it_says_so(tmp_path):
    """A sentence, and code 2."""
    shown = ran("orihon.tools.context_viewer", cwd=tmp_path)
    assert (shown.returncode, len(shown.stderr.splitlines())) == (2, 2)


# 000 §9.1, as printed

UUID = "550e8400-e29b-41d4-a716-446655440000"
KEY = {
    "task_source": "github", "owner": "notfolder", "repo": "coding_agent", "task_type": "issue", "task_id": "27",
}  # fmt: skip
STATE = {
    "status": "completed",
    "started_at": "2024-01-15T10:30:00.000000Z",
    "updated_at": "2024-01-15T10:45:23.000000Z",
    "completed_at": "2024-01-15T10:45:23.000000Z",
    "llm_call_count": 45,
    "tool_call_count": 12,
    "total_tokens_used": 45678,
    "current_context_tokens": 32000,
    "compression_count": 2,
    "last_activity": "llm_reply",
    "error": None,
}
LAST = [("user", "Commit the changes"), ("tool", "Success"), ("assistant", '{"done": true, "comment": "Completed"}')]
SUMMARIES = [(10, 50, "Fixed authentication bug in login.py."), (51, 90, "Implemented new feature for exports.")]
SHOWN = """\
Task UUID: 550e8400-e29b-41d4-a716-446655440000
Status: completed
Repository: github/notfolder/coding_agent
Task: issue #27
Started: 2024-01-15 10:30:00
Completed: 2024-01-15 10:45:23
Duration: 15分23秒

Statistics:
  LLM calls: 45
  Tool calls: 12
  Total tokens: 45,678
  Compressions: 2

Messages: 150 (showing last 10)
"""
SHOWN_LAST = """\
  [148] user: Commit the changes
  [149] tool: github_create_commit -> Success
  [150] assistant: {"done": true, "comment": "Completed"}

Summaries: 2
  [1] seq 10-50: Fixed authentication bug in login.py.
  [2] seq 51-90: Implemented new feature for exports.
"""


@pytest.fixture
def printed(tmp_path):
    """The task of the document, as its program stored it, and the shim of docs/operations.md."""
    place = tmp_path / "contexts/completed" / UUID
    place.mkdir(parents=True)
    time = "2024-01-15T10:31:00.000Z"
    config = {"llm_provider": "openai", "model": "gpt-4o", "context_length": 128000, "compression_threshold": 0.7}
    metadata = {"uuid": UUID, "task_key": KEY, "created_at": time, "config": config, "user": "notfolder"}
    said = [("user" if number % 2 else "assistant", f"Step {number}") for number in range(1, 148)] + LAST
    named = {"tool": {"tool_name": "github_create_commit"}}
    messages = [
        {"seq": seq, "role": role, "content": text, "timestamp": time, "token_count": 9} | named.get(role, {})
        for seq, (role, text) in enumerate(said, 1)
    ]
    summaries = [
        {"summary_id": number, "start_seq": first, "end_seq": last, "summary": text, "created_at": time,
         "original_tokens": 12000, "summary_tokens": 800, "compression_ratio": 0.067}
        for number, (first, last, text) in enumerate(SUMMARIES, 1)
    ]  # fmt: skip
    (place / "metadata.json").write_text(json.dumps(metadata))
    (place / "state.json").write_text(json.dumps(STATE))
    for name, records in (("messages", messages), ("summaries", summaries), ("tools", [])):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    page = (Path(__file__).parents[2] / "docs/operations.md").read_text()
    [shim] = re.findall(r"```sh\n(mkdir -p tools\n.*?)```", page, re.DOTALL)
    subprocess.run(["/bin/sh", "-ec", shim], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("command", [[sys.executable, "-m", "tools.context_viewer"], [f"{BIN}/context_viewer"]])
def test_the_viewer_prints_what_the_document_prints(printed, command):
    """`python -m tools.context_viewer --uuid {uuid}`, in a Japanese locale."""
    environ = os.environ | {"ORIHON_STORE": str(printed / "contexts"), "LC_ALL": "ja_JP.UTF-8", "TZ": "UTC"}
    shown = subprocess.run(
        [*command, "--uuid", UUID], cwd=printed, env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith(SHOWN)
    assert shown.stdout.endswith(SHOWN_LAST)


@pytest.mark.parametrize("command", [[sys.executable, "-m", "tools.context_stats"], [f"{BIN}/context_stats"]])
def test_the_statistics_print_what_the_document_prints(printed, command):
    """`python -m tools.context_stats --summary`, 000 §9.2."""
    environ = os.environ | {"ORIHON_STORE": str(printed / "contexts"), "LC_ALL": "ja_JP.UTF-8", "TZ": "UTC"}
    shown = subprocess.run(
        [*command, "--summary"], cwd=printed, env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert shown.returncode == 0, shown.stderr
    head = "Context Storage Statistics\n==========================\n\nTotal contexts: 1\n"
    assert shown.stdout.startswith(head)
    for line in (
        "  - Tokens: 45,678",
        "  - Duration: 15分23秒",
        "  - Compressions: 2.0",
        "  - notfolder: 1 task (100%)",
    ):
        assert line in shown.stdout
