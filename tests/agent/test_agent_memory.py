"""What a process with a running agent keeps from turn to turn: the window, and nothing more for every turn."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.failing_server import Chaos, says

STATUS = Path("/proc/self/status")
TURNS, FIRST, MOST_MB = 150, 50, 3
CONTEXT_TOKENS = 24_000  # full, and folded, well before the first look

CHILD = """
import gc, json, sys
from pathlib import Path
import orihon
from orihon.agent.handler import TaskHandler, Work
from orihon.agent.models import open_model
from orihon.agent.tools.toolbox import Toolbox
from orihon.settings.section import Secret
from orihon.settings.schema import Llm, Provider, Settings

url, folder, tokens, *marks = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
taken, folded = {}, {}

def watch(step):
    if step.kind == "turn" and step.turn in marks:
        gc.collect()
        lines = Path("/proc/self/status").read_text().splitlines()
        taken[step.turn] = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
        folded[step.turn] = step.folded

provider = Provider(model="m", base_url=url, api_key=Secret("none"), context_length=tokens)
settings = Settings(llm=Llm(openai=provider))
with orihon.open(folder / "contexts", settings=settings) as engine, Toolbox(folder / "work", approve="all") as tools:
    model = open_model("openai:m", settings)
    handler = TaskHandler(engine, model, tools, on_step=watch)
    row = handler.handle(Work(key=orihon.TaskKey.github("acme", "shop", issue=27), request="Read everything."))
    model.close()
print(json.dumps([row.status, row.llm_call_count, row.tool_call_count, taken, folded]))
"""


class Model(Chaos):
    """Asked for a summary, it gives one, whatever comes next in the script."""

    def next_act(self, path, body, key):
        return super().next_act(path, body, key) if "tools" in body else says("- The baskets are read.", usage=None)


def replies():
    """A file or a search at a time, with some words."""
    for turn in range(TURNS):
        words = " ".join(f"basket_{turn}_{word} is checked" for word in range(60))
        path = {"path": f"part_{turn % 10}.py"}
        call = ("read", path) if turn % 2 else ("search", path | {"pattern": f"line_{turn % 7}"})
        yield says(words, (call[0], json.dumps(call[1])), usage=None)
    yield says("Done.", usage=None)


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="only Linux says how much memory a process has")
def test_an_agent_takes_no_more_for_every_turn(tmp_path):
    """Between turn 50 and turn 150 a process with a model, tools and folds grows by less than 3 MB."""
    (tmp_path / "work").mkdir()
    for number in range(10):
        lines = (f"line_{line % 40} of part_{number}: value {line * number}" for line in range(100))
        (tmp_path / "work" / f"part_{number}.py").write_text("\n".join(lines))
    with Model(replies()) as server:
        numbers = map(str, (CONTEXT_TOKENS, FIRST, TURNS))
        command = [sys.executable, "-c", CHILD, f"{server.root}/v1", str(tmp_path), *numbers]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    status, asked, ran, taken, folded = json.loads(run.stdout)
    assert (status, asked, ran) == ("completed", TURNS + 1, TURNS)
    assert folded[str(FIRST)]
    assert taken[str(TURNS)] - taken[str(FIRST)] < MOST_MB * 1024
