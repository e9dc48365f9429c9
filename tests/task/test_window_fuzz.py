"""Whatever was done to a task: its window fits, every provider takes it, and every process sees the same bytes.

Each play is made from a number. One that fails is made shorter and printed, with the number, as it can be played again:
`ORIHON_FUZZ_SEED=7 pytest tests/task/test_window_fuzz.py`.
"""

import json
import os
import tempfile
from collections import Counter
from contextlib import suppress

import msgspec
import pytest

import orihon
from orihon.context.wire import APIS
from orihon.errors import BudgetTooSmall, Conflict, NotFound, OrihonError, TangentError, UsageError
from orihon.records import Call, Message, Native, Part
from orihon.settings.schema import Settings
from orihon.tokens import counter
from support.cli_store import said
from support.faults import DEEP
from support.random_histories import play_of, shown, shrunk
from support.replies import KEY
from support.sent_requests import misfits, tokens_of
from support.wire_rules import violations

PLAYS = 2_400 if DEEP else 96
PREFIXES = 240 if DEEP else 8
CHUNKS = 8 if DEEP else 4
SEED = os.environ.get("ORIHON_FUZZ_SEED")
ROOM = 700  # tokens beside the system prompt, the pins and the schemas, in which any log can be shown

REFUSED = (UsageError, TangentError, NotFound, BudgetTooSmall, Conflict)


class Failed(AssertionError):
    """Something that was promised does not hold."""


def summariser(prompt):
    return f"Of {len(prompt):,} characters."


class Player:
    """A task, and what is done to it."""

    def __init__(self, engine, options):
        self.engine, self.marks = engine, []
        self.task = engine.start(KEY, inherit=False, **options)

    def do(self, step):
        name, *rest = step
        with suppress(*REFUSED):
            getattr(self, name)(*rest)

    def add(self, message):
        given = dict(message)
        self.task.add(given.pop("role"), _content(given.pop("content")), **given)

    def reply(self, reply):
        self.task.add_reply(reply)

    def foreign(self, record):
        given = dict(record) | {"content": _content(record["content"], always=True)}
        given["tool_calls"] = [Call(**call) for call in given.get("tool_calls", ())]
        given |= {"native": Native(**given["native"])} if "native" in given else {}
        given |= {"blob": msgspec.convert(given["blob"], orihon.records.Blob)} if "blob" in given else {}
        self.task.writer.append(Message(seq=0, timestamp="", **given))

    def results(self, results):
        for call, result in zip(self.task.pending_calls(), results, strict=False):
            with self.task.tool(call) as run:
                run.result = result

    def message(self, share):
        return max(1, int(share * self.task.log.last))

    def pin(self, share):
        self.task.pin(self.message(share))

    def unpin(self, share):
        self.task.unpin(self.message(share))

    def rewind(self, share):
        self.task.rewind(self.message(share))

    def checkpoint(self):
        self.marks.append(self.task.checkpoint())

    def restore(self, share):
        if self.marks:
            self.task.restore(self.marks[int(share * (len(self.marks) - 1))])

    def snapshot(self, changes):
        self.task.snapshot(**changes)

    def compress(self, keep_recent, focus):
        self.task.compact(keep_recent=keep_recent, focus=focus)

    def switch(self, changes):
        self.task.reconfigure(**changes)

    def window(self):
        self.task.window()

    def crash(self):
        """The process is gone; another one takes the task."""
        self.task.writer.lease.close()
        self.task = self.engine.resume(self.task.uuid)

    def __getattr__(self, name):
        return getattr(self.task, name)  # begin_tangent, end_tangent, undo, reset, sticky, shrink_budget


def _content(content, *, always=False):
    """Parts as dicts and as the records they become, in turn."""
    if isinstance(content, str):
        return content
    return [Part(**part) if always or place % 2 or "width" in part else part for place, part in enumerate(content)]


def sent_of(window):
    """The bytes of a request in each format, with its tools."""
    return {
        api: json.dumps([getattr(window, api)(), window.tools(api)], ensure_ascii=False, allow_nan=False).encode()
        for api in APIS
    }


def seen(of):
    """What a task or a reader sends now, or why it cannot."""
    try:
        return sent_of(of.window())
    except BudgetTooSmall as error:
        return str(error)


def expect(holds, words):
    if not holds:
        raise Failed(words)


def check(player, figures):
    """Everything that is promised of the window now."""
    task, engine = player.task, player.engine
    foreseen = seen(engine.read(task.uuid)) if task.config.window != "plain" else None  # which may summarise first
    try:
        window = task.window()
    except BudgetTooSmall as error:
        expect(foreseen in {None, str(error)}, f"a reader sees {foreseen!r:.200}, not {error}")
        check_too_small(task, error)
        figures["too small"] += 1
        return
    now = sent_of(window)
    for api in APIS:
        check_request(api, window, task, figures)
        if foreseen is not None:
            expect(foreseen[api] == now[api], f"{api}: a reader foresaw {foreseen!r:.400}, not {now[api]!r:.400}")
    expect(seen(engine.read(task.uuid)) == now, "a reader sees another window")
    expect(sent_of(task.window()) == now, "the next window is another one")
    expect(window.tokens <= window.report.limit, f"{window.tokens} tokens of {window.report.limit}")
    figures["windows"] += 1
    figures["folded"] += bool(task.log.view.state.folds)


def check_request(api, window, task, figures):
    request, model = getattr(window, api)(), task.config.model
    broken = violations(api, request, model=model) + misfits(api, request)
    expect(not broken, f"{api}, {model}: {broken}")
    expect("\0" not in str(request), f"{api}: NUL is sent")
    own = task.log.counter
    cost = tokens_of(api, request, own)
    expect(cost <= window.tokens, f"{api}: {cost} {own.name} tokens are sent, {window.tokens} were counted")
    schemas = own.tools(window.tools(api))
    expect(schemas <= task.log.schema_tokens, f"{api}: the tools cost {schemas}, not {task.log.schema_tokens}")
    exact = counter("o200k")
    real = tokens_of(api, request, exact) + exact.tools(window.tools(api))
    if own.name in {"estimate", "o200k"}:
        figures[f"{own.name} requests"] += 1
        over = real / task.config.context_length
        figures[f"{own.name} over"] += over > 1
        figures[f"{own.name} most"] = max(figures[f"{own.name} most"], round(over, 3))


def check_too_small(task, error):
    """What cannot be made smaller is the system prompt, the pins and the schemas; everything else is bounded."""
    expect(error.needed > error.allowed, f"{error.needed} of {error.allowed}")
    history = task.log
    head = [message for message in history.read(1, 16) if message.role == "system"]
    pinned = [message for seq in history.view.state.pins for message in history.unit(seq)]
    fixed = sum(history.counter.message(message) for message in [*head, *pinned])
    expect(fixed + ROOM > error.allowed, f"{error}, although {fixed} tokens are fixed")


def perform(play, *, at_every_step=False, figures=None):
    """Play a play; Failed, or whatever else goes wrong, is raised."""
    figures = Counter() if figures is None else figures
    with tempfile.TemporaryDirectory() as place:
        url = "memory:" if play.kind == "memory" else f"{place}/contexts"
        with orihon.open(url, settings=Settings()) as engine:
            try:
                player = Player(engine, play.options)
            except UsageError:
                return
            for step in play.steps:
                player.do(step)
                if at_every_step:
                    check_resume(player, figures)
                elif step[0] == "window":
                    check(player, figures)
            check(player, figures)
            check_resume(player, figures)
            player.task.writer.lease.close()
            if play.kind != "memory":
                check_command(engine, player.task.uuid, url)


def check_command(engine, uuid, url):
    """`orihon show --window` prints what a reader sends; where nothing can be sent, it says so."""
    now = seen(engine.read(uuid))
    code = BudgetTooSmall.exit_code if isinstance(now, str) else 0
    printed = said("show", uuid, "--window", "--json", url=url, code=code)
    if code == 0:
        expect(json.loads(printed)["messages"] == json.loads(now["openai"])[0], "the command shows another window")
    said("show", uuid, "--window", url=url, code=code)


def moves(task):
    """Whether the window is made anew each time: by its policy, or because it hardly fits and is folded again."""
    if task.config.window != "fold" or task.config.snapshot == "tail":
        return True
    try:
        return bool(task.window().report.reasons)
    except BudgetTooSmall:
        return True


def check_resume(player, figures):
    before = seen(player.task)
    if player.task._calls.unanswered() and moves(player.task):
        return  # what is said of calls that were lost is one message more: others are chosen, and another state shown
    player.crash()
    after = seen(player.task)
    if isinstance(before, str) and isinstance(after, str):
        return  # neither can be sent; by how much may differ, for the calls that were lost are told of
    expect(after == before, "a resumed task sends another window")
    figures["resumed"] += 1


def problem(play, **how):
    """What goes wrong in a play, as a word and a sentence; None when nothing does."""
    try:
        perform(play, **how)
    except (
        OrihonError,
        Failed,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        return f"{type(error).__name__}: {error}"[:60]
    return None


def run(seeds, **how):
    figures = Counter()
    for seed in seeds:
        play = play_of(seed)
        try:
            perform(play, figures=figures, **how)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told with its seed
            kind = f"{type(error).__name__}: {error}"[:30]
            shorter = shrunk(play, lambda one, kind=kind: (problem(one, **how) or "").startswith(kind))
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error!s:.2000}\n{shown(shorter)[:6000]}")
    return figures


def seeds_of(chunk, count):
    return [int(SEED)] if SEED else range(chunk, count, CHUNKS)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_any_history_can_be_sent(chunk, record_property):
    """It fits, is counted, breaks no rule of any format, and is the same for a reader and for the next process."""
    record_property("figures", dict(run(seeds_of(chunk, PLAYS))))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_prefix_resumes(chunk):
    """A process may die after any step; the next one sends the same bytes."""
    run(seeds_of(chunk, PREFIXES), at_every_step=True)
