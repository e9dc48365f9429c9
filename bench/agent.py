"""What a running agent takes beside the SDK of its model alone: resident memory, each from a process of its own.

The model is a server in another process that streams replies of 2 to 4 kB. The SDK alone asks it 20 times. The agent is
a `TaskHandler` with plain files and the toolbox: every reply asks for a file, a search or a list of a small workspace.
Its requests grow to the window, so the SDK alone is measured with small and with large ones.
"""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench import resident

CALLS, TURNS, MARKS = 20, 1000, (50, 500, 1000)
MOST_MB = 15.0
WINDOW_TOKENS = 128_000
FILES = 40
PIECE_CHARS = 24  # of a reply, in one event


def main() -> None:
    """Print the table."""
    alone = _measured("sdk", 2_000)[CALLS]
    wide = _measured("sdk", 400_000)[CALLS]
    print("| process | MB | over the SDK, small requests | over the SDK, large requests |")
    print("|---|---|---|---|")
    print(f"| the SDK alone, {CALLS} requests of 2 kB | {alone:.1f} | | |")
    print(f"| the SDK alone, {CALLS} requests of 400 kB | {wide:.1f} | {wide - alone:.1f} | |")
    for turn, taken in _measured("agent", TURNS).items():
        print(
            f"| `orihon[agent]`, turn {turn:,} | {taken:.1f} | {taken - alone:.1f} | {taken - wide:.1f} |", flush=True
        )
    print(f"\n{MOST_MB:.0f} MB over the SDK are allowed.")


def _measured(kind: str, size: int) -> dict[int, float]:
    """Return the resident MB of a child process after so many turns. It has its own server."""
    command = [sys.executable, "-c", "from bench.agent import serve; serve()"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server,  # noqa: S603
    ):
        url = server.stdout.readline().strip() if server.stdout else ""
        _make_workspace(Path(folder, "work"))
        script = f"from bench.agent import {kind}; {kind}({url!r}, {folder!r}, {size})"
        run = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
        server.terminate()
    return {int(turn): taken for turn, taken in json.loads(run.stdout).items()}


# what runs in the processes that are measured; imports are theirs


def sdk(url: str, _: str, request_chars: int) -> None:
    """The SDK, and nothing else."""
    import openai  # noqa: PLC0415

    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    for number in range(CALLS):
        said = "".join(chr(97 + (number + place) % 26) for place in range(request_chars))
        stream = client.chat.completions.create(
            model="bench", messages=[{"role": "user", "content": said}], stream=True
        )
        for event in stream:
            event.to_dict()
    _tell({CALLS: _now()})


def agent(url: str, folder: str, turns: int) -> None:
    """A task of so many turns."""
    import orihon  # noqa: PLC0415
    from orihon.agent.handler import TaskHandler, Work  # noqa: PLC0415
    from orihon.agent.loop import Limits, Step  # noqa: PLC0415
    from orihon.agent.models import open_model  # noqa: PLC0415
    from orihon.agent.tools.toolbox import Toolbox  # noqa: PLC0415
    from orihon.settings.schema import Llm, Provider, Settings  # noqa: PLC0415
    from orihon.settings.section import Secret  # noqa: PLC0415

    provider = Provider(base_url=url, api_key=Secret("none"), context_length=WINDOW_TOKENS)
    settings = Settings(llm=Llm(openai=provider))
    taken: dict[int, float] = {}

    def watch(step: Step) -> None:
        if step.kind == "turn" and step.turn - 1 in MARKS:
            taken[step.turn - 1] = _now()

    with orihon.open(Path(folder, "contexts"), settings=settings) as engine:
        model = open_model("openai:bench", settings)
        with Toolbox(Path(folder, "work"), approve="all") as tools:
            handler = TaskHandler(engine, model, tools, limits=Limits(calls=turns + 1), on_step=watch)
            row = handler.handle(Work(key=orihon.TaskKey.github("acme", "shop", issue=27), request="Fix the basket."))
            if row.llm_call_count < turns:
                sys.exit(f"The run ended as {row.status} after {row.llm_call_count} turns: {row.error_message}")
        model.close()
    _tell(taken)


def _make_workspace(root: Path) -> None:
    from bench.messages import passage  # noqa: PLC0415

    for number in range(FILES):
        place = root / f"src/part_{number % 8}" / f"module_{number}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(passage(number, random.Random(number).randint(1500, 6000)), encoding="utf-8")  # noqa: S311


def _now() -> float:
    gc.collect()
    return resident("VmRSS")


def _tell(taken: dict[int, float]) -> None:
    print(json.dumps(taken))


# the model


def serve() -> None:
    """Answer until nobody listens; each request is the next turn."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    server.serve_forever()


class _Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    turn = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        _Model.turn += 1
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in (*_events(_Model.turn, len(body)), None):
            data = f"data: {'[DONE]' if event is None else json.dumps(event)}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _events(turn: int, asked_bytes: int) -> list[dict[str, Any]]:
    from bench.messages import passage  # noqa: PLC0415

    said = passage(turn, random.Random(turn).randint(2000, 4000))  # noqa: S311
    name, arguments = _call(turn)
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": f"call_{turn}", "type": "function", "function": function}
    deltas: list[dict[str, Any]] = [{"content": said[i : i + PIECE_CHARS]} for i in range(0, len(said), PIECE_CHARS)]
    head = {"id": f"chatcmpl-{turn}", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    usage = {"prompt_tokens": asked_bytes // 4, "completion_tokens": len(said) // 4}
    usage["total_tokens"] = sum(usage.values())
    return [
        *(head | {"choices": [{"index": 0, "delta": delta}]} for delta in [*deltas, {"tool_calls": [call]}]),
        head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        head | {"choices": [], "usage": usage},
    ]


def _call(turn: int) -> tuple[str, dict[str, str]]:
    """A file, a search, a list, with results of some kB."""
    number = turn * 7 % FILES
    wanted: list[tuple[str, dict[str, str]]] = [
        ("read", {"path": f"src/part_{number % 8}/module_{number}.py"}),
        ("search", {"pattern": "def |return |INFO", "path": f"src/part_{number % 8}"}),
        ("list_files", {"path": ".", "glob": "**/*.py"}),
    ]
    return wanted[turn % 3]
