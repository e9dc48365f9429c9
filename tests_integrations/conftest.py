"""Tests of the adapters, with the frameworks themselves. `make test-integrations` runs them in their own environment.

They stand beside `tests/`, because the other tests run without these packages.
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import orihon
from orihon.settings.schema import Settings

ROOT = Path(__file__).parent.parent


@pytest.fixture(params=["files", "sqlite"])
def url(request, tmp_path):
    """A store on a disk."""
    return str(tmp_path / "contexts") if request.param == "files" else f"sqlite:///{tmp_path}/contexts.db"


@pytest.fixture
def engine(url):
    with orihon.open(url, settings=Settings()) as engine:
        yield engine


@pytest.fixture
def killed():
    """A function that runs a script until it prints `now`, and kills it with SIGKILL."""

    def run(script, *arguments):
        command = [sys.executable, "-c", script, *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        said = [line.strip() for line in iter(process.stdout.readline, "now\n") if line]
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        return said

    return run


def source(path, lines=100):
    """The text of a file in which no two lines are alike."""
    chance = random.Random(path)
    words = ["basket", "total", "price", "order", "customer", "ship", "tax", "round", "paid", "open", "stock", "item"]
    return "".join(f"def {'_'.join(chance.sample(words, 3))}(): {chance.sample(words, 4)}\n" for _ in range(lines))
