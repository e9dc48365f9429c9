"""A provider on this machine that speaks `/v1/chat/completions` and `/v1/messages`, well or badly, by a script.

    with Chaos([status(429, headers={"Retry-After": "7"}), cut(40), says("Done.")]) as server:
        …                       # every request is answered by the next act; `server.bodies` keeps what was asked

An act is a function of the request. Replies are written once, as text and calls, and sent in the dialect of the path.
Nothing here waits for a clock: what stalls, stalls until the server is closed.
"""

import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SSE = "text/event-stream"
SILENCE = 30  # seconds, if nobody closes the server before


class Chaos:
    """Serves one act for each request; without an act left it answers 418, which nobody tries again."""

    def __init__(self, acts=()):
        self.acts = list(acts)
        self.bodies, self.paths, self.keys = [], [], []
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"chaos": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.root = f"http://127.0.0.1:{self._server.server_address[1]}"

    def next_act(self, path, body, key):
        with self._lock:
            self.paths.append(path)
            self.bodies.append(body)
            self.keys.append(key)
            return self.acts.pop(0) if self.acts else status(418, "There is no act left.")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()  # joins the threads of the requests


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    chaos: Chaos

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get("Authorization") or self.headers.get("X-Api-Key")
        self.speaks_anthropic = self.path.endswith("/messages")
        self.close_connection = True
        with suppress(ConnectionError):
            self.chaos.next_act(self.path, body, key)(self)

    def begin(self, code=200, content_type=SSE, headers=None, length=None):
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Connection", "close")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def end(self):
        self.wfile.write(b"0\r\n\r\n")

    def whole(self, code, content_type, data, headers=None):
        self.begin(code, content_type, headers, len(data))
        self.wfile.write(data)

    def log_message(self, *_):
        pass


# acts that go well


def says(text="", *calls, finish=None, usage=(100, 10), thinking=""):
    """A streamed reply; a call is `("name", '{"a": 1}')` with the text of its arguments."""

    def act(handler):
        handler.begin()
        for event in _events(handler, text, calls, finish, usage, thinking):
            handler.chunk(event)
        handler.end()

    return act


def answers_whole(text="", *calls, finish=None, usage=(100, 10)):
    """The same from a server that does not stream."""

    def act(handler):
        made = _message if handler.speaks_anthropic else _completion
        handler.whole(200, "application/json", json.dumps(made(text, calls, finish, usage)).encode())

    return act


def after(seconds, act):
    """The first byte takes a while."""

    def slow(handler):
        handler.chaos.stopping.wait(seconds)
        act(handler)

    return slow


# acts that go wrong


def status(number, message="It failed.", *, headers=None, **error):
    """An error as both providers write it."""
    return answers_json({"type": "error", "error": {"message": message, "type": "api_error"} | error}, number, headers)


def answers_json(value, code=200, headers=None):
    """Any JSON."""
    return lambda handler: handler.whole(code, "application/json", json.dumps(value).encode(), headers)


def raw(data=b"", content_type=SSE, code=200):
    """Any bytes."""
    return lambda handler: handler.whole(code, content_type, data)


def cut(share=0.5, text="This reply will never be whole.", *calls):
    """The connection is lost in the middle of a chunk."""

    def act(handler):
        handler.begin()
        data = b"".join(_events(handler, text, calls))
        handler.wfile.write(f"{len(data):x}\r\n".encode() + data[: int(share * len(data))])

    return act


def unfinished(left_out, text="This reply has no end.", *calls):
    """The stream ends in good order, but its last events are missing."""

    def act(handler):
        handler.begin()
        for event in list(_events(handler, text, calls))[:-left_out]:
            handler.chunk(event)
        handler.end()

    return act


def stalls(events=0):
    """Some events, and then silence."""

    def act(handler):
        if events:
            handler.begin()
            for event in list(_events(handler, "This takes for ever.", ()))[:events]:
                handler.chunk(event)
        handler.chaos.stopping.wait(SILENCE)

    return act


def pings():
    """The connection is kept alive for ever, and nothing is said."""

    def act(handler):
        handler.begin()
        while not handler.chaos.stopping.wait(0.001):
            handler.chunk(b": keep-alive\n\n")

    return act


def fails_midway(error):
    """The provider reports a failure in the middle of the stream."""

    def act(handler):
        handler.begin()
        events = list(_events(handler, "So far so good.", ()))
        handler.chunk(b"".join(events[:2]))
        name = b"event: error\n" if handler.speaks_anthropic else b""
        handler.chunk(name + b"data: " + json.dumps({"type": "error", "error": error}).encode() + b"\n\n")
        handler.end()

    return act


# the dialects


def _events(handler, text, calls, *rest):
    finish, usage, thinking = rest or (None, (1, 1), "")
    if handler.speaks_anthropic:
        for value in _anthropic_events(text, calls, finish, usage, thinking):
            yield f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()
        return
    for value in _openai_events(text, calls, finish, usage, thinking):
        yield f"data: {json.dumps(value)}\n\n".encode()
    yield b"data: [DONE]\n\n"


def _halves(text):
    return [part for part in (text[: len(text) // 2], text[len(text) // 2 :]) if part]


def _openai_events(text, calls, finish, usage, thinking):
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-2024-08-06"}

    def chunk(delta, finish=None):
        return head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    yield from (chunk({"reasoning_content": part}) for part in _halves(thinking))
    yield from (chunk({"content": part}) for part in _halves(text))
    for index, (name, arguments) in enumerate(calls):
        begun = {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [begun]})
        for part in _halves(arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield chunk({}, finish or ("tool_calls" if calls else "stop"))
    if usage:
        yield head | {"choices": [], "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]}}


def _anthropic_events(text, calls, finish, usage, thinking):
    read = (usage or (0, 0))[0]
    yield {"type": "message_start", "message": _message("", (), None, (read, 1)) | {"stop_reason": None}}
    yield {"type": "ping"}
    blocks = []
    if thinking:
        deltas = [{"type": "thinking_delta", "thinking": part} for part in _halves(thinking)]
        signed = {"type": "signature_delta", "signature": "c2lnbmVk"}
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]))
    if text:
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": part} for part in _halves(text)]))
    for index, (name, arguments) in enumerate(calls):
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in ["", *_halves(arguments)]]
        blocks.append(({"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}, deltas))
    for index, (block, deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": index}
    reason = finish or ("tool_use" if calls else "end_turn")
    made = {"output_tokens": (usage or (0, 0))[1]}
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": made}
    yield {"type": "message_stop"}


def _completion(text, calls, finish, usage):
    asked = [
        {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for index, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": text or None} | ({"tool_calls": asked} if asked else {})
    choice = {"index": 0, "message": message, "finish_reason": finish or ("tool_calls" if calls else "stop")}
    counted = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4o-2024-08-06",
            "choices": [choice], "usage": counted}  # fmt: skip


def _message(text, calls, finish, usage):
    content = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": json.loads(arguments)}
        for index, (name, arguments) in enumerate(calls)
    ]
    reason = finish or ("tool_use" if calls else "end_turn")
    counted = {"input_tokens": usage[0], "output_tokens": usage[1]}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test-20250929",
            "content": content, "stop_reason": reason, "stop_sequence": None, "usage": counted}  # fmt: skip
