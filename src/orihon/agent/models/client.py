"""A model behind a network: rendered, asked, heard to the end, asked again when that fails, and remembered if wished.

What is told while a reply comes may be half of one that breaks off; the next try then begins with `AGAIN`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any, Protocol

import httpx2

from orihon.agent.models.base import RESTART_NOTICE, Tell, was_cut
from orihon.agent.models.cache import ReplyCache
from orihon.agent.models.errors import UNREADABLE, Account, Told, failure_of, unreadable
from orihon.agent.models.patience import Failure, Patience
from orihon.context.replies import reply_of
from orihon.errors import ContextOverflow, ModelError
from orihon.records import Message
from orihon.task.window import Window

log = logging.getLogger("orihon")

FITTINGS = 3  # parameters that a server may refuse, one after the other
FORGOTTEN_SHARE = 0.5  # a server that counts less of a request than this has cut it
NOTICEABLE_TOKENS = 2000

Request = dict[str, Any]


class Gathering(Protocol):
    """The pieces of one reply."""

    def take(self, event: dict[str, Any]) -> str:
        """Take in a piece; what it adds to the text."""

    def whole(self) -> dict[str, Any] | None:
        """The reply as the API gives it without streaming; None while its end has not come."""


class Api(Protocol):
    """How one provider is spoken to."""

    account: Account

    def request(self, window: Window) -> Request:
        """The body of a request for a reply."""

    def question(self, prompt: str, schema: dict[str, Any] | None) -> Request:
        """The body of a request without tools or history."""

    def fits(self, request: Request, words: str) -> bool:
        """Whether a refused request can be made acceptable; it is remembered how."""

    def stream(self, request: Request) -> Any:
        """Send it; the SDK's stream of events."""

    def gathering(self) -> Gathering:
        """Nothing gathered yet."""

    def close(self) -> None:
        """Let go of connections."""


class RemoteModel:
    """Any provider, by its API."""

    def __init__(self, api: Api, patience: Patience, cache: ReplyCache | None = None) -> None:
        self.api, self.patience, self.cache = api, patience, cache
        self._warned = False

    @property
    def name(self) -> str:
        """Provider and model."""
        return self.api.account.name

    def reply(self, window: Window, *, on_text: Tell | None = None) -> dict[str, Any]:
        """The whole reply to a window."""
        reply = self._answer(self.api.request(window), on_text)
        self._look_at_usage(window, reply_of(reply))
        return reply

    def ask(self, prompt: str, *, schema: dict[str, Any] | None = None) -> str:
        """The answer to one prompt; half an answer is an error."""
        reply = self._answer(self.api.question(prompt, schema), None)
        if was_cut(reply):
            raise ModelError(f"The answer of {self.name} was cut: it is longer than it may be.", hint=_MORE_ROOM)
        return reply_of(reply).text

    def close(self) -> None:
        """Let go of connections."""
        self.api.close()

    def _answer(self, request: Request, on_text: Tell | None) -> dict[str, Any]:
        found = self.cache.get(self.name, request) if self.cache is not None else None
        if found is not None:
            text = reply_of(found).text
            if on_text is not None and text:
                on_text(text)
            return found
        reply = self.patience.insist(_Attempts(self, request, on_text))
        if was_cut(reply):
            _check_cut(self.name, reply)
        elif self.cache is not None:
            self.cache.put(self.name, request, reply)
        return reply

    def heard(self, request: Request, until: float, on_text: Tell) -> dict[str, Any]:
        """One try: send, listen to the end; Failure when there is none."""
        gathering, account = self.api.gathering(), self.api.account
        began = False
        with closing(self._events(request, until)) as events:
            for event in events:
                began = True
                with _reading(account):
                    text = gathering.take(event)
                if text:
                    on_text(text)
        with _reading(account):
            reply = gathering.whole()
            if reply is not None:
                reply_of(reply)  # what a task cannot take is no reply
        if reply is None:
            raise unreadable(account, "broke off before its end" if began else "holds no reply")
        return reply

    def _events(self, request: Request, until: float) -> Generator[dict[str, Any], None, None]:
        """The events of the answer; only what goes wrong in here is the provider's failure."""
        problem: Exception | None = None
        stream = None
        try:
            stream = self.api.stream(request)
            response: httpx2.Response = stream.response
            response.stream = _Bounded(response.stream, self.patience, until)  # type: ignore[arg-type]
            if "application/json" in response.headers.get("content-type", ""):  # a server that does not stream
                yield _whole(response.read())
            else:
                yield from (event.to_dict(mode="json", warnings=False) for event in stream)
        except Exception as error:  # noqa: BLE001 - the SDKs and HTTP raise many kinds; all are told apart in one place
            problem = error
        finally:
            if stream is not None:
                stream.close()
        if problem is not None:
            raise failure_of(problem, self.api.account)

    def _look_at_usage(self, window: Window, message: Message) -> None:
        """Some servers cut what is too long for them and say nothing."""
        counted = message.usage.input_tokens if message.usage else 0
        if self._warned or not counted or window.tokens < NOTICEABLE_TOKENS:
            return
        if counted < FORGOTTEN_SHARE * window.tokens:
            self._warned = True
            log.warning(
                "%s counted %d tokens of a window of about %d: it seems to have cut the rest. Set its context to what "
                "`%s.context_length` says, or the setting to what it has",
                self.name, counted, window.tokens, self.api.account.section,
            )  # fmt: skip


_MORE_ROOM = "Raise `window.reserved_output`, which is what a reply may take."


@contextmanager
def _reading(account: Account) -> Iterator[None]:
    """What cannot be read of an answer is the provider's failure."""
    try:
        yield
    except (Told, *UNREADABLE) as error:
        raise failure_of(error, account) from None


class _Attempts:
    """The tries of one request."""

    def __init__(self, model: RemoteModel, request: Request, on_text: Tell | None) -> None:
        self._model, self._request, self._on_text = model, request, on_text
        self._told = self._broken = False

    def __call__(self, until: float) -> dict[str, Any]:
        """One try; a parameter that the server does not know is taken out on the spot."""
        self._broken = self._told
        for left in reversed(range(FITTINGS + 1)):
            try:
                return self._model.heard(self._request, until, self._say)
            except Failure as failure:
                error = failure.error
                final = error.retryable or isinstance(error, ContextOverflow) or not left
                if final or not self._model.api.fits(self._request, failure.words):
                    raise
        raise AssertionError

    def _say(self, text: str) -> None:
        if self._on_text is None:
            return
        if self._broken:
            self._broken = False
            self._on_text(RESTART_NOTICE)
        self._told = True
        self._on_text(text)


class _Bounded(httpx2.SyncByteStream):
    """Bytes until the time is up: a server may keep a connection alive for ever and say nothing."""

    def __init__(self, inner: httpx2.SyncByteStream, patience: Patience, until: float) -> None:
        self._inner, self._clock, self._until = inner, patience.clock, until

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._inner:
            yield piece
            if self._clock() > self._until:
                raise httpx2.ReadTimeout("The time is up.")

    def close(self) -> None:
        self._inner.close()


def _whole(body: bytes) -> dict[str, Any]:
    value = json.loads(body)
    if not isinstance(value, dict) or value.get("error"):
        raise Told(value)
    return value


def _check_cut(name: str, reply: dict[str, Any]) -> None:
    """A cut reply that says something is passed on; one that used up its tokens before it said anything is an error."""
    message = reply_of(reply)
    if not message.text and not message.tool_calls:
        raise ModelError(f"{name} used up its tokens before it said anything.", hint=_MORE_ROOM)
