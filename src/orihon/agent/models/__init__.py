"""Models: whatever answers a window.

    model = open_model("anthropic:claude-sonnet-5", settings)
    task.add_reply(model.reply(task.window(), on_text=print))

A model keeps no history and no store. A reply is complete or an error: failed attempts are repeated, and an attempt
that fails for good is a `ModelError` that leaves the log unchanged. After `ContextOverflow`, call
`task.shrink_budget()`.

A name is `openai:gpt-4o`, `anthropic:…`, `ollama:…`, `lmstudio:…`, `scripted:FILE`, or a model of the configured
provider; an empty name is the configured model. The SDKs are imported when a model of theirs is first opened.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from orihon.agent.models.cache import ReplyCache
from orihon.agent.models.errors import ProviderInfo
from orihon.errors import UsageError
from orihon.ingest import sanitiser_for
from orihon.retry import Backoff
from orihon.settings.schema import Provider, Settings
from orihon.settings.section import Secret, redact
from orihon.task.window import Window

OnText = Callable[[str], None]

RESTART_NOTICE = "\n[interrupted; starting again]\n"  # precedes the text of a repeated attempt

_CUT = frozenset({"length", "max_tokens", "model_context_window_exceeded"})
_PROVIDERS = {  # where the SDK looks for a key, and the address without a base_url; servers of one's own need neither
    "openai": ("OPENAI_API_KEY", "https://api.openai.com/v1"),
    "anthropic": ("ANTHROPIC_API_KEY", "https://api.anthropic.com"),
    "ollama": ("", ""),
    "lmstudio": ("", ""),
}


class Model(Protocol):
    """Answers windows and prompts."""

    @property
    def name(self) -> str:
        """The name that `open_model` takes, such as `openai:gpt-4o`."""

    def reply(self, window: Window, *, on_text: OnText | None = None) -> Any:
        """Return the complete reply, as `task.add_reply` takes it. `on_text` receives its text as it arrives."""

    def ask(self, prompt: str, *, schema: dict[str, Any] | None = None) -> str:
        """Return the answer to one prompt, without tools or history; JSON if a `schema` is given."""

    def close(self) -> None:
        """Close all connections."""


def was_cut(reply: dict[str, Any]) -> bool:
    """Return whether the model ran out of tokens.

    The text of such a reply is incomplete. A call that was cut has arguments that are not JSON:
    `task.pending_calls()` answers it with an error for the model, and it never runs.
    """
    if "choices" in reply:
        return any(choice.get("finish_reason") in _CUT for choice in reply["choices"])
    return reply.get("stop_reason") in _CUT


def open_model(name: str, settings: Settings, *, cache: Path | None = None, backoff: Backoff | None = None) -> Model:
    """Return the model of this name. `cache` is a directory for replies; `backoff` replaces the configured retries."""
    provider, colon, model = name.strip().partition(":")
    if not colon or provider not in {*_PROVIDERS, "scripted"}:  # a colon may belong to the model, as in `qwen3:30b`
        provider, model = settings.llm.provider, name.strip()
    if provider == "scripted":
        from orihon.agent.models.scripted import ScriptedReplies  # noqa: PLC0415 - only tests and the demo need it

        return ScriptedReplies(model)
    model = model or getattr(settings.llm, provider).model
    if not model:
        setting = f"llm.{provider}.model"
        raise UsageError(f"No model is named for {provider}.", hint=f"Set `{setting}`, or use `{provider}:NAME`.")
    configured = Backoff(tries=settings.llm.tries, max_seconds=settings.llm.total_seconds)
    return _open_remote(provider, model, settings, cache, backoff or configured)


def _open_remote(provider: str, model: str, settings: Settings, cache: Path | None, backoff: Backoff) -> Model:
    section: Provider = getattr(settings.llm, provider)
    variable, address = _PROVIDERS[provider]
    if section.base_url and not section.base_url.startswith(("http://", "https://")):
        message = f"`llm.{provider}.base_url` is {str(redact(section.base_url))!a}, which is not a URL."
        raise UsageError(message, hint="Start it with http:// or https://.")
    model_class = _load_class(provider)
    from orihon.agent.models.client import ModelOptions  # noqa: PLC0415 - needs httpx2

    # The SDK reads the variable of its provider; that key must not go to another server.
    api_key = section.api_key or (None if variable else Secret("none"))
    info = ProviderInfo(f"{provider}:{model}", f"llm.{provider}", variable, str(redact(section.base_url)) or address)
    options = ModelOptions(
        model=model,
        provider=info,
        backoff=backoff,
        stall_seconds=settings.llm.stall_seconds,
        base_url=section.base_url,
        api_key=api_key,
        max_tokens=settings.window.reserved_output or 0,
        offers_tools=settings.llm.function_calling,
        cache=ReplyCache(Path(cache), sanitiser_for(settings)) if cache is not None else None,
    )
    remote: Model = model_class(options)
    return remote


def _load_class(provider: str) -> Any:
    try:
        if provider == "anthropic":
            from orihon.agent.models.anthropic_messages import AnthropicMessages  # noqa: PLC0415

            return AnthropicMessages
        from orihon.agent.models.openai_chat import OpenAIChat  # noqa: PLC0415
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in {"openai", "anthropic", "httpx2"}:
            raise
        raise UsageError(
            f"The library {package} is needed and not installed.", hint='Run: pip install "orihon[agent]".'
        ) from error
    return OpenAIChat
