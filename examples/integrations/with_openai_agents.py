"""An agent of OpenAI's SDK reads forty files in a window of 16,000 tokens. It needs no key: the model is scripted.

pip install "orihon[openai-agents]"
python with_openai_agents.py [DIRECTORY]
"""

import asyncio
import json
import sys
import tempfile

from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from orihon.integrations.openai_agents import OrihonSession, OrihonWindow

store = (sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) + "/contexts"


@function_tool
def read_file(path: str) -> str:
    """Read a file."""
    return "".join(f"{path}, line {number}: {hash((path, number)) % 10**9}\n" for number in range(100))


def replies():
    for number in range(40):
        yield [function_call("read_file", json.dumps({"path": f"{number}.py"}), call_id=f"call_{number}")]
    yield [assistant_message("I have read all of them.")]


async def main():
    session = OrihonSession("reader", store)
    window = OrihonWindow("reader", store, context_length=16_000)
    model = ScriptedModel(list(replies()))
    agent = Agent(name="Reader", instructions="You read files.", model=model, tools=[read_file, *window.tools()])
    config = RunConfig(call_model_input_filter=window, tracing_disabled=True)
    result = await Runner.run(agent, "Read all files.", session=session, run_config=config, max_turns=50)
    items = await session.get_items()
    print(result.final_output)
    print(f"The session has {len(items)} items, about {len(json.dumps(items)) // 4:,} tokens.")
    print(f"The longest request had about {max(len(json.dumps(call.input)) for call in model.calls) // 4:,}.")


asyncio.run(main())
