"""Workers and their children are killed at random: every task ends exactly once, and none has two at a time."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from itertools import groupby
from pathlib import Path

import pytest

import orihon
from orihon.agent.queue import MAX_ATTEMPTS, Job, enqueue
from orihon.records import Message
from orihon.settings.load import load
from orihon.task_key import TaskKey
from support.faults import DEEP, fast_place
from support.scenario import url_of

WORKERS, TASKS, KEYS, STEPS = 4, 40, 34, 2
KILLS = 40 if DEEP else 12
PATIENCE = 240 if DEEP else 100
DONE = "All steps are done."

# one step of a task: says who works on what, and whether somebody else is in the middle of a step of the same key
STEP = """
import os, sys, time
log, task, key = sys.argv[1:]

def stat(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    except OSError:
        return ["Z", "0"]

def worker():
    pid = os.getpid()
    while pid > 1:
        if b"--task" in open(f"/proc/{pid}/cmdline", "rb").read().split(b"\\0"):
            return pid
        pid = int(stat(pid)[1])
    sys.exit("nobody runs this any more")

def say(what):
    with open(log, "a") as file:
        file.write(f"{what} {task} {key} {pid}\\n")

pid = worker()
inside = set()
for line in open(log):
    what, _, other, who = line.split()
    if other == key and int(who) != pid:
        (inside.add if what == "begin" else inside.discard)(int(who))
if any(stat(who)[0] not in "ZX" for who in inside):
    say("overlap")
say("begin")
time.sleep(0.15)
say("end")
"""


class Yard:
    """A store with a queue, and workers that are started again when they were killed."""

    def __init__(self, place, kind, seed):
        self.place, self.random = place, random.Random(seed)
        self.url = url_of(kind, place / "store")
        self.log, self.step = place / "log", place / "step.py"
        self.log.touch()
        self.step.write_text(STEP)
        (place / "config.yaml").write_text(f"pause_resume:\n  signal_file: {place / 'pause'}\n")
        self.workers = {}

    def queue(self):
        with orihon.open(self.url, settings=load(environ={})) as engine:
            for number in range(TASKS):
                key = number % KEYS
                script = self.place / f"{number}.json"
                command = f"exec {sys.executable} -S -E {self.step} {self.log} {number} {key}"
                call = {"name": "shell", "arguments": {"command": command}}
                script.write_text(json.dumps([{"say": f"Step {n}.", "call": [call]} for n in range(STEPS)] + [DONE]))
                job = Job(
                    request=f"Task {number}", model=f"scripted:{script}", plan=False, approve="all",
                    workspace=str(self.place),
                )  # fmt: skip
                enqueue(engine, TaskKey.local(f"key-{key}"), job, uuid=f"task-{number:02}")

    def tend(self):
        """As many workers as there should be; those that ended by themselves did so in peace."""
        for number in range(WORKERS):
            worker = self.workers.get(number)
            if worker is None or worker.poll() is not None:
                assert worker is None or worker.returncode in {0, -signal.SIGKILL}
                with (self.place / "stderr").open("ab") as said:
                    self.workers[number] = subprocess.Popen(
                        [sys.executable, "-m", "orihon", "worker", "--once", "--store", self.url],
                        cwd=self.place, stdin=subprocess.DEVNULL, stderr=said,
                    )  # fmt: skip

    def children(self):
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"--task" in words and self.url.encode() in words:
                found.append(int(path.parent.name))
        return found

    def kill_somebody(self):
        children = self.children()
        parents = [worker.pid for worker in self.workers.values() if worker.poll() is None]
        inside = [int(line.split()[3]) for line in self.log.read_text().splitlines()[-3:] if line.startswith("begin")]
        busy = [pid for pid in children if pid in inside]
        chance = self.random.random()
        victims = parents if not children or chance < 0.25 else children if chance < 0.5 else busy or children
        if not victims:
            return 0
        try:
            os.kill(self.random.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            return 0
        return 1

    def rows(self):
        with orihon.open(self.url, settings=load(environ={})) as engine:
            return list(engine.tasks())

    def close(self):
        for worker in self.workers.values():
            worker.kill()
            worker.wait()
        for pid in self.children():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def place():
    with fast_place() as folder:
        yield folder


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize(("kind", "seed"), [("jsonl", 1), ("sqlite", 2), ("jsonl", 3)] if DEEP else [("jsonl", 1)])
def test_workers_are_killed(place, kind, seed):
    """4 workers and 40 tasks with 34 keys; whoever is killed, each task ends once, and no two work on one key."""
    yard = Yard(place, kind, seed)
    yard.queue()
    try:
        kills, until = 0, time.monotonic() + PATIENCE
        while time.monotonic() < until:
            yard.tend()
            time.sleep(yard.random.uniform(0.1, 0.6))
            if kills < KILLS:
                kills += yard.kill_somebody()
            elif all(row.status in {"completed", "failed"} for row in yard.rows()):
                break
        deadline = time.monotonic() + 20
        while yard.children() and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        yard.close()
    _check(yard)


def _check(yard):
    rows = yard.rows()
    assert len(rows) == TASKS
    assert {row.status for row in rows} <= {"completed", "failed"}
    lines = [line.split() for line in yard.log.read_text().splitlines()]
    assert not [line for line in lines if line[0] == "overlap"]
    _check_order(lines)
    said = (yard.place / "stderr").read_text()
    steps = defaultdict(int)
    for what, task, _, _ in lines:
        steps[task] += what == "begin"
    with orihon.open(yard.url, settings=load(environ={})) as engine:
        for row in rows:
            ends = said.count(f"[uuid:{row.uuid[:8]}] Task completed") + said.count(
                f"[uuid:{row.uuid[:8]}] Task failed"
            )
            assert ends <= 1, row.uuid
            last = [message for message in engine.read(row.uuid).messages() if message.text == DONE]
            if row.status == "completed":
                assert steps[str(int(row.uuid[5:]))] <= STEPS
                assert len(last) == 1
                _check_answers(list(engine.store.read(row.uuid, Message)))
            else:
                assert (row.reason, row.attempts) == ("interrupted", MAX_ATTEMPTS - 1)
    assert sum(row.status == "completed" for row in rows) >= TASKS - KILLS // MAX_ATTEMPTS


def _check_order(lines):
    """Who begins a step of a key after somebody else did has it from then on: nobody comes back."""
    by_key = defaultdict(list)
    for what, _, key, pid in lines:
        if what == "begin":
            by_key[key].append(pid)
    for key, pids in by_key.items():
        turns = [pid for pid, _ in groupby(pids)]
        assert len(turns) == len(set(turns)), key


def _check_answers(messages):
    """Every call has one answer, and no call was made twice."""
    calls = [call.id for message in messages for call in message.tool_calls]
    answers = [message.tool_call_id for message in messages if message.role == "tool"]
    assert len(calls) == len(set(calls)) == STEPS
    assert sorted(answers) == sorted(calls)
