"""An agent of LangChain reads forty files in a window of 16,000 tokens. It needs no key: the model is scripted.

pip install "orihon[langgraph]"
python with_langgraph.py [DIRECTORY]
"""

import sys
import tempfile

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from orihon.integrations.langgraph import OrihonMiddleware

store = (sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) + "/contexts"
sizes = []


class Scripted(GenericFakeChatModel):
    """A model that says what it was told to say."""

    def bind_tools(self, *_, **__):
        return self

    def _generate(self, messages, *arguments, **options):
        sizes.append(sum(len(str(message.content)) for message in messages) // 4)
        return super()._generate(messages, *arguments, **options)


def read_file(path: str) -> str:
    """Read a file."""
    return "".join(f"{path}, line {number}: {hash((path, number)) % 10**9}\n" for number in range(100))


def replies():
    for number in range(40):
        call = {"name": "read_file", "args": {"path": f"{number}.py"}, "id": f"call_{number}"}
        yield AIMessage("", tool_calls=[call])
    yield AIMessage("I have read all of them.")


middleware = OrihonMiddleware(store, context_length=16_000)
agent = create_agent(Scripted(messages=replies()), [read_file], middleware=[middleware])
config = {"configurable": {"thread_id": "reader"}, "recursion_limit": 200}
messages = agent.invoke({"messages": [("user", "Read all files.")]}, config)["messages"]
print(messages[-1].content)
total = sum(len(str(message.content)) for message in messages) // 4
print(f"The state has {len(messages)} messages, about {total:,} tokens.")
print(f"The longest request had about {max(sizes):,}.")
