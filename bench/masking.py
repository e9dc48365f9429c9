"""How much masking finds, what it wrongly touches, and how fast it is.

python bench/masking.py [samples.jsonl.gz]

A line of the samples is a JSON object with `kind`, `text`, `secret` and `is_secret`. A secret counts as found when
neither it nor any eight characters of it in a row are left. Without a path only the speed is measured: the best of
several runs in processor time, on text that holds no secret.
"""

from __future__ import annotations

import gzip
import json
import pydoc_data.topics
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

from orihon.secrets import fast, gate
from orihon.secrets.masking import mask_with

RUN = 8
JAPANESE = ["昨日", "今日", "会議", "設定", "ファイル", "を", "確認", "して", "テスト", "実行", "します", "。", "は"]
MESSAGE, LONG = 3_000, 1_000_000


def left(secret: str, masked: str) -> bool:
    """Whether a secret survived, whole or in part."""
    runs = (secret[at : at + RUN] for at in range(max(1, len(secret) - RUN + 1)))
    return any(run in masked for run in runs)


def score(path: Path) -> None:
    """Print recall, misses by kind, and every false sample that was touched."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        samples = [json.loads(line) for line in lines]
    masked = [mask_with(gate.pure, sample["text"]) for sample in samples]
    pairs = list(zip(samples, masked, strict=True))
    missed = Counter(s["kind"] for s, m in pairs if s["is_secret"] and left(s["secret"], m))
    true = sum(sample["is_secret"] for sample in samples)
    touched = [(s, m) for s, m in pairs if not s["is_secret"] and m != s["text"]]
    keep = [(s, m) for s, m in touched if s["kind"].startswith("keep-")]
    print(f"recall {1 - missed.total() / true:.4f} ({missed.total()} of {true} missed)")
    print("  " + ", ".join(f"{kind} {count}" for kind, count in missed.most_common()))
    print(f"keep-* touched: {len(keep)}; other false samples touched: {len(touched) - len(keep)}")
    for sample, text in touched:
        print(f"  {sample['kind']}: {text[:110]!r}")
    unlike = sum(mask_with(fast.hits, sample["text"]) != text for sample, text in pairs)
    print(f"samples that Hyperscan masks otherwise: {unlike}")


def clean_texts() -> dict[str, str]:
    """A megabyte of each: the language reference, the standard library, and made-up Japanese."""
    english = "".join(pydoc_data.topics.topics.values())
    sources = sorted(Path(pydoc_data.topics.__file__).parent.parent.glob("*.py"))
    code = "".join(path.read_text(encoding="utf-8", errors="replace") for path in sources)
    dice = random.Random(1)  # noqa: S311 - the same sentences every time
    japanese = "".join(dice.choice(JAPANESE) for _ in range(250_000))
    texts = {"English": english, "code": re.sub(r"[\w.+-]+@\w+\.[\w.-]+", "nobody", code), "Japanese": japanese}
    return {name: (text * 3)[:LONG] for name, text in texts.items()}


def speed() -> None:
    """Print megabytes a second for each text, gate and size of message."""
    print(f"{'MB/s':10}{'pure 3 kB':>12}{'pure 1 MB':>12}{'fast 3 kB':>12}{'fast 1 MB':>12}")
    for name, text in clean_texts().items():
        row = [rate(hits, text, size) for hits in (gate.pure, fast.hits) for size in (MESSAGE, LONG)]
        print(f"{name:10}" + "".join(f"{value:12.0f}" for value in row))


def rate(hits: gate.Gate, text: str, size: int) -> float:
    """Megabytes of UTF-8 in a second of processor time, the best of nine runs."""
    messages = [text[at : at + size] for at in range(0, len(text), size)]
    best = float("inf")
    for _ in range(9):
        start = time.process_time()
        for message in messages:
            mask_with(hits, message)
        best = min(best, time.process_time() - start)
    return len(text.encode()) / best / 1e6


def main() -> None:
    """Score the samples that were named, and measure the speed."""
    for argument in sys.argv[1:]:
        score(Path(argument))
    speed()


if __name__ == "__main__":
    main()
