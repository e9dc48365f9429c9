"""What the documentation shows can be run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = sorted(path for path in (ROOT / "examples").glob("*.py") if "StoreContract" not in path.read_text("utf-8"))
INTEGRATIONS = ROOT / "docs" / "integrations"  # tests_integrations/test_pages.py runs these
PAGES = sorted(
    path
    for path in (ROOT / "docs").rglob("*.md")
    if "```python" in path.read_text("utf-8") and INTEGRATIONS not in path.parents
)
CONTRACTS = sorted(path for path in (ROOT / "examples").glob("*.py") if "StoreContract" in path.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_examples_run(script, tmp_path):
    """Each example ends well, twice in the same place."""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, script, tmp_path], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_the_example_goes_on_where_it_was(tmp_path):
    """The second run of the first example finds the messages of the first, masked."""
    command = [sys.executable, ROOT / "examples" / "keep_a_history.py", tmp_path]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert "2 My address is [EMAIL]." in first
    assert "4 My address is [EMAIL]." in second


def run(name, *arguments):
    """What an example prints."""
    command = [sys.executable, ROOT / "examples" / name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_second_run_on_an_issue_inherits(tmp_path):
    """In process and over HTTP the model is shown the same, and the words of the first run stand in the second."""
    outputs = [run("fix_an_issue.py", tmp_path / "a"), run("fix_an_issue.py", tmp_path / "b", "--http")]
    plain, http = (re.sub(r"#\w{8} \(.*?\)|cat .*", "", output) for output in outputs)
    assert plain == http
    assert plain.count("completed: ") == 2
    _, block = plain.split("Summary of the previous run:")
    assert "Fixed in basket.py" in block.split("</previous_run>")[0]


def test_another_process_sees_the_same_window(tmp_path):
    """Both print the same hash, of a window that was folded."""
    first, second, end = run("pause_and_resume.py", tmp_path).splitlines()
    assert first.split()[3:] == second.split()[3:]
    assert int(re.search(r"(\d+) messages folded", first)[1])
    assert end.endswith("is completed.")


def test_a_cancelled_task_is_paused_and_resumed_while_the_loop_stays_free(tmp_path):
    """Two complete, one is cancelled and goes on later, and somebody counted all the time."""
    lines = run("async_agent.py", tmp_path).splitlines()
    assert [line.split()[:2] for line in lines[:4]] == [
        ["kitchen", "completed"],
        ["cellar", "completed"],
        ["attic", "paused"],
        ["attic", "completed"],
    ]
    assert int(re.search(r"\d+", lines[4])[0]) > 10


@pytest.mark.slow
@pytest.mark.parametrize("script", CONTRACTS, ids=lambda path: path.name)
def test_a_third_party_can_run_the_contract(script, tmp_path):
    """A store of somebody else passes the public contract with a few lines."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b[34]\d passed", done.stdout)


ASK = """
import openai
from orihon.testing.server import serve

TOOLS = [{"type": "function", "function": {"name": "list_files", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"content": "I look.", "tool_calls": [{"name": "list_files", "arguments": {}}]}
for function in (work_with_a_list, work):
    with serve([CALL, "basket.py, says bob@example.com."]) as server, openai.OpenAI(
        base_url=server.url, api_key="none"
    ) as client:
        print(function(client, "Which file is it?", TOOLS, lambda name: f"{name}: basket.py"))
print(engine.inheritance(orihon.TaskKey.github("acme", "shop", issue=27)).text)
"""


def python_of(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


def test_the_readme_loops_run(tmp_path):
    """Both loops of the README answer OpenAI's client alike; the second leaves a task, masked, that is inherited."""
    program = "\n".join([*python_of("README.md"), ASK])
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["basket.py, says bob@example.com."] * 2
    assert "Summary of the previous run: #" in done.stdout
    (log,) = tmp_path.glob("logs/contexts/completed/*/messages.jsonl")
    assert "list_files: basket.py" in log.read_text("utf-8")
    assert "says [EMAIL]." in log.read_text("utf-8")


def test_both_readmes_show_the_same_program():
    """The Japanese README has the code, the commands and the figures of the English one."""
    english, japanese = ((ROOT / name).read_text("utf-8") for name in ("README.md", "README.ja.md"))
    assert python_of("README.md") == python_of("README.ja.md")
    assert re.findall(r"```text\n(.*?)```", english, re.DOTALL) == re.findall(r"```text\n(.*?)```", japanese, re.DOTALL)
    figures = re.compile(r"\d+\.\d %|\b\d,\d{3}\b")
    assert sorted(set(figures.findall(english))) == sorted(set(figures.findall(japanese)))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_blocks_of_a_page_run(page, tmp_path):
    """The blocks of Python on a page are one program, and it ends well without a warning."""
    program = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.name)
def test_the_links_of_a_page_lead_somewhere(page):
    """Every relative link exists."""
    named = re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text("utf-8"))
    assert not [name for name in named if not (page.parent / name).exists()]


@pytest.mark.parametrize("name", ["README.md", "README.ja.md"])
def test_the_readme_is_short_and_its_links_lead_somewhere(name):
    """At most 150 lines, and every relative link and named file exists."""
    text = (ROOT / name).read_text("utf-8")
    assert len(text.splitlines()) <= 150
    named = re.findall(r"\]\((?!http)([^)#]+)\)", text) + re.findall(r"`((?:src|tests|docs)/[^`]+)`", text)
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]
