"""A scripted model behind a local HTTP server that implements OpenAI's chat completions.

    with serve([…replies…]) as server:
        openai.OpenAI(base_url=server.url, api_key="none")     # or any other HTTP client

A request that OpenAI would refuse gets a 400 with an error body like OpenAI's. A request for a stream gets a stream.
The server listens on a free port of 127.0.0.1 and records no headers, hence no API key. Leaving the block stops the
server and raises ScriptError if replies were not used.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from orihon.errors import ModelError, ScriptError
from orihon.testing.model import Refused, ScriptedModel

PATH, MODELS = "/v1/chat/completions", "/v1/models"
MAX_BODY_BYTES = 256 * 1024 * 1024
CHUNK_CHARS = 12  # of streamed text


class ScriptedServer:
    """Serves requests from construction until `close`."""

    def __init__(self, model: ScriptedModel, *, models: Iterable[dict[str, Any]] = ()) -> None:
        self.model = model
        handler = type("Handler", (_Handler,), {"scripted": model, "models": list(models)})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="orihon-scripted-server")
        self._thread.daemon = True
        self._thread.start()

    @property
    def url(self) -> str:
        """The base URL of the API, as SDKs expect it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        """Stop the server. Raise ScriptError if replies were not used."""
        self._stop()
        self.model.close()

    def _stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:  # the earlier error takes precedence
            self._stop()


def serve(
    model: ScriptedModel | Iterable[Any] | str | Path, *, models: Iterable[dict[str, Any]] = ()
) -> ScriptedServer:
    """Return a running server for this model or script. Use it in a `with` block.

    `models` is the list that `/v1/models` returns, such as `{"id": "scripted", "max_model_len": 8192}`.
    """
    return ScriptedServer(model if isinstance(model, ScriptedModel) else ScriptedModel(model), models=models)


class _Handler(BaseHTTPRequestHandler):
    scripted: ScriptedModel
    models: ClassVar[list[dict[str, Any]]]

    def do_POST(self) -> None:
        answer: dict[str, Any]
        streamed = with_usage = False
        try:
            request = self._request()
            streamed = request.pop("stream", False) is True
            with_usage = bool((request.pop("stream_options", None) or {}).get("include_usage"))
            answer, status = self.scripted(request.pop("messages", []), **request), 200
        except Refused as refused:
            kind = "invalid_request_error" if refused.status < 500 else "server_error"
            answer, status = _error(refused.message, kind, refused.param), refused.status
        except (ModelError, ScriptError) as error:
            answer, status = _error(error.message, "server_error"), 500
        except Exception as error:  # noqa: BLE001 - an exception of the script stands for a failure of the provider
            answer, status = _error(f"{type(error).__name__}: {error}", "server_error"), 500
        if streamed and status == 200:
            self._stream(split_reply(answer, with_usage=with_usage))
        else:
            self._send(answer, status)

    def do_GET(self) -> None:
        if self.path == MODELS and self.models:
            self._send({"object": "list", "data": self.models}, 200)
            return
        self._send(_error(f"Unknown request URL: GET {self.path}", "invalid_request_error"), 404)

    def _request(self) -> dict[str, Any]:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > MAX_BODY_BYTES:
            raise Refused("The request needs a valid Content-Length.")
        body = self.rfile.read(int(size))
        if self.path != PATH:
            raise Refused(f"Unknown request URL: POST {self.path}", status=404)
        try:
            request = json.loads(body)
        except ValueError as error:
            raise Refused("We could not parse the JSON body of your request.") from error
        if not isinstance(request, dict) or not isinstance(request.get("model"), str) or not request["model"]:
            raise Refused("you must provide a model parameter", param="model")
        return request

    def _stream(self, events: Iterable[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in events:
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, answer: dict[str, Any], status: int) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the model records its requests."""


def split_reply(reply: dict[str, Any], *, with_usage: bool = False) -> Iterator[dict[str, Any]]:
    """Yield a reply as the events of a stream: its text in chunks, its calls, the finish reason, its usage."""
    head = {name: reply.get(name) for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = reply["choices"][0]
    message = dict(choice["message"])
    text, calls = message.pop("content", None) or "", message.pop("tool_calls", None) or ()
    deltas: list[dict[str, Any]] = [{"content": "", **message}]
    deltas += [{"content": text[start : start + CHUNK_CHARS]} for start in range(0, len(text), CHUNK_CHARS)]
    deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(calls)]
    for delta in deltas:
        yield head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield head | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason") or "stop"}]}
    if with_usage and reply.get("usage"):
        yield head | {"choices": [], "usage": reply["usage"]}


def _error(message: str, kind: str, param: str = "") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param or None, "code": None}}
