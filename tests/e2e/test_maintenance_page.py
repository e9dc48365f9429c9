"""Every command of docs/maintenance.md is run, in order, and prints what the page says."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orihon.engine import Engine
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.task_key import TaskKey
from orihon.testing.samples import a_message
from support.past_runs import a_run

PAGE = Path(__file__).parent.parent.parent / "docs" / "maintenance.md"
ANYTHING = "…"


def steps():
    """Each command of the page with what it should print."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            found.append((command, output))
    return found


def ago(days):
    return (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@pytest.fixture
def place(tmp_path):
    """A store as it may look one morning."""
    with open_store(tmp_path / "logs" / "contexts") as store:
        for uuid, days, status in (
            ("3f2504e0-4f89-41d3-9a0c-0305e82c3301", 100, "completed"),
            ("550e8400-e29b-41d4-a716-446655440000", 40, "completed"),
            ("7c9e6679-7425-40de-944b-e07fc1f90ae7", 10, "completed"),
            ("1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", 2, "failed"),
            ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", 1, "running"),
        ):
            a_run(
                store, status, uuid=uuid, at=ago(days), started_at=ago(days + 0.01), key="github/acme/shop/issue/27",
                records=[a_message("The total of an empty basket is None. " * 40) for _ in range(30)],
            )  # fmt: skip
        task = Engine(store, Settings()).start(
            TaskKey.github("acme", "shop", issue=8), uuid="9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
        )
        for turn in range(12):
            task.add("user", f"Why does test_{turn} fail? " + "It fails. " * 60)
            task.add("assistant", f"basket_{turn}.py returns None. " + "Because of that. " * 60)
        task.pause()
    return tmp_path


@pytest.mark.slow
def test_the_page(place):
    """In one shell after the other, as a person would type it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    assert len(steps()) > 10
    for command, expected in steps():
        ran = subprocess.run(
            ["bash", "-c", command], cwd=place, env=os.environ | {"PATH": path, "LC_ALL": "C.UTF-8"},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        pattern = ".*".join(re.escape(part) for part in expected.split(ANYTHING))
        shown = ran.stdout + ran.stderr
        assert re.fullmatch(pattern, shown, re.DOTALL), f"$ {command}\n{shown}"


def test_the_page_names_every_option():
    """What a command can do stands on the page."""
    text = PAGE.read_text(encoding="utf-8")
    for option in ("--dry-run", "--older-than", "--emergency", "--once", "--metrics", "--generation", "--focus"):
        assert option in text
