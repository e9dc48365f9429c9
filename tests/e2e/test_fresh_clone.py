"""A stranger clones the repository and types the README's commands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def copy_of_the_repository(root: Path, target: Path) -> Path:
    """What a clone would hold: the tracked files and the new ones that are not ignored, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (root / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)
    return target


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_make_demo_sets_up_by_itself(root, tmp_path, installer):
    """The demo runs in a fresh copy with uv and with plain venv and pip, and a second run sets nothing up."""
    clone = copy_of_the_repository(root, tmp_path / "clone")
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) if installer == "uv" else ""
    environment = {
        key: value for key, value in os.environ.items() if key not in {"VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS"}
    }
    command = ["make", "demo", f"UV={uv}"]
    first = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stdout + first.stderr
    assert f"with {'uv' if uv else 'venv and pip'}" in first.stdout
    second = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "Setting up" not in second.stdout
