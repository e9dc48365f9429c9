"""What a process keeps of a long task (seed 000 §7.1): little, and no more for every turn."""

import subprocess
import sys
from pathlib import Path

import pytest

STATUS = Path("/proc/self/status")
TURNS, RESULT_CHARS = 300, 40_000

CHILD = """
import ctypes, gc, random, sys
from pathlib import Path
import orihon
from orihon.settings.schema import Settings

words = [f"{verb}_{noun}_{n}" for verb in ("load", "save", "merge") for noun in ("cart", "order") for n in range(20)]
words += ["the", "value", "is", "checked", "before", "it", "returns", "42", "and", "None"] * 12

def result(number):
    chance = random.Random(number)
    lines = (" ".join(chance.choices(words, k=8)) for _ in range(1000))
    return "\\n".join(lines)[: int(sys.argv[3])]

def resident():
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)  # what is free is not kept
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))

def reply(number):
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    return {"role": "assistant", "content": f"Step {number}.", "tool_calls": [call]}

def listed(number):
    kept.append(reply(number))
    kept.append({"role": "tool", "tool_call_id": f"call_{number}", "content": result(number)})

def stored(number):
    task.window().openai()
    task.add_reply({"choices": [{"message": reply(number)}]})
    for call in task.pending_calls():
        with task.tool(call) as run:
            run.result = result(number)

kept, turn = [], listed
if sys.argv[1] != "list":
    tool = {"type": "function", "function": {"name": "read_file"}}
    engine = orihon.open(sys.argv[1], settings=Settings())
    task = engine.start("github/acme/shop/issue/27", tools=[tool], context_length=128_000)
    task.add("user", "Fix the basket.")
    turn = stored
turn(0)
before = resident()
for number in range(1, int(sys.argv[2]) + 1):
    turn(number)
print(resident() - before)
"""


def grown_kb(where):
    """By how much a process grows in the course of a task; what it may give back to the system does not count."""
    command = [sys.executable, "-c", CHILD, where, str(TURNS), str(RESULT_CHARS)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="only Linux says how much memory a process has")
def test_a_long_task_takes_little_memory(tmp_path):
    """300 turns of 40 kB: less than a fifth of what a list of the messages takes."""
    whole = grown_kb("list")
    assert whole > TURNS * RESULT_CHARS / 1024
    assert grown_kb(str(tmp_path / "contexts")) < 0.2 * whole
