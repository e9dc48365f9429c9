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
from orihon.errors import UsageError
from orihon.ingest import sanitiser_for
from orihon.retry import Backoff
from orihon.settings.schema import Settings
from orihon.task.config import EXTRACTIVE, TaskConfig
from orihon.task.window import Window

OnText = Callable[[str], None]

RESTART_NOTICE = "\n[interrupted; starting again]\n"  # precedes the text of a repeated attempt
PROVIDERS = ("openai", "anthropic", "ollama", "lmstudio")

_CUT = frozenset({"length", "max_tokens", "model_context_window_exceeded"})


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


def get_model_name(config: TaskConfig) -> str:
    """Return the model of a task, as `open_model` takes it."""
    if config.llm_provider == "scripted" or not config.llm_provider:
        return config.model
    return f"{config.llm_provider}:{config.model}"


def choose_summariser(settings: Settings, model: str) -> str:
    """Return the name of the model that writes the summaries of a task: the configured one, else the task's own.

    The replies of a script belong to the conversation, so a scripted model summarises only where it is configured.
    """
    own = EXTRACTIVE if model.startswith("scripted:") else model
    return settings.context_storage.summariser or own or EXTRACTIVE


def was_cut(reply: dict[str, Any]) -> bool:
    """Return whether the model ran out of tokens.

    The text of such a reply is incomplete. A call that was cut has arguments that are not JSON:
    `task.pending_calls()` answers it with an error for the model, and it never runs.
    """
    if "choices" in reply:
        return any(choice.get("finish_reason") in _CUT for choice in reply["choices"])
    return reply.get("stop_reason") in _CUT


def open_model(name: str, settings: Settings, *, cache: Path | None = None, backoff: Backoff | None = None) -> Model:
    """Return the model of this name.

    `cache` is a directory for replies, by default the configured one; `backoff` replaces the configured retries.
    """
    provider, colon, model = name.strip().partition(":")
    if not colon or provider not in {*PROVIDERS, "scripted"}:  # a colon may belong to the model, as in `qwen3:30b`
        provider, model = settings.llm.provider, name.strip()
    if provider == "scripted":
        from orihon.agent.models.scripted import ScriptedReplies  # noqa: PLC0415 - only tests and the demo need it

        return ScriptedReplies(model)
    model = model or getattr(settings.llm, provider).model
    if not model:
        setting = f"llm.{provider}.model"
        raise UsageError(f"No model is named for {provider}.", hint=f"Set `{setting}`, or use `{provider}:NAME`.")
    backoff = backoff or Backoff(tries=settings.llm.tries, max_seconds=settings.llm.total_seconds)
    if cache is None and settings.llm.reply_cache:
        cache = Path(settings.llm.reply_cache).expanduser()
    replies = ReplyCache(Path(cache), sanitiser_for(settings)) if cache is not None else None
    remote: Model = _load_class(provider)(provider, model, settings, backoff, replies)
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
