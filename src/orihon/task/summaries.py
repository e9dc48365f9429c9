"""The summaries of a task: the rolling one that makes room, the final one that the next run inherits, a tangent's.

A summary is stored first and counts from its event on, so a failure on the way changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec

from orihon.context.compress import Compression, compress, should_compress
from orihon.context.extract import find_entries
from orihon.context.ledger import Entry
from orihon.context.matter import matter_of
from orihon.context.ranges import Ranges, contains, joined, last_of, upto
from orihon.context.summary import Limits, Outcome, summarise
from orihon.context.units import after_prompt
from orihon.records import Event, Message, Summary, SummaryKind
from orihon.task.config import Summariser, TaskConfig, name_summariser
from orihon.task.writer import TaskWriter

MAX_OUTPUT = 4096
MIN_GAIN = 0.1  # of the limit; less is not worth a request
LEFT_OUT_SHARE = 0.75  # of the oldest messages
MIN_FINAL_TOKENS = 400  # what the shortest run may be summarised in
LEDGER_TOKENS = 250_000  # the newest messages of a task that its ledger is found in
OPENING = 8  # the first messages, which are read in any case
TANGENT_KEY = "orihon:aside:"

_TANGENT = {"en": "[side conversation, summarised] {}", "ja": "[別の会話の要約] {}"}


class Summaries:
    """Makes and stores the summaries of a task. Callers hold the writer's lock."""

    def __init__(self, writer: TaskWriter, summariser: Summariser | None) -> None:
        self._writer = writer
        self.summariser = summariser
        self._counted: tuple[Ranges, int, int, int] = ((), 0, 0, 0)  # ranges, newest message, tokens, messages

    @property
    def threshold_has_effect(self) -> bool:
        """Whether `compression_threshold` triggers summaries: with a summariser always, without with one policy."""
        return self.summariser is not None or self._writer.config.window == "plain"

    def is_due(self) -> bool:
        """Return whether enough is not covered by a summary. After an undone one, only the hard limit counts."""
        log, config = self._writer.log, self._writer.config
        tokens, messages = self._count_uncovered()
        newest = islice(log.backwards(log.uncovered), config.keep_recent_messages)
        gain = tokens - sum(message.tokens for message in newest)
        if gain < MIN_GAIN * log.limit:
            return False  # what could be summarised is not what fills the window
        if log.view.rests:
            return tokens > log.limit
        return should_compress(
            tokens,
            messages,
            context_length=config.context_length,
            limit=log.limit,
            threshold=config.compression_threshold,
            minimum=config.min_messages_to_summarize,
        )

    def _count_uncovered(self) -> tuple[int, int]:
        """Return the tokens and messages that no summary covers; only new messages are read again."""
        log = self._writer.log
        ranges, last, tokens, messages = self._counted
        if ranges != log.uncovered or last > log.last:
            ranges, last = log.uncovered, log.last
            tokens, messages = log.count_uncovered(enough=log.config.context_length)
        for message in log.read(last + 1, log.last) if last < log.last else ():
            if message.role != "system" and contains(ranges, message.seq):
                tokens, messages = tokens + message.tokens, messages + 1
        self._counted = (ranges, log.last, tokens, messages)
        return tokens, messages

    def count_shown(self, hidden: Ranges) -> int | None:
        """Return how many of the newest messages a batch of folds still shows, if it hides most of the older ones.

        None means that it hides too few to be worth a summary: folded messages say more than a summary would.
        """
        messages = after_prompt(self._writer.log.newest_uncovered())
        gone = oldest = 0
        for place, message in enumerate(messages, start=1):
            gone += contains(hidden, message.seq)
            oldest = place if gone >= LEFT_OUT_SHARE * place else oldest
        if self._writer.log.view.rests or oldest < self._writer.config.min_messages_to_summarize:
            return None
        return len(messages) - oldest

    def preview(self, *, focus: str = "", keep_recent: int | None = None) -> Compression | None:
        """Return the summary that `compact` would store; None if nothing would be gained."""
        log, config = self._writer.log, self._writer.config
        covered = log.view.state.summary
        return compress(
            log.view,
            log.newest_uncovered(),
            counter=log.counter,
            limits=_limits(config),
            summariser=self.summariser,
            previous=log.summary_text(covered.id) if covered else "",
            focus=focus,
            keep_recent=config.keep_recent_messages if keep_recent is None else keep_recent,
            language=log.language,
            template=config.summary_prompt,
        )

    def compact(self, **options: Any) -> Compression | None:
        """Summarise what is older than the newest few messages, together with the previous summary."""
        writer = self._writer
        writer.logger.info("Context compression triggered")
        writer.update(activity="compressing")
        compression = self.preview(**options)
        if compression is None:
            writer.update(activity="processing")
            return None
        self._warn(compression.outcome)
        number = self._store(compression.outcome, compression.ranges, "rolling", new=compression.new)
        writer.event("summary", id=number, ranges=compression.ranges, kept=compression.kept)
        writer.update(add={"compression_count": 1}, activity="processing", last_activity="compression")
        outcome = compression.outcome
        writer.logger.info("Compression completed: %d -> %d tokens", outcome.original_tokens, outcome.tokens)
        return compression

    def find_ledger(self) -> list[Entry]:
        """Return the ledger of the task: what all visible messages leave, also those that a summary stands for."""
        log = self._writer.log
        messages: list[Message] = []
        tokens = 0
        for message in log.backwards(log.view.state.ranges):
            tokens += message.tokens
            if tokens > LEDGER_TOKENS:
                opening = (one for one in log.read(1, OPENING) if one.seq < message.seq and log.view.shows(one.seq))
                messages.extend(reversed(list(opening)))
                break
            messages.append(message)
        return find_entries(list(matter_of(messages[::-1])))

    @property
    def people(self) -> list[str]:
        """Who wrote or is assigned to the issue of the task."""
        issues = (message.issue for message in self._writer.log.read(1, OPENING) if message.issue is not None)
        return list(dict.fromkeys(name for issue in issues for name in (issue.author, *issue.people) if name))

    def make_final(self, ledger: Sequence[Entry] = (), sections: str = "") -> str:
        """Return the summary that the next run inherits; "" if the task has no messages.

        `sections` is what is recorded of its plan. It is not left to a model: it follows the summary as it is.
        """
        writer, log = self._writer, self._writer.log
        ranges = joined((first, min(end, log.last)) for first, end in log.view.state.ranges if first <= log.last)
        newest = next(writer.lease.store.read(writer.uuid, Summary, first=-1), None)
        if newest is not None and newest.kind == "final" and tuple(newest.ranges) == ranges:
            return newest.summary  # stored by a process that died before the task had ended
        covered = log.view.state.summary
        previous = log.summary_text(covered.id) if covered else ""
        messages = after_prompt(log.newest_uncovered())
        if not messages and not previous:
            return ""
        outcome = self._summarise(messages, previous, ledger)
        if sections:
            text = "\n\n".join(filter(None, (outcome.text, sections)))
            outcome = msgspec.structs.replace(outcome, text=text, tokens=log.counter.text(text))
        new = (messages[0].seq, messages[-1].seq) if messages else (log.last, log.last)
        self._store(outcome, ranges, "final", new=new)
        return outcome.text

    def adopt_stored(self) -> None:
        """Let the newest summary of a program that stored no events stand for everything up to its last message."""
        writer, log = self._writer, self._writer.log
        if writer.lease.metadata.format or writer.lease.last(Event):
            return
        newest = next(writer.lease.store.read(writer.uuid, Summary, first=-1), None)
        if newest is not None:
            writer.event("summary", id=newest.id, ranges=upto(log.view.state.ranges, newest.end_seq), kept=())

    def summarise_tangent(self, first: int) -> int | None:
        """Store the message that stands for a tangent, which began with message `first`; None if nothing is left."""
        writer, log = self._writer, self._writer.log
        key = f"{TANGENT_KEY}{first}:{len(log.view.tangents)}"
        stored = writer.lease.find_key(key)
        if stored is not None:
            return stored  # by a process that died before it could close the tangent
        covered = log.view.state.summary
        previous = log.summary_text(covered.id) if covered and last_of(covered.ranges) >= first else ""
        messages = [message for message in log.newest_uncovered() if message.seq >= first]
        if not messages and not previous:
            return None
        outcome = self._summarise(messages, previous)
        self._store(outcome, ((first, log.last),), "tangent", new=(first, log.last))
        text = _TANGENT[log.language].format(outcome.text)
        return writer.append(Message(seq=0, role="user", content=text, key=key, timestamp="", tokens=0))

    def _summarise(self, messages: Sequence[Message], previous: str, ledger: Sequence[Entry] | None = None) -> Outcome:
        """Return a summary for a reader who will not see the messages: short runs are told in full."""
        log, config = self._writer.log, self._writer.config
        outcome = summarise(
            messages,
            counter=log.counter,
            limits=_limits(config),
            summariser=self.summariser,
            previous=previous,
            language=log.language,
            template=config.summary_prompt,
            least=MIN_FINAL_TOKENS,
            entries=ledger,
        )
        self._warn(outcome)
        return outcome

    def _warn(self, outcome: Outcome) -> None:
        for problem in outcome.problems:
            self._writer.logger.warning("The summariser failed: %s", problem)

    def _store(self, outcome: Outcome, ranges: Ranges, kind: SummaryKind, *, new: tuple[int, int]) -> int:
        """Store a summary under the numbers of what it newly covers, so that those of two summaries do not overlap."""
        ratio = outcome.tokens / outcome.original_tokens if outcome.original_tokens else 1.0
        if outcome.problems and not outcome.by_model:
            self._writer.update(add={"summary_failures": 1})
        return self._writer.append(
            Summary(
                id=0,
                start_seq=new[0],
                end_seq=new[1],
                summary=outcome.text,
                original_tokens=outcome.original_tokens,
                summary_tokens=outcome.tokens,
                ratio=round(ratio, 4),
                kind=kind,
                ranges=list(ranges),
                retention=outcome.retention,
                model=name_summariser(self.summariser) if outcome.by_model else None,
                timestamp="",
            )
        )


def _limits(config: TaskConfig) -> Limits:
    return Limits(context_length=config.context_length, max_output=min(MAX_OUTPUT, config.context_length // 4))
