"""The two command names of the seeds do what the commands do, with the seeds' flags."""

import os
import subprocess
import sys

import pytest

from support.cli_store import IDS, fill, url_of

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
