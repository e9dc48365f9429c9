"""`ConversationState` of document 004, with the calls of its section 15."""

import uuid

import pytest

import orihon
from orihon.compat import ConversationState


@pytest.fixture
def engine(tmp_path):
    with orihon.open(tmp_path / "contexts") as engine:
        yield engine


@pytest.fixture
def conversation(engine, tmp_path):
    model = "anthropic.claude-3-5-sonnet-20241022-v2:0"
    state = ConversationState.new(str(uuid.uuid4()), "agents", {}, "tools", model, tmp_path, True, engine=engine)
    state.conversation.say("Why does it fail?")
    state.conversation.task.add_reply("An import is missing.")
    yield state
    state.close()


def test_the_fields_of_the_document(conversation):
    assert len(conversation.history) == 1
    assert conversation.valid_history_range == [0, 1]
    assert conversation.transcript == ["> Why does it fail?", "An import is missing."]
    assert conversation.model_info["model_id"] == "anthropic.claude-3-5-sonnet-20241022-v2:0"
    assert conversation.mcp_enabled is True
    assert conversation.tangent_state is None
    assert (conversation.agents, conversation.tool_manager) == ("agents", "tools")
    with pytest.raises(AttributeError, match="no 'nothing'"):
        _ = conversation.nothing


def test_a_tangent_leaves_the_main_conversation_as_it_was(conversation):
    before = conversation.history
    conversation.enter_tangent_mode()
    assert conversation.is_in_tangent_mode()
    assert conversation.get_tangent_duration_seconds() == 0
    conversation.conversation.say("By the way?")
    conversation.conversation.task.add_reply("Yes.")
    conversation.exit_tangent_mode()
    assert conversation.history == before
    assert conversation.get_tangent_duration_seconds() is None


def test_the_tail_of_a_tangent_can_stay(conversation):
    conversation.enter_tangent_mode()
    for question in ("First?", "Second?"):
        conversation.conversation.say(question)
        conversation.conversation.task.add_reply(f"About {question}")
    conversation.exit_tangent_mode_with_tail()
    assert "Second?" in str(conversation.history)
    assert "First?" not in str(conversation.history)


def test_clearing_empties_the_history(conversation):
    conversation.clear()
    assert conversation.history == []


def test_the_state_is_one_json_document(conversation, engine, tmp_path):
    copy = ConversationState.from_json(conversation.to_json(), engine=engine, directory=tmp_path)
    texts = [entry["user"]["content"]["Prompt"]["prompt"] for entry in copy.history]
    assert texts == ["Why does it fail?"]
    copy.close()


def test_a_conversation_continues_under_its_id(conversation, engine, tmp_path):
    conversation.close()
    again = ConversationState.new(conversation.conversation_id, os=tmp_path, engine=engine)
    assert len(again.history) == 1
    again.close()
