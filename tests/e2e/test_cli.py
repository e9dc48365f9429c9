"""The command as a person meets it: in a real process, with real exit codes."""

import json
import os
import re
import subprocess
import sys

import pytest

from orihon import errors
from orihon.cli import COMMANDS, cli, main
from orihon.codec import now
from orihon.stores import open_store
from support.past_runs import KEY, a_plan, a_run


def orihon(*arguments, cwd=None, env=None, **options):
    return subprocess.run(
        [sys.executable, "-m", "orihon", *arguments],
        cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False, **options,
    )  # fmt: skip


def test_help_lists_every_command():
    """`orihon --help` names each command with what it does, and loads none of them."""
    shown = orihon("--help")
    assert shown.returncode == 0
    for name, purpose in COMMANDS.items():
        assert name in shown.stdout
        assert purpose.split()[0] in shown.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    """`--help` of each command says more than its options."""
    shown = orihon(command, "--help")
    assert shown.returncode == 0
    assert len(shown.stdout.splitlines()) > 4


def test_a_wrong_command_is_a_sentence():
    """A typing error ends with code 2 and no traceback."""
    shown = orihon("cofnig")
    assert shown.returncode == 2
    assert "cofnig" in shown.stderr
    assert "orihon --help" in shown.stderr
    assert len(shown.stderr.splitlines()) == 2
    assert "Traceback" not in shown.stderr


def test_config_says_where_each_value_came_from(tmp_path):
    """Value and origin of each setting, the environment before the file, secrets hidden."""
    (tmp_path / "config.yaml").write_text(
        "context_storage:\n  max_memory_messages: 7\n  compression_threshold: 0.5\n"
        "llm:\n  openai:\n    api_key: ${MY_KEY}\n"
    )
    shown = orihon("config", "--json", cwd=tmp_path, env={"COMPRESSION_THRESHOLD": "0.6", "MY_KEY": "very-secret-1"})
    listed = {item["path"]: (item["value"], item["origin"]) for item in json.loads(shown.stdout)}
    assert listed["context_storage.max_memory_messages"] == (7, "config.yaml")
    assert listed["context_storage.compression_threshold"] == (0.6, "environment COMPRESSION_THRESHOLD")
    assert listed["lease.heartbeat_seconds"] == (30.0, "default")
    assert listed["llm.openai.api_key"] == ("[hidden]", "config.yaml")
    plain = orihon("config", "--changed", cwd=tmp_path, env={"MY_KEY": "very-secret-1"})
    assert len(plain.stdout.splitlines()) == 3
    assert "very-secret-1" not in shown.stdout + plain.stdout


def test_a_wrong_setting_is_two_lines(tmp_path):
    """Message and hint on standard error, exit code of the branch, no traceback."""
    (tmp_path / "config.yaml").write_text("context_storage:\n  max_memory_mesages: 7\n")
    shown = orihon("config", cwd=tmp_path)
    assert shown.returncode == errors.UsageError.exit_code
    assert shown.stdout == ""
    assert "did you mean `max_memory_messages`?" in shown.stderr
    assert len(shown.stderr.splitlines()) == 2


def test_debug_shows_the_traceback(tmp_path):
    """With `--debug` a developer sees where it happened."""
    (tmp_path / "config.yaml").write_text("nonsense: 1\n")
    shown = orihon("--debug", "config", cwd=tmp_path)
    assert "Traceback" in shown.stderr
    assert "SettingsError" in shown.stderr


@pytest.mark.parametrize(
    ("raised", "code"),
    [(errors.LeaseHeld(), 3), (errors.BudgetTooSmall(), 4), (errors.ModelError(), 5), (KeyboardInterrupt(), 130),
     (RuntimeError("odd"), 70)],
    ids=["store", "context", "run", "interrupt", "bug"],
)  # fmt: skip
def test_exit_codes(raised, code, monkeypatch, capsys):
    """Each branch of the error tree has its own exit code, and its hint is printed."""

    def fail(*_, **__):
        raise raised

    monkeypatch.setattr(cli, "main", fail)
    with pytest.raises(SystemExit) as left:
        main([])
    assert left.value.code == code
    printed = capsys.readouterr().err
    assert printed.startswith("orihon: ")
    if isinstance(raised, errors.OrihonError):
        assert raised.message in printed
        assert raised.hint in printed


def test_a_reader_that_stops_is_not_an_error():
    """`orihon config | head -1` ends in silence."""
    shown = subprocess.run(
        f"{sys.executable} -m orihon config | head -1", shell=True, capture_output=True, text=True, check=False
    )
    assert shown.stderr == ""
    assert len(shown.stdout.splitlines()) == 1


def past(url):
    with open_store(url) as store:
        old = a_run(store, summary="An old one.", at="2001-01-01T00:00:00.000000Z")
        failed = a_run(store, "failed", at=now())
        used = a_run(store, summary="合計を直しました。担当は alice です。", at=now(), records=a_plan())
    return old, failed, used


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_inherit_shows_what_a_new_task_would_get(tmp_path, kind):
    """Source, date, tokens, the block, and the runs that were skipped with the reason; nothing is changed."""
    url = str(tmp_path / "s") if kind == "jsonl" else f"sqlite:///{tmp_path}/s.db"
    old, failed, used = past(url)
    shown = orihon("inherit", KEY, "--user", "alice", "--store", url, "--dry-run", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    first, second, *_ = shown.stdout.splitlines()
    assert first.startswith(f"A new task with {KEY} would inherit from {used}, which ended 20")
    assert re.fullmatch(r"\d+ of 8,000 tokens:", second)
    assert "前回の処理要約: #" in shown.stdout
    assert "alice" not in shown.stdout
    skipped = shown.stdout.split("\nSkipped:\n")[1]
    assert re.search(rf"{failed[:8]}  failed     .*It failed", skipped)
    assert re.search(
        rf"{old[:8]}  completed  2001-01-01T00:00  It ended [\d,]+ days ago; 90 days are allowed.", skipped
    )
    small = orihon("inherit", KEY, "--user", "alice", "--store", url, "--context-length", "2000", cwd=tmp_path)
    assert re.search(r"of 200 tokens, without detail of the plan, history of the tools", small.stdout)


def test_inherit_for_programs(tmp_path):
    """One object, also when there is nothing."""
    url = str(tmp_path / "s")
    _, _, used = past(url)
    said = json.loads(orihon("inherit", KEY, "--user", "alice", "--store", url, "--json", cwd=tmp_path).stdout)
    assert (said["source"], said["max_tokens"], len(said["skipped"])) == (used, 8000, 2)
    assert said["block"].startswith("前回の処理要約:")
    said = json.loads(orihon("inherit", "github/acme/shop/issue/99", "--store", url, "--json", cwd=tmp_path).stdout)
    assert (said["source"], said["block"], said["skipped"]) == (None, None, [])


@pytest.mark.slow
def test_inherit_says_plainly_why_there_is_nothing(tmp_path):
    """No run, no usable run, switched off, no room, somebody else's: a sentence each, and exit code 0."""
    url = str(tmp_path / "s")
    with open_store(url) as store:
        a_run(store, "paused", at=now())
        a_run(store, key="local/issue/notes", user="bob", at=now())
        a_run(store, key="github/acme/shop/issue/5", at=now())

    def said(key, *more):
        shown = orihon("inherit", key, "--store", url, *more, cwd=tmp_path)
        assert shown.returncode == 0
        return shown.stdout

    assert "would inherit nothing: it has no earlier run." in said("github/acme/shop/issue/7")
    assert "would inherit nothing: none of its earlier runs can be used." in said(KEY)
    assert "It is paused; it can be resumed." in said(KEY)
    assert "It is another user's local task." in said("local/issue/notes", "--user", "alice")
    assert "would inherit from" in said("local/issue/notes", "--user", "bob")
    assert "fits into the tokens that are allowed." in said(
        "github/acme/shop/issue/5", "--user", "alice", "--context-length", "10"
    )
    (tmp_path / "config.yaml").write_text("context_inheritance:\n  enabled: false\n")
    assert "would inherit nothing: context_inheritance.enabled is off." in said("github/acme/shop/issue/5")


def test_inherit_refuses_what_makes_no_sense(tmp_path):
    """A wrong key (code 2) and a store that is not there (code 3) are a sentence, and no store is made."""
    shown = orihon("inherit", "nonsense", "--store", str(tmp_path), cwd=tmp_path)
    assert (shown.returncode, len(shown.stderr.splitlines())) == (2, 2)
    shown = orihon("inherit", KEY, "--store", str(tmp_path / "none"), cwd=tmp_path)
    assert shown.returncode == 3
    assert not (tmp_path / "none").exists()
