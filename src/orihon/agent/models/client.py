"""A model behind an HTTP API: render the request, read the stream to its end, retry, and cache on request.

`on_text` may receive the text of an attempt that fails later; the next attempt then begins with `RESTART_NOTICE`.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, Protocol

import httpx2

from orihon.agent.models import RESTART_NOTICE, OnText, was_cut
from orihon.agent.models.cache import ReplyCache
from orihon.agent.models.errors import (
    UNREADABLE,
    FailedAttempt,
    ProviderInfo,
    ReportedError,
    make_failure,
    make_unreadable_failure,
)
from orihon.context.replies import reply_of
from orihon.errors import ContextOverflow, ModelError
from orihon.records import Message
from orihon.retry import Backoff
from orihon.settings.section import Secret
from orihon.task.window import Window

log = logging.getLogger("orihon")

CONNECT_SECONDS = 15.0
MAX_ADAPTATIONS = 3  # parameters that a server may refuse in one request
TRUNCATED_SHARE = 0.5  # a server that counts a smaller share of the window has dropped the rest
MIN_CHECKED_TOKENS = 2000
# Arguments of a call that was cut before they began; empty arguments would mean an empty object.
UNFINISHED = "{"

_MORE_ROOM = "Raise `window.reserved_output`, the limit of a reply."

Request = dict[str, Any]


class ModelOptions(NamedTuple):
    """How to reach a model, from the settings."""

    model: str
    provider: ProviderInfo
    backoff: Backoff
    stall_seconds: float
    base_url: str = ""
    api_key: Secret | None = None
    max_tokens: int = 0
    offers_tools: bool = True
    cache: ReplyCache | None = None


class StreamAccumulator(Protocol):
    """Joins the events of one stream."""

    def add(self, event: dict[str, Any]) -> str:
        """Add an event and return its text."""

    def finish(self) -> dict[str, Any] | None:
        """Return the reply as the API gives it without streaming, or None if the stream is incomplete."""


class RemoteModel(ABC):
    """A model of any provider. Subclasses know one API."""

    client: Any  # of the provider's SDK

    def __init__(self, options: ModelOptions) -> None:
        self.options, self.provider = options, options.provider
        self._warned = False

    @property
    def name(self) -> str:
        """Provider and model."""
        return self.provider.name

    def reply(self, window: Window, *, on_text: OnText | None = None) -> dict[str, Any]:
        """Return the complete reply to a window."""
        reply = self._answer(self.build_request(window), on_text)
        self._warn_if_truncated(window, reply_of(reply))
        return reply

    def ask(self, prompt: str, *, schema: dict[str, Any] | None = None) -> str:
        """Return the answer to one prompt. Raise ModelError if it was cut."""
        reply = self._answer(self.build_question(prompt, schema), None)
        if was_cut(reply):
            raise ModelError(f"The answer of {self.name} was cut: it exceeds the limit of a reply.", hint=_MORE_ROOM)
        return reply_of(reply).text

    def close(self) -> None:
        """Close all connections."""
        self.client.close()

    @abstractmethod
    def build_request(self, window: Window) -> Request:
        """Return the body of a request for a reply."""

    @abstractmethod
    def build_question(self, prompt: str, schema: dict[str, Any] | None) -> Request:
        """Return the body of a request without tools or history."""

    @abstractmethod
    def adapt(self, request: Request, refusal: str) -> bool:
        """Return whether a refused request can be sent in another form; remember that form."""

    @abstractmethod
    def open_stream(self, request: Request) -> Any:
        """Send a request and return the SDK's stream of events."""

    @abstractmethod
    def make_accumulator(self) -> StreamAccumulator:
        """Return an empty accumulator."""

    def _client_options(self) -> dict[str, Any]:
        stall = self.options.stall_seconds
        timeout = httpx2.Timeout(stall, connect=min(CONNECT_SECONDS, stall))
        return {"max_retries": 0, "timeout": timeout, "base_url": self.options.base_url or None}

    def _answer(self, request: Request, on_text: OnText | None) -> dict[str, Any]:
        cache = self.options.cache
        cached = cache.get(self.name, request) if cache is not None else None
        if cached is not None:
            text = reply_of(cached).text
            if on_text is not None and text:
                on_text(text)
            return cached
        reply = _Exchange(self, request, on_text).run()
        if not was_cut(reply):
            if cache is not None:
                cache.put(self.name, request, reply)
            return reply
        message = reply_of(reply)
        if not message.text and not message.tool_calls:
            raise ModelError(f"{self.name} used all its tokens before it wrote any text.", hint=_MORE_ROOM)
        return reply

    def _warn_if_truncated(self, window: Window, message: Message) -> None:
        """Warn once if the server dropped a part of the window without an error."""
        counted = message.usage.input_tokens if message.usage else 0
        if self._warned or not counted or window.tokens < MIN_CHECKED_TOKENS:
            return
        if counted < TRUNCATED_SHARE * window.tokens:
            self._warned = True
            log.warning(
                "%s counted %d tokens of a window of about %d; it seems to have cut the rest. Make its context as "
                "large as `%s.context_length`, or lower the setting.",
                self.name, counted, window.tokens, self.provider.section,
            )  # fmt: skip


class _Exchange:
    """All attempts of one request."""

    def __init__(self, model: RemoteModel, request: Request, on_text: OnText | None) -> None:
        self._model, self._request, self._on_text = model, request, on_text
        self._backoff, self._provider = model.options.backoff, model.provider
        self._deadline = self._backoff.clock() + (self._backoff.max_seconds or float("inf"))
        self._attempts = 0
        self._shown = self._restarted = False

    def run(self) -> dict[str, Any]:
        """Return the reply. Raise the ModelError of the last attempt."""
        try:
            return self._backoff.call(
                self._attempt,
                should_retry=lambda error: isinstance(error, FailedAttempt) and error.error.retryable,
                retry_after=lambda error: getattr(error, "retry_after", None),
                on_retry=self._log_retry,
            )
        except FailedAttempt as failure:
            error = failure.error
        if self._attempts > 1:
            message = f"{error.message} It was tried {self._attempts} times."
            error = type(error)(message, hint=error.hint, retryable=error.retryable)
        raise error  # outside of the handler, so that no request with its key is chained

    def _log_retry(self, error: Exception, seconds: float) -> None:
        log.warning("%s Trying again in %.1f s (attempt %d).", error, seconds, self._attempts + 1)

    def _attempt(self) -> dict[str, Any]:
        """Send the request; if the server refuses a parameter, send it again at once without."""
        self._attempts += 1
        self._restarted = self._shown
        for remaining in reversed(range(MAX_ADAPTATIONS + 1)):
            try:
                return self._receive()
            except FailedAttempt as failure:
                is_final = failure.error.retryable or isinstance(failure.error, ContextOverflow) or not remaining
                if is_final or not self._model.adapt(self._request, failure.text):
                    raise
        raise AssertionError

    def _receive(self) -> dict[str, Any]:
        accumulator, is_empty = self._model.make_accumulator(), True
        with closing(self._events()) as events:
            for event in events:
                is_empty = False
                with self._reading():
                    text = accumulator.add(event)
                if text:
                    self._show(text)
        with self._reading():
            reply = accumulator.finish()
            if reply is not None:
                reply_of(reply)  # an answer that a task would refuse is a failed attempt
        if reply is None:
            reason = "holds no reply" if is_empty else "broke off before its end"
            raise make_unreadable_failure(self._provider, reason)
        return reply

    def _events(self) -> Generator[dict[str, Any], None, None]:
        """Yield the events of the answer; exceptions raised in here are failures of the provider."""
        problem: Exception | None = None
        stream = None
        try:
            stream = self._model.open_stream(self._request)
            response: httpx2.Response = stream.response
            response.stream = _TimedStream(response.stream, self._backoff, self._deadline)  # type: ignore[arg-type]
            if "application/json" in response.headers.get("content-type", ""):  # the server does not stream
                yield _parse_body(response.read())
            else:
                yield from (event.to_dict(mode="json", warnings=False) for event in stream)
        except Exception as error:  # noqa: BLE001 - `make_failure` re-raises what the provider did not cause
            problem = error
        finally:
            if stream is not None:
                stream.close()
        if problem is not None:
            raise make_failure(problem, self._provider)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn the errors of reading an unexpected answer into a failed attempt."""
        try:
            yield
        except (ReportedError, *UNREADABLE) as error:
            raise make_failure(error, self._provider) from None

    def _show(self, text: str) -> None:
        if self._on_text is None:
            return
        if self._restarted:
            self._restarted = False
            self._on_text(RESTART_NOTICE)
        self._shown = True
        self._on_text(text)


class _TimedStream(httpx2.SyncByteStream):
    """Bytes until a deadline. Keep-alives would otherwise keep a silent connection open for ever."""

    def __init__(self, stream: httpx2.SyncByteStream, backoff: Backoff, deadline: float) -> None:
        self._stream, self._clock, self._deadline = stream, backoff.clock, deadline

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            yield chunk
            if self._clock() > self._deadline:
                raise httpx2.ReadTimeout("The deadline has passed.")

    def close(self) -> None:
        self._stream.close()


def append_schema(messages: list[dict[str, Any]], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages with the schema in the prompt, for servers that take it in no other way."""
    last = messages[-1]
    form = json.dumps(schema, ensure_ascii=False)
    prompt = f"{last['content']}\n\nAnswer with JSON only, by this schema:\n{form}"
    return [*messages[:-1], last | {"content": prompt}]


def _parse_body(body: bytes) -> dict[str, Any]:
    value = json.loads(body)
    if not isinstance(value, dict) or value.get("error"):
        raise ReportedError(value)
    return value
