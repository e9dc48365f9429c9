"""From a name to a model: `openai:gpt-4o`, `anthropic:…`, `ollama:…`, `lmstudio:…`, `scripted:FILE`, or a bare name.

A bare name is a model of the provider that the settings choose, and no name is the one that they name. The SDKs are
imported here, when a model of theirs is first opened.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, NamedTuple

from orihon.agent.models.base import Model
from orihon.agent.models.patience import Patience
from orihon.errors import UsageError
from orihon.ingest import sanitiser_for
from orihon.settings.schema import Provider, Settings
from orihon.settings.section import Secret, shown


class _Kind(NamedTuple):
    package: str
    place: str
    variable: str  # where the SDK looks for a key; empty for servers of one's own, which need none
    address: str  # without a base_url


_OPENAI = "orihon.agent.models.openai_chat:OpenAIChat"
_KINDS = {
    "openai": _Kind("openai", _OPENAI, "OPENAI_API_KEY", "https://api.openai.com/v1"),
    "ollama": _Kind("openai", _OPENAI, "", ""),
    "lmstudio": _Kind("openai", _OPENAI, "", ""),
    "anthropic": _Kind(
        "anthropic",
        "orihon.agent.models.anthropic_messages:AnthropicMessages",
        "ANTHROPIC_API_KEY",
        "https://api.anthropic.com",
    ),
}


def open_model(name: str, settings: Settings, *, cache: Path | None = None, patience: Patience | None = None) -> Model:
    """The model of this name; `cache` is a directory for replies, `patience` stands for what the settings say."""
    provider, model = _parted(name, settings)
    if provider == "scripted":
        from orihon.agent.models.scripted import ScriptedReplies  # noqa: PLC0415 - for tests and the demo

        return ScriptedReplies(model)
    section: Provider = getattr(settings.llm, provider)
    model = model or section.model
    if not model:
        setting = f"llm.{provider}.model"
        raise UsageError(f"No model is named for {provider}.", hint=f"Set `{setting}`, or say `{provider}:NAME`.")
    return _remote(provider, model, settings, cache, patience or Patience.of(settings.llm))


def _parted(name: str, settings: Settings) -> tuple[str, str]:
    """Provider and model; a colon may also belong to the model, as in `qwen3:30b`."""
    prefix, colon, rest = name.strip().partition(":")
    if colon and (prefix in _KINDS or prefix == "scripted"):
        return prefix, rest
    return settings.llm.provider, name.strip()


def _remote(provider: str, model: str, settings: Settings, cache: Path | None, patience: Patience) -> Model:
    section: Provider = getattr(settings.llm, provider)
    kind = _KINDS[provider]
    _check_address(section.base_url, provider)
    speaks = _loaded(kind)
    failures = importlib.import_module("orihon.agent.models.errors")
    remote = importlib.import_module("orihon.agent.models.client")
    address = str(shown(section.base_url)) or kind.address
    account = failures.Account(f"{provider}:{model}", f"llm.{provider}", kind.variable, address)
    api = speaks(
        model,
        account,
        patience,
        base_url=section.base_url,
        api_key=_key(section, kind),
        max_tokens=settings.window.reserved_output,
        tools=settings.llm.function_calling,
    )
    replies = None
    if cache is not None:
        try:
            replies = importlib.import_module("orihon.agent.models.cache").ReplyCache(
                Path(cache), sanitiser_for(settings)
            )
        except BaseException:
            api.close()
            raise
    opened: Model = remote.RemoteModel(api, patience, replies)
    return opened


def _key(section: Provider, kind: _Kind) -> Secret | None:
    """The key of the settings; one from the environment is left to the SDK it is meant for, and goes to no other."""
    if section.api_key is not None or kind.variable:
        return section.api_key
    return Secret("none")


def _loaded(kind: _Kind) -> Any:
    module, _, attribute = kind.place.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in {kind.package, "httpx2"}:
            raise
        raise UsageError(
            f"The library {kind.package} is needed and not installed.", hint='Run: pip install "orihon[agent]".'
        ) from error


def _check_address(base_url: str, provider: str) -> None:
    if base_url and not base_url.startswith(("http://", "https://")):
        setting = f"`llm.{provider}.base_url`"
        raise UsageError(
            f"{setting} is {str(shown(base_url))!a}, which is no address.", hint="Begin with http:// or https://."
        )
