"""The outline that a row keeps of a task that ended: written, read back, and read from older versions."""

import shutil

import msgspec
import pytest

from orihon.inheritance import Outline, Section, make_outline, prepare, read_outline
from orihon.inheritance.outline import MAX_LINE_CHARS, MAX_LINES, MAX_STORED_TOOLS, ToolUse
from orihon.settings.schema import ContextInheritance
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.stores.memory import MemoryStore
from orihon.testing.samples import TOKEN
from orihon.tokens import counter
from support.past_runs import KEY, NOW, a_call, a_run

SECTIONS = [{"title": "Decisions", "kind": "decision", "priority": 1, "lines": ["Round half up:", "  the law says so"]}]
OLD = {  # as version 0.1 wrote it
    "planned": True,
    "uuid": "u",
    "status": "completed",
    "completed_at": "2024-02-01",
    "goal": "Fix the total",
    "subtasks": [
        {"description": "Guard the division", "status": "completed"},
        {"description": "Tell", "status": "failed"},
    ],
    "subtask_counts": {"completed": 1, "failed": 1},
    "successful_actions": 1,
    "failed_actions": 1,
    "key_failures": [{"what": "Tell", "tool": "mail", "why": "no account", "remedy": "write a comment"}],
    "verification_rounds": 2,
    "verification_passed": True,
    "issues_found": ["rounding is not tested"],
    "issues_resolved": ["rounding is not tested"],
    "recommendations": [
        {"kind": "finish", "about": "Tell", "more": ""},
        {"kind": "remedy", "about": "Tell", "more": "write a comment"},
        {"kind": "reuse", "about": "Guard the division", "more": "edit_file"},
    ],
    "tools": [{"tool": "mail", "successes": 0, "failures": 1, "last_error": "port 25"}],
}
OLD_BLOCK = """\
## Previous Plan Summary
Run ID (completed, 2024-02-01)
- Goal: Fix the total
- Subtasks:
  - completed: Guard the division
  - failed: Tell

## Execution History
Run ID (completed, 2024-02-01)
- Key Failures:
  - Tell → no account → write a comment
- Tools:
  - mail: 0 worked, 1 failed: port 25

## Verification History
Run ID (completed, 2024-02-01)
- Verification Rounds: 2 (passed)
- Issues Found:
  - rounding is not tested
- Issues Resolved:
  - rounding is not tested

## Recommendations for Current Processing
- Finish what was left open: Tell
- If this fails again: Tell → write a comment
- Reuse what worked: Guard the division → edit_file
</previous_run>"""


@pytest.fixture
def store():
    with MemoryStore() as opened:
        yield opened


def kept(store, outline, **fields):
    """Return the outline of a row with this text."""
    text = outline if isinstance(outline, str) else msgspec.json.encode(outline).decode()
    return read_outline(store.row(a_run(store, handoff=text, **fields)))


def inherited(store, **planning):
    """Return the block that a new task begins with."""
    settings = msgspec.convert({"planning": planning}, ContextInheritance)
    options = {"user": "alice", "now": NOW, "counter": counter("estimate"), "context_length": 128_000}
    return prepare(store, KEY, settings=settings, language="en", **options).text


def test_an_outline_is_read_as_it_was_written(store):
    """Sections of any title and kind are kept, and the tools, without a secret."""
    calls = [a_call("read"), a_call("edit", error=f"denied {TOKEN}"), a_call("read")]
    uuid = a_run(store, records=calls)
    text = make_outline(store, store.row(uuid), {"sections": SECTIONS})
    assert TOKEN not in text
    assert msgspec.json.decode(text)["planned"] is True
    with store.lease(uuid) as lease:
        lease.update(handoff=text)
    assert read_outline(store.row(uuid)) == Outline(
        uuid=uuid,
        status="completed",
        completed_at="2024-02-01T10:00:00.000000Z",
        sections=(Section(title="Decisions", kind="decision", lines=("Round half up:", "  the law says so")),),
        tools=(
            ToolUse(tool="read", successes=2),
            ToolUse(tool="edit", failures=1, last_error="denied [GITHUB_TOKEN]"),
        ),
    )
    block = inherited(store)
    assert "## Decisions\nRun " in block
    assert "\n- Round half up:\n  - the law says so\n" in block


def test_a_task_without_sections_has_no_outline(store):
    """Its row still keeps its tools."""
    uuid = a_run(store, records=[a_call("read")])
    text = make_outline(store, store.row(uuid), {})
    assert msgspec.json.decode(text) == {
        "planned": False,
        "sections": [],
        "tools": [{"tool": "read", "successes": 1, "failures": 0, "last_error": ""}],
    }
    assert kept(store, text) is None


def test_calls_that_cannot_be_read_lose_only_the_tools(tmp_path):
    """The sections are written anyway."""
    with open_store(str(tmp_path / "s"), Options(durability="os")) as files:
        uuid = a_run(files, records=[a_call("read")])
        row = files.row(uuid)
        shutil.rmtree(files.task_path(uuid))
        outline = msgspec.json.decode(make_outline(files, row, {"sections": SECTIONS}))
    assert (outline["sections"], outline["tools"]) == (SECTIONS, [])


@pytest.mark.parametrize(
    "outline",
    [
        "",
        "[not JSON",
        "null",
        "[]",
        "7",
        "{}",
        {"planned": True},
        {"sections": 5},
        {"sections": [5, {}, {"title": "x"}]},
    ],
)
def test_an_outline_that_says_nothing_is_none(store, outline):
    """A row may have been edited outside Orihon."""
    assert kept(store, outline) is None
    assert "##" not in inherited(store)


def test_every_outline_is_small_and_flat(store):
    """Huge lists and lines are cut, and no line poses as a title."""
    lines = ["a\n## b\r\nc", "  \u2028## d", " ", "x" * 10_000, *["y"] * 10_000]
    sections = [{"title": "t\n## u", "kind": "k", "lines": lines}, *SECTIONS * 1000]
    uuid = a_run(store)
    assert len(make_outline(store, store.row(uuid), {"sections": sections})) < 60_000
    outline = kept(store, {"sections": sections, "tools": [{"tool": "t"}] * 1000 + [7]})
    first = outline.sections[0]
    assert (first.title, first.lines[:2]) == ("t ## u", ("a ## b c", "  ## d"))
    assert max(map(len, first.lines)) <= MAX_LINE_CHARS
    assert len(first.lines) <= MAX_LINES
    assert len(outline.tools) == MAX_STORED_TOOLS
    assert len(outline.sections) <= 50


def test_version_0_1(store):
    """A row of version 0.1 is inherited from, in the four sections of the specification."""
    uuid = a_run(store, handoff=msgspec.json.encode(OLD).decode())
    block = inherited(store)
    assert block[block.index("##") :].replace(uuid[:8], "ID") == OLD_BLOCK


@pytest.mark.parametrize(
    ("switch", "gone"),
    [
        ("inherit_plans", ["Fix the total", "left open"]),
        ("inherit_verifications", ["rounding"]),
        ("inherit_reflections", ["no account", "fails again"]),
        ("reuse_successful_patterns", ["Reuse", "port 25"]),
    ],
)
def test_the_switches_hold_for_version_0_1(store, switch, gone):
    """Each setting removes its part."""
    a_run(store, handoff=msgspec.json.encode(OLD).decode())
    whole, text = inherited(store), inherited(store, **{switch: False})
    for words in gone:
        assert words in whole
        assert words not in text


@pytest.mark.parametrize("value", [7, "x", [], {}, None, [7, "x", None, {"status": 7}], {"kind": ["x"]}])
@pytest.mark.parametrize("name", sorted(OLD.keys() - {"planned"}))
def test_an_old_row_may_hold_anything(store, name, value):
    """A field of the wrong type is left out."""
    a_run(store, handoff=msgspec.json.encode(OLD | {name: value}).decode())
    assert "<previous_run>" in inherited(store)
