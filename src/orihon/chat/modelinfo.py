"""How large the window of a model is, as far as its server says so.

Servers that speak like OpenAI list their models; many of them say how long a request may be. The settings may want
less, and the server cannot do more, so the smaller of both counts. A server that does not say leaves the settings.
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

SECONDS = 2.0
OK = 200
SMALLEST = 256  # less is no window
FIELDS = ("max_model_len", "context_length", "max_context_length")
PROVIDERS = ("openai", "ollama", "lmstudio")


def context_length(name: str, settings: Settings) -> int | None:
    """The window of a model such as `ollama:qwen3`; None when nobody knows such a provider."""
    provider, _, model = name.partition(":")
    section = getattr(settings.llm, provider, None)
    if not isinstance(section, Provider):
        return None
    if not section.base_url or provider not in PROVIDERS:
        return section.context_length
    try:
        told = _told(section, model)
    except (OrihonError, ValueError) as error:
        log.warning("%s does not say how large its window is (%s); %d is assumed.", name, error, section.context_length)
        return section.context_length
    if told is None:
        log.warning("%s does not say how large its window is; %d is assumed.", name, section.context_length)
        return section.context_length
    return min(told, section.context_length)


def length_in(answer: Any, model: str) -> int | None:
    """What a list of models says about one; where there is only one, its name does not matter."""
    listed = answer.get("data") if isinstance(answer, dict) else None
    known = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    found = [one for one in known if one.get("id") == model] or (known if len(known) == 1 else [])
    for one in found:
        meta = one.get("meta")
        lengths = [one.get(field) for field in FIELDS] + [meta.get("n_ctx_train") if isinstance(meta, dict) else None]
        usable = [length for length in lengths if isinstance(length, int) and length >= SMALLEST]
        if usable:
            return usable[0]
    return None


def _told(section: Provider, model: str) -> int | None:
    key = section.api_key
    headers = {"Authorization": f"Bearer {key.reveal()}"} if isinstance(key, Secret) else {}
    status, body = fetch_bounded(f"{section.base_url.rstrip('/')}/models", headers, SECONDS, who="The server")
    return length_in(decode_json(body), model) if status == OK else None
