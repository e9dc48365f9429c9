"""The Dockerfile keeps its rules, and what it runs and shows works without a daemon.

The steps that need a container (apt-get, useradd) are only read. The steps with pip are run in a virtual environment
that has nothing else, and the commands of the image in a directory like `/data`.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import orihon
from support.pages import ROOT, check_orihon, commands

FILE = ROOT / "Dockerfile"


def instructions():
    """The instructions of the file, as pairs of a word and its arguments."""
    text = "\n".join(line for line in FILE.read_text().splitlines() if not line.startswith("#"))
    lines = filter(None, text.replace("\\\n", " ").splitlines())
    return [tuple(line.split(maxsplit=1)) for line in lines]


def arguments(word):
    return [text for name, text in instructions() if name == word]


def last_stage():
    found = instructions()
    start = max(index for index, (name, _) in enumerate(found) if name == "FROM")
    return found[start:]


def test_it_keeps_the_rules():
    """No root, no newest version, no remote files, no cache of packages, and commands as lists."""
    stage = last_stage()
    names = [name for name, _ in stage]
    assert dict(stage)["USER"] not in {"root", "0"}
    assert names.index("USER") > max(index for index, name in enumerate(names) if name in {"RUN", "COPY"})
    assert dict(stage)["VOLUME"] == dict(stage)["WORKDIR"] == "/data"
    assert all(re.fullmatch(r"[\w./-]+:[\d.]+[\w.-]*( AS \w+)?", text) for text in arguments("FROM"))
    assert "ADD" not in names
    assert isinstance(json.loads(dict(stage)["ENTRYPOINT"]), list)
    for step in arguments("RUN"):
        assert subprocess.run(["bash", "-n", "-c", step], check=False).returncode == 0
        assert "pip" not in step or "--no-cache-dir" in step
        assert "apt-get install" not in step or ("--no-install-recommends" in step and "rm -rf /var/lib/apt" in step)


def test_what_it_copies_is_there():
    """Every file exists and is not kept out by .dockerignore."""
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for text in arguments("COPY"):
        if not text.startswith("--from"):
            for name in shlex.split(text)[:-1]:
                path = Path(name)
                assert (ROOT / path).exists(), name
                assert {path.parts[0], str(path)} & allowed, name


def test_its_commands_exist():
    """The command of the image, and those in the comment at its head, take their arguments."""
    stage = dict(last_stage())
    assert json.loads(stage["ENTRYPOINT"]) == ["orihon"]
    check_orihon(json.loads(stage["CMD"]))
    shown = re.findall(r"^#   (docker run .*)$", FILE.read_text(), re.MULTILINE)
    assert len(shown) >= 2
    for line in shown:
        (words,) = commands(line)
        check_orihon(words[words.index("orihon") + 1 :])


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """A virtual environment in which the steps with pip were run."""
    place = tmp_path_factory.mktemp("image")
    wheels, bin_path = place / "wheels", place / "venv" / "bin"
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    env = os.environ | {"PATH": f"{bin_path}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    env.pop("PYTHONPATH", None)
    steps = [step for step in arguments("RUN") if "pip" in step]
    assert len(steps) == 3
    for step in steps:
        command = re.sub("/tmp/all.txt", str(ROOT / "locks" / "all.txt"), step)  # noqa: S108 - a path in the image
        command = re.sub("(/tmp)?/wheels", str(wheels), command)
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return env | {"ORIHON_STORE": str(place / "data" / "contexts"), "HOME": str(place)}


@pytest.mark.slow
def test_its_worker_works_and_stops_on_sigterm(image, tmp_path):
    """It waits for work with an empty store, says so in the file of `--health`, and ends when Docker stops it."""
    command = json.loads(dict(last_stage())["CMD"])
    command[command.index("--health") + 1] = str(tmp_path / "health")
    worker = subprocess.Popen(["orihon", *command], cwd=tmp_path, env=image, stderr=subprocess.PIPE, text=True)
    try:
        while not (tmp_path / "health").exists():
            assert worker.poll() is None, worker.stderr.read()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) in {0, 128 + signal.SIGTERM}
    finally:
        worker.kill()
        worker.stderr.close()


@pytest.mark.slow
def test_it_has_all_extras_and_the_demo(image, tmp_path):
    """`doctor` finds every extra, and `demo` ends well, without the source."""
    env = image | {"OPENAI_API_KEY": "sk-0"}
    env.pop("ORIHON_STORE")
    shown = subprocess.run(["orihon", "doctor"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert shown.stdout.count("It is installed") >= 4
    assert "It is not installed" not in shown.stdout
    assert f"Version {orihon.__version__}" in shown.stdout
    played = subprocess.run(["orihon", "demo"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
