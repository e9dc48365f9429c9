"""`follow` makes the conversation what a list says: nothing is lost or stored twice, and what is equal is kept."""

import copy
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orihon
from orihon.context.matter import INHERITED
from orihon.errors import UsageError
from orihon.settings.schema import Settings
from support.replies import KEY, TOOLS

SYSTEM = {"role": "system", "content": "You fix bugs."}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def call(id, name="read_file", **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": function}]}


def result(id, text="ok"):
    return {"role": "tool", "tool_call_id": id, "content": text}


TALK = [SYSTEM, user("Fix it."), call("c1", path="a.py"), result("c1", "print(1)"), assistant("Done."), user("Thanks.")]


@pytest.fixture
def task(engine):
    with engine.start(KEY, tools=TOOLS) as task:
        yield task


def sent(task):
    return task.window().openai()


def counts(followed):
    return followed[:3]


def test_a_list_that_grows_is_appended(task):
    """Only what is new is stored, and the window is the list."""
    for length in range(1, len(TALK) + 1):
        assert counts(task.follow(TALK[:length])) == (length - 1, 0, 1)
        assert counts(task.follow(copy.deepcopy(TALK[:length]))) == (length, 0, 0)
    assert sent(task) == TALK
    assert task.log.last == len(TALK)


def test_a_result_has_the_name_of_its_tool(task):
    """Folding needs it; the list has it in the call only."""
    for length in range(1, len(TALK) + 1):
        task.follow(TALK[:length])
    assert task.log.one(4).tool_name == "read_file"


@pytest.mark.parametrize(
    ("edited", "expected"),
    [
        (TALK[:4], (4, 2, 0)),  # cut
        ([*TALK[:4], user("No.")], (4, 2, 1)),  # another end
        ([*TALK[:1], user("Fix that."), *TALK[2:]], (1, 5, 5)),  # an edit
        ([*TALK[:2], *TALK[4:]], (2, 4, 2)),  # a deletion
        ([*TALK[:2], user("Now."), *TALK[2:]], (2, 4, 5)),  # an insertion
        ([*TALK[:4], TALK[5], TALK[4]], (4, 2, 2)),  # another order
        ([SYSTEM, user("Summary: fixed."), user("Thanks.")], (1, 5, 2)),  # a compaction of the client's
        ([], (0, 5, 0)),
        ([user("Something else.")], (0, 5, 1)),
    ],
)
def test_what_differs_is_a_rewind(task, edited, expected):
    """What both begin with is kept, the rest of the log is hidden, the rest of the list appended."""
    task.follow(TALK)
    assert counts(task.follow(edited)) == expected
    if edited:
        has_prompt = edited[0] == SYSTEM
        assert sent(task) == (edited if has_prompt else [SYSTEM, *edited])
    assert counts(task.follow(edited)) == (len(edited), 0, 0)


def test_a_retry_hides_the_reply_that_is_not_in_the_list(task):
    """A reply that was stored and is not in the next list was dropped by the client."""
    task.follow(TALK[:2])
    task.add_reply(assistant("Something wrong."))
    assert counts(task.follow(TALK[:2])) == (2, 1, 0)
    assert sent(task) == TALK[:2]


def test_a_reply_that_was_stored_is_found_in_the_list(task):
    """It is not stored twice."""
    task.follow(TALK[:2])
    task.add_reply({"choices": [{"message": TALK[2]}], "usage": {"prompt_tokens": 9, "completion_tokens": 9}})
    assert counts(task.follow(TALK[:4])) == (3, 0, 1)
    assert sent(task) == TALK[:4]


def test_cache_marks_may_move(task):
    """They are no edit, in a part or beside it."""
    first = [SYSTEM, {"role": "user", "content": [{"type": "text", "text": "Fix it."}]}, assistant("How?"), user("So.")]
    second = copy.deepcopy(first)
    second[1]["content"][0]["cache_control"] = {"type": "ephemeral"}
    second[3]["cache_control"] = {"type": "ephemeral"}
    task.follow(first)
    assert counts(task.follow(second)) == (4, 0, 0)
    assert counts(task.follow(first)) == (4, 0, 0)


def test_another_system_prompt_replaces_the_first(task):
    """Nothing else is hidden or stored again, and the new one stands first."""
    task.follow(TALK)
    for number in range(3):
        prompt = {"role": "system", "content": f"You fix bugs. It is {number} o'clock."}
        assert counts(task.follow([prompt, *TALK[1:]])) == (len(TALK) - 1, 0, 1)
        assert sent(task) == [prompt, *TALK[1:]]
    assert task.log.last == len(TALK) + 3
    assert counts(task.follow(TALK[1:])) == (len(TALK) - 1, 0, 0)  # a list without one leaves it as it is
    assert sent(task)[0]["content"].endswith("2 o'clock.")


def test_a_summary_survives_another_system_prompt(task):
    """It stands for the same messages."""
    talk = [SYSTEM, *(message for n in range(30) for message in (user(f"Question {n}?"), assistant(f"Answer {n}.")))]
    task.follow(talk)
    task.summariser = lambda _: "They talked about thirty questions and their answers, in order, from 0 to 29."
    task.compact(keep_recent=4)
    assert task.log.view.state.summary
    task.follow([{"role": "system", "content": "Another."}, *talk[1:]])
    assert task.log.view.state.summary
    assert sent(task)[0]["content"] == "Another."
    assert "thirty questions" in str(sent(task))


@pytest.mark.parametrize("seconds", [0, 1])
def test_it_goes_on_after_a_resume(engine, seconds):
    """The list is found in what is stored, also what was masked, large or a picture."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    talk = [
        *TALK,
        user("My token is ghp_" + "a1B2" * 9 + " and I am me@example.com."),
        {"role": "user", "content": [{"type": "text", "text": "Look."}, picture]},
        assistant("long " * 100_000),
        call("c2", path="x" * 300_000),
        result("c2", "long " * 100_000),
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]},
    ]
    with engine.start(KEY, tools=TOOLS) as task:
        task.follow(talk)
        task.pause()
    with engine.resume(task.uuid) as task:
        assert counts(task.follow([*talk, *[user("And?")] * seconds])) == (len(talk), 0, seconds)
        task.pause()


def test_what_an_earlier_run_left_is_no_edit(engine):
    """The inherited block stands in the window and not in the list."""
    with engine.start(KEY) as task:
        task.follow(TALK)
    with engine.start(KEY) as task:
        task.follow(TALK[:2])
        assert any(message.key == INHERITED for message in task.window().messages)
        assert counts(task.follow(TALK[:2])) == (2, 0, 0)
        task.log.view.shows(2)
        assert counts(task.follow([SYSTEM, user("Other.")])) == (1, 1, 1)
        assert any(message.key == INHERITED for message in task.window().messages)


def test_an_unknown_api_and_a_list_that_is_none_are_refused(task):
    """Nothing is stored, and the next list is followed."""
    task.follow(TALK[:2])
    for messages, api in (
        (TALK, "morse"),
        ("text", "openai"),
        ([3], "openai"),
        ([{"role": "king", "content": ""}], "openai"),
    ):
        with pytest.raises(UsageError):
            task.follow(messages, api=api)
    assert counts(task.follow(TALK[:2])) == (2, 0, 0)
    assert task.log.last == 2


RESPONSES = [
    {"role": "user", "content": "Fix it."},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read_file", "arguments": "{}"},
    {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "read_file", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "one"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
    {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gBBB"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
    },
]
ANTHROPIC = [
    {"role": "user", "content": "Fix it."},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "tool_use", "id": "t1", "name": "read_file", "input": {}},
            {"type": "tool_use", "id": "t2", "name": "read_file", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
            {
                "type": "tool_result",
                "tool_use_id": "t2",
                "content": [{"type": "text", "text": "two"}],
                "is_error": True,
            },
            {"type": "text", "text": "Go on."},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
]
GEMINI = [
    {"role": "user", "parts": [{"text": "Fix it."}]},
    {"role": "model", "parts": [{"functionCall": {"name": "read_file", "args": {}}, "thoughtSignature": "c2ln"}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "read_file", "response": {"result": "one"}}}]},
    {"role": "model", "parts": [{"text": "Done."}]},
]


@pytest.mark.parametrize(
    ("api", "items", "roles"),
    [
        ("responses", RESPONSES, "user assistant tool tool assistant"),
        ("anthropic", ANTHROPIC, "user assistant tool tool user assistant"),
        ("gemini", GEMINI, "user assistant tool assistant"),
    ],
)
def test_the_other_formats(engine, api, items, roles):
    """Each step is appended once, survives a resume, and the whole list comes back as slices of itself."""
    with engine.start(KEY, tools=TOOLS) as task:
        for length in range(1, len(items) + 1):
            task.follow(items[:length], api=api)
            followed = task.follow(items[:length], api=api)
            assert counts(followed) == (length, 0, 0)
        assert " ".join(message.role for message in task.window().messages) == roles
        pieces = [items[piece] for piece in followed.pieces(task.window())]
        assert [item for piece in pieces for item in piece] == items
        task.pause()
    with engine.resume(task.uuid) as task:
        assert counts(task.follow(items, api=api)) == (len(items), 0, 0)


def test_reasoning_stays_with_its_calls(task):
    """Items of one reply are one message; parallel calls and their results are one unit."""
    followed = task.follow(RESPONSES, api="responses")
    assert [len(range(*span[:2])) for span in followed.spans] == [1, 3, 1, 1, 2]
    assert task.window().responses()[1:4] == RESPONSES[1:4]


def test_a_full_window_is_the_lists_own_items_and_folds(engine):
    """What is whole is a slice of the list; the rest is made by the engine, and stands in its place."""
    talk = [SYSTEM, user("Read all.")]
    with engine.start(KEY, tools=TOOLS, context_length=6_000, reserved_output=0) as task:
        for number in range(60):
            talk += [call(f"c{number}", path=f"{number}.py"), result(f"c{number}", f"line of {number}\n" * 30)]
            followed = task.follow(talk)
            pieces = list(followed.pieces(task.window()))
        assert counts(task.follow(talk)) == (len(talk), 0, 0)
    whole = [place for piece in pieces if isinstance(piece, slice) for place in range(len(talk))[piece]]
    assert whole[:2] == [0, 1]
    assert all(one < other for one, other in pairwise(whole))
    assert 2 < len(whole) < len(talk)
    assert any(isinstance(piece, list) for piece in pieces)


def test_extend_appends_a_list(task):
    """In any format, also the same list twice."""
    assert task.extend(TALK) == [1, 2, 3, 4, 5, 6]
    assert task.extend(ANTHROPIC, api="anthropic") == [7, 8, 9, 10, 11, 12]
    assert task.extend(TALK[1:2]) == [13]
    assert task.log.one(10).is_error
    with pytest.raises(UsageError):
        task.extend([TALK[0], 7])
    assert task.log.last == 13


# random edits

texts = st.sampled_from(["a", "b", "Fix it.", "me@example.com", "ghp_" + "a1B2" * 9, "", "long " * 3000])
messages = st.one_of(
    st.builds(user, texts),
    st.builds(assistant, texts),
    st.builds(call, st.sampled_from("xyz"), path=texts),
    st.builds(result, st.sampled_from("xyz"), texts),
    st.builds(lambda text: {"role": "system", "content": text}, texts),
)
edits = st.tuples(
    st.sampled_from(
        ["append", "append", "insert", "delete", "replace", "swap", "cut", "twice", "resume", "reply", "none"]
    ),
    st.floats(0, 0.999),
    messages,
)


def edit(items, kind, share, message):
    place = int(share * len(items))
    if kind == "append":
        items.append(message)
    elif kind == "insert":
        items.insert(place, message)
    elif kind == "delete":
        del items[place : place + 1]
    elif kind == "replace":
        items[place : place + 1] = [message]
    elif kind == "swap" and place + 1 < len(items):
        items[place], items[place + 1] = items[place + 1], items[place]
    elif kind == "cut":
        del items[place:]
    elif kind == "twice":
        items += items[place : place + 2]


def visible(task):
    """What the log shows, without the prompt: role, text, calls and the call that a result answers."""
    state = task.log.view.state
    shown = [message for message in task.log.read(1, task.log.last) if task.log.view.shows(message.seq)]
    prompt = list(task.log.read(*state.prompt)) if state.prompt else []
    while not state.prompt and shown and shown[0].role == "system" and shown[0].seq == len(prompt) + 1:
        prompt.append(shown.pop(0))
    return [plain(message) for message in prompt], [plain(message) for message in shown]


def plain(message):
    return (message.role, message.text, [(one.name, one.arguments) for one in message.tool_calls])


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(edits, max_size=14))
def test_random_edits(steps):
    """After any edits the log shows what a new task would show that got the last list only."""
    with orihon.open("memory:", settings=Settings()) as engine:
        task, items = engine.start(KEY, tools=TOOLS, inherit=False), []
        prompt = []
        for kind, share, message in steps:
            if kind == "resume":
                task.pause()
                task = engine.resume(task.uuid)
            elif kind == "reply":
                task.add_reply(message if message["role"] == "assistant" else assistant("Hm."))
            else:
                edit(items, kind, share, message)
            before = task.log.last
            followed = task.follow(copy.deepcopy(items))
            assert followed.kept + followed.added == len(items)
            assert (task.log.last - before) == followed.added
            with engine.start(KEY, tools=TOOLS, inherit=False) as fresh:
                fresh.follow(items)
                expected_prompt, expected = visible(fresh)
                prompt = expected_prompt or prompt
                assert visible(task) == (prompt, expected)
            assert counts(task.follow(items)) == (len(items), 0, 0)
            task.window()


def test_extend_keeps_the_items(task):
    """Each entry has its item, or its items, on its first message."""
    task.extend(RESPONSES, api="responses", raw=True)
    raws = [message.raw and message.raw.value for message in task.log.read(1, task.log.last)]
    assert raws == [RESPONSES[0], RESPONSES[1:4], RESPONSES[4], RESPONSES[5], RESPONSES[6:8]]
    task.extend(ANTHROPIC[2:3], api="anthropic", raw=True)
    assert [bool(message.raw) for message in task.log.read(6, 8)] == [True, False, False]
