"""The token meter: how full the window is, what fills it, and what the conversation has cost."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from orihon.agent.loop import Limits, compute_cost
from orihon.chat.conversation import Conversation
from orihon.chat.i18n import Texts
from orihon.errors import ContextError
from orihon.records import Usage

THOUSAND = 1000


class Meter:
    """Measures one conversation. Usage that was counted is not read again."""

    def __init__(self, conversation: Conversation, texts: Texts, prices: tuple[float, float] = (0.0, 0.0)) -> None:
        self.conversation, self.task, self.texts = conversation, conversation.task, texts
        self.limits = Limits(input_price=prices[0], output_price=prices[1])
        self._last, self._usage = 0, Usage()

    def format_line(self) -> str:
        """Return a line such as `[12% of 128k · 4 folded]`."""
        tangents, window = len(self.conversation.tangents), self.task.config.context_length
        parts = [self.texts("tangents" if tangents > 1 else "tangent", count=tangents)] if tangents else []
        try:
            report, schema_tokens, scale = self.conversation.preview_window()
        except ContextError:
            parts.append(self.texts("overfull"))
        else:
            percent = _percent(round((report.tokens + schema_tokens) * scale), window)
            short = f"{window // THOUSAND}k" if window >= 10 * THOUSAND else f"{window}"
            parts.append(self.texts("share", percent=percent, window=short))
            if folded := report.folded + report.left_out:
                parts.append(self.texts("folded", count=folded))
        return f"[{' · '.join(parts)}]"

    def format_table(self) -> Iterator[str]:
        """Return the usage of the window and of all requests, line by line."""
        yield from self._format_window()
        self._count_usage()
        usage, texts, limits = self._usage, self.texts, self.limits
        requests = self.task.row.llm_call_count
        yield texts("requests", requests=requests, input=usage.input_tokens, output=usage.output_tokens)
        if usage.cache_read_tokens:
            percent = _percent(usage.cache_read_tokens, usage.input_tokens)
            yield texts("cached", tokens=usage.cache_read_tokens, percent=percent)
        if limits.input_price or limits.output_price:
            cost = compute_cost(usage, limits)
            yield texts("cost", cost=cost, input=limits.input_price, output=limits.output_price)

    def _format_window(self) -> Iterator[str]:
        try:
            report, schema_tokens, scale = self.conversation.preview_window()
        except ContextError as error:
            yield error.message
            return
        texts, config = self.texts, self.task.config
        used, window = round((report.tokens + schema_tokens) * scale), config.context_length
        yield texts("window", used=used, window=window, percent=_percent(used, window))
        rows = {name: round(tokens * scale) for name, tokens in report.by_source.items() if tokens}
        rows[texts("schemas")] = round(schema_tokens * scale)
        rows[texts("reserved")] = config.reserved_output
        rows[texts("free")] = max(0, window - used - config.reserved_output)
        yield from (f"  {tokens:>9,}  {name}" for name, tokens in rows.items())
        yield texts("shown", whole=report.whole, folded=report.folded, left_out=report.left_out)

    def _count_usage(self) -> None:
        """Add up the reported usage; hidden replies count too, because they were paid."""
        names = [name for name in Usage.__struct_fields__ if name != "unknown"]
        for seq, usage in self.conversation.read_usage(self._last + 1):
            sums = {name: getattr(self._usage, name) + getattr(usage, name) for name in names}
            self._last, self._usage = seq, msgspec.structs.replace(self._usage, **sums)


def _percent(part: int, whole: int) -> int:
    return round(100 * part / whole) if whole else 0
