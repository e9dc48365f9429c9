"""What is hidden can be had again, in bounded answers."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orihon.context.recall import ROW_CHARS, parse_handle, recall, render_hits, unfold
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


NEXT_PAGE = re.compile(
    r"\n?\[… (?P<goes_on>the line goes on, )?[\d,]+ more lines[^\[]*: "
    r'unfold\("m(?P<first>\d+)(?:-m(?P<last>\d+))?"(?:, lines="(?P<lines>[^"]*)")?\)\]'
)


def all_pages(log, first, last, **options):
    """Yield the pages of some messages, following what each says at its end."""
    lines = ""
    while True:
        page = unfold(log[first - 1 : last], last=last if last > first else 0, lines=lines, **options)
        end = NEXT_PAGE.fullmatch(page, page.rfind("\n[… ")) if page.endswith(")]") else None
        if end is None:
            yield page
            return
        yield page[: end.start()] + ("" if end["goes_on"] else "\n")
        first, last, lines = int(end["first"]), int(end["last"] or end["first"]), end["lines"] or ""


TEXTS = st.lists(
    st.text(st.sampled_from("ab \n\r\t設😀"), max_size=300) | st.just("long " * 400), min_size=1, max_size=30
)


@given(TEXTS, st.sampled_from([60, 400, 3_000]))
def test_any_message_is_had_byte_for_byte(lines, room):
    """The pages, one after the other, are the text; each fits and names the next."""
    text = "\n".join(lines)
    shown = list(all_pages([message(1, text)], 1, 1, room=room))
    assert "".join(shown) == text
    assert all(len(page) <= max(room, ROW_CHARS) for page in shown)


@given(TEXTS, st.sampled_from([60, 400, 3_000]))
def test_a_run_of_messages_is_had_byte_for_byte(texts, room):
    """A handle of many messages gives each under a heading, on as many pages as it takes."""
    log = [message(seq, text) for seq, text in enumerate(texts, 1)]
    shown = list(all_pages(log, 1, len(log), room=room))
    words = re.sub(r"\[m\d+, tool\]\n?", "", "".join(shown))
    assert words.replace("\n", "") == "".join(texts).replace("\n", "")
    assert all(len(page) <= max(room, ROW_CHARS) + 20 for page in shown)


def test_a_gigantic_line_comes_in_pages():
    """It counts as many lines, and says how to go on; nothing of it is out of reach."""
    shown = unfold([message(4, "x" * 2_000_000)])
    assert len(shown) < 8_200
    assert shown.endswith('x\n[… the line goes on, 4,980 more lines: unfold("m4", lines="21-5000")]')


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
