"""`ContextManager` and `HISTORY_CONFIG` of document 003."""

import json

import pytest

from orihon.compat import HISTORY_CONFIG, ContextManager
from orihon.errors import UsageError


def test_the_numbers_are_those_of_the_document():
    assert HISTORY_CONFIG == {
        "MAX_MESSAGES": 24, "MAX_TEXT_CHARS": 1000, "MAX_DATA_CHARS": 2000, "MAX_UI_NODES": 200, "MAX_UI_DEPTH": 2,
        "MAX_UI_CHILDREN": 20, "MAX_WEB_ELEMENTS": 200, "MAX_ACTIONS": 8,
    }  # fmt: skip


def test_the_newest_and_the_most_important_messages_are_sent():
    manager = ContextManager()
    manager.addMessage({"role": "assistant", "content": "Error: the button is gone"})
    for number in range(30):
        manager.addMessage({"role": "assistant", "content": f"click {number}"})
    texts = json.dumps(manager.getMessages())
    assert "the button is gone" in texts
    assert "click 29" in texts
    assert '"click 3"' not in texts


def test_importance_is_returned():
    manager = ContextManager()
    assert manager.addMessage({"role": "assistant", "content": "hello"}) == 0.5
    assert manager.addMessage({"role": "assistant", "content": "Error: it broke"}) == 0.8


def test_the_snapshot_has_the_names_of_the_document():
    manager = ContextManager()
    assert manager.getSnapshot() is None
    manager.updateSnapshot({"goal": "Safari を開いて Google を検索", "currentPhase": "planning"})
    manager.updateSnapshot({"completedActions": ["osa", "click", "type"], "currentPhase": "executing"})
    assert manager.getSnapshot() == {
        "goal": "Safari を開いて Google を検索",
        "completedActions": ["osa", "click", "type"],
        "currentPhase": "executing",
        "keyObservations": [],
    }
    assert manager.getStats()["hasSnapshot"] is True


def test_the_statistics_count_messages_and_tokens():
    manager = ContextManager()
    for _ in range(18):
        manager.add_message({"role": "user", "content": "x" * 1000})
    assert manager.getStats() == {"messageCount": 18, "estimatedTokens": 4500, "hasSnapshot": False}
    manager.reset()
    assert manager.getStats()["messageCount"] == 0


def test_trees_are_cut_to_the_limits():
    tree = {"elements": [{"role": "AXButton", "title": f"{n}", "help": "Press enter"} for n in range(300)]}
    message = ContextManager({"MAX_UI_NODES": 10}).compressUIData({"role": "tool", "content": json.dumps(tree)})
    kept = json.loads(message["content"])["elements"]
    assert sum("title" in element for element in kept if isinstance(element, dict)) <= 10
    assert "Press enter" not in message["content"]


def test_unknown_limits_and_shapeless_messages_are_refused():
    with pytest.raises(UsageError, match="no 'MAX_NODES'"):
        ContextManager({"MAX_NODES": 3})
    with pytest.raises(UsageError, match="`role` and a `content`"):
        ContextManager().addMessage("hello")
