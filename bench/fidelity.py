"""How good is the window? A replay of transcripts: no model, no network, the same figures on every machine.

`ORIHON_DATA=DIRECTORY` names real sessions (`bench.sessions`), of which `BENCH_SESSIONS` of each repository are
taken at most; the figures are means over the sessions with at least ten judged calls, with standard errors clustered by
repository, because sessions of one repository are alike. Without it an agent works on a made-up repository: it reads
files, searches, edits and runs tests, mostly around what it saw lately, and now and then it comes back to something
old. Before each of its replies the window is judged by what the next five replies really use:

- in context: of the names last seen more than 20 messages ago, those that stand in the window with their whole line;
- near whole: of the names seen since, those whose newest mention stands in a message that was not cut;
- prefix kept: how much of a window is, byte for byte, the beginning of the next;
- cost a call: tokens, where what was sent before costs 0.1 and the rest 1.25;
- bad: windows that are over the limit, or that OpenAI's chat would refuse.

`trim` drops the oldest units at each call until the rest fits; `halve` drops them only when the window is full, down
to a half. Both keep the system prompt and the first request.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import median

from msgspec.structs import replace
from tests.support.wire_rules import violations

import orihon
from bench.sessions import Session, read_sessions
from orihon.context.names import TOKEN, index
from orihon.context.tree import parse
from orihon.context.units import units_of
from orihon.context.wire import openai
from orihon.errors import BudgetTooSmall
from orihon.records import Call, Message
from orihon.settings.schema import Settings
from orihon.tokens import counter

TRANSCRIPTS, TURNS = 4, 150
LIMITS = (16_000, 32_000)
AHEAD, NEAR = 5, 20
LEAST_CALLS = 10  # that are judged of a session
READ, WRITE = 0.1, 1.25
VERBS = ["load", "parse", "merge", "split", "check", "render", "store", "fetch", "close", "apply"]
NOUNS = ["header", "cursor", "ledger", "transcript", "invoice", "packet", "schema", "palette", "journal", "gateway"]


COUNTER = counter("bytes4")


class Transcript:
    """A made-up repository and the log of an agent that works on it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self.messages: list[Message] = []
        self.symbols = [f"{verb}_{noun}_{n}" for n in range(4) for verb in VERBS for noun in NOUNS]
        self.chance.shuffle(self.symbols)
        self.files = {f"src/{noun}/{verb}.py": self._code() for noun in NOUNS for verb in VERBS[:4]}
        self.used = [self.chance.choice(self.symbols)]
        self.path = self.chance.choice(list(self.files))
        self._add("system", "You work on this repository. Use the tools; be brief.")
        self._add("user", f"The totals are wrong after {self.used[0]} was changed. Find out why and mend it.")
        for turn in range(TURNS):
            self._turn(turn)

    def _code(self) -> list[str]:
        lines = []
        for _ in range(self.chance.randrange(4, 14)):
            name, other, third = self.chance.sample(self.symbols, 3)
            lines += [f"def {name}(value, *, limit=None):", f'    """Used by {other} when the limit is reached."""']
            lines += [f"    step = {n} if value is None else value + {n}" for n in range(self.chance.randrange(2, 9))]
            lines += [f"    return {third}(step, limit=limit)", ""]
        return lines

    def _add(self, role: str, text: str, **fields: object) -> None:
        values = {"seq": len(self.messages) + 1, "role": role, "content": text, "timestamp": "", "tokens": 0}
        message = Message(**values, **fields)  # type: ignore[arg-type]
        self.messages.append(replace(message, tokens=COUNTER.message(message)))

    def _call(self, words: str, tool: str, arguments: dict[str, object], result: str) -> None:
        call = Call(id=f"call_{len(self.messages)}", name=tool, arguments=json.dumps(arguments))
        self._add("assistant", words, tool_calls=[call])
        self._add("tool", result, tool_name=tool, tool_call_id=call.id)

    def _symbol(self) -> str:
        """As often something of the open file as something used before, the oftener the likelier."""
        self.used.append(self._seen() if self.chance.random() < 0.5 else self.chance.choice(self.used))
        return self.used[-1]

    def _seen(self) -> str:
        heads = [line[4 : line.index("(")] for line in self.files[self.path] if line.startswith("def ")]
        return self.chance.choice(heads)

    def _turn(self, turn: int) -> None:
        symbol = self._symbol()
        action = self.chance.choices(["read", "search", "edit", "test"], weights=[4, 3, 2, 2])[0]
        if action == "read":
            self.path = self.chance.choice(list(self.files))
            self._call(f"{symbol} may come from there.", "read", {"path": self.path}, "\n".join(self.files[self.path]))
        elif action == "search":
            found = [
                f"{path}:{number}:{line}"
                for path, lines in self.files.items()
                for number, line in enumerate(lines, 1)
                if symbol in line
            ]
            self._call(f"Who uses {symbol}?", "search", {"pattern": symbol}, "\n".join(found[:40]) or "None.")
        elif action == "edit":
            old = "\n".join(self.files[self.path][:12])
            arguments: dict[str, object] = {"path": self.path, "old": old, "new": old.replace("value + 1", "value")}
            self._call(f"{symbol} must not add twice.", "edit", arguments, f"{self.path} was changed.")
        else:
            names = [f"tests/test_{n}.py::test_{self.chance.choice(self.symbols)} PASSED" for n in range(40)]
            failed = f"tests/test_totals.py::test_{symbol} FAILED\nE   ValueError: {symbol} returned {turn}"
            self._call("Run the tests.", "bash", {"command": f"pytest -k {symbol}"}, "\n".join([*names, failed]))


Window = list[Message]
Policy = Callable[[Sequence[Message], Window, int], Window]


class Fold:
    """Orihon's, through a task: what was sent stays until the window is full; then lines are picked from the log."""

    def __init__(self) -> None:
        self.engine = orihon.open("memory:", settings=Settings())
        self.task: orihon.Task | None = None

    def __call__(self, log: Sequence[Message], shown: Window, limit: int) -> Window:
        del shown
        if self.task is None:
            key = orihon.TaskKey.local("fidelity")
            self.task = self.engine.start(key, context_length=limit, reserved_output=0, tokens=COUNTER.name)
        for message in log[self.task.log.last :]:
            self.task.add(
                message.role,
                message.content,
                tool_calls=message.tool_calls,
                tool_call_id=message.tool_call_id,
                tool_name=message.tool_name,
            )
        return [self._of_the_log(message, log) for message in self.task.window().messages]

    @staticmethod
    def _of_the_log(message: Message, log: Sequence[Message]) -> Message:
        """The very message of the log, if it is shown whole."""
        whole = log[message.seq - 1] if message.seq else message
        return whole if (whole.content, whole.tool_calls) == (message.content, message.tool_calls) else message


def trim(log: Sequence[Message], shown: Window, limit: int) -> Window:
    """The oldest units go until the rest fits, at each call."""
    del shown
    return _newest(log, limit)


def halve(log: Sequence[Message], shown: Window, limit: int) -> Window:
    """The oldest units go when the window is full, down to a half of it."""
    return shown if sum(message.tokens for message in shown) <= limit else _newest(log, limit // 2)


def _newest(log: Sequence[Message], room: int) -> Window:
    head, rest = list(log[:2]), units_of(log[2:])
    sizes = list(accumulate(sum(message.tokens for message in unit) for unit in reversed(rest)))
    fitting = sum(size <= room - sum(message.tokens for message in head) for size in sizes)
    return [*head, *(message for unit in rest[len(rest) - fitting :] for message in unit)]


def plain(message: Message) -> str:
    """All words of a message, with those of its arguments."""
    arguments = [text for call in message.tool_calls for text in _strings(call.arguments)]
    return "\n".join([message.text, *arguments])


def _strings(arguments: str) -> list[str]:
    value = parse(arguments)
    return [str(one) for one in value.values()] if isinstance(value, dict) else [arguments]


class Replay:
    """One transcript under one policy: windows before each reply, judged and added up."""

    def __init__(self, log: Sequence[Message], policy: Policy, limit: int) -> None:
        self.log = log
        self.policy, self.limit = policy, limit
        self.texts = [plain(message) for message in self.log]
        tokens = [set(TOKEN.findall(text)) for text in self.texts]
        names = index(set().union(*tokens))
        self.names = [{name for token in found for name in names.get(token, ())} for found in tokens]
        self.places: dict[str, list[tuple[int, str]]] = {}  # of the names that replies use: messages, and their lines
        self.bad = 0
        self.far: list[float] = []
        self.near: list[float] = []
        self.kept: list[float] = []
        self.cost: list[float] = []
        self.ms: list[float] = []

    def run(self) -> Replay:
        shown: Window = []
        before: Window = []
        grown = 0
        for at, message in enumerate(self.log):
            if message.role == "assistant":
                begun = time.perf_counter()
                shown = self.policy(self.log[:at], shown, self.limit)
                if grown > self.limit:
                    self.ms.append((time.perf_counter() - begun) * 1000)
                    self._judge(at, shown, before)
                before = list(shown)
            shown = [*shown, message]
            grown += message.tokens
        return self

    def _judge(self, at: int, shown: Window, before: Window) -> None:
        ahead = [n for n in range(at, len(self.log)) if self.log[n].role == "assistant"][:AHEAD]
        wanted = set().union(*(self.names[n] for n in ahead))
        last = {name: n for n in range(at) for name in self.names[n] & wanted}
        whole = {message.seq - 1 for message in shown if message is self.log[message.seq - 1]}
        lines = {line for message in shown for line in plain(message).splitlines()}
        far = [name for name, n in last.items() if n < at - NEAR]
        near = [name for name, n in last.items() if n >= at - NEAR]
        if far:
            self.far.append(sum(self._stands(name, at, lines) for name in far) / len(far))
        if near:
            self.near.append(sum(last[name] in whole for name in near) / len(near))
        same = sum(1 for _ in _common(before, shown))
        hit = sum(message.tokens for message in shown[:same])
        total = sum(message.tokens for message in shown)
        self.kept.append(hit / max(1, sum(message.tokens for message in before)))
        self.cost.append(READ * hit + WRITE * (total - hit))
        self.bad += total > self.limit or bool(violations("openai", openai(shown)))

    def _stands(self, name: str, at: int, lines: set[str]) -> bool:
        if name not in self.places:
            having = (n for n in range(len(self.log)) if name in self.names[n])
            self.places[name] = [(n, line) for n in having for line in self.texts[n].splitlines() if name in line]
        return any(n < at and line in lines for n, line in self.places[name])


def _common(before: Window, now: Window) -> list[Message]:
    same = []
    for old, new in zip(before, now, strict=False):
        if old is not new and old != new:
            break
        same.append(new)
    return same


def main() -> None:
    """Print a table of the sessions that ORIHON_DATA names, or else of made-up ones, for each limit."""
    if folder := os.environ.get("ORIHON_DATA"):
        most = int(os.environ.get("BENCH_SESSIONS", "1000"))
        sessions = list(read_sessions(Path(folder), COUNTER, most=most))
    else:
        sessions = [Session(str(seed), Transcript(seed).messages) for seed in range(TRANSCRIPTS)]
    print(f"{len(sessions)} sessions of {len({session.repository for session in sessions})} repositories; in brackets")
    print("the standard error, clustered by repository.\n")
    for limit in LIMITS:
        _print_table(sessions, limit)


def _print_table(sessions: Sequence[Session], limit: int) -> None:
    long = [session for session in sessions if sum(message.tokens for message in session.messages) > limit]
    print(f"| {limit:,} tokens | sessions | {' | '.join(COLUMNS)} | bad | p50 ms | slowest ms |")
    print(f"|---|---|{'---|' * len(COLUMNS)}---|---|---|")
    for name, policy in (("fold", Fold), ("halve", lambda: halve), ("trim", lambda: trim)):
        runs, failed = [], 0
        for session in long:
            try:
                run = Replay(session.messages, policy(), limit).run()
            except BudgetTooSmall:
                failed += 1
                continue
            if len(run.cost) >= LEAST_CALLS:
                runs.append((session.repository, run))
        cells = [
            _with_error(
                [(repository, scale * _mean(values)) for repository, run in runs if (values := getattr(run, what))]
            )
            for what, scale in COLUMNS.values()
        ]
        bad, ms = sum(run.bad for _, run in runs), [one for _, run in runs for one in run.ms]
        print(f"| {name} | {len(runs)} | {' | '.join(cells)} | {bad} | {median(ms):.1f} | {max(ms):.0f} |", flush=True)
        if failed:
            print(f"\n{failed} sessions have a head that does not fit.\n")
    print()


COLUMNS = {
    "in context %": ("far", 100),
    "near whole %": ("near", 100),
    "prefix kept %": ("kept", 100),
    "cost a call": ("cost", 1),
}


def _with_error(values: Sequence[tuple[str, float]]) -> str:
    """Return the mean, and its standard error if the values of one repository go together."""
    mean = _mean([value for _, value in values])
    apart: dict[str, float] = {}
    for repository, value in values:
        apart[repository] = apart.get(repository, 0.0) + value - mean
    groups = len(apart)
    error = math.sqrt(sum(one * one for one in apart.values()) * groups / max(1, groups - 1)) / len(values)
    return f"{mean:,.0f} ({error:,.0f})" if mean > 200 else f"{mean:.1f} ({error:.1f})"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
