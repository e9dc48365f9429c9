"""Whatever is made shorter until it fits comes to an end, also where nothing fits, and says what it promises."""

import itertools

import msgspec
import pytest

from orihon.context.compress import compress, to_cover
from orihon.context.extract import find_all_entries
from orihon.context.fold import fold_content
from orihon.context.frame import Policy, Texts
from orihon.context.ledger import render
from orihon.context.pick import pick
from orihon.context.pieces import shortened
from orihon.context.squeeze import stub
from orihon.context.sticky import Head, StickyFile, StickyList
from orihon.context.summary import Limits, summarise
from orihon.context.transcript import pieces, transcript
from orihon.context.tree import Limits as TreeLimits
from orihon.errors import BudgetTooSmall
from orihon.inheritance import Previous, render_block
from orihon.inheritance.names import Names
from orihon.records import Call, Message, TaskRow
from orihon.settings.schema import ContextInheritance
from orihon.tokens import counter
from support.fake_task import Desk
from support.past_runs import KEY

NAMES = ("estimate", "o200k", "cl100k", "bytes4", "chars4")
TEXTS = (
    "",
    "x",
    "four",
    "x" * 3_000,
    "🚀" * 300,
    "e" + "\u0301" * 500,
    "word and word\n" * 200,
    "{" + ",".join(f'"key{n}":"{"v" * 40}"' for n in range(60)) + "}",
    "タスクの状況: 目標",
)
MOST_CALLS = 20_000


class Patient:
    """A counter that does not wait for ever."""

    def __init__(self, name):
        self._counter, self.name, self._left = counter(name), name, MOST_CALLS

    def _ask(self, method, value):
        self._left -= 1
        assert self._left, "it does not end"
        return getattr(self._counter, method)(value)

    def text(self, text):
        return self._ask("text", text)

    def message(self, message):
        return self._ask("message", message)

    def tools(self, schemas):
        return self._ask("tools", schemas)


@pytest.fixture(params=NAMES)
def count(request):
    return Patient(request.param)


def message(seq, role="user", content="", **fields):
    made = Message(seq=seq, role=role, content=content, timestamp="", tokens=0, **fields)
    return Message(seq=seq, role=role, content=content, timestamp="", tokens=counter("bytes4").message(made), **fields)


def log():
    calls = [Call(id=f"c{n}", name="n" * 70, arguments='{"path":"' + "p" * 90 * n + '"}') for n in range(3)]
    said = [message(n + 2, "tool", text, tool_call_id=f"c{n}") for n, text in enumerate(TEXTS[3:6])]
    return [message(1, "assistant", TEXTS[6], tool_calls=calls), *said, message(6, "user", TEXTS[3])]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_made_shorter(count, text):
    """It is itself, or its beginning, within the budget; nothing when not even a character fits."""
    for most in (-1, 0, 0.4, 1, 2, 3, 5, 8, 13, 60):
        shown = shortened(text, most, count.text)
        assert not shown or count.text(shown) <= most
        assert text.startswith(shown.removesuffix("…"))
        assert shown == text or count.text(text) > most


@pytest.mark.parametrize("text", TEXTS)
def test_a_fold(text):
    """A fold is never longer than its input."""
    for chars in range(-2, 200, 3):
        for handle in ("", "m57"):
            assert len(fold_content(text, max_chars=chars, handle=handle)) <= len(text)


def test_a_summary(count):
    """Extracted lines fit; a summary is always made."""
    for tokens in range(-3, 60):
        entries = find_all_entries(log(), TEXTS[6], max_tokens=tokens)
        text = render(entries, max_tokens=tokens, counter=count, language="en")
        assert count.text(text) <= max(tokens, 0) + 32  # the headings
    for length in (0, 1, 2, 40, 600):
        limits = Limits(context_length=length, max_output=length // 4)
        assert summarise(log(), counter=count, limits=limits, previous=TEXTS[6]).text is not None
        assert summarise(log(), counter=count, limits=limits, summariser=lambda prompt: prompt).text
        compress(Desk().view, log(), counter=count, limits=limits, keep_recent=0)


def test_a_transcript(count):
    """Pieces hold everything, whatever fits into one."""
    for tokens in (-1, 0, 1, 5, 50):
        assert sum(map(len, pieces(log(), tokens, count))) == 5
    for chars in (0, 1, 2, 3, 10):
        assert len(transcript(log(), max_chars=chars)) < 2_000
    for recent in range(8):
        assert len(to_cover(log(), keep_recent=recent)) <= 5


def test_an_inherited_block(count):
    """It fits or is empty."""
    for tokens, summary in itertools.product(range(-2, 90, 4), TEXTS):
        row = TaskRow(
            uuid="0f8fad5b", task_source="github", task_type="issue", task_id="1", task_key=KEY, status="completed",
            created_at="",
        )  # fmt: skip
        previous = Previous(row=row, summary=summary, ended="2024-02-01T10:45:12.123456Z", names=Names())
        made = render_block(previous, counter=count, max_tokens=tokens, settings=ContextInheritance())
        assert made.tokens <= max(0, tokens)


def test_a_stub(count):
    """A message is made as small as it can be."""
    for cap in range(-1, 40, 3):
        for one in log():
            made = stub(one, cap, count=count.message, handle="m1", ui=TreeLimits(), without=frozenset({"c1"}))
            assert len(made.text) <= len(one.text) + 20


def test_a_choice():
    """Stand-ins are made for any budget."""
    for budget, limit in itertools.product((0, 1, 2, 7, 40), (0, 1, 5, 60)):
        pick(log(), budget=budget, limit=limit, counter=Patient("bytes4"))


@pytest.mark.parametrize("tokens", [0, 1])
def test_sticky_files_that_cost_nothing(tokens):
    """A list from elsewhere may claim anything of its files: with no room nothing of them is shown."""
    desk = Desk(8)
    desk.stick({"a.md": "x" * 400})
    listed = desk.listed()
    free = tuple(StickyFile(file.path, file.sha256, file.size_bytes, tokens) for file in listed.files)
    desk.event("sticky", **msgspec.to_builtins(StickyList(free, at_once=True)))
    assert desk.listed().files[0].tokens == tokens
    desk.add("user", "hi")
    desk.counter = Patient("bytes4")
    assert [message.content for message in desk.window().messages] == ["hi"]


def test_the_room_of_sticky_files():
    """No room, or less, shows nothing."""
    head = Head(Desk().sticky_texts().texts(Desk().view.state, "en").sticky.entries)
    for room in (-9, 0, 1):
        assert head.within(room).text == ""


@pytest.mark.parametrize("policy", ["fold", "importance", "plain"])
def test_a_window(count, policy):
    """From no token at all up to a few hundred: it fits, or the error says by how much it does not."""
    for length in (0, 1, 2, 3, 5, 8, 16, 30, 45, 60, 90, 140, 200, 300, 420):
        desk = Desk(length, tokens=count.name)
        desk.counter, desk.policy = Patient(count.name), Policy(name=policy)
        desk.add("system", "Be brief.")
        for one in log():
            desk.add_message(one)
        desk.stick({"STYLE.md": TEXTS[6]})
        desk.texts = Texts(summary="What came before.", snapshot="State.", note="A note.")
        desk.event("pin", seq=7)
        try:
            composed = desk.window()
        except BudgetTooSmall as error:
            assert error.needed > error.allowed == length
        else:
            assert composed.report.tokens <= length
