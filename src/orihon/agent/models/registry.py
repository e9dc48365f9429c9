"""Open a model by its name: `openai:gpt-4o`, `anthropic:…`, `ollama:…`, `lmstudio:…`, `scripted:FILE` or a bare name.

A bare name is a model of the configured provider; an empty name is the configured model. The SDKs are imported when a
model of theirs is first opened.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, NamedTuple

from orihon.agent.models.base import Model
from orihon.errors import UsageError
from orihon.ingest import sanitiser_for
from orihon.retry import Backoff
from orihon.settings.schema import Provider, Settings
from orihon.settings.section import Secret, shown


class _Provider(NamedTuple):
    package: str
    module: str
    class_name: str
    variable: str  # where the SDK looks for a key; empty for servers that need none
    address: str  # without a base_url


_OPENAI = ("openai", "orihon.agent.models.openai_chat", "OpenAIChat")
_ANTHROPIC = ("anthropic", "orihon.agent.models.anthropic_messages", "AnthropicMessages")
_PROVIDERS = {
    "openai": _Provider(*_OPENAI, "OPENAI_API_KEY", "https://api.openai.com/v1"),
    "ollama": _Provider(*_OPENAI, "", ""),
    "lmstudio": _Provider(*_OPENAI, "", ""),
    "anthropic": _Provider(*_ANTHROPIC, "ANTHROPIC_API_KEY", "https://api.anthropic.com"),
}


def open_model(name: str, settings: Settings, *, cache: Path | None = None, backoff: Backoff | None = None) -> Model:
    """Return the model of this name. `cache` is a directory for replies; `backoff` replaces the configured retries."""
    provider, model = _split_name(name, settings)
    if provider == "scripted":
        from orihon.agent.models.scripted import ScriptedReplies  # noqa: PLC0415 - only tests and the demo need it

        return ScriptedReplies(model)
    model = model or getattr(settings.llm, provider).model
    if not model:
        setting = f"llm.{provider}.model"
        raise UsageError(f"No model is named for {provider}.", hint=f"Set `{setting}`, or use `{provider}:NAME`.")
    llm = settings.llm
    return _open_remote(
        provider, model, settings, cache, backoff or Backoff(tries=llm.tries, max_seconds=llm.total_seconds)
    )


def _split_name(name: str, settings: Settings) -> tuple[str, str]:
    """Return provider and model. A colon may also belong to the model, as in `qwen3:30b`."""
    prefix, colon, rest = name.strip().partition(":")
    if colon and (prefix in _PROVIDERS or prefix == "scripted"):
        return prefix, rest
    return settings.llm.provider, name.strip()


def _open_remote(provider: str, model: str, settings: Settings, cache: Path | None, backoff: Backoff) -> Model:
    section: Provider = getattr(settings.llm, provider)
    known = _PROVIDERS[provider]
    _check_address(section.base_url, provider)
    model_class = _load_class(known)
    client = importlib.import_module("orihon.agent.models.client")
    errors = importlib.import_module("orihon.agent.models.errors")
    replies = importlib.import_module("orihon.agent.models.cache")
    address = str(shown(section.base_url)) or known.address
    options = client.ModelOptions(
        model=model,
        provider=errors.ProviderInfo(f"{provider}:{model}", f"llm.{provider}", known.variable, address),
        backoff=backoff,
        stall_seconds=settings.llm.stall_seconds,
        base_url=section.base_url,
        api_key=_find_key(section, known),
        max_tokens=settings.window.reserved_output,
        offers_tools=settings.llm.function_calling,
        cache=replies.ReplyCache(Path(cache), sanitiser_for(settings)) if cache is not None else None,
    )
    remote: Model = model_class(options)
    return remote


def _find_key(section: Provider, provider: _Provider) -> Secret | None:
    """Return the configured key. The SDK reads its own variable; that key must not go to another server."""
    if section.api_key is not None or provider.variable:
        return section.api_key
    return Secret("none")


def _load_class(provider: _Provider) -> Any:
    try:
        return getattr(importlib.import_module(provider.module), provider.class_name)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in {provider.package, "httpx2"}:
            raise
        raise UsageError(
            f"The library {provider.package} is needed and not installed.", hint='Run: pip install "orihon[agent]".'
        ) from error


def _check_address(base_url: str, provider: str) -> None:
    if base_url and not base_url.startswith(("http://", "https://")):
        setting = f"`llm.{provider}.base_url`"
        raise UsageError(
            f"{setting} is {str(shown(base_url))!a}, which is not a URL.", hint="Start it with http:// or https://."
        )
