"""The server: routes, errors, and the process that answers. It listens on this machine unless it is told otherwise."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import uvicorn
from anyio.to_thread import current_default_thread_limiter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from orihon.errors import AccessDenied, NotFound, OrihonError, UsageError
from orihon.ops.access import AuthorizedStore
from orihon.view import live, markdown, pages, reports
from orihon.view.guard import TOKEN, Guard, Keys
from orihon.view.page import Page, Viewer, Words, choose_language

OK = 200
THREADS = 4
GRACE_SECONDS = 1  # for open streams, when the server ends
STATUS = {NotFound: 404, UsageError: 400, AccessDenied: 403}

PAGES: list[tuple[str, Callable[[Viewer, Request], Page]]] = [
    ("/t/{uuid}/call/{call:int}", pages.show_call),
    ("/t/{uuid}/diff/{before:int}/{after:int}", pages.show_difference),
    ("/t/{uuid}/m/{seq:int}", pages.show_message),
    ("/t/{uuid}/search", reports.show_task_search),
    ("/t/{uuid}/tree", reports.show_tree),
    ("/t/{uuid}/plan", reports.show_plan),
    ("/t/{uuid}/timeline", pages.show_timeline),
    ("/t/{uuid}", pages.show_task),
    ("/search", reports.show_search),
    ("/store", reports.show_store),
    ("/tasks", pages.list_tasks),
]


class Server:
    """Serves the tasks of one store, as one caller may see them."""

    def __init__(self, authorized: AuthorizedStore, *, host: str, port: int) -> None:
        self.keys = Keys()
        self._host = host
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        viewer = Viewer(authorized)
        viewer.is_closing = lambda: self._server.should_exit
        app = make_app(viewer, self.keys, host=host, port=self.port)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="on",
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
        routes.append(Route(f"{path}.md", _answer(viewer, make, "md")))
        routes.append(Route(path, _answer(viewer, make, "html")))
    routes += [
        Route("/t/{uuid}/live", live.follow_task(viewer)),
        Route("/t/{uuid}/m/{seq:int}/part/{part:int}", _picture(viewer)),
        Route("/live", live.follow_tasks(viewer)),
        Route("/t/{uuid}/call/{call:int}/change.json", _answer(viewer, pages.show_change, "json")),
        Route("/t/{uuid}/cost.json", _answer(viewer, pages.show_cost, "json")),
        Route("/figures.json", live.figures_of(viewer)),
    ]
    routes.append(Route("/", _answer(viewer, pages.list_tasks, "html")))
    routes.append(Route("/{path:path}", _answer(viewer, pages.nothing, "html")))
    guard = Middleware(Guard, keys=keys, host=host, port=port)
    return Starlette(routes=routes, middleware=[guard], lifespan=_limit_threads)


@asynccontextmanager
async def _limit_threads(_: Starlette) -> AsyncIterator[None]:
    """Let few threads read at a time: each takes memory that it does not give back."""
    current_default_thread_limiter().total_tokens = THREADS
    yield


def _answer(viewer: Viewer, make: Callable[[Viewer, Request], Page], form: str) -> Callable[[Request], Response]:
    """Return an endpoint. It is no coroutine, so it runs in a thread and may read from a disk."""

    def endpoint(request: Request) -> Response:
        status = OK
        request.state.form = form
        try:
            page = make(viewer, request)
        except OrihonError as error:
            status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
            page = Page("error.html", {"error": error.message, "hint": error.hint, "status": status})
        if form == "json":
            return Response(msgspec.json.encode(page.data), status, media_type="application/json")
        if form == "md" and status == OK:
            text = markdown.render(page, Words(choose_language(request)))
            return Response(text, status, media_type="text/markdown")
        return Response(viewer.render(page, choose_language(request), request), status, media_type="text/html")

    return endpoint


def _picture(viewer: Viewer) -> Callable[[Request], Response]:
    """Return the endpoint for the pictures of messages. They are data, whatever they say they are."""

    def endpoint(request: Request) -> Response:
        try:
            data, media_type = pages.load_picture(viewer, request)
        except OrihonError:
            return Response(status_code=404)
        return Response(data, media_type=media_type, headers={"content-security-policy": "default-src 'none'; sandbox"})

    return endpoint


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(
            f"The server cannot listen at {host}:{port}: {error.strerror or error}.", hint="Use another port."
        ) from error
