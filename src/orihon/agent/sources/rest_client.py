"""A small client for the REST APIs of code hosts.

Repeatable requests are repeated after 5xx and lost connections. Rate limits are waited for, up to `max_wait`. Lists are
followed by their Link headers. The token goes to the configured host only: a redirect to another host is refused, and
of a Link header only the query is used. Every failure is one sentence with a hint, without the token.

docs/adr/0014 explains why gidgethub and python-gitlab are not used.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec

from orihon.agent.sources.issue import join_line
from orihon.coerce import decode_json
from orihon.errors import SettingsError, SourceError, UsageError
from orihon.redaction import KnownSecrets, mask
from orihon.retry import Backoff, parse_retry_after
from orihon.settings.section import Secret

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger("orihon")

MAX_WAIT_SECONDS = 900.0  # how long a request may wait for a rate limit
SHORT_WAIT_SECONDS = 5.0  # the same for requests that must not delay a run
TIMEOUT_SECONDS, CONNECT_SECONDS = 30.0, 10.0
MAX_ANSWER_SECONDS = 120.0  # for an answer that arrives byte by byte
MAX_ANSWER_BYTES = 32_000_000
MAX_FAILURES = 4  # repeated attempts after 5xx and lost connections
UNKNOWN_LIMIT_SECONDS = 60.0  # the pause for a rate limit that names no time
MAX_REDIRECTS = 3
MAX_PAGES = 1000

FIRST_ERROR, FORBIDDEN, NOT_FOUND, GONE, TOO_MANY, SERVER_ERROR = 400, 403, 404, 410, 429, 500

HINTS = {
    401: "The token is wrong or has expired: put a new one into the settings.",
    403: "The token is not allowed to do this: it must read and write issues and pull or merge requests.",
    404: "Check the key and the address; a private repository that the token cannot see looks like this too.",
    410: "It was deleted.",
}

T = TypeVar("T")
Query = Mapping[str, str | int]


class Answer(NamedTuple):
    """A response that was read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    next_url: str  # of the next page; empty on the last one


class RateLimited(SourceError):
    """The code host asks for a pause."""

    retry_after: float


class RestClient:
    """Requests to one code host."""

    def __init__(
        self,
        base_url: str,
        token: Secret | None,
        *,
        name: str,
        headers: Mapping[str, str],
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.base_url, self.name = _check_address(base_url, name), name
        revealed = _check_token(token, name)
        self._secrets = KnownSecrets([revealed])
        self._sleep, self._now = sleep, now
        try:
            import httpx2  # noqa: PLC0415 - loaded with the first source that needs it
        except ImportError as error:
            raise UsageError(f"{name} needs httpx2.", hint="pip install 'orihon[agent]'") from error
        self._http = httpx2.Client(
            headers={"User-Agent": "orihon", "Authorization": f"Bearer {revealed}", **headers},
            timeout=httpx2.Timeout(TIMEOUT_SECONDS, connect=CONNECT_SECONDS),
            follow_redirects=True,  # of renamed repositories
            max_redirects=MAX_REDIRECTS,
            event_hooks={"response": [self._check_redirect]},
        )

    def get(self, path: str, kind: type[T], query: Query | None = None, *, max_wait: float = MAX_WAIT_SECONDS) -> T:
        """Return one decoded answer."""
        return self._decode(self._request("GET", path, query=query, max_wait=max_wait), kind, path)

    def iter_pages(
        self, path: str, kind: type[T], query: Query | None = None, *, max_wait: float = MAX_WAIT_SECONDS
    ) -> Iterator[T]:
        """Yield the decoded pages of a list."""
        query = {"per_page": 100, **(query or {})}
        for _ in range(MAX_PAGES):
            answer = self._request("GET", path, query=query, max_wait=max_wait)
            yield self._decode(answer, kind, path)
            # only the query is used, so that no answer can send the token elsewhere
            following = dict(parse_qsl(urlsplit(answer.next_url).query, keep_blank_values=True))
            if not following or following == query:
                return
            query = following
        log.warning("%s: the list at %s has more than %d pages; the rest is left out.", self.name, path, MAX_PAGES)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: type[T] | None = None,
        *,
        idempotent: bool = True,
        max_wait: float = MAX_WAIT_SECONDS,
    ) -> T | None:
        """Change something. A request that is not idempotent is not repeated when its outcome is unknown."""
        answer = self._request(method, path, body=body, idempotent=idempotent, max_wait=max_wait)
        return self._decode(answer, kind, path) if kind is not None else None

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _decode(self, answer: Answer, kind: type[T], path: str) -> T:
        try:
            return decode_json(answer.body, type=kind)
        except ValueError as error:
            raise SourceError(
                f"{self.name} answered {join_line(path)} with unexpected content ({join_line(str(error))}).",
                status=answer.status,
                hint="Check that the address in the settings is that of its API.",
            ) from None

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        idempotent: bool = True,
        max_wait: float,
    ) -> Answer:
        """Return the answer, after as many attempts as are needed and allowed."""
        failures = 0

        def should_retry(error: Exception) -> bool:
            nonlocal failures
            if isinstance(error, RateLimited):
                return True
            failures += 1
            is_retryable = isinstance(error, SourceError) and error.retryable
            return idempotent and is_retryable and failures <= MAX_FAILURES

        backoff = Backoff(
            max_seconds=max_wait,
            longest_seconds=math.inf,
            sleep=self._sleep,
            clock=self._now,
            rng=lambda: 0.0,  # one client: no others come back at the same time
        )
        return backoff.call(
            lambda: self._attempt(method, path, query, body),
            should_retry=should_retry,
            retry_after=lambda error: getattr(error, "retry_after", None),
            on_retry=lambda error, pause: log.info("%s Trying again in %.0f s.", error, pause),
        )

    def _attempt(self, method: str, path: str, query: Query | None, body: Any) -> Answer:
        """Send a request once. Raise SourceError for a refusal."""
        import httpx2  # noqa: PLC0415

        content = msgspec.json.encode(body) if body is not None else None
        headers = {"Content-Type": "application/json"} if content else {}
        params = dict(query) if query else None
        try:
            with self._http.stream(
                method, self.base_url + path, params=params, content=content, headers=headers
            ) as response:
                data = read_bounded(response, MAX_ANSWER_BYTES, MAX_ANSWER_SECONDS, self.name)
                next_url = response.links.get("next", {}).get("url", "")
                answer = Answer(response.status_code, response.headers, data, next_url)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            reason = mask(join_line(str(error) or type(error).__name__), known=self._secrets)
            raise SourceError(
                f"{self.name} cannot be reached ({reason}).",
                hint="Check the network and the address in the settings.",
                retryable=isinstance(error, httpx2.TransportError)
                and not isinstance(error, httpx2.UnsupportedProtocol),
            ) from None  # the cause holds the request, and the request the token
        if answer.status >= FIRST_ERROR:
            raise self._make_refusal(answer, method, path)
        return answer

    def _check_redirect(self, response: httpx2.Response) -> None:
        """Raise SourceError for a redirect to another host; give one that drops the query the query back."""
        if not response.has_redirect_location:
            return
        source, target = response.url, response.url.join(response.headers["location"])
        if (target.scheme, target.host, target.port) != (source.scheme, source.host, source.port):
            raise SourceError(
                f"{self.name} redirects {join_line(source.path)} to another host, {join_line(target.host)}.",
                status=response.status_code,
                hint="The token is not sent there. Put the right address into the settings.",
            )
        if not target.query:
            response.headers["location"] = str(target.copy_with(query=source.query))

    def _make_refusal(self, answer: Answer, method: str, path: str) -> SourceError:
        reason = mask(_find_message(answer.body), known=self._secrets)
        message = f"{self.name} answered {method} {join_line(path)} with {answer.status}{reason and f': {reason}'}."
        pause = self._find_rate_limit(answer)
        if pause is not None:
            limited = RateLimited(
                message, status=answer.status, hint="Its rate limit is used up. Try again later.", retryable=True
            )
            limited.retry_after = pause
            return limited
        is_broken = answer.status >= SERVER_ERROR
        hint = "The server failed. Try again later." if is_broken else HINTS.get(answer.status, "")
        return SourceError(message, status=answer.status, hint=hint, retryable=is_broken)

    def _find_rate_limit(self, answer: Answer) -> float | None:
        """Return the pause that a rate limit asks for, or None if the answer is no rate limit."""
        headers = answer.headers
        is_exhausted = "0" in (headers.get("x-ratelimit-remaining"), headers.get("ratelimit-remaining"))
        is_named = "retry-after" in headers or is_exhausted or b"rate limit" in answer.body[:10_000].lower()
        if answer.status != TOO_MANY and not (answer.status == FORBIDDEN and is_named):
            return None
        pause = parse_retry_after(headers, self._now())
        reset = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset") or ""
        if pause is None and is_exhausted and reset.isdecimal():
            pause = int(reset[:12]) - self._now() + 1
        return max(1.0, pause if pause is not None else UNKNOWN_LIMIT_SECONDS)


def read_bounded(response: httpx2.Response, max_bytes: int, max_seconds: float, name: str) -> bytes:
    """Return the body of a streamed response. Raise SourceError if it is too large or arrives too slowly."""
    body, deadline = bytearray(), time.monotonic() + max_seconds
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > max_bytes:
            raise SourceError(f"{name} sent an answer of more than {max_bytes:,} bytes.")
        if time.monotonic() > deadline:
            raise SourceError(f"{name} took more than {max_seconds:g} s to answer.", retryable=True)
    return bytes(body)


def _check_token(token: Secret | None, name: str) -> str:
    text = token.reveal().strip() if token is not None else ""
    setting = f"{name.lower()}.token"
    if not text:
        hint = f"Put it into the environment as {name.upper()}_TOKEN, or into config.yaml."
        raise SettingsError(f"`{setting}` is not set.", path=setting, hint=hint)
    if not text.isascii() or not text.isprintable() or " " in text:
        raise SettingsError(f"`{setting}` contains characters that no token has.", path=setting)
    return text


def _check_address(base_url: str, name: str) -> str:
    parts = urlsplit(base_url)
    setting = f"{name.lower()}.base_url"
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or parts.query:
        raise SettingsError(f"`{setting}` is not the address of an API.", path=setting, hint="Use https://HOST/PATH.")
    if parts.scheme == "http" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}:
        log.warning("`%s` is not https: the token can be read on the way.", setting)
    return base_url.rstrip("/")


def _find_message(body: bytes) -> str:
    """Return the code host's own explanation of a refusal, as one line."""
    try:
        value = decode_json(body[:100_000])
    except ValueError:
        return ""
    message = (value.get("message") or value.get("error")) if isinstance(value, dict) else None
    return join_line(message if isinstance(message, str) else str(message or "")).rstrip(".")
