"""A small store with real tasks in it, and the command over it in this process."""

import gzip

from click.testing import CliRunner

import orihon
from orihon.cli import cli
from orihon.settings.schema import Settings

IDS = {
    "done": "550e8400-e29b-41d4-a716-446655440000",
    "failed": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "paused": "0f8fad5b-d9cb-469f-a165-70867728950e",
    "bob": "550e8411-0000-4000-8000-00000000000b",
}
SECRET = "the-quarterly-figures-of-bob"
KINDS = ["jsonl", "sqlite", "postgres"]


def url_of(kind, place):
    return str(place / "contexts") if kind == "jsonl" else f"sqlite:///{place / 'contexts.db'}"


def fill(url):
    """Four tasks: alice's completed, failed and paused one, and one of bob's."""
    with orihon.open(url, settings=Settings()) as engine:
        with engine.start("github/acme/shop/issue/27", user="alice", uuid=IDS["done"], model="gpt-4o") as task:
            task.add("system", "You fix bugs.")
            task.add("user", "The total is wrong.\x1b[2J\x9b31m Look at 合計.")
            for number in range(1, 6):
                task.add_reply(_reply(f"Step {number}", number))
                with task.tool(task.pending_calls()[0]) as run:
                    run.result = f"the text of part_{number}.py"
            task.add_reply({"choices": [{"message": {"role": "assistant", "content": "Fixed: 合計を直しました。"}}]})
        with engine.start("gitlab/group/web/merge_request/5", user="alice", uuid=IDS["failed"]) as task:
            task.add("user", "Break it.")
            task.fail("RuntimeError: the provider\x1b]0;owned\x07 went away")
        task = engine.start("local/issue/notes", user="alice", uuid=IDS["paused"])
        task.add("user", "Wait for me.")
        task.pause("for lunch")
        with engine.start("github/acme/shop/issue/28", user="bob", uuid=IDS["bob"]) as task:
            task.add("user", SECRET)
            task.add_reply({"choices": [{"message": {"role": "assistant", "content": f"done with {SECRET}"}}]})


def _reply(said, number):
    made = {"id": f"call_{number}", "type": "function",
            "function": {"name": "read_file", "arguments": f'{{"path": "part_{number}.py"}}'}}  # fmt: skip
    message = {"role": "assistant", "content": said, "tool_calls": [made]}
    return {"choices": [{"message": message}], "usage": {"prompt_tokens": 100, "completion_tokens": 20}}


def pack(place):
    """Compress the lists of every completed task, as retention does."""
    for path in (place / "contexts" / "completed").rglob("*.jsonl"):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def said(*arguments, url=None, code=0, user=None, **environ):
    """What the command prints on standard output; it must end with this code."""
    env = {"ORIHON_USER": user, "ORIHON_TOKEN": None, "TZ": "UTC", "LC_ALL": "C.UTF-8", "COLUMNS": "100"} | environ
    given = [*arguments, *(["--store", url] if url else [])]
    result = CliRunner().invoke(cli, given, env=env, catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        if code == 0:
            raise result.exception
        assert getattr(result.exception, "exit_code", 70) == code, result.exception
        return f"{result.stdout}{result.exception} {getattr(result.exception, 'hint', '')}"
    assert result.exit_code == code, result.output
    return result.stdout
