"""Values survive their line, whatever is in them."""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orihon import codec
from orihon.errors import Corrupt
from orihon.records import Blob, Call, Event, Message, Native, Part, PlanEntry, Summary, TaskRow, ToolCall, Usage

TIME = "2024-01-15T10:30:00.123456Z"

any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
storable_text = any_text.map(codec.clean_text)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | storable_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(storable_text, inner, max_size=3),
    max_leaves=8,
)
unknown = st.dictionaries(
    st.text("abcxyz", min_size=3, max_size=8).map("x_".__add__), json_values, max_size=3
)  # fmt: skip
parts = st.builds(
    Part,
    type=st.sampled_from(["text", "image", "file", "audio"]),
    text=st.none() | storable_text,
    blob=st.none() | st.builds(Blob, sha256=storable_text, size_bytes=st.integers(0, 9), unknown=unknown),
    unknown=unknown,
)
messages = st.builds(
    Message,
    seq=st.integers(1, 2**50),
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=storable_text | st.lists(parts, max_size=3),
    tool_name=st.none() | storable_text,
    tool_calls=st.lists(st.builds(Call, id=storable_text, name=storable_text, arguments=storable_text), max_size=2),
    usage=st.none() | st.builds(Usage, input_tokens=st.integers(0, 9), unknown=unknown),
    native=st.none() | st.builds(Native, api=storable_text, items=st.lists(json_values, max_size=2)),
    timestamp=st.just(TIME),
    tokens=st.integers(0, 9),
    unknown=unknown,
)


def message(**fields):
    return Message(**({"seq": 1, "role": "user", "content": "hi", "timestamp": TIME, "tokens": 1} | fields))


@given(messages)
def test_any_message_survives_its_line(record):
    """What is encoded is read back equal, unknown fields at every level included."""
    line = codec.encode_line(record)
    assert codec.decode_line(line, Message) == record
    assert codec.encode_line(codec.decode_line(line, Message)) == line
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")


@pytest.mark.parametrize(
    "record",
    [
        Summary(id=1, start_seq=1, end_seq=5, summary="", original_tokens=9, summary_tokens=3, ratio=0.3, timestamp=""),
        ToolCall(seq=1, tool="read", args={"path": "a.py"}, result="…", status="success", duration_ms=2, timestamp="t"),
        Event(id=3, after=120, type="rewind", data={"to": 80}, timestamp=TIME),
        PlanEntry(id=1, type="plan", task_uuid="u", data={"unknown": {"goal": 1}}, timestamp=TIME),
        TaskRow(uuid="u", task_source="github", owner="a", repo="b", task_type="issue", task_id="2", status="running",
                created_at=TIME, task_key="github/a/b/issue/2"),
    ],
    ids=lambda record: type(record).__name__,
)  # fmt: skip
def test_every_kind_survives_its_line(record):
    """The other records go through the same codec, and also keep what they do not know."""
    kind = type(record)
    assert codec.decode_line(codec.encode_line(record), kind) == record
    foreign = msgspec.structs.replace(record, unknown={"colour": {"deep": [1.5]}})
    assert codec.decode_line(codec.encode_line(foreign), kind) == foreign


def test_a_line_reads_as_the_format_says():
    """Names, order and compactness are those of the format, so that grep and jq find what people look for."""
    line = codec.encode_line(
        message(seq=4, role="tool", tool_name="github_get_file", content="日本語 {…}", tokens=1200)
    )
    assert line.decode() == (
        '{"seq":4,"role":"tool","tool_name":"github_get_file","content":"日本語 {…}",'
        f'"timestamp":"{TIME}","tokens":1200}}\n'
    )


def test_lines_of_version_2_are_read():
    """Yesterday's names arrive under today's."""
    old = (
        b'{"seq":4,"role":"tool","content":"x","timestamp":"t","token_count":1200,"tool_name":"g","is_summarized":true}'
    )
    read = codec.decode_line(old, Message)
    assert (read.tokens, read.tool_name, read.unknown) == (1200, "g", {"summarized": True})
    summary = codec.decode_line(
        b'{"summary_id":1,"start_seq":10,"end_seq":50,"summary":"s","created_at":"t","original_tokens":9,'
        b'"summary_tokens":3,"compression_ratio":0.33}',
        Summary,
    )
    assert (summary.id, summary.ratio, summary.timestamp, summary.unknown) == (1, 0.33, "t", {})
    tool = codec.decode_line(
        b'{"seq":1,"tool_name":"g","arguments":{"a":1},"result":"r","status":"success","duration_ms":2,"timestamp":"t"}',
        ToolCall,
    )
    assert (tool.tool, tool.args) == ("g", {"a": 1})


def test_a_function_call_of_version_2_becomes_a_call():
    """The old single call is read as a list of one, its arguments as text."""
    call = b'{"name":"f","arguments":{"b":[1,2]}}'
    line = b'{"seq":3,"role":"assistant","content":"","function_call":%b,"timestamp":"t","token_count":1}' % call
    assert codec.decode_line(line, Message).tool_calls == [Call(id="seq-3", name="f", arguments='{"b":[1,2]}')]


def test_when_both_names_are_there_neither_is_lost():
    """A line that has the new name and the old one keeps the old one as an unknown field."""
    line = b'{"seq":1,"role":"user","content":"","timestamp":"t","tokens":1,"token_count":7}'
    read = codec.decode_line(line, Message)
    assert (read.tokens, read.unknown) == (1, {"token_count": 7})
    assert codec.encode(read) == line


def test_a_field_called_unknown_is_a_field_like_any_other():
    """A foreign field with the name of our own drawer can neither fill it nor forge a known field."""
    line = b'{"seq":1,"role":"user","content":"","timestamp":"t","tokens":1,"unknown":{"seq":99}}'
    read = codec.decode_line(line, Message)
    assert (read.seq, read.unknown) == (1, {"unknown": {"seq": 99}})
    assert codec.encode(read) == line
    assert (
        codec.encode(message(timestamp="t", content="", unknown={"seq": 5})) == line.partition(b',"unknown"')[0] + b"}"
    )


def test_arguments_are_kept_byte_for_byte():
    """Spaces, key order, duplicate keys and huge numbers of the model's own JSON stay."""
    arguments = '{ "b":1, "a" : 1.10, "a": ' + "9" * 5000 + ' , "s":"\\u00e9" }'
    line = codec.encode_line(message(role="assistant", tool_calls=[Call(id="c1", name="f", arguments=arguments)]))
    assert codec.decode_line(line, Message).tool_calls[0].arguments == arguments


@given(any_text)
def test_clean_text_can_be_stored_anywhere(text):
    """Cleaned text has neither NUL nor surrogates, is stable, and changes only what had to change."""
    clean = codec.clean_text(text)
    clean.encode()
    assert "\0" not in clean
    assert codec.clean_text(clean) is clean
    if "\0" not in text and not any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        assert clean is text


def test_surrogates_and_nul_are_decided_once():
    """Pairs are joined, lone halves are replaced, a NUL becomes its picture."""
    assert codec.clean_text("a\ud83d\ude00b") == "a😀b"
    assert codec.clean_text("a\ud83db") == "a\ufffdb"
    assert codec.clean_text("a\0b") == "a␀b"
    assert codec.clean_text("a\u2028b\x85c\r\n") == "a\u2028b\x85c\r\n"


def test_values_that_json_has_no_word_for_become_text():
    """NaN, infinities, gigantic integers, odd keys and objects are written as what people would read."""
    given = {"nan": math.nan, "inf": -math.inf, "huge": 16**5000, 3: b"\xff", "set": {1}, "none": None, "ok": True}
    clean = codec.clean_value(given)
    assert clean == {
        "nan": "NaN",
        "inf": "-Infinity",
        "huge": "0x1" + "0" * 5000,
        "3": "\ufffd",
        "set": [1],
        "none": None,
        "ok": True,
    }
    assert json.loads(msgspec.json.encode(clean)) == clean


def test_bottomless_nesting_is_cut_with_a_note():
    """100,000 levels neither crash nor land on disk."""
    value: list = []
    for _ in range(100_000):
        value = [value]
    text = msgspec.json.encode(codec.clean_value(value)).decode()
    assert text == "[" * 200 + f'"{codec.TOO_DEEP}"' + "]" * 200


def test_json_that_cannot_be_held_stays_text():
    """A text is parsed only when nothing is lost by it."""
    deep, digits = "[" * 100_000 + "]" * 100_000, '{"n":' + "9" * 5000 + "}"
    assert codec.parse_json_or_text('{"a":[1,2]}') == {"a": [1, 2]}
    assert codec.parse_json_or_text(deep) == deep
    assert codec.parse_json_or_text("[" * 201 + "]" * 201) == "[" * 201 + "]" * 201
    assert codec.parse_json_or_text(digits) == digits
    assert codec.parse_json_or_text("not json\0") == "not json␀"


@pytest.mark.parametrize(
    ("line", "content", "cleaned"),
    [
        (b'\xef\xbb\xbf{"seq":1,"role":"user","content":"bom","timestamp":"t","tokens":1}', "bom", False),
        (b'{"seq":1,"role":"user","content":"crlf","timestamp":"t","tokens":1}\r\n', "crlf", False),
        (b'{"seq":1,"role":"user","content":"a\xff","timestamp":"t","tokens":1}', "a\ufffd", True),
        (b'{"seq":1,"role":"user","content":"\\ud83d!","timestamp":"t","tokens":1}', "\ufffd!", True),
        (b'{"seq":1,"role":"user","content":"\\ud83d\\ude00\\udc00","timestamp":"t","tokens":1}', "😀\ufffd", True),
        (b'{"seq":1,"role":"user","content":"\\\\ud83d","x":1,"timestamp":"t","tokens":1}', "\\ud83d", False),
        (b'{"seq":1,"role":"user","content":"a\x00b","timestamp":"t","tokens":1}', "a␀b", True),
    ],
    ids=["bom", "crlf", "not-utf8", "lone-escape", "pair-then-lone", "escaped-backslash", "raw-nul"],
)
def test_slightly_broken_lines_are_mended(line, content, cleaned):
    """What can be understood is given, and the record says that it was cleaned."""
    read = codec.decode_line(line, Message)
    assert (read.content, read.cleaned) == (content, cleaned)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"seq":1,"role":"us', "Unterminated string"),
        (b"", "Expecting value"),
        (b"\0" * 4096, "Expecting value"),
        (b"[1,2]", "holds list"),
        (b'{"seq":"one","role":"user","content":"","timestamp":"t","tokens":1}', "Expected `int`"),
        (b'{"seq":0,"role":"user","content":"","timestamp":"t","tokens":1}', ">= 1"),
        (b'{"seq":1,"role":"wizard","content":"","timestamp":"t","tokens":1}', "wizard"),
        (b'{"seq":1,"role":"user","timestamp":"t","tokens":1}', "missing required field"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'"' + b"x" * (codec.MAX_LINE_BYTES + 1), "16,777,218 bytes"),
    ],
    ids=["torn", "empty", "nul-block", "list", "type", "range", "role", "missing", "deep", "huge"],
)  # fmt: skip
def test_broken_lines_say_why(line, reason):
    """Nothing but Corrupt leaves the codec, and it names the reason."""
    with pytest.raises(Corrupt, match=reason):
        codec.decode_line(line, Message)


def test_a_foreign_number_of_5000_digits_is_kept_as_its_digits():
    """A line from elsewhere with an impossible number is still readable."""
    line = (
        b'{"seq":1,"tool":"t","args":{"n":'
        + b"7" * 5000
        + b',"f":1e999,"x":NaN},"status":"success","duration_ms":1,"timestamp":"t"}'
    )
    assert codec.decode_line(line, ToolCall).args == {"n": "7" * 5000, "f": "1e999", "x": "NaN"}


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_surprise(data):
    """Any bytes give a record or Corrupt."""
    try:
        assert isinstance(codec.decode_line(data, Message), Message)
    except Corrupt as error:
        assert error.message


def test_now_sorts_as_text():
    """Time is UTC, fixed in width, so that text order is time order."""
    first, second = codec.now(), codec.now()
    assert first <= second
    assert len(first) == len(TIME)
    assert first[10] + first[-1] == "TZ"
