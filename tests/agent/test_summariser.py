"""Who writes the summaries of a run: the model of the task, unless the settings say otherwise."""

import pytest

import orihon
from orihon.agent.models import choose_summariser
from orihon.agent.queue import Job
from orihon.agent.run_setup import RunSetup
from orihon.settings.schema import ContextStorage, Llm, Provider, Settings
from orihon.testing import serve

KEY = orihon.TaskKey.local("text")
REQUEST = "The total of an empty basket is wrong; guard compute_total in src/shop/basket.py. Never touch prod.db."
SUMMARY = "compute_total in src/shop/basket.py is guarded, as an empty basket divided by zero. prod.db is untouched."


@pytest.mark.parametrize(
    ("configured", "model", "chosen"),
    [
        ("", "openai:gpt-4o", "openai:gpt-4o"),
        ("", "scripted:a.json", "extractive"),  # its replies belong to the conversation
        ("", "", "extractive"),
        ("extractive", "openai:gpt-4o", "extractive"),
        ("ollama:small", "openai:gpt-4o", "ollama:small"),
        ("scripted:b.json", "scripted:a.json", "scripted:b.json"),
    ],
)
def test_the_choice(configured, model, chosen):
    """What is configured wins; then the model of the task."""
    assert choose_summariser(Settings(context_storage=ContextStorage(summariser=configured)), model) == chosen


def run(engine, server, tmp_path, summariser=""):
    settings = Settings(
        llm=Llm(openai=Provider(model="m", base_url=server.url)), context_storage=ContextStorage(summariser=summariser)
    )
    engine = orihon.Engine(engine.store, settings)
    job = Job(request=REQUEST, workspace=str(tmp_path), plan=False)
    with RunSetup(engine, KEY, job, mcp=False) as setup:
        return setup.handler.handle(setup.load_work())


@pytest.mark.parametrize(("summariser", "replies"), [("", ["Done.", SUMMARY]), ("extractive", ["Done."])])
def test_a_run_asks_its_own_model(tmp_path, summariser, replies):
    """Once, at the end; the record names the model. With `extractive` no further request is sent."""
    with orihon.open("memory:") as engine, serve(replies) as server:
        row = run(engine, server, tmp_path, summariser)
        (final,) = engine.read(row.uuid).summaries()
        assert (row.status, row.summary_failures) == ("completed", 0)
        assert final.model == ("openai:m" if not summariser else None)
        assert row.final_summary.startswith(SUMMARY) is not bool(summariser)
        assert "Never touch prod.db" in row.final_summary or "prod.db is untouched" in row.final_summary


def test_a_model_that_refuses_to_summarise_is_asked_three_times(tmp_path):
    """The run is completed all the same, and the next one inherits the extractive summary."""
    refusal = "I'm sorry, I cannot help with that."
    with orihon.open("memory:") as engine, serve(["Done.", refusal, "OK", refusal]) as server:
        row = run(engine, server, tmp_path)
        assert (row.status, row.summary_failures) == ("completed", 1)
        assert "sorry" not in row.final_summary
        assert "Never touch prod.db" in row.final_summary
        told = [request.messages[-1]["content"] for request in server.model.requests[1:]]
        assert "Your last summary was refused" not in told[0]
        assert all("Your last summary was refused" in text for text in told[1:])


def test_a_request_that_cannot_succeed_is_not_repeated(tmp_path):
    """A model without credit is not asked three times for a summary."""
    with orihon.open("memory:") as engine, serve(["Done.", {"status": 401, "error": "No such key."}]) as server:
        row = run(engine, server, tmp_path)
        assert (row.status, row.summary_failures) == ("completed", 1)
        assert "Never touch prod.db" in row.final_summary
