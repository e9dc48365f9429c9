"""OpenAI Agents SDK. The cases of the session are those that its `tests/memory` requires of SQLiteSession."""

import asyncio
import json

import pytest
from agents import Agent, ModelSettings, RunConfig, Runner, function_tool
from agents.memory import Session, SessionSettings
from agents.testing import ScriptedModel, assistant_message, function_call
from openai.types.responses import ResponseReasoningItem

import orihon
from conftest import source
from orihon.integrations.openai_agents import OrihonSession, OrihonWindow
from orihon.records import Message
from orihon.settings.schema import Settings

ITEMS = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"Message {n}"} for n in range(6)]
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABo=="}


def run(coroutine):
    return asyncio.run(coroutine)


@pytest.fixture
def session(engine):
    return OrihonSession("user:1/abc", engine)


# the session


def test_it_is_a_session(session):
    """The protocol of the SDK says so."""
    assert isinstance(session, Session)
    assert session.session_id == "user:1/abc"


def test_items_come_back(session):
    """In order, equal, also in another object; an empty list and an empty session are nothing."""

    async def main():
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.add_items([])
        await session.add_items(ITEMS[:2])
        await session.add_items(ITEMS[2:])
        return await session.get_items()

    assert run(main()) == ITEMS


@pytest.mark.parametrize(("limit", "expected"), [(None, 6), (1, 1), (4, 4), (6, 6), (9, 6), (0, 0)])
def test_a_limit_gives_the_newest(session, limit, expected):
    """In the order in which they were added."""

    async def main():
        await session.add_items(ITEMS)
        return await session.get_items(limit)

    assert run(main()) == ITEMS[len(ITEMS) - expected :]


@pytest.mark.parametrize("settings", [SessionSettings(limit=2), {"limit": 2}])
def test_the_settings_have_a_limit(engine, settings):
    """An object or a dict; an explicit limit comes first."""
    session = OrihonSession("a", engine, session_settings=settings)

    async def main():
        await session.add_items(ITEMS)
        return await session.get_items(), await session.get_items(limit=3)

    assert session.session_settings.limit == 2
    assert run(main()) == (ITEMS[-2:], ITEMS[-3:])


def test_settings_that_are_unknown_are_refused(engine):
    """A misspelt name is found at once."""
    with pytest.raises(TypeError, match="limitt"):
        OrihonSession("a", engine, session_settings={"limitt": 1})


def test_pop_takes_exactly_one(session):
    """Also a result, whose call stays; then others can be added."""
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    results = [{"type": "function_call_output", "call_id": "c1", "output": "ok"}]

    async def main():
        await session.add_items([ITEMS[0], REASONING, call, *results])
        popped = [await session.pop_item() for _ in range(2)]
        await session.add_items([call, *results])
        return popped, await session.get_items()

    popped, items = run(main())
    assert popped == [results[0], call]
    assert items == [ITEMS[0], REASONING, call, *results]


def test_clear_hides_all(session, engine):
    """The log keeps them."""

    async def main():
        await session.add_items(ITEMS)
        await session.clear_session()
        assert await session.get_items() == []
        await session.add_items(ITEMS[:1])
        return await session.get_items()

    assert run(main()) == ITEMS[:1]
    (row,) = engine.tasks()
    assert len(list(engine.store.read(row.uuid, Message))) == 7


def test_sessions_do_not_share(engine):
    """Two ids are two conversations, two objects of one id are one."""

    async def main():
        one, two, other = (OrihonSession(name, engine) for name in ("a", "b", "a"))
        await one.add_items(ITEMS[:1])
        await two.add_items(ITEMS[1:2])
        await other.add_items(ITEMS[2:3])
        return await one.get_items(), await two.get_items()

    assert run(main()) == ([ITEMS[0], ITEMS[2]], [ITEMS[1]])


def test_any_text_and_any_item(session):
    """Unicode, quotes, large items and kinds that nobody knows come back as they were."""
    odd = [
        {"role": "user", "content": "こんにちは '\"; DROP TABLE items; -- 🎉 \n"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}]},
        {"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]},
        {"type": "item_reference", "id": "msg_1"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"role": "user", "content": "long " * 200_000},
        {"role": "nobody", "content": None},
    ]

    async def main():
        await session.add_items(odd)
        return await session.get_items()

    assert run(main()) == odd


def test_it_is_closed(url):
    """Whatever comes then is refused, also nothing; another object goes on."""

    async def main():
        session = OrihonSession("a", url)
        await session.add_items(ITEMS)
        session.close()
        for call in (session.add_items([]), session.get_items(), session.pop_item(), session.clear_session()):
            with pytest.raises(RuntimeError, match="OrihonSession is closed"):
                await call
        return await OrihonSession("a", url).get_items()

    assert run(main()) == ITEMS


def test_many_at_once(session):
    """Nothing is lost."""

    async def main():
        await asyncio.gather(*(session.add_items([{"role": "user", "content": str(n)}]) for n in range(40)))
        return await session.get_items()

    assert sorted(int(item["content"]) for item in run(main())) == list(range(40))


def test_a_cancelled_write_is_whole(session):
    """Either all of its items are there or it was cancelled before it began."""

    async def main():
        job = asyncio.create_task(session.add_items(ITEMS))
        await asyncio.sleep(0.001)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        return await session.get_items()

    assert run(main()) in ([], ITEMS)


def test_what_is_masked(session):
    """Secrets, and addresses if the store masks them, come back as marks."""

    async def main():
        await session.add_items([{"role": "user", "content": "token ghp_" + "a1B2" * 9}])
        return await session.get_items()

    assert "ghp_" not in str(run(main()))


# the window


@function_tool
def read_file(path: str) -> str:
    """Read a file."""
    return source(path)


def turns(count):
    """What the model says: a call in each turn, with reasoning before it, and an answer."""
    for number in range(count):
        thought = ResponseReasoningItem(**REASONING | {"id": f"rs_{number}"})
        call = function_call("read_file", json.dumps({"path": f"{number}.py"}), call_id=f"c{number}")
        yield [thought, call]
    yield [assistant_message("Done.")]


def check(items):
    """Each call has its result, and reasoning stands before what it led to."""
    asked = [item["call_id"] for item in items if item.get("type") == "function_call"]
    answered = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert asked == answered
    for place, item in enumerate(items):
        if item.get("type") == "reasoning":
            assert items[place + 1]["type"] in {"function_call", "message"}


def converse(engine, count, *, lookups=False, **options):
    model = ScriptedModel(list(turns(count)))
    window = OrihonWindow("user:1", engine, reserved_output=0, **options)
    tools = [read_file, *(window.tools() if lookups else [])]
    agent = Agent(name="a", instructions="You read files.", model=model, tools=tools, model_settings=ModelSettings())
    session = OrihonSession("user:1", engine)
    config = RunConfig(call_model_input_filter=window, tracing_disabled=True)
    result = run(Runner.run(agent, "Read all.", session=session, run_config=config, max_turns=count + 1))
    return model, result, run(session.get_items())


def test_a_small_conversation_is_sent_as_it_is(engine):
    """The very items of the SDK, with reasoning and ids."""
    model, result, items = converse(engine, 3)
    assert result.final_output == "Done."
    sent = [item for item in model.calls[-1].input if item.get("type") == "reasoning"]
    assert [item["encrypted_content"] for item in sent] == [REASONING["encrypted_content"]] * 3
    assert [item for item in model.calls[-1].input if item in items] == model.calls[-1].input
    assert all(call.system_instructions == "You read files." for call in model.calls)


def test_a_long_one_fits(engine):
    """Every one of 60 calls is valid and fits; the session has every item whole, and the request stays."""
    model, _, items = converse(engine, 60, context_length=32_000)
    sizes = [len(json.dumps(call.input)) // 4 for call in model.calls]
    assert max(sizes) < 32_000
    assert len(json.dumps(items)) // 4 > 50_000
    for call in model.calls:
        check(call.input)
        assert call.input[0]["content"] == "Read all."
    newest = [item for item in model.calls[-1].input if item.get("type") == "function_call_output"][-1]
    assert newest["call_id"] == items[-2]["call_id"]
    kept = [
        one.input[: len(before.input)] == before.input
        for before, one in zip(model.calls, model.calls[1:], strict=False)
    ]
    assert sum(kept) > len(kept) * 0.7  # between two folds the beginning stays as it was


def test_handles_only_with_the_tools(engine):
    """Marks name handles if the agent can unfold them, and then it can."""
    without, _, _ = converse(engine, 20, context_length=8_000)
    assert "unfold" not in str(without.last_call.input)
    with orihon.open("memory:", settings=Settings()) as other:
        model, _, _ = converse(other, 20, lookups=True, context_length=8_000)
        assert 'unfold("m' in str(model.last_call.input)
        assert {tool.name for tool in model.last_call.tools} == {"read_file", "unfold", "recall"}
        window = OrihonWindow("user:1", other)
        unfold = window.tools()[0]
        assert unfold.params_json_schema["required"] == ["handle", "lines"] or "handle" in str(
            unfold.params_json_schema
        )
        assert source("0.py")[:500] in window._sessions.lookups(lambda: window._id)[0]("m4")


SCRIPT = """
import asyncio, sys, json
sys.path.insert(0, "tests_integrations")
from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, function_call
from orihon.integrations.openai_agents import OrihonSession, OrihonWindow

@function_tool
def read_file(path: str) -> str:
    if path == "5.py":
        print("now", flush=True)
        import time; time.sleep(60)
    return "text of " + path

calls = [function_call("read_file", json.dumps({"path": f"{n}.py"}), call_id=f"c{n}") for n in range(9)]
model = ScriptedModel([[call] for call in calls])
agent = Agent(name="a", model=model, tools=[read_file])
url = sys.argv[1]
asyncio.run(Runner.run(agent, "Read all.", session=OrihonSession("a", url),
    run_config=RunConfig(call_model_input_filter=OrihonWindow("a", url), tracing_disabled=True), max_turns=20))
"""


def test_kill_9_and_on(url, killed):
    """What was said before is there at once; the next run begins with it, and is valid."""
    killed(SCRIPT, url)
    with orihon.open(url, settings=Settings()) as engine:
        session = OrihonSession("a", engine)
        items = run(session.get_items())
        assert items[0]["content"] == "Read all."
        assert "text of 4.py" in str(items)
        model = ScriptedModel([[assistant_message("Fine.")]])
        config = RunConfig(call_model_input_filter=OrihonWindow("a", engine), tracing_disabled=True)
        result = run(Runner.run(Agent(name="a", model=model), "And?", session=session, run_config=config))
        assert result.final_output == "Fine."
        check(model.last_call.input)
        assert model.last_call.input[-1]["content"] == "And?"
        assert "text of 4.py" in str(model.last_call.input)
