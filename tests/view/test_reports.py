"""The search, the tree, the plan, the store and a single message, over HTTP."""

import base64

import pytest

import orihon
from orihon.planning.schema import Action, ActionPlan, Goal, Plan, Verification, make_entry
from orihon.settings.schema import Settings
from support.folded_task import UUID, play
from support.viewing import viewing

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
OTHER = "550e8400-e29b-41d4-a716-446655440022"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    url = str(tmp_path_factory.mktemp("store") / "contexts")
    with orihon.open(url, settings=Settings()) as engine:
        play(engine, user="alice")
        with engine.start("github/acme/shop/issue/21", uuid=OTHER, user="alice", model="gpt-4o") as task:
            task.checkpoint("before it all")
            picture = {
                "type": "image_url",
                "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"},
            }
            task.add("user", [{"type": "text", "text": "Look at this rounding mistake."}, picture])
            task.add("user", "x" * 450_000)
            plan = Plan(
                goal_understanding=Goal(main_objective="Mend the total", success_criteria=("tests pass",)),
                action_plan=ActionPlan(
                    actions=(Action(task_id="1", tool="edit", purpose="Change the loop", status="completed"),)
                ),
            )
            task.plan(make_entry(plan))
            task.plan(make_entry(Verification(verification_passed=True, comment="All is well.")))
    with viewing(url) as client:
        yield client


def test_the_search_finds_passages_in_all_tasks(client):
    """A hit names its task and its message, and its link leads to it."""
    (result,) = client.get("/search.json?q=rounding+mistake").json["results"]
    assert result["uuid"] == OTHER
    place = next(place for place in result["places"] if place["kind"] == "user")
    assert "rounding mistake" in place["snippet"]
    assert f"?at={place['number']}#m{place['number']}" in client.get("/search?q=rounding+mistake").text
    assert client.get("/search.json?q=nowhere-at-all").json["results"] == []
    assert client.get("/search").status == 200


def test_the_search_in_a_task_finds_all_its_places(client):
    """More than the three of the search over all tasks, in order, and of this task only."""
    (result,) = client.get(f"/t/{UUID}/search.json?q=I+look+at").json["results"]
    numbers = [place["number"] for place in result["places"] if place["kind"] == "assistant"]
    assert len(numbers) == 24
    assert numbers == sorted(numbers)
    assert client.get(f"/t/{UUID}/search.json?q=rounding").json["results"] == []
    assert client.get(f"/t/{UUID}/search?q=I+look+at").text.count("data-row") == len(result["places"])


def test_the_tree_shows_what_happened_to_the_view(client):
    """A tangent and its end at one depth, the rewind with its target, the checkpoint with its label, and the runs."""
    data = client.get(f"/t/{UUID}/tree.json").json
    types = [node["type"] for node in data["nodes"]]
    assert types.index("tangent") < types.index("end") < types.index("rewind")
    depths = {node["type"]: node["depth"] for node in data["nodes"]}
    assert depths["tangent"] == depths["end"] == 0
    other = client.get(f"/t/{OTHER}/tree.json").json
    assert other["nodes"][0]["label"] == "before it all"
    runs = {run["uuid"]: run["inherited_from"] for run in other["runs"]}
    assert runs == {UUID: "", OTHER: UUID}
    assert "basket" in other["inherited"]
    assert client.get(f"/t/{OTHER}/tree").status == 200


def test_the_plan_shows_its_state(client):
    """Goal, actions with their state, and the verification; a task without a plan says so."""
    page = client.get(f"/t/{OTHER}/plan", accept_language="en").text
    for text in ("Mend the total", "tests pass", "Change the loop", "All is well."):
        assert text in page
    assert client.get(f"/t/{OTHER}/plan.json").json["plan"]["action_plan"]["actions"][0]["status"] == "completed"
    assert "has no plan" in client.get(f"/t/{UUID}/plan").text


def test_the_store_shows_the_figures_of_stats(client):
    """Tasks, tokens by user and by model."""
    data = client.get("/store.json").json
    assert data["statistics"]["tasks"] == 2
    assert data["models"]["gpt-4o"]["tasks"] == 2
    assert client.get("/store").status == 200


def test_a_long_text_comes_in_pieces(client):
    """The conversation has the beginning of a long text, and the pages of the message have all of it."""
    messages = client.get(f"/t/{OTHER}.json").json["messages"]
    seq = next(message["seq"] for message in messages if str(message["content"]).startswith("xxx"))
    assert f"/t/{OTHER}/m/{seq}" in client.get(f"/t/{OTHER}").text
    assert len(client.get(f"/t/{OTHER}").body) < 300_000
    found = ""
    while len(found) < 450_000:
        piece = client.get(f"/t/{OTHER}/m/{seq}.json?from={len(found)}").json["text"]
        assert piece
        found += piece
    assert found == "x" * 450_000


def test_a_picture_is_only_a_picture(client):
    """It has its type, and a policy that lets it do nothing."""
    messages = client.get(f"/t/{OTHER}.json").json["messages"]
    seq = next(message["seq"] for message in messages if isinstance(message["content"], list))
    answer = client.get(f"/t/{OTHER}/m/{seq}/part/2")
    assert answer.body == PNG
    assert answer.headers["content-type"] == "image/png"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert client.get(f"/t/{OTHER}/m/{seq}/part/1").status == 404
    assert client.get(f"/t/{OTHER}/m/{seq}/part/9").status == 404
