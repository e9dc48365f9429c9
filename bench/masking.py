"""How much masking finds, what it wrongly touches, whether hostile text slows it down, and how fast it is.

Beside each figure that has a bar stands the bar. The last part is `bench/channels.py` on plain files with a handful
of shapes: every channel of a store, and every way out of it.

`ORIHON_MASKING_SAMPLES=samples.jsonl.gz` names further samples to score. A line of them is a JSON object with `kind`,
`text`, `secret` and `is_secret`. A secret counts as found when neither it nor any eight characters of it in a row are
left; the second figure leaves out eight characters that the text also has outside of the secret, such as those of a
name. `ORIHON_MASKING_BEFORE=src` names the sources of another version, whose speed is measured in turn in the same run.
"""

from __future__ import annotations

import base64
import gzip
import importlib
import json
import os
import pydoc_data.topics
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench import channels
from bench.shapes import kept, shapes
from orihon.redaction import fast, gate
from orihon.redaction.masking import mask_with

RUN = 8
LEAST_SHAPES, LEAST_SAMPLES = 0.97, 0.98  # the bars for recall
MOST_RATIO = 4  # twice the text takes about twice the time; four times would be quadratic
SEEDS = range(3)
JAPANESE = ["昨日", "今日", "会議", "設定", "ファイル", "を", "確認", "して", "テスト", "実行", "します", "。", "は"]
MESSAGE, LONG = 3_000, 1_000_000
MaskWith = Callable[[Callable[[bytes], object], str], str]


def is_left(secret: str, masked: str, elsewhere: str = "") -> bool:
    """Whether a secret survived, whole or in part; what stands elsewhere in the text too does not count."""
    runs = (secret[at : at + RUN] for at in range(max(1, len(secret) - RUN + 1)))
    return any(run in masked and run not in elsewhere for run in runs)


def score_shapes() -> None:
    """Print recall on the shapes, misses by kind, and every text that must stay and did not."""
    missed: Counter[str] = Counter()
    drawn = [shape for seed in SEEDS for shape in shapes(random.Random(seed))]  # noqa: S311
    for shape in drawn:
        rest = shape.text.replace(shape.secret, "\n")
        missed[shape.kind] += is_left(shape.secret, mask_with(gate.pure, shape.text), rest)
    print(f"{len(missed)} kinds, {len(drawn)} shapes: recall {barred(1 - missed.total() / len(drawn), LEAST_SHAPES)}")
    print("  missed: " + (", ".join(f"{kind} {count}" for kind, count in missed.most_common() if count) or "none"))
    texts = [text for seed in SEEDS for text in kept(random.Random(seed))]  # noqa: S311
    touched = [text for text in texts if mask_with(gate.pure, text) != text]
    print(f"{len(texts) // len(SEEDS)} texts that must stay, touched: {len(touched)} (bar: 0) {touched[:3] or ''}")


def barred(recall: float, least: float) -> str:
    """A recall beside its bar."""
    return f"{recall:.4f} (bar: {least}, {'met' if recall >= least else 'NOT MET'})"


def score_samples(path: Path) -> None:
    """Print recall, misses by kind, and every false sample that was touched."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        samples = [json.loads(line) for line in lines]
    pairs = [(sample, mask_with(gate.pure, sample["text"])) for sample in samples]
    true = [(sample, masked) for sample, masked in pairs if sample["is_secret"]]
    missed = Counter(s["kind"] for s, m in true if is_left(s["secret"], m))
    apart = sum(is_left(s["secret"], m, s["text"].replace(s["secret"], "\n")) for s, m in true)
    touched = [(s, m) for s, m in pairs if not s["is_secret"] and m != s["text"]]
    keep = [(s, m) for s, m in touched if s["kind"].startswith("keep-")]
    print(
        f"{len(samples)} samples: recall {1 - missed.total() / len(true):.4f} ({missed.total()} of {len(true)} missed)"
    )
    print("  without what the text repeats outside of the secret: " + barred(1 - apart / len(true), LEAST_SAMPLES))
    print("  " + ", ".join(f"{kind} {count}" for kind, count in missed.most_common()))
    print(f"  keep-* touched: {len(keep)} (bar: 0); other false samples touched: {len(touched) - len(keep)}")
    unlike = sum(mask_with(fast.hits, sample["text"]) != text for sample, text in pairs)
    print(f"  samples that Hyperscan masks otherwise: {unlike}")


# Text that would make a careless expression slow, repeated up to the length.
HOSTILE = [
    *("a", "=", "@", "a@", "key", "password=", '"password": "', "token: {{", "://a:b@", "A1", "\0", "\x1b[32m", "\\"),
    *(
        "ghp_",
        "ghp_a1B2",
        "fm2_aaaaaaaaaaaa1/",
        "sk-a1",
        "sk_live_",
        "eyJaaaaaaaaaaaaa.",
        ".aaaaaaaaaaaaa1",
        "1_",
        "-1",
    ),
    *("-----BEGIN PRIVATE KEY-----\n", "kind: Secret\ndata:\n a: b\n", '"kind":"Secret","data":{', "curl -u ", " -p"),
    *("Cookie: a=", "ookie a=b1b1b1b1b1b1b1 ", "password is ", "パスワードは", "山@", "mysql -p", "identified by '"),
    *('password="\\"', "password=\\\\\\", "secret[", "token (", "<password>", "pass ", "a.b.c.d.", "+/", "0x", "%3D"),
    *("[section]\npassword = ", "user=a;", "jdbc:mysql://", "postgres://a:b", "sig=%2B", "_pat=", "Bearer ", "x" * 99),
    *(
        "password,a\n",
        "| password |\n",
        "-----END PRIVATE KEY-----\n",
        "PuTTY-User-Key-File",
        "DB_PASSWORD=&",
        "DB_PASSWORD=a;\n",
    ),
    *(
        '"password":["a",',
        "secret set A=b ",
        "htpasswd -b ",
        " -a ",
        "\\n",
        "%5B32m",
        "\x9b1m",
        "scott/a@",
        "password:\n ",
    ),
]


def linear() -> None:
    """Print the hostile texts whose time grows most when they get twice as long; about 2 is linear."""
    rows = []
    for unit in HOSTILE:
        half, whole = (timed(unit, size) for size in (LONG // 2, LONG))
        rows.append((whole / half, whole, unit))
    rows.sort(reverse=True)
    slowest = max(rows, key=lambda row: row[1])
    print(
        f"{len(HOSTILE)} hostile texts of 0.5 and 1 MB. The time of 1 MB over that of 0.5 MB, the largest five of them"
    )
    print(f"(about 2 is linear; 4 would be quadratic; bar: below {MOST_RATIO}):")
    print("  " + ", ".join(f"{ratio:.2f} {unit[:16]!r}" for ratio, _, unit in rows[:5]))
    print(f"  slowest: 1 MB of {slowest[2][:20]!r} in {slowest[1]:.2f} s")


def timed(unit: str, size: int) -> float:
    """Processor time for a hostile text, the better of two runs."""
    text = (unit * (size // len(unit) + 1))[:size]
    best = float("inf")
    for _ in range(2):
        start = time.process_time()
        mask_with(gate.pure, text)
        best = min(best, time.process_time() - start)
    return best


def clean_texts() -> dict[str, str]:
    """A megabyte of each: the language reference, the standard library, made-up Japanese, and a picture."""
    english = "".join(pydoc_data.topics.topics.values())
    sources = sorted(Path(pydoc_data.topics.__file__).parent.parent.glob("*.py"))
    code = "".join(path.read_text(encoding="utf-8", errors="replace") for path in sources)
    dice = random.Random(1)  # noqa: S311 - the same sentences every time
    japanese = "".join(dice.choice(JAPANESE) for _ in range(250_000))
    texts = {"English": english, "code": re.sub(r"[\w.+-]+@\w+\.[\w.-]+", "nobody", code), "Japanese": japanese}
    texts["picture"] = base64.b64encode(dice.randbytes(LONG)).decode()
    return {name: (text * 3)[:LONG] for name, text in texts.items()}


def speed() -> None:
    """Print megabytes a second for each text, gate and size of message, and the ratio to another version."""
    before = os.environ.get("ORIHON_MASKING_BEFORE")
    versions = [(mask_with, gate.pure, fast.hits), *([load(before)] if before else [])]
    print("MB/s on text without a secret, in messages of 3 kB and in one piece. `pure` is the gate of the standard")
    print("library alone, `fast` the one with Hyperscan (`orihon[fast]`)" + ("; (x…): over before" if before else ""))
    print(f"{'':10}" + "".join(f"{column:>18}" for column in ("pure 3 kB", "pure 1 MB", "fast 3 kB", "fast 1 MB")))
    columns = [(which, size) for which in (1, 2) for size in (MESSAGE, LONG)]
    seconds: list[list[float]] = [[0.0] * len(versions) for _ in columns]  # for a megabyte of each text
    for name, text in clean_texts().items():
        row = ""
        for sums, (which, size) in zip(seconds, columns, strict=True):
            rates = race([(version[0], version[which]) for version in versions], text, size)
            row += _rate(*rates)
            sums[:] = [total + 1 / rate for total, rate in zip(sums, rates, strict=True)]
        print(f"{name:10}{row}")
    texts = len(clean_texts())
    print(f"{'together':10}" + "".join(_rate(*(texts / total for total in sums)) for sums in seconds))


def _rate(now: float, before: float | None = None) -> str:
    return f"{now:10.0f}" + (f" (x{now / before:.2f})" if before else " " * 8)


def load(root: str) -> tuple[MaskWith, Callable[[bytes], object], Callable[[bytes], object]]:
    """Load masking and its gates from other sources, beside those that are loaded already."""
    own = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "orihon"}
    sys.path.insert(0, root)
    try:
        masking, pure, other = (
            importlib.import_module(f"orihon.redaction.{name}") for name in ("masking", "gate", "fast")
        )
        for hits in (pure.pure, other.hits):
            masking.mask_with(hits, "password=hunter22")  # loads what is loaded with the first text
    finally:
        sys.path.remove(root)
        for name in [name for name in sys.modules if name.split(".")[0] == "orihon"]:
            del sys.modules[name]
        sys.modules.update(own)
    return masking.mask_with, pure.pure, other.hits


def race(versions: list[tuple[MaskWith, Callable[[bytes], object]]], text: str, size: int) -> list[float]:
    """Megabytes of UTF-8 in a second of processor time, the best of nine runs each, taken in turns."""
    messages = [text[at : at + size] for at in range(0, len(text), size)]
    best = [float("inf")] * len(versions)
    for _ in range(9):
        for which, (mask, hits) in enumerate(versions):
            start = time.process_time()
            for message in messages:
                mask(hits, message)
            best[which] = min(best[which], time.process_time() - start)
    return [len(text.encode()) / seconds / 1e6 for seconds in best]


def main() -> None:
    """Score the shapes and the samples that were named, look for slow text, and measure the speed."""
    score_shapes()
    if samples := os.environ.get("ORIHON_MASKING_SAMPLES"):
        score_samples(Path(samples))
    linear()
    speed()
    print("A handful of shapes through every channel of a store (recall: what is in no file, log, screen or window):")
    channels.report("jsonl", channels.shapes, channels.shapes)


if __name__ == "__main__":
    main()
