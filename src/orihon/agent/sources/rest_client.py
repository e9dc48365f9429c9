"""A thin client for the REST interfaces of forges.

Promised: a request that can be repeated is repeated after 5xx and cut connections; a rate limit is waited for, within
`patience`; lists are followed by their Link headers; what has not changed is not sent again (ETag). The token goes to
the one address of the settings and nowhere else: a redirect to another host is refused, and of a Link only the query
is used. Whatever fails is one sentence with a hint, and no message holds the token.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urljoin, urlsplit

import msgspec

from orihon.agent.sources.issue_prompt import word
from orihon.coerce import decode_json
from orihon.errors import SettingsError, SourceError, UsageError
from orihon.redaction import KnownSecrets, mask
from orihon.settings.section import Secret

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger("orihon")

PATIENCE_SECONDS = 900.0  # how long a request may wait for a rate limit
HURRY_SECONDS = 5.0  # the same, for what a run should not wait for
TIMEOUT_SECONDS = 30.0
LONGEST_SECONDS = 120.0  # an answer that comes byte by byte
PAUSES = (1.0, 2.0, 4.0, 8.0)
UNKNOWN_LIMIT_SECONDS = 60.0  # what a forge asks for when its answer names no time
MAX_ANSWER_BYTES = 32_000_000
MAX_CACHED = 128
MAX_CACHED_BYTES = 200_000
MAX_REDIRECTS = 3
MAX_PAGES = 1000

OK, CREATED, NO_CONTENT, NOT_MODIFIED = 200, 201, 204, 304
MOVED = frozenset({301, 307, 308})
LIMITED = frozenset({403, 429})
NOT_FOUND, GONE, SERVER_ERROR = 404, 410, 500

HINTS = {
    401: "The token is wrong or has expired: put a new one into the settings.",
    403: "The token may not do this: it needs to read and write issues and pull or merge requests.",
    404: "Check the key and the address; a private repository that the token may not see looks like this too.",
    410: "It was deleted.",
}

T = TypeVar("T")
Query = Mapping[str, str | int | list[str]]


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Cached(NamedTuple):
    etag: str
    value: Any
    next: dict[str, str] | None


class Client:
    """Talks to one forge."""

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
        self.base, self.name = _address(base_url, name), name
        self._token = _checked(token, name)
        if find_spec("httpx2") is None:
            raise UsageError(f"{name} needs httpx2.", hint="pip install 'orihon[agent]'")
        self._headers = {"User-Agent": "orihon", "Authorization": f"Bearer {self._token}", **headers}
        self._known = KnownSecrets([self._token])
        self._sleep, self._now = sleep, now
        self._cache: dict[str, _Cached] = {}
        self._http: httpx2.Client | None = None
        self._lock = threading.Lock()  # for the two above

    def get(self, path: str, kind: type[T], query: Query | None = None, *, patience: float = PATIENCE_SECONDS) -> T:
        """One answer."""
        return self._get(path, kind, dict(query or {}), patience)[0]

    def pages(
        self, path: str, kind: type[T], query: Query | None = None, *, patience: float = PATIENCE_SECONDS
    ) -> Iterator[T]:
        """One answer after the other, as long as there is a next."""
        asked: dict[str, Any] | None = {"per_page": 100, **(query or {})}
        for _ in range(MAX_PAGES):
            before = asked or {}
            value, asked = self._get(path, kind, before, patience)
            yield value
            if asked is None or asked == before:
                return
        log.warning("%s: the list at %s has more than %d pages; the rest is left out.", self.name, path, MAX_PAGES)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: type[T] | None = None,
        *,
        again: bool = True,
        patience: float = PATIENCE_SECONDS,
    ) -> T | None:
        """Change something; with `again=False` it is not repeated when nobody can know whether it was done."""
        answer = self._exchange(method, path, body=body, again=again, patience=patience)
        return self._decoded(answer, kind, path) if kind is not None else None

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    def _get(self, path: str, kind: type[T], query: dict[str, Any], patience: float) -> tuple[T, dict[str, str] | None]:
        name = f"{path} {sorted(query.items())}"
        cached = self._cache.get(name)
        headers = {"If-None-Match": cached.etag} if cached else {}
        answer = self._exchange("GET", path, query=query, headers=headers, patience=patience)
        if answer.status == NOT_MODIFIED and cached:
            return cached.value, cached.next
        value = self._decoded(answer, kind, path)
        following = _next(answer.headers.get("link", ""))
        etag = answer.headers.get("etag", "")
        if etag and len(answer.body) <= MAX_CACHED_BYTES:
            with self._lock:
                self._cache.pop(name, None)
                self._cache[name] = _Cached(etag, value, following)
                if len(self._cache) > MAX_CACHED:
                    del self._cache[next(iter(self._cache))]
        return value, following

    def _decoded(self, answer: Answer, kind: type[T], path: str) -> T:
        try:
            return decode_json(answer.body, type=kind)
        except ValueError as error:
            raise SourceError(
                f"{self.name} answered {word(path)} with something unexpected ({word(str(error))}).",
                status=answer.status,
                hint="Check that the address in the settings is that of its API.",
            ) from None

    def _exchange(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        again: bool = True,
        patience: float = PATIENCE_SECONDS,
    ) -> Answer:
        """The answer to a request, after as many attempts as it takes and is allowed."""
        failures, waited = 0, 0.0
        while True:
            answer: Answer | None = None
            try:
                answer = self._followed(method, path, query, body, headers)
            except SourceError as error:
                if not error.retryable:
                    raise
                trouble = error
            if answer is not None and (answer.status < 300 or answer.status == NOT_MODIFIED):  # noqa: PLR2004
                return answer
            pause = None
            if answer is not None:
                pause, trouble = self._limit(answer), self._refusal(answer, method, path)
            if pause is None:  # not a rate limit
                if not (again and trouble.retryable and failures < len(PAUSES)):
                    raise trouble
                pause = PAUSES[failures]
                failures += 1
            if waited + pause > patience:
                raise trouble
            log.info("%s Trying again in %.0f s.", trouble, pause)
            self._sleep(pause)
            waited += pause

    def _followed(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        headers: Mapping[str, str] | None,
    ) -> Answer:
        """One attempt, also where a repository was renamed."""
        url = self.base + path
        for _ in range(MAX_REDIRECTS):
            answer = self._once(method, url, query, body, headers)
            if answer.status not in MOVED:
                return answer
            target = urljoin(url, answer.headers.get("location", ""))
            if _origin(target) != _origin(self.base):
                raise SourceError(
                    f"{self.name} sends {word(path)} on to another host, {word(urlsplit(target).hostname or '?')}.",
                    status=answer.status,
                    hint="The token is not sent there. Put the right address into the settings.",
                )
            url, query = target, None if urlsplit(target).query else query
        raise SourceError(f"{self.name} sends {word(path)} in circles.", status=answer.status)

    def _once(
        self,
        method: str,
        url: str,
        query: Mapping[str, Any] | None,
        body: Any,
        headers: Mapping[str, str] | None,
    ) -> Answer:
        import httpx2  # noqa: PLC0415 - loaded once it is needed

        with self._lock:
            http = self._http = self._http or httpx2.Client(timeout=httpx2.Timeout(TIMEOUT_SECONDS, connect=10.0))
        content = msgspec.json.encode(body) if body is not None else None
        sent = {**self._headers, **({"Content-Type": "application/json"} if content else {}), **(headers or {})}
        try:
            with http.stream(method, url, params=dict(query) if query else None, content=content, headers=sent) as got:
                return Answer(got.status_code, got.headers, _limited(got.iter_bytes(), self.name))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            reason = mask(word(str(error) or type(error).__name__), known=self._known)
            raise SourceError(
                f"{self.name} cannot be reached ({reason}).",
                hint="Check the network and the address in the settings.",
                retryable=isinstance(error, httpx2.TransportError)
                and not isinstance(error, httpx2.UnsupportedProtocol),
            ) from None  # the cause holds the request, and the request the token

    def _limit(self, answer: Answer) -> float | None:
        """How long a rate limit asks to wait; None if this is no rate limit."""
        headers = answer.headers
        exhausted = "0" in (headers.get("x-ratelimit-remaining"), headers.get("ratelimit-remaining"))
        asks = "retry-after" in headers or exhausted or b"rate limit" in answer.body[:10_000].lower()
        if answer.status not in LIMITED or not (answer.status == 429 or asks):  # noqa: PLR2004
            return None
        after = _seconds(headers.get("retry-after", ""), self._now())
        reset = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset") or ""
        if after is None and exhausted and reset.isdecimal():
            after = int(reset[:12]) - self._now() + 1
        return max(1.0, after if after is not None else UNKNOWN_LIMIT_SECONDS)

    def _refusal(self, answer: Answer, method: str, path: str) -> SourceError:
        limited, broken = self._limit(answer) is not None, answer.status >= SERVER_ERROR
        said = mask(_message(answer.body), known=self._known)
        sentence = f"{self.name} answered {method} {word(path)} with {answer.status}{f': {said}' if said else ''}."
        hint = HINTS.get(answer.status, "")
        if limited:
            hint = "Its rate limit is used up. Try again later, or ask for less."
        elif broken:
            hint = "It is in trouble itself. Try again later."
        return SourceError(sentence, status=answer.status, hint=hint, retryable=limited or broken)


def _checked(token: Secret | None, name: str) -> str:
    text = token.reveal().strip() if token is not None else ""
    setting = f"{name.lower()}.token"
    if not text:
        hint = f"Put it into the environment as {name.upper()}_TOKEN, or into config.yaml."
        raise SettingsError(f"`{setting}` is not set.", path=setting, hint=hint)
    if not text.isascii() or not text.isprintable() or " " in text:
        raise SettingsError(f"`{setting}` holds characters that no token has.", path=setting)
    return text


def _address(base_url: str, name: str) -> str:
    parts = urlsplit(base_url)
    setting = f"{name.lower()}.base_url"
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or parts.query:
        raise SettingsError(
            f"`{setting}` is not the address of an API.", path=setting, hint="Allowed is https://HOST/PATH."
        )
    if parts.scheme == "http" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}:
        log.warning("`%s` is not https: the token can be read on the way.", setting)
    return base_url.rstrip("/")


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        port = -1
    return parts.scheme, (parts.hostname or "").lower(), port


def _limited(chunks: Iterator[bytes], name: str) -> bytes:
    body, end = bytearray(), time.monotonic() + LONGEST_SECONDS
    for chunk in chunks:
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise SourceError(f"{name} sent an answer of more than {MAX_ANSWER_BYTES:,} bytes.", hint="Skip this item.")
        if time.monotonic() > end:
            raise SourceError(f"{name} takes more than {LONGEST_SECONDS:.0f} s for an answer.", retryable=True)
    return bytes(body)


def _next(link: str) -> dict[str, str] | None:
    """The query of the next page. The path stays, so that no answer can send the token elsewhere."""
    for url, relation in re.findall(r"<([^<>]*)>((?:\s*;[^,<]*)*)", link[:10_000]):
        if re.search(r'\brel="?next"?', relation):
            return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)) or None
    return None


def _seconds(text: str, now: float) -> float | None:
    """A Retry-After: a number of seconds, or a date."""
    if text.strip().isdecimal():
        return float(text.strip()[:9])
    try:
        return parsedate_to_datetime(text).timestamp() - now
    except (TypeError, ValueError, OverflowError):
        return None


def _message(body: bytes) -> str:
    """What the forge itself says about a refusal, in one line."""
    try:
        said = decode_json(body[:100_000])
    except ValueError:
        return ""
    words = (said.get("message") or said.get("error")) if isinstance(said, dict) else None
    return word(words if isinstance(words, str) else str(words or "")).rstrip(".")
