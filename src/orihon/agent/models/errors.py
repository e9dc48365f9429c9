"""Translate every failure of a provider, an SDK or HTTP into a ModelError.

Worth a retry: 408, 409, 429, 5xx, no connection, silence, a stream that breaks off, an unreadable answer, and failures
that a provider reports inside a stream. Not worth a retry: every other 4xx, and a 429 for an account without credit.
The provider's message is quoted, masked and shortened. Its exceptions are not chained, because they hold the request
with its key.
"""

from __future__ import annotations

import re
import time
from typing import Any, NamedTuple

from orihon.context.streams import ReportedError
from orihon.errors import ContextOverflow, ModelError, ModelTimeout, UsageError
from orihon.redaction import KnownSecrets, mask
from orihon.retry import parse_retry_after

MAX_QUOTED_CHARS = 400
FIRST_ERROR, FIRST_SERVER_ERROR = 400, 500  # HTTP statuses

_RETRYABLE = frozenset({408, 409, 429})
_NO_CREDIT = frozenset({"insufficient_quota", "billing_error", "billing_not_active"})
_CLIENT_ERRORS = frozenset({"invalid_request_error", "authentication_error", "permission_error", "not_found_error"})
_OVERFLOW_CODES = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "request_too_large", "string_above_max_length"}
)
_OVERFLOW_MESSAGES = re.compile(
    r"""
      context_length_exceeded                               # OpenAI, and gateways that pass its code on as text
    | maximum\ context\ length                              # OpenAI, vLLM, OpenRouter, Mistral
    | exceeds?\ the\ context\ (?:window|length)             # OpenAI Responses, Ollama
    | exceed(?:s|ed)?\ (?:the\ )?max(?:imum)?\ context      # Ollama
    | prompt\ (?:is\ )?too\ long                            # Anthropic, Ollama
    | exceed\ context\ limit                                # Anthropic: input length and `max_tokens`
    | exceeds\ the\ maximum\ (?:allowed\ )?(?:size|number\ of\ bytes)   # Anthropic: 413
    | longer\ than\ the\ maximum\ model\ length             # vLLM
    | max_tokens\ must\ be\ at\ least\ 1,\ got\ -           # vLLM: the prompt leaves no room for a reply
    | available\ context\ size                              # llama.cpp
    | exceed\ context\ window                               # llama-cpp-python
    | tokens\ to\ keep\ from\ the\ initial\ prompt          # LM Studio
    | trying\ to\ keep\ the\ first\ \d+\ tokens             # LM Studio
    | n_keep\b.*n_ctx\b                                     # LM Studio
    | input\ is\ too\ long                                  # Bedrock
    | input\ token\ count\b.*\bexceeds                      # Gemini
    | reduce\ the\ length\ of\ (?:the\ |your\ )?(?:messages|prompt|input)   # Groq and others
    | request\ too\ large\b.*\btokens\ must\ be\ reduced    # OpenAI: one request above the limit of a minute
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError)  # raised while reading an unexpected answer


_PUBLIC = {  # where the SDK looks for a key, and the address without a base_url
    "openai": ("OPENAI_API_KEY", "https://api.openai.com/v1"),
    "anthropic": ("ANTHROPIC_API_KEY", "https://api.anthropic.com"),
}


class ProviderInfo(NamedTuple):
    """A provider, as error messages describe it."""

    name: str  # openai:gpt-4o
    section: str  # llm.openai
    variable: str  # environment variable of the key; empty if no key is needed
    address: str  # as it may be shown
    secrets: KnownSecrets = KnownSecrets(())

    @classmethod
    def of(cls, provider: str, model: str, base_url: str) -> ProviderInfo:
        """Return what is known of a provider. Servers of one's own need no key."""
        variable, address = _PUBLIC.get(provider, ("", ""))
        return cls(f"{provider}:{model}", f"llm.{provider}", variable, base_url or address)

    def with_keys(self, *keys: str | None) -> ProviderInfo:
        """Return a copy that knows the keys, so that they are never quoted."""
        return self._replace(secrets=KnownSecrets.gather({}, [key for key in keys if key]))


class FailedAttempt(Exception):
    """One attempt failed: the error to raise, the provider's message, and the pause it asks for."""

    def __init__(self, error: ModelError, *, text: str = "", retry_after: float | None = None) -> None:
        super().__init__(error.message)
        self.error, self.text, self.retry_after = error, text, retry_after


def is_overflow(text: str, *codes: str) -> bool:
    """Return whether a provider's message or code says that the request is longer than the model's window."""
    return not _OVERFLOW_CODES.isdisjoint(codes) or _OVERFLOW_MESSAGES.search(text) is not None


def make_failure(error: Exception, provider: ProviderInfo) -> FailedAttempt:
    """Return the failure behind an exception; re-raise an exception that the provider did not cause."""
    import httpx2  # noqa: PLC0415 - scripted models use `is_overflow` without the extra `agent`

    causes = (ReportedError, httpx2.HTTPError, httpx2.StreamError, OSError, *UNREADABLE)
    if not isinstance(error, causes) and not hasattr(error, "body"):  # all errors of the SDKs have a body
        raise error
    status = int(getattr(error, "status_code", 0) or 0)
    body = getattr(error, "body", None)
    if status < FIRST_ERROR and not isinstance(error, ReportedError) and not body:
        return _make_connection_failure(error, provider)
    text = mask(_find_message(body) or str(error), known=provider.secrets)[:MAX_QUOTED_CHARS]
    inner = _unwrap_error(body)
    codes = [str(inner.get(name) or "") for name in ("code", "type", "status")]
    status = next((int(code) for code in codes if status < FIRST_ERROR and code.isdecimal()), status)
    if is_overflow(text, *codes):
        overflow = ContextOverflow(f"{provider.name} rejected the request as too long: {_end_sentence(text)}")
        return FailedAttempt(overflow, text=text)
    headers = getattr(getattr(error, "response", None), "headers", {})
    retryable = _is_retryable(status, codes) and headers.get("x-should-retry") != "false"
    verb = f"answered {status}" if status >= FIRST_ERROR else "reports a failure"
    message = f"{provider.name} {verb}: {_end_sentence(text)}"
    return FailedAttempt(
        ModelError(message, hint=_find_hint(status, codes, provider), retryable=retryable),
        text=text,
        retry_after=parse_retry_after(headers, time.time()) if retryable else None,
    )


def make_missing_key_error(provider: ProviderInfo) -> UsageError:
    """Return the error for a provider without a key."""
    return UsageError(
        f"There is no key for {provider.name}.",
        hint=f"Set {provider.variable} in the environment, or `{provider.section}.api_key` in config.yaml.",
    )


def make_unreadable_failure(provider: ProviderInfo, reason: str) -> FailedAttempt:
    """Return the failure for an answer that is not a reply."""
    hint = f"If this persists, check `{provider.section}.base_url`: {provider.address}."
    return FailedAttempt(ModelError(f"The answer of {provider.name} {reason}.", hint=hint, retryable=True))


def _make_connection_failure(error: Exception, provider: ProviderInfo) -> FailedAttempt:
    """Return the failure for a missing or interrupted answer."""
    import httpx2  # noqa: PLC0415

    # the SDKs wrap the exceptions of HTTP, but not inside a stream
    cause = error if isinstance(error, httpx2.HTTPError) else error.__cause__ or error
    hint = ""
    if isinstance(cause, httpx2.TimeoutException):
        return FailedAttempt(ModelTimeout(f"{provider.name} did not answer in time.", retryable=True))
    if isinstance(cause, httpx2.RemoteProtocolError | httpx2.ReadError):
        message = f"The connection to {provider.name} broke off."
    elif isinstance(cause, UNREADABLE):
        return make_unreadable_failure(provider, f"cannot be read ({type(cause).__name__})")
    else:
        reason = mask(str(cause), known=provider.secrets)[:MAX_QUOTED_CHARS] or type(cause).__name__
        message = f"{provider.name} cannot be reached at {provider.address}: {_end_sentence(reason)}"
        hint = f"Check that it runs there; `{provider.section}.base_url` is the address."
    return FailedAttempt(ModelError(message, hint=hint, retryable=True))


def _is_retryable(status: int, codes: list[str]) -> bool:
    if not _NO_CREDIT.isdisjoint(codes):
        return False
    if status < FIRST_ERROR:  # the answer had begun, so the request was accepted
        return _CLIENT_ERRORS.isdisjoint(codes)
    return status in _RETRYABLE or status >= FIRST_SERVER_ERROR


def _find_hint(status: int, codes: list[str], provider: ProviderInfo) -> str:
    if not _NO_CREDIT.isdisjoint(codes):
        return "The account has no credit left; resume the task when it has."
    if status in {401, 403}:
        variable = f" or {provider.variable}" if provider.variable else ""
        return f"Check `{provider.section}.api_key`{variable}."
    if status in {404, 405}:
        return f"Check the name of the model, and `{provider.section}.base_url`: {provider.address}."
    return "Wait, then resume the task; nothing is lost." if status in _RETRYABLE else ""


def _unwrap_error(body: Any) -> dict[str, Any]:
    inner = body.get("error", body) if isinstance(body, dict) else None
    return inner if isinstance(inner, dict) else {}


def _find_message(body: Any) -> str:
    if isinstance(body, str):
        return "(an HTML page)" if body.lstrip().startswith("<") else " ".join(body.split())
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, str):
        return error
    inner = _unwrap_error(body)
    return next((" ".join(str(inner[name]).split()) for name in ("message", "detail", "msg") if inner.get(name)), "")


def _end_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
