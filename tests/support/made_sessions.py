"""Sessions of an agent as a list of moves, so that hypothesis can make one that breaks a rule shorter.

What occurs: short, long and very long questions; calls one by one and side by side; results of code, logs, addresses,
trees, one endless line, Japanese; answers of a line and of a page.
"""

import json
import random

from hypothesis import strategies as st

from orihon.records import Call

MOVES = ("question", "long question", "list", "call", "call", "call", "calls", "large", "answer", "long answer")
RESULTS = ("code", "log", "addresses", "tree", "line", "japanese", "short")
CODE_WORDS = ("total", "basket", "price", "load_header", "merge", "cursor", "if", "return", "None", "==", "src/a.py")

sessions = st.lists(
    st.tuples(st.sampled_from(MOVES), st.sampled_from(RESULTS), st.integers(1, 60)), min_size=1, max_size=60
)


def play(desk, moves):
    """Add the messages of each move to a desk; yields after each, when the model would be asked."""
    for number, (move, kind, size) in enumerate(moves):
        chance = random.Random(f"{number} {move} {kind} {size}")
        if number == 0 or "question" in move or move == "list":
            desk.add("user", _question(move, number, size, chance))
        elif "answer" in move:
            desk.add("assistant", f"Answer {number}: {_words(chance, 200 if move == 'long answer' else 8)}.")
            continue
        else:
            count = 3 if move == "calls" else 1
            calls = [
                Call(id=f"c{number}_{place}", name="read", arguments=json.dumps({"path": f"src/{kind}_{size}.py"}))
                for place in range(count)
            ]
            desk.add("assistant", f"Step {number}: {_words(chance, 6)}.", tool_calls=calls)
            for call in calls:
                text = result(kind, size * (40 if move == "large" else 2), chance)
                desk.add("tool", text, tool_call_id=call.id, tool_name="read")
        yield


def _question(move, number, size, chance):
    if move == "list":
        return f"Block these {number}:\n" + result("addresses", 40 * size, chance)
    return f"Question {number}: {_words(chance, 20 * size if move == 'long question' else 8)}?"


def _words(chance, count):
    return " ".join(chance.choices(CODE_WORDS, k=count))


def result(kind, size, chance):
    """A result of so many lines, more or less."""
    return "\n".join(_RESULTS[kind](size, chance))


_RESULTS = {
    "code": lambda size, chance: [f"    {_words(chance, 7)}" for _ in range(size)],
    "log": lambda size, chance: [
        f"2026-01-15 10:{n // 60 % 60:02}:{n % 60:02} INFO request {n} took {chance.choice((7, 7, 7, 31))} units"
        for n in range(size)
    ],
    "addresses": lambda size, chance: [f"10.{chance.randrange(256)}.{n >> 8}.{n & 255}" for n in range(size)],
    "tree": lambda size, chance: [json.dumps(_tree(size, chance))],
    "line": lambda size, chance: [_words(chance, 8 * size)],
    "japanese": lambda size, chance: [f"設定ファイル{n}の値は{chance.randrange(99)}です。" for n in range(size)],
    "short": lambda *_: ["ok"],
}


def _tree(size, chance):
    children = [{"role": "button", "name": f"Item {n}", "id": chance.randrange(10**6)} for n in range(size)]
    return {"role": "RootWebArea", "name": "Shop", "children": children}
