"""The token meter: how full the window is, of what, and what the conversation has cost so far."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from orihon.agent.loop import Limits, compute_cost
from orihon.chat.conversation import Conversation
from orihon.chat.terminal.words import Words
from orihon.context.frame import Report
from orihon.errors import ContextError
from orihon.records import Message, Usage

THOUSAND = 1000


class Meter:
    """Reads one conversation; what was counted once is not read again."""

    def __init__(self, conversation: Conversation, words: Words, prices: tuple[float, float] = (0.0, 0.0)) -> None:
        self.conversation, self.words = conversation, words
        self.limits = Limits(input_price=prices[0], output_price=prices[1])
        self._upto, self._sum = 0, Usage()

    def line(self) -> str:
        """`[12% of 128k · 4 folded]`."""
        parts = [self._where(), *self._fill()]
        return f"[{' · '.join(filter(None, parts))}]"

    def table(self) -> Iterator[str]:
        """Everything, line by line."""
        try:
            report = self.conversation.task.history.composed().report
        except ContextError as error:
            yield error.message
        else:
            yield from self._of_window(report)
        self._count()
        total, words = self._sum, self.words
        requests = self.conversation.task.row.llm_call_count
        yield words("requests", requests=requests, input=total.input_tokens, output=total.output_tokens)
        if total.cache_read_tokens:
            share = _percent(total.cache_read_tokens, total.input_tokens)
            yield words("cached", tokens=total.cache_read_tokens, percent=share)
        prices = self.limits.input_price, self.limits.output_price
        if any(prices):
            yield words("cost", cost=compute_cost(total, self.limits), input=prices[0], output=prices[1])

    def _where(self) -> str:
        count = len(self.conversation.tangents)
        return "" if not count else self.words("tangent") if count == 1 else self.words("tangents", count=count)

    def _fill(self) -> list[str]:
        try:
            report = self.conversation.task.history.composed().report
        except ContextError:
            return [self.words("overfull")]
        window = self.conversation.task.config.context_length
        share = self.words("share", percent=_percent(self._used(report), window), window=_short(window))
        folded = report.folded + report.left_out
        return [share, self.words("folded", count=folded) if folded else ""]

    def _of_window(self, report: Report) -> Iterator[str]:
        history, config, words = self.conversation.task.history, self.conversation.task.config, self.words
        used, window = self._used(report), config.context_length
        yield words("window", used=used, window=window, percent=_percent(used, window))
        rows = {name: round(tokens * history.scale) for name, tokens in report.by_source.items() if tokens}
        rows[words("schemas")] = round(history.schema_tokens * history.scale)
        rows[words("reserved")] = config.reserved_output
        rows[words("free")] = max(0, window - used - config.reserved_output)
        yield from (f"  {tokens:>9,}  {name}" for name, tokens in rows.items())
        yield words("shown", whole=report.whole, folded=report.folded, left_out=report.left_out)

    def _used(self, report: Report) -> int:
        """Messages and tools, in the provider's tokens."""
        history = self.conversation.task.history
        return round((report.tokens + history.schema_tokens) * history.scale)

    def _count(self) -> None:
        """Add up what providers reported, of side conversations and of what was taken back as well: all was paid."""
        task = self.conversation.task
        names = [name for name in Usage.__struct_fields__ if name != "unknown"]
        for message in task.lease.store.read(task.uuid, Message, first=self._upto + 1):
            self._upto = message.seq
            if message.role == "assistant" and message.usage is not None:
                sums = {name: getattr(self._sum, name) + getattr(message.usage, name) for name in names}
                self._sum = msgspec.structs.replace(self._sum, **sums)


def _percent(part: int, whole: int) -> int:
    return round(100 * part / whole) if whole else 0


def _short(tokens: int) -> str:
    """`128k`, `8192`."""
    return f"{tokens // THOUSAND}k" if tokens >= 10 * THOUSAND else f"{tokens}"
