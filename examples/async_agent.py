"""Several tasks in one event loop. Everything that waits for a disk, a model or a tool runs in a thread.

    python async_agent.py [DIRECTORY]

One of the tasks is cancelled in the middle. That pauses it, and it is resumed afterwards.
"""

import asyncio
import contextlib
import sys
import tempfile
import threading
import time
from pathlib import Path

import orihon
from orihon.testing import ScriptedModel

in_thread = asyncio.to_thread
TOOLS = [{"type": "function", "function": {"name": "measure", "parameters": {"type": "object", "properties": {}}}}]
MEASURE = {"content": "", "tool_calls": [{"name": "measure"}, {"name": "measure"}]}


in_the_attic, cancelled = threading.Event(), threading.Event()


def measure(task, call):
    """A slow tool; in the attic it runs until it is cancelled."""
    with task.tool(call) as run:
        if task.row.task_id == "attic" and not cancelled.is_set():
            in_the_attic.set()
            cancelled.wait()
        time.sleep(0.1)
        run.result = "21 °C"


async def loop(task, client):
    """The loop of `fix_an_issue.py`; the tools of one reply run in parallel."""
    with task:  # a cancellation leaves the block with an interrupt, which pauses the task
        while await in_thread(task.wants_reply):
            window = await in_thread(task.window)
            reply = await in_thread(client, window.openai(), tools=window.tools())
            await in_thread(task.add_reply, reply)
            await asyncio.gather(*(in_thread(measure, task, call) for call in await in_thread(task.pending_calls)))
        await in_thread(task.complete)  # leaving the block would also complete it, but in the event loop


async def start(engine, name):
    """Start a task with its first messages."""
    task = await in_thread(engine.start, orihon.TaskKey.local(name), tools=TOOLS, inherit=False)
    await in_thread(task.add, "user", f"How warm is it in the {name}?")
    return task


async def tick(counted):
    """Count as long as nothing blocks the loop."""
    while True:
        counted.append(time.perf_counter())
        await asyncio.sleep(0.005)


async def main(engine):
    counted = []
    ticker = asyncio.create_task(tick(counted))
    tasks = [await start(engine, name) for name in ("kitchen", "cellar", "attic")]
    jobs = [asyncio.create_task(loop(task, ScriptedModel([MEASURE, MEASURE, "It is 21 °C."]))) for task in tasks]
    await in_thread(in_the_attic.wait)
    jobs[2].cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    cancelled.set()
    for row in [await in_thread(engine.row, task.uuid) for task in tasks]:
        print(f"{row.task_id:8} {row.status:10} {row.llm_call_count} model calls, {row.tool_call_count} tool calls")
    task = await in_thread(engine.resume, tasks[2].uuid)
    await loop(task, ScriptedModel([MEASURE, "It is 21 °C."]))
    print(f"{task.row.task_id:8} {task.row.status:10} after it was resumed")
    ticker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ticker
    print(f"The loop ticked {len(counted)} times meanwhile.")


place = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "contexts"
with orihon.open(place) as engine:
    asyncio.run(main(engine))
