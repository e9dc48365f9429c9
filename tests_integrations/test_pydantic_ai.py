"""pydantic-ai: a capability under its `FunctionModel`; the cases of its history processors, and kill -9."""

import asyncio
import json
from itertools import pairwise

import pytest
from pydantic_ai import Agent, BinaryContent, ModelRetry
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.usage import UsageLimits

import orihon
from conftest import source
from orihon.integrations.pydantic_ai import OrihonWindow
from orihon.settings.schema import Settings

MANY = UsageLimits(request_limit=None)


def read_file(path: str) -> str:
    """Read a file."""
    return source(path)


def calling(number):
    call = ToolCallPart("read_file", {"path": f"{number}.py"}, tool_call_id=f"call_{number}")
    return ModelResponse([ThinkingPart(f"File {number} is next.", signature="c2ln"), call])


def replies(count):
    return [*(calling(number) for number in range(count)), ModelResponse([TextPart("Done.")])]


class Scripted:
    """What the framework's FunctionModel says, and what it was sent."""

    def __init__(self, said):
        self.said, self.sent, self.infos = iter(said), [], []
        self.model = FunctionModel(self.answer, stream_function=self.stream)

    def answer(self, messages: list, info: AgentInfo) -> ModelResponse:
        self.sent.append(list(messages))
        self.infos.append(info)
        return next(self.said)

    async def stream(self, messages: list, info: AgentInfo):
        reply = self.answer(messages, info)
        for number, part in enumerate(reply.parts):
            if isinstance(part, TextPart):
                yield part.content
            elif isinstance(part, ToolCallPart):
                yield {number: DeltaToolCall(part.tool_name, json.dumps(part.args), tool_call_id=part.tool_call_id)}


def agent_of(engine, said, *, tools=(read_file,), **options):
    scripted = Scripted(said)
    window = OrihonWindow(engine, reserved_output=0, **options)
    return scripted, Agent(scripted.model, instructions="You read files.", tools=tools, capabilities=[window])


def parts(messages):
    return [part for message in messages for part in message.parts]


def check(messages):
    """Each call has its result in the request after it."""
    asked = [part.tool_call_id for part in parts(messages) if isinstance(part, ToolCallPart)]
    answered = [part.tool_call_id for part in parts(messages) if isinstance(part, ToolReturnPart | RetryPromptPart)]
    assert asked == answered
    assert isinstance(messages[-1], ModelRequest)


def test_a_small_conversation_is_sent_as_it_is(engine):
    """Equal in every field: signed thinking, ids, times; the history of the run has all of it."""
    scripted, agent = agent_of(engine, replies(3))
    result = agent.run_sync("Read three.", conversation_id="user:1")
    assert scripted.sent[-1] == result.all_messages()[:-1]
    assert [part.signature for part in parts(scripted.sent[-1]) if isinstance(part, ThinkingPart)] == ["c2ln"] * 3
    assert scripted.infos[-1].instructions == "You read files."


def texts(sent):
    """What the model reads, without the dates and ids that the framework keeps beside it."""
    return [getattr(part, "content", None) or getattr(part, "args", "") for part in parts(sent)]


@pytest.mark.parametrize("how", ["run", "stream"])
def test_a_long_one_fits(engine, how):
    """Each of 60 requests is valid and fits, the question stays, and the history is whole."""
    scripted, agent = agent_of(engine, replies(60), context_length=32_000)
    if how == "run":
        messages = agent.run_sync("Read all.", conversation_id="user:1", usage_limits=MANY).all_messages()
    else:

        async def stream():
            async with agent.run_stream("Read all.", conversation_id="user:1", usage_limits=MANY) as result:
                assert await result.get_output() == "Done."
                return result.all_messages()

        messages = asyncio.run(stream())
    assert len(scripted.sent) == 61
    for sent in scripted.sent:
        check(sent)
        assert parts(sent)[0].content == "Read all."
        assert sum(len(str(part)) for part in texts(sent)) // 4 < 32_000
    assert len(ModelMessagesTypeAdapter.dump_json(messages)) // 5 > 60_000
    assert scripted.sent[-1][-1].parts[-1].tool_call_id == messages[-2].parts[-1].tool_call_id
    assert all(info.instructions == "You read files." for info in scripted.infos)
    said = [[message.parts for message in sent] for sent in scripted.sent]  # the framework dates the newest request
    kept = [after[: len(before)] == before for before, after in pairwise(said)]
    assert sum(kept) > 0.7 * len(kept)


def test_the_next_run_goes_on(engine):
    """By the history that the caller hands over; the session is that of the conversation."""
    said = [ModelResponse([TextPart("One.")]), ModelResponse([TextPart("Two.")])]
    scripted, agent = agent_of(engine, said)
    first = agent.run_sync("First?", conversation_id="user:1/abc")
    second = agent.run_sync("Second?", message_history=first.all_messages())
    assert [part.content for part in parts(scripted.sent[-1])] == ["First?", "One.", "Second?"]
    assert len(second.all_messages()) == 4
    (row,) = engine.tasks()
    assert row.task_id.endswith("abc")
    assert row.message_count == 4  # the instructions, two questions, and the answer that was sent back


def test_conversations_do_not_share(engine):
    """Each has a window of its own."""
    scripted, agent = agent_of(engine, [ModelResponse([TextPart("One.")]), ModelResponse([TextPart("Two.")])])
    agent.run_sync("First?", conversation_id="a")
    agent.run_sync("Second?", conversation_id="b")
    assert [part.content for part in parts(scripted.sent[-1])] == ["Second?"]


@pytest.mark.parametrize(
    "history",
    [
        [],
        [ModelRequest([UserPromptPart("Q1")])],
        [ModelRequest([SystemPromptPart("Be kind."), UserPromptPart("Q1")]), ModelResponse([TextPart("A1")])],
        [ModelRequest([UserPromptPart("Q1")]), ModelResponse([TextPart("A1")]), ModelRequest([UserPromptPart("Q2")])],
        [ModelRequest([UserPromptPart(["Look.", BinaryContent(b"\x89PNG\r\n", media_type="image/png")])])],
        [
            ModelRequest([UserPromptPart("Q1")]),
            ModelResponse([ToolCallPart("read_file", '{"path": "a"}', "c1"), ToolCallPart("read_file", {}, "c2")]),
            ModelRequest([ToolReturnPart("read_file", {"n": 1}, "c1"), ToolReturnPart("read_file", "x", "c2")]),
            ModelResponse([TextPart("A1")]),
        ],
    ],
)  # fmt: skip
def test_any_history_comes_back(engine, history):
    """System prompts, pictures, parallel calls and retries are sent as the very objects."""
    scripted, agent = agent_of(engine, [ModelResponse([TextPart("Fine.")])])
    agent.run_sync("And?", message_history=history, conversation_id="a")
    sent = scripted.sent[-1]
    given = parts(history)
    assert [part for part in parts(sent) if part in given] == given
    assert parts(sent)[-1].content == "And?"


def test_an_edited_history(engine):
    """What was dropped is not sent, and nothing of the rest is lost."""
    said = [ModelResponse([TextPart(text)]) for text in ("One.", "Two.", "Three.")]
    scripted, agent = agent_of(engine, said)
    first = agent.run_sync("First?", conversation_id="a").all_messages()
    second = agent.run_sync("Second?", message_history=first).all_messages()
    agent.run_sync("Third?", message_history=second[2:])
    assert [part.content for part in parts(scripted.sent[-1])] == ["Second?", "Two.", "Third?"]


def test_a_tool_that_asks_for_a_retry(engine):
    """The model gets the request for another try as the framework makes it."""

    def picky(path: str) -> str:
        if path == "0.py":
            raise ModelRetry("Another file.")
        return "text"

    call = [ToolCallPart("picky", {"path": f"{number}.py"}, f"c{number}") for number in range(2)]
    said = [ModelResponse([one]) for one in call] + [ModelResponse([TextPart("Done.")])]
    scripted, agent = agent_of(engine, said, tools=(picky,))
    result = agent.run_sync("Go.", conversation_id="a")
    assert result.output == "Done."
    assert scripted.sent[-1] == result.all_messages()[:-1]


def test_the_model_can_unfold(engine):
    """The agent has the tools, marks name handles, and a call is answered with the text."""
    unfold = ModelResponse([ToolCallPart("unfold", {"handle": "m4"}, "call_u")])
    said = [*replies(40)[:-1], unfold, ModelResponse([TextPart("Done.")])]
    scripted, agent = agent_of(engine, said, context_length=16_000)
    messages = agent.run_sync("Read all.", conversation_id="a").all_messages()
    assert {tool.name for tool in scripted.infos[-1].function_tools} == {"read_file", "unfold", "recall"}
    assert 'unfold("m' in str(scripted.sent[-2])
    assert source("0.py")[:200] in messages[-2].parts[0].content


def test_no_handles_without_the_tools(engine):
    """Nothing invites a call that would fail."""
    scripted, agent = agent_of(engine, replies(40), context_length=16_000, lookups=False)
    agent.run_sync("Read all.", conversation_id="a")
    assert "unfold" not in str(scripted.sent[-1])


SCRIPT = """
import sys, time
sys.path.insert(0, "tests_integrations")
import test_pydantic_ai as here

def read_file(path: str) -> str:
    if path == "5.py":
        print("now", flush=True)
        time.sleep(60)
    return "text of " + path

_, agent = here.agent_of(sys.argv[1], here.replies(9), tools=(read_file,))
agent.run_sync("Read all.", conversation_id="a")
"""


def test_kill_9_and_on(url, killed):
    """The log has what was sent; a client that comes back with its history goes on at once."""
    killed(SCRIPT, url)
    with orihon.open(url, settings=Settings()) as engine:
        (row,) = engine.tasks()
        stored = list(engine.read(row.uuid).messages())
        assert stored[-1].text == "text of 4.py"
        history = [ModelRequest([UserPromptPart("Read all.")])]
        for number in range(5):
            result = ToolReturnPart("read_file", f"text of {number}.py", f"call_{number}")
            history += [calling(number), ModelRequest([result])]
        scripted, agent = agent_of(engine, [ModelResponse([TextPart("Fine.")])])
        agent.run_sync("And?", message_history=history, conversation_id="a")
        check(scripted.sent[-1])
        assert engine.row(row.uuid).message_count == len(stored) + 1
