"""Directories that a program of the specification wrote: document 000 with `state.json`, document 002 with `tasks.db`."""

# ruff: noqa: E501 - lines of the documents

import json
import shutil
import sqlite3

import pytest

import orihon
from orihon.access import Principal
from orihon.ops.access import AuthorizedStore
from orihon.ops.doctor import examine
from orihon.ops.import_task import import_file
from orihon.settings.schema import Settings
from support.replies import KEY

RUNNING, DONE = "550e8400-e29b-41d4-a716-446655440000", "650e8400-e29b-41d4-a716-446655440001"
METADATA = {
    "task_key": {"task_source": "github", "owner": "notfolder", "repo": "coding_agent", "task_type": "issue", "task_id": "27"},
    "created_at": "2024-01-15T10:30:00.123456Z",
    "process_id": 12345,
    "hostname": "worker-node-1",
    "config": {"llm_provider": "openai", "model": "gpt-4o", "context_length": 128000, "compression_threshold": 0.7},
    "user": "notfolder",
}  # fmt: skip
STATE = {
    "started_at": "2024-01-15T10:30:01.000000Z",
    "updated_at": "2024-01-15T10:35:22.456789Z",
    "llm_call_count": 45,
    "tool_call_count": 12,
    "total_tokens_used": 45678,
    "current_context_tokens": 32000,
    "compression_count": 2,
    "last_activity": "tool_execution",
    "error": None,
}
MESSAGES = r"""
{"seq":1,"role":"system","content":"You are an AI coding assistant...","timestamp":"2024-01-15T10:30:01.123Z","token_count":250}
{"seq":2,"role":"user","content":"Fix the bug in...","timestamp":"2024-01-15T10:30:02.456Z","token_count":120,"is_summarized":true}
{"seq":3,"role":"assistant","content":"I'll help you fix...","timestamp":"2024-01-15T10:30:15.789Z","token_count":450,"function_call":{"name":"github_get_file_contents","arguments":"{\"path\":\"main.py\"}"}}
{"seq":4,"role":"tool","content":"{\"output\":\"...\"}","timestamp":"2024-01-15T10:30:20.123Z","token_count":1200,"tool_name":"github_get_file_contents"}
"""
SUMMARY = """
{"summary_id":1,"start_seq":2,"end_seq":2,"summary":"Fixed authentication bug by updating...","created_at":"2024-01-15T10:32:00.000Z","original_tokens":12000,"summary_tokens":800,"compression_ratio":0.067}
"""
TOOLS = """
{"seq":1,"tool_name":"github_get_file_contents","arguments":{"path":"main.py"},"result":"...file content...","status":"success","duration_ms":234,"timestamp":"2024-01-15T10:30:20.123Z"}
"""
TASKS = """
CREATE TABLE tasks (
    uuid TEXT PRIMARY KEY, task_source TEXT NOT NULL, owner TEXT NOT NULL, repo TEXT NOT NULL, task_type TEXT NOT NULL,
    task_id TEXT NOT NULL, status TEXT NOT NULL, created_at TEXT NOT NULL, started_at TEXT, completed_at TEXT,
    process_id INTEGER, hostname TEXT, llm_provider TEXT, model TEXT, context_length INTEGER,
    llm_call_count INTEGER DEFAULT 0, tool_call_count INTEGER DEFAULT 0, total_tokens INTEGER DEFAULT 0,
    compression_count INTEGER DEFAULT 0, error_message TEXT, user TEXT
);
CREATE INDEX idx_tasks_status ON tasks(status);
"""
INSERT = """
INSERT INTO tasks (uuid, task_source, owner, repo, task_type, task_id, status, created_at, started_at, completed_at,
    llm_call_count, user)
VALUES (?, 'github', 'notfolder', 'coding_agent', 'issue', '27', ?, ?, ?, ?, 45, 'notfolder')
"""


def write_task(base, place, uuid, status, completed_at=None, *, state=True):
    directory = base / place / uuid
    directory.mkdir(parents=True)
    (directory / "metadata.json").write_text(json.dumps({"uuid": uuid} | METADATA))
    if state:
        (directory / "state.json").write_text(json.dumps({"status": status, "completed_at": completed_at} | STATE))
        (directory / ".lock").write_text('{"process_id": 12345, "hostname": "worker-node-1"}')
    for name, text in (("messages", MESSAGES), ("summaries", SUMMARY), ("tools", TOOLS)):
        (directory / f"{name}.jsonl").write_text(text.lstrip())


def write_000(base):
    write_task(base, "running", RUNNING, "processing")
    write_task(base, "completed", DONE, "completed", orihon.codec.now())


def write_002(base):
    write_task(base, "running", RUNNING, "running", state=False)
    write_task(base, "completed", DONE, "completed", state=False)
    created, now = METADATA["created_at"], orihon.codec.now()
    with sqlite3.connect(base / "tasks.db") as database:
        database.executescript(TASKS)
        database.execute(INSERT, (RUNNING, "running", created, created, None))
        database.execute(INSERT, (DONE, "completed", created, created, now))


@pytest.fixture(params=[write_000, write_002], ids=["000", "002"])
def base(request, tmp_path):
    base = tmp_path / "logs" / "contexts"
    request.param(base)
    return base


def test_the_tasks_are_listed_and_read(base, caplog):
    with orihon.open(base) as engine:
        rows = {row.uuid: row for row in engine.tasks()}
        assert {uuid: row.status for uuid, row in rows.items()} == {RUNNING: "running", DONE: "completed"}
        assert rows[RUNNING].task_key == rows[DONE].task_key == "github/notfolder/coding_agent/issue/27"
        assert rows[DONE].llm_call_count == 45
        reader = engine.read(DONE)
        assert [message.tokens for message in reader.messages()] == [250, 120, 450, 1200]
        assert [call.tool for call in reader.tools()] == ["github_get_file_contents"]
    assert "state.json" not in caplog.text


def test_a_task_is_resumed_with_its_summary(base):
    with orihon.open(base) as engine, engine.resume(RUNNING) as task:
        window = task.window().openai()
        assert "Fixed authentication bug by updating..." in str(window)
        assert "interrupted" not in str(window)  # the call has its result, though no id names it
        assert task.add("user", "Go on.") == 5


def test_the_next_run_inherits_the_last_summary(base):
    with orihon.open(base) as engine:
        handoff = engine.inheritance("github/notfolder/coding_agent/issue/27", user="notfolder")
        assert handoff.uuid == DONE
        assert "Fixed authentication bug by updating..." in handoff.text


def test_the_doctor_says_who_wrote_them(base):
    findings = [finding for finding in examine(str(base)) if "version 2.0 or 3.0" in finding.sentence]
    assert len(findings) == 2
    assert {finding.level for finding in findings} == {"note"}


def test_a_whole_directory_is_imported_and_stays_as_it_is(base, tmp_path):
    before = sorted((path.relative_to(base), path.stat().st_mtime_ns) for path in base.rglob("*") if path.is_file())
    with orihon.open(f"sqlite:///{tmp_path}/new.db") as engine:
        engine.start(KEY).close()
        authorized = AuthorizedStore(engine.store, Principal("root", admin=True), command="import")
        imported = {task.uuid: task for task in import_file(authorized, Settings(), base)}
        assert imported[RUNNING].status == "paused"
        assert imported[DONE].status == "completed"
        assert engine.row(DONE).user == "notfolder"
        assert engine.inheritance("github/notfolder/coding_agent/issue/27", user="notfolder").uuid == DONE
        with engine.resume(RUNNING) as task:
            assert "Fixed authentication bug" in str(task.window().openai())
        again = {task.uuid for task in import_file(authorized, Settings(), base)}
        assert again == {DONE}  # the other one went on here, and is left as it is
    after = sorted((path.relative_to(base), path.stat().st_mtime_ns) for path in base.rglob("*") if path.is_file())
    assert before == after


def test_a_directory_without_tasks_is_refused(tmp_path):
    with orihon.open("memory:") as engine, pytest.raises(orihon.OrihonError, match="a directory without tasks"):
        import_file(
            AuthorizedStore(engine.store, Principal("root", admin=True), command="import"), Settings(), tmp_path
        )


def test_secrets_of_an_older_program_are_masked(base, tmp_path):
    for path in base.glob("*/*/messages.jsonl"):
        path.write_text(path.read_text().replace("Fix the bug", "Use ghp_" + "a1B2c3D4e5" * 4 + " to fix"))
    with orihon.open(tmp_path / "new") as engine:
        import_file(AuthorizedStore(engine.store, Principal("root", admin=True), command="import"), Settings(), base)
    texts = [path.read_text() for path in (tmp_path / "new").rglob("messages.jsonl")]
    assert len(texts) == 2
    assert not any("a1B2c3D4e5" in text for text in texts)


@pytest.mark.parametrize("word", ["initializing", "processing", "compressing", "completing", "timeout", "failed"])
def test_every_status_of_the_document_is_read(word, tmp_path):
    place = "completed" if word in {"timeout", "failed"} else "running"
    write_task(tmp_path / "contexts", place, RUNNING, word)
    with orihon.open(tmp_path / "contexts") as engine:
        row = engine.row(RUNNING)
        assert row.status == ("failed" if place == "completed" else "running")
        assert row.reason == ("timeout" if word == "timeout" else None)
    shutil.rmtree(tmp_path / "contexts")
