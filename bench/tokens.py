"""How far each counter is from exact o200k, and how fast it is: `python bench/tokens.py [directory ...]`.

The texts are those every machine has: the sources and the reference of Python, the Japanese of our own tests, and
odd ones made here. A directory adds every UTF-8 file in it, as one more kind.
"""

from __future__ import annotations

import base64
import json
import random
import sys
import sysconfig
import time
from pathlib import Path
from pydoc_data.topics import topics
from typing import TYPE_CHECKING

from orihon.tokens import Counter, counter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

JAPANESE = Path(__file__).parent.parent / "tests" / "data" / "japanese.txt"
STDLIB = Path(sysconfig.get_path("stdlib"))
NAMES = ("estimate", "bytes4", "chars4", "o200k")


def messages(texts: Iterable[str]) -> Iterator[str]:
    """Cut texts at line ends into messages of 200 bytes to 20 kB."""
    dice = random.Random(1)  # noqa: S311  # the same messages on every machine
    for text in texts:
        start = 0
        while len(text) - start > 200:
            end = text.find("\n", start + int(10 ** dice.uniform(2.3, 4.3))) + 1 or len(text)
            yield text[start:end]
            start = end


def read(paths: Iterable[Path]) -> Iterator[str]:
    for path in sorted(paths):
        try:
            yield path.read_text("utf-8")
        except (UnicodeDecodeError, OSError):
            continue


def japanese() -> Iterator[str]:
    dice = random.Random(2)  # noqa: S311
    sentences = JAPANESE.read_text("utf-8").split("\n")[:-1]
    for _ in range(200):
        yield dice.choice(("", "\n")).join(dice.sample(sentences, dice.randrange(3, 40)))


def odd() -> Iterator[tuple[str, str]]:
    dice = random.Random(3)  # noqa: S311
    noise = dice.randbytes(30_000)
    digits = "".join(dice.choice("0123456789") for _ in range(9_000))
    words = topics["assignment"].split()
    yield "base64", base64.b64encode(noise).decode()
    yield "hex", noise.hex()
    yield "digits", digits
    yield "numbers", "\n".join(",".join(digits[i : i + 5] for i in range(j, j + 40, 5)) for j in range(0, 8_000, 40))
    yield "random letters", "".join(dice.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(9_000))
    yield "capitals", topics["assignment"].upper()
    yield (
        "urls",
        "\n".join(f"https://{a}.example/{b}?id={i}" for i, (a, b) in enumerate(zip(words, words[7:], strict=False))),
    )
    yield "emoji", "".join(dice.choice("😀🚀🎉✅❌🔥👍💡📝🐛") for _ in range(2_000))
    yield "minified", "".join((STDLIB / "ast.py").read_text("utf-8").split())
    for character in ("a", "A", "=", "0", " ", "\n", "\t", "あ", "漢"):
        yield f"1 MB of {character!r}", character * 1_000_000


def kinds(directories: list[str]) -> dict[str, list[str]]:
    found = {
        "english": list(messages(topics.values())),
        "japanese": list(japanese()),
        "code": list(messages(read(STDLIB.glob("*.py")))),
        "json": list(messages([json.dumps(sysconfig.get_config_vars(), indent=1)])),
    }
    for directory in directories:
        files = (path for path in Path(directory).rglob("*") if path.is_file())
        found[directory] = list(messages(read(files)))
    return found | {name: [text] for name, text in odd()}


def errors(counted: Counter, texts: list[str], exact: list[int]) -> tuple[float, float]:
    off = [counted.text(text) / true - 1 for text, true in zip(texts, exact, strict=True) if true]
    return 100 * sum(map(abs, off)) / len(off), 100 * sum(off) / len(off)


def speed(counted: Counter, texts: list[str]) -> float:
    """MB/s of UTF-8, the best of five."""
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)

    def seconds() -> float:
        start = time.perf_counter()
        for text in texts:
            counted.text(text)
        return time.perf_counter() - start

    return size / 1e6 / min(seconds() for _ in range(5))


def main() -> None:
    """Print a line for each kind: mean error and bias in per cent, and MB/s, for each counter."""
    counters = [counter(name) for name in NAMES]
    print(f"{'kind':<22}{'messages':>9}" + "".join(f"{name + ': err %, bias %, MB/s':>34}" for name in NAMES))
    for kind, texts in kinds(sys.argv[1:]).items():
        exact = [counters[-1].text(text) for text in texts]
        line = f"{kind[-21:]:<22}{len(texts):>9}"
        for counted in counters:
            mean, bias = errors(counted, texts, exact)
            line += f"{mean:>18.1f}{bias:>+8.1f}{speed(counted, texts):>8.0f}"
        print(line)


if __name__ == "__main__":
    main()
