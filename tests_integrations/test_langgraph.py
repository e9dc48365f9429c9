"""LangChain's agents, which run on LangGraph: with and without a checkpointer, edits of the state, kill -9."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field

import orihon
from conftest import source
from orihon.errors import UsageError
from orihon.integrations.langgraph import OrihonMiddleware
from orihon.settings.schema import Settings

CONFIG = {"configurable": {"thread_id": "user:1/abc"}, "recursion_limit": 500}


class Scripted(GenericFakeChatModel):
    """LangChain's scripted model, which also keeps what it was sent."""

    sent: list[Any] = Field(default_factory=list)
    tools: list[Any] = Field(default_factory=list)

    def bind_tools(self, tools, **_):
        self.tools = list(tools)
        return self

    def _generate(self, messages, *arguments, **options):
        self.sent.append(list(messages))
        return super()._generate(messages, *arguments, **options)


def read_file(path: str) -> str:
    """Read a file."""
    return source(path)


def calling(number):
    thought = {"type": "thinking", "thinking": f"File {number} is next.", "signature": "c2ln"}
    call = {"name": "read_file", "args": {"path": f"{number}.py"}, "id": f"call_{number}"}
    return AIMessage([thought, {"type": "text", "text": ""}], tool_calls=[call])


def replies(count):
    return [*(calling(number) for number in range(count)), AIMessage("Done.")]


def agent_of(engine, messages, *, checkpointer=None, **options):
    model = Scripted(messages=iter(messages))
    middleware = OrihonMiddleware(engine, reserved_output=0, **options)
    prompt = "You read files."
    return model, create_agent(
        model, [read_file], system_prompt=prompt, middleware=[middleware], checkpointer=checkpointer
    )


def ask(agent, text, config=CONFIG):
    return agent.invoke({"messages": [HumanMessage(text)]}, config)["messages"]


def check(messages):
    """Each call has its result right after it."""
    asked = [call["id"] for message in messages for call in getattr(message, "tool_calls", ())]
    assert asked == [message.tool_call_id for message in messages if isinstance(message, ToolMessage)]


def size(messages):
    return (
        sum(len(str(message.content)) + len(json.dumps(getattr(message, "tool_calls", ()))) for message in messages)
        // 4
    )


def test_a_small_conversation_is_sent_as_it_is(engine):
    """The very objects of the state, with signed reasoning; the state is not changed."""
    model, agent = agent_of(engine, replies(3), checkpointer=InMemorySaver())
    state = ask(agent, "Read three.")
    assert [type(message) for message in model.sent[-1][1:]] == [type(message) for message in state[:-1]]
    assert model.sent[-1][1:] == state[:-1]
    assert model.sent[-1][0].content == "You read files."
    assert model.sent[-1][2].content[0]["signature"] == "c2ln"


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_long_one_fits(engine, how):
    """Each of 60 calls is valid and fits, the request stays, and the state has everything."""
    model, agent = agent_of(engine, replies(60), checkpointer=InMemorySaver(), context_length=32_000)
    if how == "sync":
        state = ask(agent, "Read all.")
    else:
        state = asyncio.run(agent.ainvoke({"messages": [HumanMessage("Read all.")]}, CONFIG))["messages"]
    assert state[-1].content == "Done."
    assert len(model.sent) == 61
    for messages in model.sent:
        check(messages)
        assert messages[1].content == "Read all."
        assert size(messages) < 32_000
    assert size(state) > 60_000
    assert model.sent[-1][-1].tool_call_id == state[-2].tool_call_id
    kept = [after[: len(before)] == before for before, after in pairwise(model.sent)]
    assert sum(kept) > 0.7 * len(kept)


def test_without_a_checkpointer(engine):
    """The client hands over the whole list; the same window goes on."""
    model, agent = agent_of(engine, [AIMessage("One."), AIMessage("Two.")], id="mine")
    state = agent.invoke({"messages": [HumanMessage("First?")]})["messages"]
    agent.invoke({"messages": [*state, HumanMessage("Second?")]})
    assert [message.content for message in model.sent[-1]] == ["You read files.", "First?", "One.", "Second?"]
    (row,) = engine.tasks()
    assert row.message_count == 4


def test_a_conversation_without_a_name_is_refused(engine):
    """The error says what to give."""
    _, agent = agent_of(engine, [AIMessage("One.")])
    with pytest.raises(UsageError, match="which conversation"):
        agent.invoke({"messages": [HumanMessage("First?")]})


def test_threads_do_not_share(engine):
    """Each has a window of its own."""
    model, agent = agent_of(engine, [AIMessage("One."), AIMessage("Two.")], checkpointer=InMemorySaver())
    ask(agent, "First?", {"configurable": {"thread_id": "a"}})
    ask(agent, "Second?", {"configurable": {"thread_id": "b"}})
    assert [message.content for message in model.sent[-1][1:]] == ["Second?"]


def test_messages_that_are_removed_or_edited(engine):
    """The window is what the state says, and the newest message is in it."""
    saver = InMemorySaver()
    model, agent = agent_of(engine, [AIMessage("One."), AIMessage("Two."), AIMessage("Three.")], checkpointer=saver)
    state = ask(agent, "First?")
    ask(agent, "Second?")
    agent.update_state(CONFIG, {"messages": [RemoveMessage(state[0].id), HumanMessage("Edited.", id=state[1].id)]})
    ask(agent, "Third?")
    said = [message.content for message in model.sent[-1][1:]]
    assert said == ["Edited.", "Second?", "Two.", "Third?"]


def test_the_model_can_unfold(engine):
    """The agent has the tools, marks name handles, and a call is answered with the text."""
    unfold = AIMessage("", tool_calls=[{"name": "unfold", "args": {"handle": "m4"}, "id": "call_u"}])
    model, agent = agent_of(
        engine, [*replies(40)[:-1], unfold, AIMessage("Done.")], checkpointer=InMemorySaver(), context_length=16_000
    )
    state = ask(agent, "Read all.")
    assert {tool.name if hasattr(tool, "name") else tool["name"] for tool in model.tools} == {
        "read_file",
        "unfold",
        "recall",
    }
    assert 'unfold("m' in str(model.sent[-2])
    assert state[-2].name == "unfold"
    assert source("0.py")[:200] in state[-2].content


def test_no_handles_without_the_tools(engine):
    """Nothing invites a call that would fail."""
    model, agent = agent_of(engine, replies(40), checkpointer=InMemorySaver(), context_length=16_000, lookups=False)
    ask(agent, "Read all.")
    assert "unfold" not in str(model.sent[-1])


SCRIPT = """
import sys, time
sys.path.insert(0, "tests_integrations")
import test_langgraph as here
from langchain.agents import create_agent
from orihon.integrations.langgraph import OrihonMiddleware

def read_file(path: str) -> str:
    "Read a file."
    if path == "5.py":
        print("now", flush=True)
        time.sleep(60)
    return "text of " + path

model = here.Scripted(messages=iter(here.replies(9)))
agent = create_agent(model, [read_file], middleware=[OrihonMiddleware(sys.argv[1])])
here.ask(agent, "Read all.")
"""


def test_kill_9_and_on(url, killed):
    """The log has what was sent; a client that comes back with its list goes on at once."""
    killed(SCRIPT, url)
    with orihon.open(url, settings=Settings()) as engine:
        (row,) = engine.tasks()
        before = row.message_count
        stored = list(engine.read(row.uuid).messages())
        assert "text of 4.py" in stored[-1].text
        model, agent = agent_of(engine, [AIMessage("Fine.")])
        results = [ToolMessage(f"text of {n}.py", tool_call_id=f"call_{n}", name="read_file") for n in range(5)]
        pairs = [one for n, result in enumerate(results) for one in (calling(n), result)]
        agent.invoke({"messages": [HumanMessage("Read all."), *pairs, HumanMessage("And?")]}, CONFIG)
        assert model.sent[-1][-1].content == "And?"
        check(model.sent[-1])
        assert engine.row(row.uuid).message_count == before + 2  # the question, and the prompt that is new
