"""The command in a process of its own, forked from a server that has its modules loaded, so that it starts at once."""

import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["orihon.cli.run", "orihon.cli.worker", "orihon.agent.models.scripted"])


def run_cli(arguments, directory, environ, seconds=60):
    """Run `orihon ARGUMENTS`. Return what `subprocess.run` would return for it, with text."""
    with tempfile.TemporaryDirectory() as place:
        paths = [str(Path(place, name)) for name in ("out", "err")]
        process = CONTEXT.Process(target=_run, args=(list(arguments), str(directory), dict(environ), *paths))
        process.start()
        process.join(seconds)
        if process.is_alive():
            process.kill()
            raise subprocess.TimeoutExpired(list(arguments), seconds)
        out, err = (Path(path).read_text(encoding="utf-8", errors="replace") for path in paths)
        return subprocess.CompletedProcess(list(arguments), process.exitcode, out, err)


def _run(arguments, directory, environ, out, err):
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environ)
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        os.dup2(os.open(path, flags | os.O_CREAT, 0o600), number)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), encoding="utf-8", write_through=True)
    from orihon.cli import main  # noqa: PLC0415 - loaded by the server already

    main(arguments)
