"""A task is paused, and another process continues it with the same window, byte for byte.

python pause_and_resume.py [DIRECTORY]
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import orihon

TOOLS = [{"type": "function", "function": {"name": "run_tests", "parameters": {"type": "object", "properties": {}}}}]


def shown(task):
    """Return a short hash of the window."""
    window = task.window()
    text = json.dumps([window.openai(), window.tools()], ensure_ascii=False)
    hidden = f"{window.report.folded} messages folded, {window.report.left_out} left out"
    return f"{hashlib.sha256(text.encode()).hexdigest()[:16]}  {window.tokens:,} tokens, {hidden}"


def begin(engine):
    """Work until the window has to be folded, then pause."""
    key = orihon.TaskKey.local("slow-tests")
    task = engine.start(key, context_length=16_000, tools=TOOLS, inherit=False)
    task.add("system", "You make tests faster.")
    task.add("user", "Why are the tests slow?")
    for number in range(12):
        task.add("assistant", "", tool_calls=[{"id": f"call_{number}", "name": "run_tests", "arguments": {}}])
        with task.tool(task.pending_calls()[0]) as run:
            run.result = "\n".join(f"test_{number}_{line} took {line * 7 % 50} ms" for line in range(150))
    before = shown(task)
    task.pause("for the night")
    return task.uuid, before


place = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()

with orihon.open(Path(place) / "contexts") as engine:
    if len(sys.argv) > 2:  # the other process, which knows only the directory and the id
        with engine.resume(sys.argv[2]) as task:
            print(shown(task))
        sys.exit()
    uuid, before = begin(engine)
    print(f"process 1 pauses   {before}")
    other = subprocess.run([sys.executable, __file__, place, uuid], capture_output=True, text=True, check=True)
    print(f"process 2 resumes  {other.stdout}", end="")
    assert other.stdout.strip() == before
    print(f"Task {uuid} is {engine.row(uuid).status}.")
