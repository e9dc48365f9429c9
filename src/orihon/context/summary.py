"""Summaries that are checked before they count.

A summariser is a callable from a prompt to a text; it may raise, time out, or answer nonsense. What it says counts
only if `check` has no objection; otherwise it is asked again and told what was wrong. What it forgot of the names that
the covered part kept using is appended. After three tries the extractive summary stands in, which needs no model and
never fails. A model's summary does not replace the ledger of what it covers, it stands before it; the user's
instructions that still count are in the ledger whatever the model wrote. Nothing here changes anything: the caller
stores the result, or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from orihon.context.check import Covered, complain, find_kept_names, find_objection
from orihon.context.extract import find_all_entries, shorten_prose
from orihon.context.language import language_of
from orihon.context.ledger import Entry, render
from orihon.context.matter import matter_of
from orihon.context.prompts import prompt
from orihon.context.retention import measure_retention
from orihon.context.transcript import pieces, quoted, transcript
from orihon.errors import ModelError
from orihon.records import Message
from orihon.tokens import Counter

Summariser = Callable[[str], str]

TRIES = 3
TOLERANCE = 2  # a model cannot count: twice the length that was asked for is still a summary
LENGTH_SHARE = 0.4  # of the original, the seeds' 30-40 %
WINDOW_SHARE = 0.05
MIN_TOKENS = 64
NAMES_SHARE = 0.25  # of the summary, for the names that it forgot
MODEL_SHARE = 0.5  # of the summary, for the words of the model; the rest is the ledger
LEAST_LEDGER = 0.25  # of the summary, if the model wrote more


class Limits(msgspec.Struct, frozen=True):
    """What a summary and its request may cost."""

    context_length: int
    summariser_context: int = 0  # 0: the same window
    max_output: int = 4096

    def max_tokens(self, original: int) -> int:
        """Return the length of a summary of so many tokens."""
        share = min(original * LENGTH_SHARE, self.context_length * WINDOW_SHARE, self.max_output)
        return max(MIN_TOKENS, int(share))

    @property
    def max_input(self) -> int:
        """What fits in one request beside the instruction and the answer."""
        window = self.summariser_context or self.context_length
        return max(512, int(window * 0.8) - self.max_output)


class Outcome(msgspec.Struct, frozen=True):
    """A summary, and how it came about."""

    text: str
    tokens: int
    original_tokens: int
    calls: int
    by_model: bool
    problems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    retention: float | None = None  # of the names that the messages used again


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be summarised, and how."""

    messages: Sequence[Message]
    counter: Any  # a Counter; the struct cannot check a protocol
    limits: Limits
    previous: str = ""
    focus: str = ""
    language: str = "en"
    template: str = ""
    original: int = 0  # tokens of everything that the summary stands for
    matter: int = 0  # tokens of what it is made of
    length: int = 0
    least: int = 0

    @property
    def covered(self) -> Covered:
        """What a summary is checked against."""
        return Covered(
            seqs=frozenset(message.seq for message in self.messages),
            tokens=self.matter,
            names=tuple(find_kept_names(self.messages)),
            language=self.language,
            max_tokens=min(max(self.original, self.least) - 1, self.length * TOLERANCE),
        )

    def prompt(self, material: str) -> str:
        """Return the prompt with its material; the template's own braces stay as they are."""
        focus = f"\n{_FOCUS[self.language]}{self.focus}\n" if self.focus else ""
        text = self.template.replace("{max_tokens}", str(max(MIN_TOKENS, int(self.length * MODEL_SHARE)))).replace(
            "{focus}", focus
        )
        return text.replace("{messages}", material)


def summarise(
    messages: Sequence[Message],
    *,
    counter: Counter,
    limits: Limits,
    summariser: Summariser | None = None,
    previous: str = "",
    focus: str = "",
    language: str = "auto",
    template: str = "",
    least: int = 0,
    entries: Sequence[Entry] | None = None,
) -> Outcome:
    """Return a summary of the messages that continues the previous one; it always succeeds.

    It is shorter than what it replaces; one that replaces nothing may have `least` tokens at any rate. `entries` is the
    ledger of everything that it stands for; if it is left out, that of the messages and of the previous summary.
    """
    original = _count(messages, counter) + counter.text(previous)
    messages = list(matter_of(messages))
    matter = _count(messages, counter) + counter.text(previous)
    language = language_of(messages) if language == "auto" else language
    job = Job(
        messages=messages,
        counter=counter,
        limits=limits,
        previous=previous,
        focus=focus,
        language=language,
        template=template or prompt("summary", language),
        original=original,
        matter=matter,
        length=max(least, min(limits.max_tokens(matter), max(1, original - 1))),
        least=least,
    )
    text, calls, problems = _asked(job, summariser) if summariser is not None else ("", 0, [])
    by_model = bool(text)
    if entries is None:
        entries = find_all_entries(messages, previous, max_tokens=job.length)
    words = text.strip() if by_model else shorten_prose(previous, job.length, counter)
    text, missing = _with_names(_with_ledger(words, entries, job, by_model=by_model), job)
    return Outcome(
        text=text,
        tokens=counter.text(text),
        original_tokens=original,
        calls=calls,
        by_model=by_model,
        problems=tuple(problems),
        missing=missing,
        retention=measure_retention(text, messages),
    )


def _count(messages: Sequence[Message], counter: Counter) -> int:
    return sum(message.tokens or counter.message(message) for message in messages)


def _asked(job: Job, summariser: Summariser) -> tuple[str, int, list[str]]:
    """Return a summary that passes the check, in three calls at most; empty if none does."""
    problems: list[str] = []
    calls, covered, complaint = 0, job.covered, ""
    while calls < TRIES:
        try:
            used, text = _ask(job, summariser, TRIES - calls, complaint)
            calls += used
            wrong = find_objection(text, covered, job.counter)
            complaint = complain(wrong, job.language) if wrong else ""
        except Exception as error:  # noqa: BLE001 - whatever a summariser does, the task goes on
            calls += 1
            wrong = f"{type(error).__name__}: {error}"
            if isinstance(error, ModelError) and not error.retryable:
                return "", calls, [*problems, wrong]  # the next try would fail as well
        else:
            if not wrong:
                return text, calls, problems
        problems.append(wrong)
    return "", calls, problems


def _ask(job: Job, summariser: Summariser, calls: int, complaint: str) -> tuple[int, str]:
    """Ask once, or for each piece and then for all of them together. Return the number of calls and the answer."""

    def ask(material: str) -> str:
        return summariser("\n\n".join(filter(None, (job.prompt(material), complaint))))

    quote = f"[SUMMARY]: {quoted(job.previous)}\n" if job.previous else ""
    parts = pieces(job.messages, job.limits.max_input, job.counter)
    if len(parts) == 1 or calls < len(parts) + 1:
        return 1, ask(quote + _shortened(job))
    first, *rest = (transcript(part) for part in parts)
    said = [ask(quote + first), *map(ask, rest)]
    together = quote + "\n".join(f"[SUMMARY]: {quoted(text)}" for text in said)
    return len(parts) + 1, ask(together)


def _shortened(job: Job) -> str:
    """Return the transcript, with messages cut so that it fits in one request."""
    for max_chars in (4000, 1000, 400, 160, 60):
        text = transcript(job.messages, max_chars=max_chars)
        if job.counter.text(text) <= job.limits.max_input:
            return text
    half = max(200, job.limits.max_input)
    return f"{text[:half]}\n[…]\n{text[-half:]}"


_FOCUS = {"en": "Pay special attention to: ", "ja": "特に次の点に注目してください: "}


def _with_ledger(words: str, entries: Sequence[Entry], job: Job, *, by_model: bool) -> str:
    """Return the words of a model, if there are any, and the ledger in the room that they leave.

    Behind a model's words, the ledger has room for every instruction of the user, up to the length of a summary.
    """
    spent = job.counter.text(words) + 2 if words else 0
    room = max(job.length - spent, int(job.length * LEAST_LEDGER))
    if by_model:
        room = max(room, min(job.length, _count_instructions(entries, job) + room // 2))
    room = min(room, max(job.original, job.least) - 1 - spent)
    ledger = render(
        entries,
        max_tokens=room,
        counter=job.counter,
        language=job.language,
        whole="constraint" if by_model else None,
    )
    return "\n\n".join(filter(None, (words, ledger)))


def _count_instructions(entries: Sequence[Entry], job: Job) -> int:
    """Return the tokens of the user's instructions, as far as they fit in a summary."""
    found = [entry for entry in entries if entry.kind == "constraint"]
    tokens: int = job.counter.text(render(found, max_tokens=job.length, counter=job.counter, language=job.language))
    return tokens


def _with_names(text: str, job: Job) -> tuple[str, tuple[str, ...]]:
    """Return the summary with the names that it omits, as far as there is room, and these names."""
    missing: list[str] = []
    spare = max(job.original, job.least) - 1 - job.counter.text(text)
    room = min(max(int(job.length * NAMES_SHARE), 16), spare)
    for name in find_kept_names(job.messages):
        if name not in text and job.counter.text(", ".join([*missing, name])) + 8 <= room:
            missing.append(name)
    return (f"{text}\n{_ALSO[job.language]}: {', '.join(missing)}" if missing else text), tuple(missing)


_ALSO = {"en": "Also used", "ja": "他に使われた名前"}
