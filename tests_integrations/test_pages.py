"""The pages of the adapters: their Python runs as it stands, and the examples print what they promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import orihon

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples" / "integrations").glob("*.py"))


def program(page):
    """The Python of a page."""
    text = (ROOT / "docs" / "integrations" / page).read_text("utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def test_openai_agents(tmp_path, monkeypatch):
    """The agent answers, and the session has the conversation."""
    from agents import function_tool, set_tracing_disabled  # noqa: PLC0415
    from agents.testing import ScriptedModel, assistant_message, function_call  # noqa: PLC0415

    monkeypatch.chdir(tmp_path)
    set_tracing_disabled(disabled=True)
    model = ScriptedModel(
        [[function_call("read_file", '{"path": "a.py"}', call_id="c1")], [assistant_message("Done.")]]
    )
    space = {"model": model, "read_file": function_tool(lambda path: f"text of {path}", name_override="read_file")}
    exec(program("openai-agents.md"), space)  # noqa: S102
    assert space["result"].final_output == "Done."
    assert "text of a.py" in str(model.last_call.input)
    assert (tmp_path / "logs" / "contexts").is_dir()


def test_langgraph(tmp_path, monkeypatch):
    """The agent answers, and the thread is a session of the store."""
    from langchain_core.messages import AIMessage  # noqa: PLC0415
    from langgraph.checkpoint.memory import InMemorySaver  # noqa: PLC0415
    from test_langgraph import Scripted, calling, read_file  # noqa: PLC0415

    monkeypatch.chdir(tmp_path)
    model = Scripted(messages=iter([calling(0), AIMessage("Done.")]))
    space = {"model": model, "read_file": read_file, "saver": InMemorySaver()}
    exec(program("langgraph.md"), space)  # noqa: S102
    assert space["result"]["messages"][-1].content == "Done."
    assert (tmp_path / "logs" / "contexts").is_dir()


def test_pydantic_ai(tmp_path, monkeypatch):
    """Both runs answer, and the conversation is one session of the store."""
    from pydantic_ai.messages import ModelResponse, TextPart  # noqa: PLC0415
    from test_pydantic_ai import Scripted, calling, read_file  # noqa: PLC0415

    monkeypatch.chdir(tmp_path)
    scripted = Scripted([calling(0), ModelResponse([TextPart("Done.")]), ModelResponse([TextPart("The first.")])])
    space = {"model": scripted.model, "read_file": read_file}
    exec(program("pydantic-ai.md"), space)  # noqa: S102
    assert space["second"].output == "The first."
    assert scripted.sent[-1][-1].parts[-1].content == "Which one is the longest?"
    with orihon.open(tmp_path / "logs" / "contexts") as engine:
        assert len(list(engine.tasks())) == 1


def test_every_page_is_run():
    """A page without a test here would be found."""
    pages = {path.stem.replace("-", "_") for path in (ROOT / "docs" / "integrations").glob("*.md")}
    assert pages == {name.removeprefix("test_") for name in globals() if name.startswith("test_")} - {
        "every_page_is_run",
        "the_examples",
    }
    assert pages == {path.stem.removeprefix("with_") for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples(path, tmp_path):
    """The session is long and the requests are not."""
    done = subprocess.run([sys.executable, path, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    stored, longest = (int(number.replace(",", "")) for number in re.findall(r"about ([\d,]+)", done.stdout))
    assert stored > 2 * longest
    assert longest < 16_000
