"""The server: routes, errors, and the process that answers. It listens on this machine unless it is told otherwise."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from orihon.errors import AccessDenied, NotFound, OrihonError, UsageError
from orihon.ops.access import AuthorizedStore
from orihon.view import pages
from orihon.view.guard import TOKEN, Guard, Keys
from orihon.view.page import Page, Viewer, choose_language

GRACE_SECONDS = 1  # for open streams, when the server ends
STATUS = {NotFound: 404, UsageError: 400, AccessDenied: 403}

PAGES: list[tuple[str, Callable[[Viewer, Request], Page]]] = [
    ("/t/{uuid}/call/{call:int}", pages.show_call),
    ("/t/{uuid}/diff/{before:int}/{after:int}", pages.show_difference),
    ("/t/{uuid}/timeline", pages.show_timeline),
    ("/t/{uuid}", pages.show_task),
    ("/tasks", pages.list_tasks),
]


class Server:
    """Serves the tasks of one store, as one caller may see them."""

    def __init__(self, authorized: AuthorizedStore, *, host: str, port: int) -> None:
        self.keys = Keys()
        self._host = host
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        app = make_app(Viewer(authorized), self.keys, host=host, port=self.port)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        self._server = uvicorn.Server(config)

    def address(self, path: str) -> str:
        """Return the address of a page, with the token that works once."""
        name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104 - it is compared
        name = f"[{name}]" if ":" in name else name
        return f"http://{name}:{self.port}{path}?{TOKEN}={self.keys.token}"

    def run(self) -> None:
        """Answer requests until SIGINT or SIGTERM."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Let `run` return."""
        self._server.should_exit = True


def make_app(viewer: Viewer, keys: Keys, *, host: str, port: int) -> Starlette:
    """Return the application: each page as HTML, as JSON and as Markdown, and the static files."""
    routes: list[Any] = [Mount("/static", StaticFiles(packages=[("orihon.view", "static")]), name="static")]
    for path, make in PAGES:
        routes.append(Route(f"{path}.json", _answer(viewer, make, "json")))
        routes.append(Route(path, _answer(viewer, make, "html")))
    routes.append(Route("/", _answer(viewer, pages.list_tasks, "html")))
    routes.append(Route("/{path:path}", _answer(viewer, pages.nothing, "html")))
    return Starlette(routes=routes, middleware=[Middleware(Guard, keys=keys, host=host, port=port)])


def _answer(viewer: Viewer, make: Callable[[Viewer, Request], Page], form: str) -> Callable[[Request], Response]:
    """Return an endpoint. It is no coroutine, so it runs in a thread and may read from a disk."""

    def endpoint(request: Request) -> Response:
        status = 200
        try:
            page = make(viewer, request)
        except OrihonError as error:
            status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
            page = Page("error.html", {"error": error.message, "hint": error.hint, "status": status})
        if form == "json":
            return Response(msgspec.json.encode(page.data), status, media_type="application/json")
        return Response(viewer.render(page, choose_language(request), request), status, media_type="text/html")

    return endpoint


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(
            f"The server cannot listen at {host}:{port}: {error.strerror or error}.", hint="Use another port."
        ) from error
