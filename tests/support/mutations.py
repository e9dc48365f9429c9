"""What a hostile or broken file may hold: every value of a document replaced by many that do not belong there."""

import copy
import json
import os
import random

DEEP = bool(os.environ.get("ORIHON_DEEP"))
LONG = "x" * 200_000
NESTED = 1000


class Raw(str):
    """Text that stands in the JSON as it is, such as NaN, or a number that no float holds."""

    __slots__ = ()


def nested(depth=NESTED):
    return Raw("[" * depth + "]" * depth)


WRONG = [
    None, True, [], {}, "", 0, -1, 1.5, Raw("1e308"), Raw("-1e309"), Raw("NaN"), Raw("Infinity"), Raw(str(10**30)),
    Raw("9" * 5000), "\ud800", "NaN", "\x00\x1b]52;c;x\x07", LONG, [[]], [None], {"type": []}, {"": None}, nested(),
    nested(150),
]  # fmt: skip


def places(value, path=()):
    """The way to every value in a document, itself included, the outermost first."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def changed(value, path, new):
    """The document with another value in one place."""
    if not path:
        return new
    value = copy.deepcopy(value)
    at(value, path[:-1])[path[-1]] = new
    return value


def removed(value, path):
    """The document without the value in one place."""
    value = copy.deepcopy(value)
    del at(value, path[:-1])[path[-1]]
    return value


def mutations(value, *, most=None, seed=0):
    """Documents in which one value is another, or missing, each with what was done; a sample if there are too many."""
    found = [(path, wrong) for path in places(value) for wrong in range(len(WRONG) + 1)]
    if most is not None and len(found) > most:
        found = random.Random(seed).sample(found, most)
    for path, number in found:
        if number < len(WRONG):
            yield f"{path} = {WRONG[number]!r:.40}", changed(value, path, WRONG[number])
        elif path:
            yield f"{path} is missing", removed(value, path)


def dumped(value):
    """JSON, also of what JSON has no word for."""
    marks = {}

    def marked(item):
        if isinstance(item, Raw):
            marks[f"@@{len(marks)}@@"] = item
            return f"@@{len(marks) - 1}@@"
        if isinstance(item, dict):
            return {key: marked(inner) for key, inner in item.items()}
        return [marked(inner) for inner in item] if isinstance(item, list) else item

    text = json.dumps(marked(value))
    for mark, raw in marks.items():
        text = text.replace(f'"{mark}"', raw)
    return text
