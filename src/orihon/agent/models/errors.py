"""What went wrong between us and a provider, in our words: one place for all exceptions of the SDKs and of HTTP.

Tried again: 408, 409, 429, 5xx, no connection, silence, a stream that breaks off, an answer that cannot be read, and
failures that a provider reports in the middle of a stream. Not tried again: every other 4xx, and a 429 that says that
the money is used up. The provider's words are quoted, masked and cut; its exceptions are not chained, because they hold
the request with its key.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import httpx2

from orihon.agent.models.overflow import is_overflow
from orihon.agent.models.patience import Failure, told_seconds
from orihon.errors import ContextOverflow, ModelError, UsageError
from orihon.redaction import KnownSecrets, mask

MAX_WORDS_CHARS = 400
FIRST_ERROR, SERVERS_FAULT = 400, 500  # of the statuses of HTTP

_AGAIN = frozenset({408, 409, 429})
_SPENT = frozenset({"insufficient_quota", "billing_error", "billing_not_active"})
_OUR_FAULT = frozenset({"invalid_request_error", "authentication_error", "permission_error", "not_found_error"})


class Account(NamedTuple):
    """Who is asked, and where its settings stand."""

    name: str  # openai:gpt-4o
    section: str  # llm.openai
    variable: str  # of the environment, for the key; empty when it needs none
    address: str  # as people may see it
    known: KnownSecrets = KnownSecrets(())

    def knowing(self, *keys: str | None) -> Account:
        """The account with its keys, which must not be quoted."""
        return self._replace(known=KnownSecrets.gather({}, [key for key in keys if key]))


class Told(Exception):
    """An answer with status 200 that reports a failure."""

    def __init__(self, body: Any) -> None:
        super().__init__("The answer reports a failure.")
        self.body = body


UNREADABLE = (ValueError, TypeError, LookupError, AttributeError)  # what reading a strange answer ends in
_PROVIDERS = (Told, httpx2.HTTPError, httpx2.StreamError, OSError, *UNREADABLE)


def failure_of(error: Exception, account: Account) -> Failure:
    """The failure that this exception means; what is none of the provider's is raised."""
    if not isinstance(error, _PROVIDERS) and not hasattr(error, "body"):  # which every error of the SDKs has
        raise error
    response = getattr(error, "response", None)
    status = int(getattr(error, "status_code", 0) or 0)
    body = getattr(error, "body", None)
    if status < FIRST_ERROR and not isinstance(error, Told) and not body:
        return _broken(error, account)
    words = mask(_words(body) or str(error), known=account.known)[:MAX_WORDS_CHARS]
    inner = _inner(body)
    codes = [str(inner.get(name) or "") for name in ("code", "type", "status")]
    status = next((int(code) for code in codes if status < FIRST_ERROR and code.isdecimal()), status)
    if is_overflow(words, *codes):
        return Failure(ContextOverflow(f"{account.name} finds the request too long: {_sentence(words)}"), words=words)
    headers = getattr(response, "headers", {})
    again = _is_worth_a_try(status, codes) and headers.get("x-should-retry") != "false"
    answered = f"answered {status}" if status >= FIRST_ERROR else "reports a failure"
    told = told_seconds(headers, time.time()) if again else None
    return Failure(
        ModelError(
            f"{account.name} {answered}: {_sentence(words)}", hint=_hint(status, codes, account), retryable=again
        ),
        words=words,
        told_seconds=told,
    )


def no_key(account: Account) -> UsageError:
    """Nobody gave a key."""
    return UsageError(
        f"There is no key for {account.name}.",
        hint=f"Set {account.variable} in the environment, or `{account.section}.api_key` in config.yaml.",
    )


def unreadable(account: Account, what: str) -> Failure:
    """An answer came, but no reply."""
    sentence = f"The answer of {account.name} {what}."
    return Failure(
        ModelError(
            sentence, hint=f"If it stays so, check `{account.section}.base_url`: {account.address}.", retryable=True
        )
    )


def _broken(error: Exception, account: Account) -> Failure:
    """No answer, or one that broke off."""
    # the SDKs wrap what HTTP raises, but not in the middle of a stream
    cause = error if isinstance(error, httpx2.HTTPError) else error.__cause__ or error
    hint = ""
    if isinstance(cause, httpx2.TimeoutException):
        sentence = f"{account.name} did not answer in time."
        hint = "A model that needs long to begin needs a larger `llm.stall_seconds`."
    elif isinstance(cause, httpx2.RemoteProtocolError | httpx2.ReadError):
        sentence = f"The connection to {account.name} broke off."
    elif isinstance(cause, UNREADABLE):
        return unreadable(account, f"cannot be read ({type(cause).__name__})")
    else:
        why = mask(str(cause), known=account.known)[:MAX_WORDS_CHARS] or type(cause).__name__
        sentence = f"{account.name} cannot be reached at {account.address}: {_sentence(why)}"
        hint = f"See whether it runs there; `{account.section}.base_url` is the address."
    return Failure(ModelError(sentence, hint=hint, retryable=True))


def _is_worth_a_try(status: int, codes: list[str]) -> bool:
    if not _SPENT.isdisjoint(codes):
        return False
    if status < FIRST_ERROR:  # it began to answer, so it had nothing against the request
        return _OUR_FAULT.isdisjoint(codes)
    return status in _AGAIN or status >= SERVERS_FAULT


def _hint(status: int, codes: list[str], account: Account) -> str:
    if not _SPENT.isdisjoint(codes):
        return "The account has no credit left; the task can be resumed when it has."
    if status in {401, 403}:
        where = f"`{account.section}.api_key`"
        return f"Check {where} or {account.variable}." if account.variable else f"Check {where}."
    if status in {404, 405}:
        return f"Check the name of the model, and `{account.section}.base_url`: {account.address}."
    if status in _AGAIN:
        return "Wait a while, and resume the task; nothing is lost."
    return ""


def _inner(body: Any) -> dict[str, Any]:
    inner = body.get("error", body) if isinstance(body, dict) else None
    return inner if isinstance(inner, dict) else {}


def _words(body: Any) -> str:
    """What the provider says, wherever it says it."""
    if isinstance(body, str):
        return "(a page of HTML)" if body.lstrip().startswith("<") else " ".join(body.split())
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, str):
        return error
    inner = _inner(body)
    return next((" ".join(str(inner[name]).split()) for name in ("message", "detail", "msg") if inner.get(name)), "")


def _sentence(words: str) -> str:
    return words if words.endswith((".", "!", "?")) else f"{words}."
