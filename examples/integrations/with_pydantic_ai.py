"""An agent of pydantic-ai reads forty files in a window of 16,000 tokens. It needs no key: the model is scripted.

pip install "orihon[pydantic-ai]"
python with_pydantic_ai.py [DIRECTORY]
"""

import sys
import tempfile

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from orihon.integrations.pydantic_ai import OrihonWindow

store = (sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) + "/contexts"
sizes = []


def size(messages):
    """About how many tokens the texts have."""
    return sum(len(str(getattr(part, "content", part))) for message in messages for part in message.parts) // 4


def answer(messages, _):
    sizes.append(size(messages))
    number = len(sizes) - 1
    if number == 40:
        return ModelResponse([TextPart("I have read all of them.")])
    return ModelResponse([ToolCallPart("read_file", {"path": f"{number}.py"}, f"call_{number}")])


def read_file(path: str) -> str:
    """Read a file."""
    return "".join(f"{path}, line {number}: {hash((path, number)) % 10**9}\n" for number in range(100))


window = OrihonWindow(store, context_length=16_000)
agent = Agent(FunctionModel(answer), tools=[read_file], capabilities=[window])
result = agent.run_sync("Read all files.", conversation_id="reader")
messages = result.all_messages()
print(result.output)
print(f"The history has {len(messages)} messages, about {size(messages):,} tokens.")
print(f"The longest request had about {max(sizes):,}.")
