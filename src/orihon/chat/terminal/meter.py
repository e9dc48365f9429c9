"""The model's window: how large it is, what fills it, and what the conversation has cost.

Many servers with OpenAI's API list their models with the longest request. The smaller of this and the setting applies.
A server that does not report it leaves the setting.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from orihon.agent.loop import Limits, compute_cost
from orihon.agent.user_settings import fetch_bounded
from orihon.chat.conversation import USAGE_FIELDS, Conversation
from orihon.chat.i18n import Texts
from orihon.coerce import decode_json
from orihon.errors import ContextError, OrihonError
from orihon.records import Usage
from orihon.settings.schema import Provider, Settings
from orihon.settings.section import Secret

log = logging.getLogger("orihon")

THOUSAND = 1000
TIMEOUT_SECONDS = 2.0
OK = 200
MIN_LENGTH = 256  # a smaller number is not a window
FIELDS = ("max_model_len", "context_length", "max_context_length")
PROVIDERS = ("openai", "ollama", "lmstudio")


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
        for seq, usage in self.conversation.read_usage(self._last + 1):
            sums = {name: getattr(self._usage, name) + getattr(usage, name) for name in USAGE_FIELDS}
            self._last, self._usage = seq, msgspec.structs.replace(self._usage, **sums)


def _percent(part: int, whole: int) -> int:
    return round(100 * part / whole) if whole else 0


def find_context_length(name: str, settings: Settings) -> int | None:
    """Return the window of a model such as `ollama:qwen3`; None for an unknown provider."""
    provider, _, model = name.partition(":")
    section = getattr(settings.llm, provider, None)
    if not isinstance(section, Provider):
        return None
    if not section.base_url or provider not in PROVIDERS:
        return section.context_length
    try:
        length, reason = _fetch_length(section, model), ""
    except (OrihonError, ValueError) as error:
        length, reason = None, f" ({error})"
    if length is None:
        log.warning("%s does not report its window%s; %d is assumed.", name, reason, section.context_length)
        return section.context_length
    return min(length, section.context_length)


def parse_length(answer: Any, model: str) -> int | None:
    """Return the window of a model in a list of models; a single model matches any name."""
    listed = answer.get("data") if isinstance(answer, dict) else None
    models = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    for item in [item for item in models if item.get("id") == model] or (models if len(models) == 1 else []):
        meta = item.get("meta")
        lengths = [item.get(field) for field in FIELDS] + [meta.get("n_ctx_train") if isinstance(meta, dict) else None]
        valid = [length for length in lengths if isinstance(length, int) and length >= MIN_LENGTH]
        if valid:
            return valid[0]
    return None


def _fetch_length(section: Provider, model: str) -> int | None:
    key = section.api_key
    headers = {"Authorization": f"Bearer {key.reveal()}"} if isinstance(key, Secret) else {}
    url = f"{section.base_url.rstrip('/')}/models"
    status, body = fetch_bounded(url, headers, TIMEOUT_SECONDS, name="The server")
    return parse_length(decode_json(body), model) if status == OK else None
