"""The store that the commands of docs/operations.md are run on: a few tasks of three users, really worked on."""

import json
from contextlib import contextmanager

import orihon
from orihon.settings.schema import ContextStorage, Settings

UUID = "550e8400-e29b-41d4-a716-446655440000"
OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
RUNNING = "0f8fad5b-d9cb-469f-a165-70867728950e"
PAUSED = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
SETTINGS = Settings(context_storage=ContextStorage(summariser="", durability="os"))
SUMMARIES = ("Fixed the authentication bug in src/auth.py.", "Implemented the new login page.")


@contextmanager
def a_store(place):
    """Make it in `logs/contexts` of a directory; one task is at work as long as the block lasts."""
    with orihon.open(place / "logs" / "contexts", settings=SETTINGS) as engine:
        _long(engine)
        _short(engine, "github/notfolder/coding_agent/issue/28", "notfolder", OTHER, "The login page has a typo.")
        _short(engine, "github/notfolder/coding_agent/issue/29", "user2", None, "Add a test for the login page.")
        with engine.start("github/acme/shop/issue/5", user="user3") as task:
            task.add("user", "Deploy it.")
            task.fail("ConnectionError: the provider went away")
        task = engine.start("local/issue/notes", user="notfolder", uuid=PAUSED)
        task.add("user", "Tidy up the notes.")
        task.pause("for lunch")
        (place / "script.json").write_text(json.dumps(["Done: the shop is fixed."]))
        task = engine.start("github/notfolder/coding_agent/pull_request/30", user="notfolder", uuid=RUNNING)
        task.add("user", "Review this.")
        yield
        task.pause()


def _long(engine):
    """A task of many turns, summarised twice on the way."""
    told = iter((*SUMMARIES, "All of it is done."))
    key = "github/notfolder/coding_agent/issue/27"
    with engine.start(key, user="notfolder", uuid=UUID, model="gpt-4o", summariser=lambda _: next(told)) as task:
        task.add("system", "You fix bugs.")
        task.add("user", "Authentication fails with an empty password.")
        for number in range(1, 25):
            _turn(task, number)
            if number in {8, 16}:
                task.compact()
        task.add("user", "Commit the changes")
        _turn(task, 25, "github_create_commit", "Success")
        task.add_reply(_said('{"done": true, "comment": "Completed"}'))


def _turn(task, number, tool="github_get_file_contents", result="(file content)"):
    call = {"id": f"call_{number}", "type": "function",
            "function": {"name": tool, "arguments": json.dumps({"path": f"src/part_{number}.py"})}}  # fmt: skip
    task.add_reply(_said(f"I look at part {number} of the authentication.", [call]))
    for pending in task.pending_calls():
        with task.tool(pending) as run:
            run.result = result


def _said(content, calls=()):
    message = {"role": "assistant", "content": content} | ({"tool_calls": list(calls)} if calls else {})
    return {"choices": [{"message": message}], "usage": {"prompt_tokens": 900, "completion_tokens": 100}}


def _short(engine, key, user, uuid, asked):
    with engine.start(key, user=user, uuid=uuid, inherit=False) as task:
        task.add("user", asked)
        task.add_reply(_said("Done: the login page and its authentication are as they should be."))
