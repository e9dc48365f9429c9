"""`orihon.aio` has the names of the engine, runs them in threads, and leaves a valid task when it is cancelled."""

import asyncio
import inspect
import random
import threading

import pytest

import orihon
from orihon import aio
from orihon.context.repair import INTERRUPTED
from orihon.engine import Engine
from orihon.errors import UsageError
from orihon.settings.schema import Settings
from orihon.task.reader import Reader
from orihon.task.task import Task
from support.replies import KEY, TOOLS, calling, saying

SETTINGS = Settings()


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("sync", "front", "left_out"),
    [
        (Task, aio.AsyncTask, {"log", "summariser"}),
        (Reader, aio.AsyncReader, {"config", "log"}),
        (Engine, aio.AsyncEngine, {"open_leased", "record_refusal"}),
    ],
)
def test_every_name_is_there(sync, front, left_out):
    """What is public of the engine is public here; what is left out reads memory that a thread may change."""
    names = {*front._waited, *front._iterated, *front._plain, *public(front)}
    assert public(sync) - names == left_out
    for name in (*front._waited, *front._iterated):
        assert inspect.isfunction(getattr(sync, name)), name


def test_a_session_and_its_loop(disk_url):
    """A whole conversation, with a tool, a tangent, a stream and what is read of it."""

    async def chunks():
        delta = {"choices": [{"index": 0, "delta": {"content": "Fixed."}, "finish_reason": "stop"}]}
        for event in (delta,):
            yield event

    async def main():
        async with aio.open(disk_url, settings=SETTINGS) as engine:
            async with engine.session("user:1", tools=TOOLS) as task:
                assert await task.add("user", "Fix it.") == 1
                assert (await task.window()).openai() == [{"role": "user", "content": "Fix it."}]
                await task.add_reply(calling(("read_file", {"path": "a.py"})))
                for call in await task.pending_calls():
                    async with task.tool(call) as run:
                        run.result = "print(1)"
                async with task.tangent("By the way?"):
                    await task.add_reply(saying("Yes."))
                assert [event async for event in task.add_reply(chunks())]
                uuid = task.uuid
            reader = await engine.read(uuid)
            texts = [message.text async for message in reader.messages()]
            return texts, [row.status async for row in engine.tasks()], await engine.row(uuid)

    texts, statuses, row = asyncio.run(main())
    assert texts == ["Fix it.", "", "print(1)", "By the way?", "Yes.", "Fixed."]
    assert statuses == ["running"]
    assert row.tool_call_count == 1


def test_a_block_completes_or_fails_its_task(engine):
    """As `with` does, and an error comes out."""

    async def main():
        front = aio.AsyncEngine(engine)
        async with front.start(KEY) as task:
            await task.add("user", "hello")
            await task.add_reply(saying("Done."))
        with pytest.raises(RuntimeError):
            async with front.start(KEY) as other:
                raise RuntimeError("no")
        with pytest.raises(UsageError):
            async with front.start("no key"):
                pass
        return task.row.status, other.row.status

    assert asyncio.run(main()) == ("completed", "failed")


def test_nothing_runs_in_the_loops_thread():
    """Every call of a task that waits for a lock or a disk is made in another thread."""
    here, there = threading.get_ident(), set()

    class Watched:
        def __getattr__(self, name):
            def method(*_, **__):
                there.add((name, threading.get_ident()))
                return iter(())

            return method

    async def main():
        for kind in (aio.AsyncTask, aio.AsyncReader, aio.AsyncEngine):
            front = kind(Watched())
            for name in kind._waited:
                await getattr(front, name)()
            for name in kind._iterated:
                assert [value async for value in getattr(front, name)()] == []

    asyncio.run(main())
    assert len(there) > 40
    assert here not in {thread for _, thread in there}


def test_what_is_not_there_is_an_attribute_error(engine):
    """A misspelt name is found at once."""
    with pytest.raises(AttributeError, match="windw"):
        _ = aio.AsyncEngine(engine).windw


def test_a_cancelled_tool_is_interrupted(disk_url):
    """The task is paused, its call is answered as interrupted, and it can be resumed."""

    async def main():
        async with aio.open(disk_url, settings=SETTINGS) as engine:
            running = asyncio.Event()

            async def work():
                async with engine.start(KEY, tools=TOOLS) as task:
                    await task.add("user", "Run.")
                    await task.add_reply(calling(("run_tests", {})))
                    (call,) = await task.pending_calls()
                    async with task.tool(call):
                        running.set()
                        await asyncio.sleep(3600)

            job = asyncio.create_task(work())
            await running.wait()
            job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await job
            (row,) = [row async for row in engine.tasks()]
            async with engine.resume(row.uuid) as task:
                window = await task.window()
            return row.status, window.messages[-1].text

    assert asyncio.run(main()) == ("paused", INTERRUPTED)


@pytest.mark.parametrize("seed", range(12))
def test_a_cancellation_anywhere_leaves_a_valid_task(disk_url, seed):
    """Whenever it comes: the lease is free, what was confirmed is stored, and the window is valid."""
    chance, confirmed = random.Random(seed), []

    async def work(engine, turn):
        async with engine.session("a", tools=TOOLS, wait=5) as task:
            for number in range(1000):
                await task.add("user", f"question {turn}.{number}")
                confirmed.append(f"question {turn}.{number}")
                await task.window()
                await task.add_reply(calling(("read_file", {"path": f"{number}.py"})))
                for call in await task.pending_calls():
                    async with task.tool(call) as run:
                        run.result = f"answer {turn}.{number}"
                    confirmed.append(f"answer {turn}.{number}")

    async def main():
        async with aio.open(disk_url, settings=SETTINGS) as engine:
            for turn in range(6):
                job = asyncio.create_task(work(engine, turn))
                for _ in range(chance.randrange(60)):
                    await asyncio.sleep(0)
                await asyncio.sleep(chance.random() * 0.03)
                job.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await job

    asyncio.run(main())
    with orihon.open(disk_url, settings=SETTINGS) as engine, engine.session("a", tools=TOOLS) as task:
        stored = [message.text for message in task.log.read(1, task.log.last)]
        assert [text for text in stored if text in set(confirmed)] == confirmed
        rendered = task.window().openai()
        asked = [call["id"] for message in rendered for call in message.get("tool_calls", ())]
        assert asked == [message["tool_call_id"] for message in rendered if message["role"] == "tool"]


class SlowStart:
    """A hook that holds the thread in which a task starts."""

    def __init__(self):
        self.reached, self.go_on = threading.Event(), threading.Event()

    def on_started(self, _task):
        self.reached.set()
        self.go_on.wait(60)


def test_a_session_that_opens_too_late_is_given_back(disk_url):
    """A cancellation while a thread takes the lease leaves no holder."""
    slow = SlowStart()

    async def main():
        async with aio.open(disk_url, settings=SETTINGS, hooks=[slow]) as engine:
            job = asyncio.ensure_future(_entered(engine))
            assert await asyncio.to_thread(slow.reached.wait, 60)
            job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await job
            slow.go_on.set()
            for _ in range(1000):
                rows = [row async for row in engine.tasks()]
                if rows and rows[0].lease_owner is None:
                    return True
                await asyncio.sleep(0.01)
            return False

    async def _entered(engine):
        async with engine.session("a"):
            await asyncio.sleep(3600)

    assert asyncio.run(main())
