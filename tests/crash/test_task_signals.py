"""SIGTERM and Ctrl-C at a process that works on a task: it is paused, and another process goes on with it."""

import os
import random
import signal
import sys
import time

import pytest

import orihon
from orihon.context.repair import INTERRUPTED
from orihon.errors import Conflict, NotFound
from orihon.ops.doctor import examine
from orihon.settings.schema import Settings
from orihon.task.lifecycle import read_ending
from support.faults import DEEP, Child, fast_place, in_child, sampled
from support.interrupts import interrupted, steps_of
from support.replies import KEY, TOOLS, saying
from support.scenario import STORES, url_of

UUID = "22222222-signalled"
ROUNDS = 8
SIGNALS = {signal.SIGTERM: "SystemExit", signal.SIGINT: "KeyboardInterrupt"}
SUMMARY = "All went well: the steps were taken one after the other, and nothing of them is left to do."


def reply(number):
    """What the model says the n-th time: two calls, and nothing more at the end."""
    if number == ROUNDS:
        return saying("Done.")
    names = ("read_file", "run_tests")
    calls = [
        {"id": f"call_{number}_{place}", "function": {"name": name, "arguments": "{}"}}
        for place, name in enumerate(names)
    ]
    return saying(f"Round {number}.", tool_calls=calls)


def work_on(url, wait=lambda _: None):
    """The loop as a user writes it; `wait` is called where a real one would wait for somebody."""

    def summariser(_):
        wait("summary")
        return SUMMARY

    def work(say):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            whole_run(url, summariser, wait, say)
            os._exit(0)  # here, where a late signal is still expected
        except (SystemExit, KeyboardInterrupt) as error:
            say(type(error).__name__)
            os._exit(0)

    return work


def whole_run(url, summariser, wait, say):
    with orihon.open(url, settings=Settings()) as engine:
        say("open")
        task = begun(engine, summariser)
        if task is not None:
            with task:
                go_on(task, wait)


def begun(engine, summariser):
    options = {"context_length": 3000, "reserved_output": 300, "summariser": summariser}
    try:
        return engine.resume(UUID, summariser=summariser)
    except NotFound:
        return engine.start(KEY, uuid=UUID, tools=TOOLS, **options)
    except Conflict:
        return None  # it has ended


def go_on(task, wait):
    task.add("user", "Fix the basket.", key="request")
    while task.wants_reply():
        for call in task.pending_calls():
            with task.tool(call) as run:
                wait("tool")
                run.result = f"{call.id} says {'a lot ' * 60}"
        task.window()
        wait("model")
        replies = sum(message.role == "assistant" for message in task.writer.lease.store.read(UUID, orihon.Message))
        task.add_reply(reply(replies), key=f"reply-{replies}")
        if replies == 5 and not task.row.compression_count:
            task.compact(keep_recent=2)


def log_of(url):
    with orihon.open(url, settings=Settings()) as engine:
        reader = engine.read(UUID)
        return reader.row, list(reader.messages()), list(reader.events())


def assert_went_on(url, undisturbed):
    """Another process brings it to its end, and the log is that of a run that was left alone."""
    ended = in_child(work_on(url))
    assert (ended.signal, ended.code) == (0, 0)
    row, messages, _ = log_of(url)
    assert row.status == "completed"
    assert row.final_summary.startswith(SUMMARY)  # what follows cites messages, which are counted with the interruption
    shown = {}
    for message in messages:  # of two answers to one call the real one counts
        name = message.tool_call_id or message.key
        if message.text != INTERRUPTED or name not in shown:
            shown[name] = message.text
    wanted = {message.tool_call_id or message.key: message.text for message in undisturbed[1]}
    assert shown.keys() == wanted.keys()
    changed = [name for name in wanted if shown[name] != wanted[name]]
    assert [shown[name] for name in changed] == [INTERRUPTED] * len(changed)
    assert len(changed) <= 1  # the call that was running
    assert [finding for finding in examine(url) if finding.level == "problem"] == []
    return changed


@pytest.fixture(scope="module")
def undisturbed():
    with fast_place() as place:
        ended = in_child(work_on(url_of("sqlite", place)))
        assert (ended.signal, ended.code) == (0, 0)
        yield log_of(url_of("sqlite", place))


@pytest.mark.parametrize("where", ["model", "tool", "summary"])
@pytest.mark.parametrize(("kind", "number"), [("jsonl", signal.SIGTERM), ("sqlite", signal.SIGINT)])
def test_a_signal_while_it_waits(kind, where, number, undisturbed):
    """For the model, a tool or a summary: the task is paused, its lease is free, and it goes on."""
    with fast_place() as place:
        url = url_of(kind, place)
        reading, writing = os.pipe()
        seen = []

        def wait(what):
            seen.append(what)
            if what == where and seen.count(what) == (1 if what == "summary" else 4):
                os.write(writing, b"!")
                time.sleep(60)

        child = Child(work_on(url, wait))
        assert os.read(reading, 1) == b"!"
        child.kill(number)
        ended = child.wait()
        os.close(reading)
        os.close(writing)
        assert (ended.said[-1], ended.code) == (SIGNALS[number], 0)
        row, messages, _ = log_of(url)
        assert (row.status, row.lease_owner) == ("paused", None)
        assert [message.text for message in messages].count(INTERRUPTED) == (where == "tool")
        assert assert_went_on(url, undisturbed) == (["call_1_1"] if where == "tool" else [])


@pytest.mark.parametrize("kind", STORES)
def test_a_signal_at_any_moment(kind, undisturbed):
    """Also in the middle of a write: nothing is lost, and only an end that was begun is not a pause."""
    moments = random.Random(7)
    for _ in range(50 if DEEP else 3):
        with fast_place() as place:
            url = url_of(kind, place)
            child = Child(work_on(url))
            child.line()
            seconds = moments.uniform(0, 0.2)
            time.sleep(seconds)
            child.kill(signal.SIGTERM)
            assert_interrupted(child, url, undisturbed, f"{kind}: {seconds:.4f} s after it had begun")


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORES)
def test_an_interrupt_at_any_step(kind, undisturbed):
    """The same at moments that time would hit once in a million."""
    with fast_place() as place:
        steps = steps_of(lambda: quiet_run(url_of(kind, place)))
    for step in sampled([*range(1, steps, 151)], 12):
        with fast_place() as place:
            url = url_of(kind, place)
            child = Child(lambda _: cut(url, step))  # noqa: B023
            assert_interrupted(child, url, undisturbed, f"{kind}: at step {step} of {steps}")


def cut(url, step):
    """Run up to this step. Python's own `Thread.start` does not survive an interrupt: it complains of a lock."""
    try:
        interrupted(lambda: quiet_run(url), step)
    except RuntimeError as error:
        if "lock" not in str(error):
            raise


def quiet_run(url):
    whole_run(url, lambda _: SUMMARY, lambda _: None, lambda _: None)


def assert_interrupted(child, url, undisturbed, when):
    """It ended without a word, the task waits, or its end was begun, and it goes on."""
    made = []
    try:
        ended = child.wait()
        assert (ended.signal, ended.code) == (0, 0)
        with orihon.open(url, settings=Settings()) as engine:
            made = list(engine.tasks())
        if made and made[0].status == "running":
            _, messages, events = log_of(url)
            # between the last line of a block and its end is a moment that no code of ours can guard
            is_done = len(messages) >= len(undisturbed[1])
            assert not events or is_done or read_ending(events[-1].data) is not None
        else:
            assert not made or made[0].status in {"paused", "completed"}
        assert_went_on(url, undisturbed)
    except BaseException as error:
        error.add_note(f"{when}, {made and made[0].status}")
        raise
