"""The nearest AGENTS.md or CLAUDE.md is shown to the model, also after it changed."""

import os
import time

import pytest

import orihon
from orihon.agent.instructions import find_instructions, make_instructions_check
from orihon.agent.queue import Job
from orihon.agent.run_setup import RunSetup
from orihon.agent.tools.workspace import Workspace
from orihon.settings.schema import Settings, Sticky
from support.replies import KEY


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "shop"
    (root / ".git").mkdir(parents=True)
    (root / "src" / "basket").mkdir(parents=True)
    return root


def found(directory, settings=None):
    with Workspace(directory) as workspace:
        return find_instructions(workspace, settings or Sticky())


def test_the_nearest_file_up_to_the_root_of_the_repository_is_meant(repository):
    (repository.parent / "AGENTS.md").write_text("Another project.")
    assert found(repository / "src" / "basket") is None
    (repository / "CLAUDE.md").write_text("No floats.")
    assert found(repository / "src" / "basket") == str(repository / "CLAUDE.md")
    (repository / "src" / "AGENTS.md").write_text("No globals.")
    assert found(repository / "src" / "basket") == str(repository / "src" / "AGENTS.md")
    assert found(repository / "src") == "AGENTS.md"
    assert found(repository) == "CLAUDE.md"


def test_outside_of_a_repository_only_the_workspace_counts(tmp_path):
    (tmp_path / "AGENTS.md").write_text("Not this project.")
    (tmp_path / "work").mkdir()
    assert found(tmp_path / "work") is None
    assert found(tmp_path) == "AGENTS.md"
    assert found(tmp_path, Sticky(instructions=())) is None


def test_the_instructions_stand_in_every_window_and_are_read_again(repository):
    instructions = repository / "AGENTS.md"
    instructions.write_text("Money is a whole number of cents.")
    with (
        orihon.open("memory:", settings=Settings()) as engine,
        engine.start(KEY) as task,
        Workspace(repository) as place,
    ):
        task.add("system", "You fix bugs.")
        check = make_instructions_check(place, Sticky())
        check(task)
        task.add("user", "Fix the basket.")
        assert "[AGENTS.md]\nMoney is a whole number of cents." in str(task.window().openai()[1]["content"])
        instructions.write_text("Round half up.")
        os.utime(instructions, ns=(time.time_ns() - 10**9,) * 2)
        check(task)
        assert "Round half up." in str(task.window().openai()[-1]["content"])


def test_a_run_shows_them_to_its_model(repository, tmp_path):
    (repository / "AGENTS.md").write_text("Money is a whole number of cents.")
    script = tmp_path / "script.json"
    script.write_text('["Done."]')
    with orihon.open("memory:", settings=Settings()) as engine:
        job = Job(request="Fix the basket.", plan=False, model=f"scripted:{script}", workspace=str(repository))
        with RunSetup(engine, orihon.TaskKey.local("shop"), job) as setup:
            row = setup.handler.handle(setup.load_work())
        assert (row.status, row.error_message) == ("completed", None)
        assert "Money is a whole number of cents." in str(engine.read(row.uuid).window().openai())
