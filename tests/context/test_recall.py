"""What is hidden can be had again, in bounded answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orihon.context.recall import parse_handle, recall, render_hits, unfold
from orihon.errors import UsageError
from orihon.records import Call, Message


def message(seq, text, role="tool", **fields):
    return Message(seq=seq, role=role, content=text, timestamp="", tokens=1, **fields)


def test_a_small_message_comes_whole():
    """Byte for byte, calls included."""
    assert unfold([message(4, "a\nb\n日本語")]) == "a\nb\n日本語"
    call = Call(id="c", name="edit", arguments='{"path":"a.py"}')
    assert unfold([message(5, "Look.", "assistant", tool_calls=[call])]) == 'Look.\nedit({"path":"a.py"})'


def test_lines_can_be_chosen():
    """One line, a range, or from a line on."""
    text = "\n".join(f"line {n}" for n in range(1, 101))
    assert unfold([message(4, text)], lines="3") == "line 3"
    assert unfold([message(4, text)], lines="99-120") == "line 99\nline 100"
    assert unfold([message(4, text)], lines="98-").endswith("line 100")


@pytest.mark.parametrize("lines", ["x", "0x3", "5-2", "101", "-3", "1-2-3", "9" * 30])
def test_wrong_lines_are_refused_with_a_way_out(lines):
    """A range that means nothing says what would."""
    with pytest.raises(UsageError) as caught:
        unfold([message(4, "\n".join("abc"))], lines=lines)
    assert "range" in caught.value.hint


@given(st.lists(st.text(st.characters(blacklist_characters="\n"), max_size=300), min_size=1, max_size=200))
def test_any_message_is_had_whole_by_going_on(lines):
    """Following the answers' own advice gives every line, and no answer is larger than it may be."""
    text = "\n".join(lines)
    found, asked = [], ""
    for _ in range(len(lines) + 1):
        answer = unfold([message(4, text)], lines=asked, max_chars=400)
        assert len(answer) <= 480
        rows = answer.split("\n")
        if rows[-1].startswith("[… ") and "unfold(" in rows[-1]:
            asked = rows[-1].split('lines="')[1].split('"')[0]
            found += rows[:-1]
        else:
            found += rows
            break
    assert "".join(found) == "".join(lines), "nothing is out of reach"
    if all(len(line) < 200 for line in lines):  # one that fills half an answer counts as several
        assert "\n".join(found) == text


def test_a_gigantic_line_comes_in_pages():
    """It counts as many lines, and says how to go on; nothing of it is out of reach."""
    shown = unfold([message(4, "x" * 2_000_000)])
    assert len(shown) < 8_200
    assert 'more lines: unfold("m4", lines="3-501")' in shown


@pytest.mark.parametrize("handle", ["", "4", "m", "m0", "m-1", "m4; drop", "../m4", "m" + "9" * 40])
def test_handles_are_checked(handle):
    """A handle is m and a number."""
    with pytest.raises(UsageError):
        parse_handle(handle)
    assert parse_handle(" m4 ") == (4, 4)


def test_recall_finds_passages():
    """The best first, with their handles; Japanese and two-character words too."""
    log = [
        message(1, "nothing here"),
        message(2, "x " * 300 + "ZeroDivisionError in compute_total of basket.py" + " y" * 300),
        message(3, "compute_total is called by checkout"),
        message(4, "設定ファイルの圧縮率を見直す"),
    ]
    hits = recall(log, "compute_total ZeroDivisionError")
    assert [hit.seq for hit in hits] == [2, 3]
    assert "ZeroDivisionError in compute_total" in hits[0].passage
    assert render_hits(hits).startswith("[m2, tool] ")
    assert [hit.seq for hit in recall(log, "圧縮")] == [4]
    assert render_hits(recall(log, "unicorn")) == "Nothing was found."


def test_answers_are_bounded():
    """A thousand hits give the best few, and each passage is short."""
    log = [message(number, f"the needle {number:04} " + "hay " * 500) for number in range(1, 1001)]
    hits = recall(log, "needle")
    assert len(hits) == 8
    assert hits[0].seq == 1000
    assert len(render_hits(hits)) < 8 * 400


@given(st.text(max_size=60), st.text(max_size=20))
def test_any_text_and_query(text, query):
    """No query and no text make it fail."""
    assert isinstance(render_hits(recall([message(1, text)], query)), str)
