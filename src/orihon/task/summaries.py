"""Summaries of a task: the rolling one that makes room, the final one that the next run inherits, that of an aside.

A summary is stored first and counts from its event on, so a failure on the way changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from orihon.context.compress import Compression, compress, should_compress
from orihon.context.ranges import Ranges, contains, joined, last_of
from orihon.context.summary import Limits, Outcome, summarise
from orihon.context.units import after_prompt
from orihon.records import Message, Summary, SummaryKind
from orihon.task.config import Summariser, TaskConfig
from orihon.task.writer import Writer

MAX_OUTPUT = 4096
LEAST_GAIN = 0.1  # of the limit; less is not worth a request
LEFT_OUT_SHARE = 0.75  # of the oldest messages
TOLD_TOKENS = 400  # so much may be told of the shortest run
ASIDE_KEY = "orihon:aside:"

_HANDLE = re.compile(r"\(m\d+\) ")
_ASIDE = {"en": "[side conversation, summarised] {}", "ja": "[別の会話の要約] {}"}


def is_due(writer: Writer) -> bool:
    """Whether so much stands in no summary that one is worth it; after an undone one only beyond the hard limit."""
    history, config = writer.history, writer.config
    tokens, messages = history.unsummarised(enough=config.context_length)
    newest = islice(history.backwards(history.uncovered), config.keep_recent_messages)
    gain = tokens - sum(message.tokens for message in newest)
    if gain < LEAST_GAIN * history.limit:
        return False  # what could be summarised is not what fills the window
    if history.view.rests:
        return tokens > history.limit
    return should_compress(
        tokens,
        messages,
        context_length=config.context_length,
        limit=history.limit,
        threshold=config.compression_threshold,
        minimum=config.min_messages_to_summarize,
    )


def kept_by(writer: Writer, hidden: Ranges) -> int | None:
    """How many of the newest messages a batch of folds still shows, when it leaves out most of the others whole.

    None when it leaves out too few to be worth a summary. What is folded says more than a summary would.
    """
    messages = after_prompt(writer.history.newest_uncovered())
    gone = oldest = 0
    for place, message in enumerate(messages, start=1):
        gone += contains(hidden, message.seq)
        oldest = place if gone >= LEFT_OUT_SHARE * place else oldest
    if writer.history.view.rests or oldest < writer.config.min_messages_to_summarize:
        return None
    return len(messages) - oldest


def roll(
    writer: Writer, summariser: Summariser | None, *, focus: str = "", keep_recent: int | None = None, dry: bool = False
) -> Compression | None:
    """Summarise what is older than the newest few, with the previous summary rolled in."""
    history, config = writer.history, writer.config
    covered = history.view.state.summary
    made = compress(
        history.view,
        history.newest_uncovered(),
        counter=history.counter,
        limits=_limits(config),
        summariser=summariser,
        previous=history.summary_text(covered.id) if covered else "",
        focus=focus,
        keep_recent=config.keep_recent_messages if keep_recent is None else keep_recent,
        language=history.language,
        template=config.summary_prompt,
    )
    if made is None or dry:
        return made
    for problem in made.outcome.problems:
        writer.log.warning("The summariser failed: %s", problem)
    number = _store(writer, made.outcome, made.ranges, "rolling")
    writer.event("summary", id=number, ranges=made.ranges, kept=made.kept)
    writer.update(add={"compression_count": 1}, activity="processing", last_activity="compression")
    writer.log.info("Compression completed: %d -> %d tokens", made.outcome.original_tokens, made.outcome.tokens)
    return made


def final(writer: Writer, summariser: Summariser | None) -> str:
    """The summary that the next run inherits; always one, as soon as something was said."""
    history = writer.history
    ranges = _upto_now(history.view.state.ranges, history.last)
    made = next(writer.lease.store.read(writer.uuid, Summary, first=-1), None)
    if made is not None and made.kind == "final" and tuple(made.ranges) == ranges:
        return made.summary  # by somebody who died before it counted
    covered = history.view.state.summary
    previous = history.summary_text(covered.id) if covered else ""
    messages = after_prompt(history.newest_uncovered())
    if not messages and not previous:
        return ""
    outcome = _told(writer, messages, summariser, previous)
    _store(writer, outcome, ranges, "final")
    return outcome.text


def aside(writer: Writer, summariser: Summariser | None, first: int) -> int | None:
    """Say what stands in place of a side conversation that began with this message; None when nothing of it is left."""
    history = writer.history
    key = f"{ASIDE_KEY}{first}:{len(history.view.tangents)}"
    said = writer.lease.find_key(key)
    if said is not None:
        return said  # by somebody who died before he could close the tangent
    covered = history.view.state.summary
    previous = history.summary_text(covered.id) if covered and last_of(covered.ranges) >= first else ""
    messages = [message for message in history.newest_uncovered() if message.seq >= first]
    if not messages and not previous:
        return None
    outcome = _told(writer, messages, summariser, previous)
    _store(writer, outcome, ((first, history.last),), "tangent")
    text = _ASIDE[history.language].format(outcome.text)
    return writer.append(Message(seq=0, role="user", content=text, key=key, timestamp="", tokens=0))


def _told(writer: Writer, messages: Sequence[Message], summariser: Summariser | None, previous: str = "") -> Outcome:
    """A summary for somebody who will not see the messages: a few words are told whole, and no handle is named."""
    outcome = summarise(
        messages,
        counter=writer.history.counter,
        limits=_limits(writer.config),
        summariser=summariser,
        previous=previous,
        language=writer.history.language,
        template=writer.config.summary_prompt,
        least=TOLD_TOKENS,
    )
    for problem in outcome.problems:
        writer.log.warning("The summariser failed: %s", problem)
    text = _HANDLE.sub("", outcome.text)
    return Outcome(
        text,
        writer.history.counter.text(text),
        outcome.original_tokens,
        outcome.calls,
        by_model=outcome.by_model,
        problems=outcome.problems,
    )


def _store(writer: Writer, outcome: Outcome, ranges: Ranges, kind: SummaryKind) -> int:
    ratio = outcome.tokens / outcome.original_tokens if outcome.original_tokens else 1.0
    if outcome.problems and not outcome.by_model:
        writer.update(add={"summary_failures": 1})
    return writer.append(
        Summary(
            id=0,
            start_seq=ranges[0][0] if ranges else 1,
            end_seq=ranges[-1][1] if ranges else 1,
            summary=outcome.text,
            original_tokens=outcome.original_tokens,
            summary_tokens=outcome.tokens,
            ratio=round(ratio, 4),
            kind=kind,
            ranges=list(ranges),
            model=writer.config.summariser if outcome.by_model else None,
            timestamp="",
        )
    )


def _upto_now(ranges: Ranges, last: int) -> Ranges:
    return joined((first, min(end, last)) for first, end in ranges if first <= last)


def _limits(config: TaskConfig) -> Limits:
    return Limits(context_length=config.context_length, max_output=min(MAX_OUTPUT, config.context_length // 4))
