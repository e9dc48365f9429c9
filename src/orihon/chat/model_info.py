"""The size of a model's window, as its server reports it.

Many servers with OpenAI's API list their models with the longest request. The smaller of this and the setting applies.
A server that does not report it leaves the setting.
"""

from __future__ import annotations

import logging
from typing import Any

from orihon.agent.user_settings import fetch_bounded
from orihon.coerce import decode_json
from orihon.errors import OrihonError
from orihon.settings.schema import Provider, Settings
from orihon.settings.section import Secret

log = logging.getLogger("orihon")

TIMEOUT_SECONDS = 2.0
OK = 200
MIN_LENGTH = 256  # a smaller number is not a window
FIELDS = ("max_model_len", "context_length", "max_context_length")
PROVIDERS = ("openai", "ollama", "lmstudio")


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
