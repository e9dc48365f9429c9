"""000 §9.3: the log of a run in a file, with the beginning of the task's id in each line."""

import json
import os
import re
import stat

import pytest

from support.cli_process import run_cli

ENVIRON = {name: value for name, value in os.environ.items() if not name.endswith(("_TOKEN", "_API_KEY"))}
SETTINGS = """\
log_file: orihon.log
context_storage:
  summariser: extractive
  compression_threshold: 0.05
  keep_recent_messages: 1
  min_messages_to_summarize: 2
window:
  policy: plain
"""
# the lines of the document, with other tools and numbers
LINES = [
    r"Task started: local#count-the-lines-[0-9a-f]+",
    r"LLM call #1: \d+ tokens",
    r"Tool execution: shell",
    r"Context compression triggered",
    r"Compression completed: \d+ -> \d+ tokens",
    r"Task completed successfully",
]


def call(command):
    return {"say": "I look.", "call": [{"name": "shell", "arguments": {"command": command}}]}


@pytest.fixture
def desk(tmp_path):
    replies = [call("seq 1 3000"), call("seq 3000 6000"), call("echo DB_PASSWORD=k3y9f7q2w8e1"), "6000 lines."]
    (tmp_path / "script.json").write_text(json.dumps(replies))
    return tmp_path


RUN = ("run", "Count the lines", "--no-plan", "--approve", "all", "--model", "scripted:script.json")


def test_a_run_writes_the_lines_of_the_document(desk):
    """Without `--debug`, nothing of it on standard error, and nothing secret."""
    (desk / "config.yaml").write_text(SETTINGS)
    shown = run_cli([*RUN, "--context-length", "30000"], desk, ENVIRON)
    assert shown.returncode == 0, shown.stderr
    assert "INFO" not in shown.stderr
    log = desk / "orihon.log"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    lines = log.read_text().splitlines()
    [task] = {re.search(r"\[uuid:([0-9a-f]{8})\]", line)[1] for line in lines if "[uuid:" in line}
    head = rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d INFO \[uuid:{task}\] "
    at = 0
    for wanted in LINES:
        found = [number for number, line in enumerate(lines[at:], at) if re.fullmatch(head + wanted, line)]
        assert found, f"{wanted} is not in\n" + "\n".join(lines[at:])
        at = found[0] + 1
    assert "k3y9f7q2w8e1" not in log.read_text()


def test_a_second_run_appends(desk):
    """`ORIHON_LOG_FILE` names the file too, and warnings still go to standard error."""
    environ = ENVIRON | {"ORIHON_LOG_FILE": "orihon.log"}
    for _ in range(2):
        assert run_cli(RUN, desk, environ).returncode == 0
    assert (desk / "orihon.log").read_text().count("Task completed successfully") == 2
    (desk / "logs/contexts").chmod(0o755)
    assert "Other users have access" in run_cli(["ls"], desk, environ).stderr


def test_a_file_that_cannot_be_written(desk):
    """A sentence that names the setting."""
    shown = run_cli(["ls"], desk, ENVIRON | {"ORIHON_LOG_FILE": "missing/orihon.log"})
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "The log cannot be written to missing/orihon.log: No such file or directory." in shown.stderr
