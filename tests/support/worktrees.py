"""Helpers for the tests of checkpoints: a workspace with checkpoints, and exact copies of directories in memory."""

import hashlib
import os
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

from orihon.chat.workspace_checkpoints import WorkspaceCheckpoints

IDENTITY = {f"GIT_{who}_{what}": "user@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(where, *arguments):
    """Run git as the user of the workspace would, without the settings of the current user."""
    kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(where)}
    command = ["git", *map(str, arguments)]
    done = subprocess.run(command, cwd=where, env=kept | alone | IDENTITY, capture_output=True, check=True, timeout=60)
    return done.stdout.decode().strip()


def put(path, content=b"", *, program=False):
    """Create a file and its parent directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o755 if program else 0o644)
    return path


def picture(root, *, without=(".git",)):
    """Return every file and link below a directory, with its type and its bytes or target."""
    found = {}
    for folder, directories, names in os.walk(root):
        directories[:] = [name for name in directories if name not in without]
        for name in [*names, *directories]:
            path = Path(folder, name)
            mode = path.lstat().st_mode
            key = str(path.relative_to(root))
            if stat.S_ISLNK(mode):
                found[key] = ("link", str(path.readlink()))
            elif stat.S_ISREG(mode) and name not in without:
                found[key] = ("program" if mode & 0o100 else "file", path.read_bytes())
    return found


def fingerprint(root):
    """Return the mode, time and hash of everything below a directory."""
    found = {}
    for folder, directories, names in os.walk(root):
        for name in [*directories, *names]:
            path = Path(folder, name)
            about = path.lstat()
            bytes_ = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
            found[str(path)] = (about.st_mode, about.st_mtime_ns, hashlib.sha256(bytes_).hexdigest())
    return found


def world(place, **options):
    """Return a workspace and its checkpoints."""
    workspace = place / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    return SimpleNamespace(
        files=workspace, checkpoints=WorkspaceCheckpoints(place / "repository", workspace, **options), place=place
    )
