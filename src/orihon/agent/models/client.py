"""A model behind an HTTP API: render the request, read the stream to its end, retry, and cache on request.

`on_text` may receive the text of an attempt that fails later; the next attempt then begins with `RESTART_NOTICE`.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, ClassVar, Literal

import httpx2

from orihon.agent.models import RESTART_NOTICE, OnText, was_cut
from orihon.agent.models.cache import ReplyCache
from orihon.agent.models.errors import (
    UNREADABLE,
    FailedAttempt,
    ProviderInfo,
    make_failure,
    make_unreadable_failure,
)
from orihon.context.replies import parse_reply
from orihon.context.streams import ReportedError, StreamAccumulator
from orihon.errors import ContextOverflow, ModelError, UsageError
from orihon.records import Message
from orihon.retry import Backoff
from orihon.settings.schema import Provider, Settings
from orihon.settings.section import redact
from orihon.task.window import Window

log = logging.getLogger("orihon")

CONNECT_SECONDS = 15.0
MAX_ADAPTATIONS = 3  # parameters that a server may refuse in one request
TRUNCATED_SHARE = 0.5  # a server that counts a smaller share of the window has dropped the rest
MIN_CHECKED_TOKENS = 2000
NO_KEY = "none"  # the SDKs require a key, servers of one's own do not

_MORE_ROOM = "Raise `window.reserved_output`, the limit of a reply."

Request = dict[str, Any]


class RemoteModel(ABC):
    """A model of any provider. Subclasses know one API."""

    dialect: ClassVar[Literal["openai", "anthropic"]]
    # parameters that a server may refuse, and the words by which its refusals name them
    refusable: ClassVar[Mapping[str, tuple[str, ...]]]
    renamed: ClassVar[Mapping[str, str]] = {}  # the other name of a refused parameter
    always: ClassVar[Request] = {}  # in every request
    client: Any  # of the provider's SDK

    def __init__(
        self, provider: str, model: str, settings: Settings, backoff: Backoff, cache: ReplyCache | None
    ) -> None:
        section: Provider = getattr(settings.llm, provider)
        if section.base_url and not section.base_url.startswith(("http://", "https://")):
            message = f"`llm.{provider}.base_url` is {str(redact(section.base_url))!a}, which is not a URL."
            raise UsageError(message, hint="Start it with http:// or https://.")
        self.model, self.settings, self.section, self.backoff, self.cache = model, settings, section, backoff, cache
        self.provider = ProviderInfo.of(provider, model, str(redact(section.base_url)))
        self.refused: set[str] = set()
        self._warned = False

    @property
    def name(self) -> str:
        """Provider and model."""
        return self.provider.name

    def reply(self, window: Window, *, on_text: OnText | None = None) -> dict[str, Any]:
        """Return the complete reply to a window."""
        tools = window.tools(self.dialect) if self.settings.llm.function_calling else []
        content = self.render(window) | ({"tools": tools} if tools else {})
        reply = self._answer(self._make_request(content, window.reserved_output), on_text)
        self._warn_if_truncated(window, parse_reply(reply))
        return reply

    def ask(self, prompt: str, *, schema: dict[str, Any] | None = None) -> str:
        """Return the answer to one prompt. Raise ModelError if it was cut."""
        content: Request = {"messages": [{"role": "user", "content": prompt}]}
        reply = self._answer(self._make_request(content | ({"schema": schema} if schema else {})), None)
        if was_cut(reply):
            raise ModelError(f"The answer of {self.name} was cut: it exceeds the limit of a reply.", hint=_MORE_ROOM)
        return parse_reply(reply).text

    def close(self) -> None:
        """Close all connections."""
        self.client.close()

    @abstractmethod
    def render(self, window: Window) -> Request:
        """Return the messages of a request."""

    @abstractmethod
    def render_schema(self, schema: dict[str, Any]) -> Request:
        """Return the parameters of a request for an answer by a schema."""

    @abstractmethod
    def send(self, body: Request) -> Any:
        """Send a request and return the SDK's stream of events."""

    @abstractmethod
    def make_accumulator(self) -> StreamAccumulator:
        """Return an empty accumulator."""

    def open_stream(self, request: Request) -> Any:
        """Send a request without the parameters that the server refuses, and return the stream of events."""
        body = {name: value for name, value in request.items() if name not in self.refused}
        body |= {new: request[old] for old, new in self.renamed.items() if old in request and old in self.refused}
        if "schema" in body:
            body |= self.render_schema(body.pop("schema"))
        elif "schema" in request:
            body["messages"] = _append_schema(body["messages"], request["schema"])
        return self.send(body)

    def adapt(self, request: Request, refusal: str) -> bool:
        """Return whether a refused request can be sent in another form; remember that form."""
        names = [name for name in self.refusable if name in request and name not in self.refused]
        refused = {name for name in names if any(mark in refusal for mark in self.refusable[name])}
        self.refused |= refused
        return bool(refused)

    def client_options(self) -> dict[str, Any]:
        """Return the options of the SDK's client. It gets no key of another server from the environment."""
        stall, key = self.settings.llm.stall_seconds, self.section.api_key
        no_key = None if self.provider.variable else NO_KEY
        timeout = httpx2.Timeout(stall, connect=min(CONNECT_SECONDS, stall))
        base_url = self.section.base_url or None
        return {"api_key": key.reveal() if key else no_key, "max_retries": 0, "timeout": timeout, "base_url": base_url}

    def _make_request(self, content: Request, max_tokens: int = 0) -> Request:
        limit = max_tokens or self.settings.window.reserved_output
        return {"model": self.model} | self.always | content | ({"max_tokens": limit} if limit else {})

    def _answer(self, request: Request, on_text: OnText | None) -> dict[str, Any]:
        cached = self.cache.get(self.name, request) if self.cache is not None else None
        if cached is not None:
            text = parse_reply(cached).text
            if on_text is not None and text:
                on_text(text)
            return cached
        reply = _Exchange(self, request, on_text).run()
        if not was_cut(reply):
            if self.cache is not None:
                self.cache.put(self.name, request, reply)
            return reply
        message = parse_reply(reply)
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
        self._backoff, self._provider = model.backoff, model.provider
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
                parse_reply(reply)  # an answer that a task would refuse is a failed attempt
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


def _append_schema(messages: list[dict[str, Any]], schema: dict[str, Any]) -> list[dict[str, Any]]:
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
