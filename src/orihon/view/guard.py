"""Who may ask the server: every request passes through here before a page sees it.

- The address that `orihon view` prints has a token, which works once. The browser gets a cookie for it.
- The Host header must name this server, so that a web page cannot reach it through a name of its own (DNS rebinding).
- The Origin header, if there is one, must be this server.
- Only GET and HEAD are answered: nothing can be changed.
- The policy of each answer forbids scripts and styles inside the page, and everything from other hosts.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
import threading
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "token"  # noqa: S105 - the name of the parameter
LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
UNKNOWN = "Open the address that `orihon view` printed. It works once; start `orihon view` again for another one.\n"


class Keys:
    """The one-time token of the printed address, and the cookie that it is exchanged for."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        self._used = False
        self._lock = threading.Lock()

    def exchange(self, token: str) -> str | None:
        """Return the cookie for the token, the first time."""
        with self._lock:
            if self._used or not _equal(token, self.token):
                return None
            self._used = True
            return self._cookie

    def allows(self, cookie: str) -> bool:
        """Return whether this is the cookie."""
        return _equal(cookie, self._cookie)


class Guard:
    """Answers what may not be answered by a page, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, *, keys: Keys, host: str, port: int) -> None:
        self._app, self._keys = app, keys
        self._host, self._port = host, port
        self._cookie_name = f"orihon_view_{port}"  # cookies do not know ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        response = self._refuse(scope)
        await (response or self._app)(scope, receive, send_guarded)

    def _refuse(self, scope: Scope) -> Response | None:
        """Return the answer to a request that no page gets to see."""
        headers = Headers(scope=scope)
        if not self._is_our_host(headers.get("host", "")):
            return PlainTextResponse("This name is not the server's.\n", status_code=421)
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{headers['host']}":
            return PlainTextResponse("Another site asks.\n", status_code=403)
        if scope["method"] not in {"GET", "HEAD"}:
            return PlainTextResponse("Nothing can be changed here.\n", status_code=405, headers={"allow": "GET, HEAD"})
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = next((value for name, value in query if name == TOKEN), None)
        if self._keys.allows(_read_cookie(headers, self._cookie_name)):
            return self._without_token(scope, query) if token is not None else None
        cookie = self._keys.exchange(token) if token is not None else None
        if cookie is None:
            return PlainTextResponse(UNKNOWN, status_code=401)
        response = self._without_token(scope, query)
        response.set_cookie(self._cookie_name, cookie, httponly=True, samesite="strict", path="/")
        return response

    @staticmethod
    def _without_token(scope: Scope, query: list[tuple[str, str]]) -> Response:
        """Redirect to the same page without the token, which would stay in the history of the browser."""
        rest = urlencode([(name, value) for name, value in query if name != TOKEN])
        path = "/" + scope["path"].lstrip("/\\")  # `//name` would be another host
        return RedirectResponse(f"{path}?{rest}" if rest else path, status_code=303)

    def _is_our_host(self, host: str) -> bool:
        name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if not name:
            name, port = host, ""
        if (port or "80") != str(self._port):
            return False
        name = name.strip("[]").lower()
        if self._host in LOOPBACK:
            return name in LOOPBACK
        return name in {self._host.lower(), socket.gethostname().lower(), *LOOPBACK} or _is_address(name)


def _is_address(name: str) -> bool:
    """Return whether a name is a number: no other site can have it."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _read_cookie(headers: Mapping[str, str], name: str) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""


def _equal(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())
