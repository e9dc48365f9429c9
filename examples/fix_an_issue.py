"""An agent fixes an issue, and a second run on the same issue inherits from the first.

    python fix_an_issue.py [DIRECTORY] [--http]

The model follows a script, so this runs offline; with `--http` it is asked over a real connection to a server on this
machine. For a real one put `client = openai.OpenAI()` in its place: the loop stays as it is.
"""

import json
import sys
import tempfile
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import orihon
from orihon.testing import ScriptedModel, serve

SYSTEM = "You fix bugs. Read the code before you change it, and run the tests after that."
ISSUES = ["The total of an empty basket is wrong.", "Thanks! And the total of one item?"]
TOOLS = [
    {"type": "function", "function": {"name": "read_file", "parameters": {"properties": {"path": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "run_tests", "parameters": {"type": "object", "properties": {}}}},
]
SCRIPT = [
    {"content": "I read it first.", "tool_calls": [{"name": "read_file", "arguments": {"path": "basket.py"}}]},
    {"content": "", "tool_calls": [{"name": "run_tests"}, {"name": "read_file", "arguments": {"path": "nothing.py"}}]},
    "Fixed in basket.py: an empty basket costs 0. The tests pass.",
    {"content": "The last run changed basket.py.", "tool_calls": [{"name": "run_tests"}]},
    "One item costs its price; there is a test for it now.",
]
FILES = {"basket.py": "def total(prices):\n    return sum(prices) if prices else 0\n"}


def execute(name, arguments):
    """Run a tool. An exception becomes an error result for the model."""
    return FILES[arguments["path"]] if name == "read_file" else "2 passed"


def over_http(url):
    """A client that uses only the standard library."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def create(**request):
        headers = {"Content-Type": "application/json", "Authorization": "Bearer none"}
        asked = urllib.request.Request(f"{url}/chat/completions", json.dumps(request).encode(), headers)
        with opener.open(asked) as answer:
            return json.load(answer)

    return SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))


def fix(engine, client, issue_text):
    """Run one task."""
    key = orihon.TaskKey.github("acme", "shop", issue=27)

    with engine.start(key, model="gpt-4o", context_length=128_000, user="alice", tools=TOOLS) as task:
        task.add("system", SYSTEM)
        task.add("user", issue_text)
        while task.wants_reply():
            window = task.window()
            reply = client.chat.completions.create(model="gpt-4o", messages=window.openai(), tools=window.tools())
            task.add_reply(reply)
            for call in task.pending_calls():
                with task.tool(call) as run:
                    run.result = execute(call.name, call.arguments)
    return task


place = Path(next((word for word in sys.argv[1:] if word != "--http"), tempfile.mkdtemp())) / "contexts"

with orihon.open(place) as engine, ScriptedModel(SCRIPT) as model, serve(model) as server:
    client = over_http(server.url) if "--http" in sys.argv else model
    for issue_text in ISSUES:
        task = fix(engine, client, issue_text)
        row = engine.row(task.uuid)
        print(f"{row.status}: {row.llm_call_count} model calls, {row.tool_call_count} tool calls. {issue_text}")
    print("\nWhat the model saw when the second run began:\n")
    for message in model.requests[-2].messages:
        print(f"  {message['role']:9} {message['content']}".replace("\n", "\n" + " " * 12))

print(f"\ncat {place}/completed/{task.uuid}/messages.jsonl")
