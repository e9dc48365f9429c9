"""Whatever the log holds, what is sent is a conversation."""

import json

import pytest
from hypothesis import given, settings

from orihon.context.repair import EMPTY, INTERRUPTED, NOTE, OPENING, plain_name, repair
from orihon.parts import make_id
from orihon.records import Blob, Call, Message, Part
from support.histories import histories, history, seeded


def log(*entries):
    """A log from (role, content, fields…), numbered from 1."""
    made = []
    for seq, (role, content, *more) in enumerate(entries, 1):
        made.append(Message(seq=seq, role=role, content=content, timestamp="t", tokens=3, **(more[0] if more else {})))
    return made


def calls(*ids, name="read", arguments='{"a":1}'):
    return {"tool_calls": [Call(id=each, name=name, arguments=arguments) for each in ids]}


def of(id, **fields):
    return {"tool_call_id": id, "tool_name": "read"} | fields


def seen(messages):
    return [(message.role, message.tool_call_id or "", message.text) for message in messages]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(histories)
def test_repair_of_a_repaired_list_changes_nothing(messages):
    """repair(repair(x)) == repair(x), after a kill at any message."""
    for end in range(len(messages) + 1):
        repaired = repair(messages[:end])
        assert repair(repaired) == repaired


def test_repair_keeps_its_promises_and_its_input():
    """System first, then the user, calls answered at once in order, ids used once, nothing blank, the log untouched."""
    for seed in range(2000):
        messages = history(seeded(seed))
        before = list(messages)
        repaired = repair(messages)
        assert messages == before
        rest = [message for message in repaired if message.role != "system"]
        assert repaired[len(repaired) - len(rest) :] == rest
        assert not rest or rest[0].role == "user"
        ids = [call.id for message in rest for call in message.tool_calls]
        assert len(set(ids)) == len(ids)
        answers = iter(rest)
        for message in answers:
            assert message.role != "tool"
            asked = message.tool_calls if message.role == "assistant" else []
            results = [next(answers) for _ in asked]
            assert [(result.role, result.tool_call_id, result.tool_name) for result in results] == [
                ("tool", call.id, call.name) for call in asked
            ]
            assert asked or message.text.strip() or not isinstance(message.content, str)


def test_a_sound_history_stays_the_same_objects():
    """What is right already is not copied."""
    messages = log(
        *[("system", "s"), ("user", "u"), ("assistant", "", calls("a", "b"))],
        *[("tool", "1", of("a")), ("tool", "2", of("b")), ("assistant", "done")],
    )
    assert all(one is other for one, other in zip(repair(messages), messages, strict=True))


def test_missing_results_are_interrupted():
    """A call without a result gets one that is an error, names no time, and stands at once after it."""
    repaired = repair(log(("user", "u"), ("assistant", "", calls("a", "b")), ("tool", "two", of("b")), ("user", "so?")))
    assert seen(repaired)[1:] == [
        ("assistant", "", ""), ("tool", "a", INTERRUPTED), ("tool", "b", "two"), ("user", "", "so?"),
    ]  # fmt: skip
    assert repaired[2].is_error
    assert repaired[2].tool_name == "read"


def test_late_results_come_home():
    """A result that others spoke before is moved to its call."""
    repaired = repair(log(("user", "u"), ("assistant", "", calls("a")), ("user", "wait"), ("tool", "one", of("a"))))
    assert seen(repaired) == [("user", "", "u"), ("assistant", "", ""), ("tool", "a", "one"), ("user", "", "wait")]


@pytest.mark.parametrize(
    ("results", "kept"),
    [
        (["one", "two"], "one"),
        ([INTERRUPTED, "real"], "real"),
        (["real", INTERRUPTED], "real"),
        ([INTERRUPTED, INTERRUPTED], INTERRUPTED),
    ],
)
def test_the_first_real_result_wins(results, kept):
    """Of two results of one call the first counts, unless it only says that there was none."""
    said = [("tool", text, of("a", is_error=text == INTERRUPTED)) for text in results]
    repaired = repair(log(("user", "u"), ("assistant", "", calls("a")), *said))
    assert seen(repaired)[2:] == [("tool", "a", kept)]


def test_results_without_a_call_become_text():
    """An orphan is shown in the user's words, with its tool's name, its pictures and a mark."""
    picture = Part(type="image", url="https://example.org/a.png")
    repaired = repair(log(("user", "u"), ("tool", "x", of("gone")), ("tool", [picture], of("gone", is_error=True))))
    assert seen(repaired)[1:] == [
        ("user", "", "[result of read, whose call is not shown]\nx"),
        ("user", "", "[error of read, whose call is not shown]"),
    ]
    assert repaired[2].content[1] == picture


def test_an_orphan_in_a_blob_keeps_its_mark():
    """The mark does not vanish when the whole text is fetched."""
    blob = Blob(sha256="ab", size_bytes=300_000)
    [orphan] = repair(log(("tool", "the beginning", of("gone", blob=blob))))
    assert orphan.blob is None
    assert [(part.text, part.blob) for part in orphan.content] == [
        ("[result of read, whose call is not shown]", None), ("the beginning", blob),
    ]  # fmt: skip


def test_repeated_and_empty_ids_are_derived():
    """Ids that repeat or are empty come from the message's number and the call's place, and results follow."""
    repaired = repair(
        log(
            ("user", "u"),
            *[("assistant", "", calls("call_0")), ("tool", "first", of("call_0"))],
            *[("assistant", "", calls("call_0", "")), ("tool", "second", of("call_0")), ("tool", "third", of(None))],
            *[("assistant", "", calls("m4-0")), ("tool", "fourth", of("m4-0"))],
        )
    )
    assert [one for one in seen(repaired) if one[0] == "tool"] == [
        ("tool", "call_0", "first"), ("tool", "m4-0", "second"), ("tool", "m4-1", "third"), ("tool", "m7-0", "fourth"),
    ]  # fmt: skip


def test_a_derived_id_never_takes_one_that_is_used():
    """Where a call already has the id that would be derived, another is."""
    repaired = repair(log(("user", "u"), ("assistant", "", calls("m3-0")), ("assistant", "", calls("m3-0"))))
    assert [call.id for message in repaired for call in message.tool_calls] == ["m3-0", "m3-0x"]


def test_results_without_an_id_are_paired_by_name_and_order():
    """Of the newest calls, the first of that name that has no result yet; without a name, the first."""
    made = {"tool_calls": [Call(id="a", name="read"), Call(id="b", name="grep"), Call(id="c", name="read")]}
    said = [("tool", "1", {"tool_name": "grep"}), ("tool", "2", {"tool_name": "read"}), ("tool", "3")]
    orphan = ("tool", "4", {"tool_name": "write"})
    repaired = repair(log(("user", "u"), ("assistant", "", made), *said, orphan))
    assert seen(repaired)[2:] == [
        *[("tool", "a", "2"), ("tool", "b", "1"), ("tool", "c", "3")],
        ("user", "", "[result of write, whose call is not shown]\n4"),
    ]


def test_a_result_belongs_to_the_newest_call_with_its_id():
    """Where a server counts from call_0 in each reply, an unanswered old call does not steal a new result."""
    repaired = repair(
        log(("user", "u"), ("assistant", "", calls("x")), ("assistant", "", calls("x")), ("tool", "new", of("x")))
    )
    assert [text for role, _, text in seen(repaired) if role == "tool"] == [INTERRUPTED, "new"]


def test_blank_messages():
    """A blank user and a blank result say so; a blank assistant and a blank system prompt are left out."""
    repaired = repair(
        log(
            *[("system", " "), ("user", "\n"), ("assistant", "", calls("a")), ("tool", "", of("a"))],
            *[("assistant", "  "), ("user", [Part(type="text", text="")]), ("assistant", [])],
        )
    )
    assert seen(repaired) == [("user", "", EMPTY), ("assistant", "", ""), ("tool", "a", EMPTY), ("user", "", EMPTY)]


def test_system_messages_in_the_middle_become_notes():
    """Only what stands before all others stays the system's."""
    repaired = repair(log(("system", "a"), ("system", "b"), ("user", "u"), ("system", "c")))
    assert seen(repaired) == [("system", "", "a"), ("system", "", "b"), ("user", "", "u"), ("user", "", f"{NOTE}\nc")]


def test_the_assistant_never_begins():
    """An inherited summary in the assistant's mouth stays the assistant's, behind one fixed line."""
    repaired = repair(log(("system", "s"), ("assistant", "前回の処理要約: …"), ("user", "u")))
    assert seen(repaired)[1:] == [("user", "", OPENING), ("assistant", "", "前回の処理要約: …"), ("user", "", "u")]


def test_what_is_rewritten_is_to_be_counted_again():
    """A message that repair made or changed has no token count."""
    repaired = repair(log(("user", ""), ("assistant", "", calls("a")), ("system", "late")))
    assert [message.tokens for message in repaired] == [0, 3, 0, 0]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ('{ "path" : "a.py" }', '{ "path" : "a.py" }'),
        (" ", "{}"),
        ("{oops", '{"_raw":"{oops"}'),
        ("[1]", '{"_raw":"[1]"}'),
        ('{"n": NaN}', '{"_raw":"{\\"n\\": NaN}"}'),
        ('{"half": "\\ud800"}', '{"_raw":"{\\"half\\": \\"\\\\ud800\\"}"}'),
        ('{"a":' * 60 + "1" + "}" * 60, None),
    ],
)
def test_arguments_are_an_object(given, shown):
    """An object stays as the model wrote it; anything else stands in one, for servers refuse a history that has it."""
    made = [Call(id="a", name="f", arguments=given)]
    [_, said, *_] = repair(log(("user", "u"), ("assistant", "", {"tool_calls": made})))
    assert said.tool_calls[0].arguments == (shown or json.dumps({"_raw": given}, separators=(",", ":")))


@pytest.mark.parametrize("name", ["read", "mcp__server__tool-2", "_x", "a" * 64])
def test_good_names_stay(name):
    """A name that all providers take is not touched."""
    assert plain_name(name) == name


def test_other_names_are_mapped_and_stay_apart():
    """Names that some provider refuses become ones that none refuses, always the same, never two alike."""
    names = ["a.b", "a:b", "a b", "3d", "-x", "", " ", "検索", "置換", "a" * 65, "a" * 66]
    mapped = [plain_name(name) for name in names]
    assert len(set(mapped)) == len(names)
    assert mapped == [plain_name(name) for name in names]
    assert [plain_name(name) for name in mapped] == mapped
    assert mapped[0].startswith("a_b_")


def test_the_name_of_a_tool_that_is_gone_stays():
    """A call is shown under its own name, whether there is such a tool or not; its result too."""
    messages = log(("user", "go"), ("assistant", "", calls("c", name="gone")), ("tool", "ok", of("c")))
    _, call, result = repair(messages)
    assert (call.tool_calls[0].name, result.tool_name, result.text) == ("gone", "gone", "ok")


def test_an_id_that_looks_like_a_made_one():
    """No id takes the place of the one that a provider gets for another."""
    long = "x" * 90
    made = [Call(id=long, name="f"), Call(id=make_id(long), name="f")]
    [_, said, *_] = repair(log(("user", "u"), ("assistant", "", {"tool_calls": made})))
    assert [call.id for call in said.tool_calls] == [long, "m2-1"]
