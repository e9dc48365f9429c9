"""What the tests of checkpoints share: a workspace with a shadow, and exact pictures of directories."""

import hashlib
import os
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

from orihon.chat.shadow import Shadow

IDENTITY = {f"GIT_{who}_{what}": "user@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(where, *arguments):
    """The user's own git, without the settings of whoever runs the tests."""
    kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(where)}
    command = ["git", *map(str, arguments)]
    done = subprocess.run(command, cwd=where, env=kept | alone | IDENTITY, capture_output=True, check=True, timeout=60)
    return done.stdout.decode().strip()


def put(path, content=b"", *, program=False):
    """Make a file with the directories that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o755 if program else 0o644)
    return path


def picture(root, *, without=(".git",)):
    """Every file and link below a directory: its bytes, and whether it can be run, or where it leads."""
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
    """Every byte, name and mode below a directory."""
    found = {}
    for folder, directories, names in os.walk(root):
        for name in [*directories, *names]:
            path = Path(folder, name)
            about = path.lstat()
            bytes_ = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
            found[str(path)] = (about.st_mode, about.st_mtime_ns, hashlib.sha256(bytes_).hexdigest())
    return found


def world(place, **options):
    """A workspace and its shadow, side by side in a directory."""
    workspace = place / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    return SimpleNamespace(files=workspace, shadow=Shadow(place / "shadow", workspace, **options), place=place)
