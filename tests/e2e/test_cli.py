"""The command as a person meets it: in a real process, with real exit codes."""

import json
import os
import subprocess
import sys

import pytest

from orihon import errors
from orihon.cli import COMMANDS, cli, main


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
