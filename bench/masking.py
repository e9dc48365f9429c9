"""Measure what masking finds, what it masks wrongly, how it copes with hostile text, and how fast it is.

Each figure that has a target is printed next to it. Every kind of shape is tried in every carrier, such as a diff or a
cell of CSV, and through every quick channel of a store; `bench/channels.py` has the other channels and the ways out.

`ORIHON_MASKING_SAMPLES=samples.jsonl.gz` names further samples to score; without it, those in `../shared/data/secrets`
are scored if they are there. Each line is a JSON object with `kind`, `text`, `secret` and `is_secret`. A secret counts
as found if no eight consecutive characters of it are left; the second figure ignores characters that the text repeats
outside the secret, such as those of a name. `ORIHON_MASKING_BEFORE=src` names the sources of another version, whose
speed is measured in turns in the same run.
"""

from __future__ import annotations

import base64
import gzip
import html
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
from urllib.parse import quote

from bench import channels
from bench.shapes import kept, shapes
from orihon.redaction import mask

SAMPLES = Path(__file__).parents[2] / "shared/data/secrets/samples.jsonl.gz"
RUN = 8
MIN_SHAPES, MIN_SAMPLES = 0.97, 0.98  # targets for recall
MAX_RATIO = 4  # twice the text takes about twice the time; four times would be quadratic
SEEDS = range(3)
JAPANESE = ["昨日", "今日", "会議", "設定", "ファイル", "を", "確認", "して", "テスト", "実行", "します", "。", "は"]
MESSAGE, LONG = 3_000, 1_000_000
Mask = Callable[[str], str]


def is_left(secret: str, masked: str, elsewhere: str = "") -> bool:
    """Return whether a part of a secret is left that does not also stand elsewhere in the text."""
    runs = (secret[at : at + RUN] for at in range(max(1, len(secret) - RUN + 1)))
    return any(run in masked and run not in elsewhere for run in runs)


def score_shapes() -> None:
    """Print recall on the shapes, misses by kind, and the texts that were masked wrongly."""
    missed: Counter[str] = Counter()
    drawn = [shape for seed in SEEDS for shape in shapes(random.Random(seed))]  # noqa: S311
    for shape in drawn:
        rest = shape.text.replace(shape.secret, "\n")
        missed[shape.kind] += is_left(shape.secret, mask(shape.text), rest)
    print(f"{len(missed)} kinds, {len(drawn)} shapes: recall {rate(1 - missed.total() / len(drawn), MIN_SHAPES)}")
    print("  missed: " + (", ".join(f"{kind} {count}" for kind, count in missed.most_common() if count) or "none"))
    texts = [text for seed in SEEDS for text in kept(random.Random(seed))]  # noqa: S311
    touched = [text for text in texts if mask(text) != text]
    print(f"{len(texts) // len(SEEDS)} texts without a secret, changed: {len(touched)} (target: 0) {touched[:3] or ''}")


# Text around a shape, which can hide where it begins or ends. `{}` is the shape.
CARRIERS = {
    **{
        f"behind {sign!r}": f"{sign}{{}}"
        for sign in ("- ", "+", "-", "> ", "# ", "// ", "* ", "12:", "a.txt:12:", "\t", "=")
    },
    **{f"in {pair}": f"{pair[0]}{{}}{pair[1:]}" for pair in ("``", "()", "[]", "「」", "||", '""', "''", "<>")},
    **{f"before {end!r}": f"{{}}{end}" for end in (".", ",", ";", "!", ":", "\\n", "\r\n", " and more", "です")},
    "a cell": "1,{},x",
    "a bold word": "**{}**",
    "an element": "<td>{}</td>",
    "a line of a log": "2026-05-01T10:00:00Z INFO config {}",
    "a numbered line": "     5\t{}",
    "a sentence": "Use {} for it.",
    "a file": "{}.txt",
    "a file in a directory": "/home/alice/work/notes/{}",
    "a path in a URL": "GET https://example.com/api/callbacks/github/{}",
    "a fence": "```\n{}\n```",
    "a shell": 'echo "{}"',
    "a colour": "\x1b[32m{}\x1b[0m",
    "a colour as text": "\\u001b[32m{}\\u001b[0m",
}
ENCODERS: dict[str, Callable[[str], str]] = {
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
    "Python": lambda text: repr(text)[1:-1],
    "a URL": lambda text: quote(text, safe=""),
    "HTML": html.escape,
}


def score_carriers() -> None:
    """Print recall for one shape of each kind in every carrier and encoding, and the carriers with the most misses."""
    missed: Counter[str] = Counter()
    drawn = {shape.kind: shape for shape in shapes(random.Random(9))}.values()  # noqa: S311
    for shape in drawn:
        for name, carrier in CARRIERS.items():
            missed[name] += _is_leak(shape.secret, carrier.replace("{}", shape.text))
        for name, encode in ENCODERS.items():
            missed[f"encoded as {name}"] += _is_leak(encode(shape.secret), f"x={encode(shape.text)}")
    total = len(drawn) * len(missed)
    print(f"{len(drawn)} kinds in {len(missed)} carriers: recall {rate(1 - missed.total() / total, MIN_SHAPES)}")
    print("  missed most: " + ", ".join(f"{name} {count}" for name, count in missed.most_common(8) if count))


def _is_leak(secret: str, text: str) -> bool:
    return is_left(secret, mask(text), text.replace(secret, "\n"))


def rate(recall: float, target: float) -> str:
    """Return a recall with its target."""
    return f"{recall:.4f} (target: {target}, {'met' if recall >= target else 'NOT MET'})"


def score_samples(path: Path) -> None:
    """Print recall, misses by kind, and how many false samples were changed."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        samples = [json.loads(line) for line in lines]
    pairs = [(sample, mask(sample["text"])) for sample in samples]
    true = [(sample, masked) for sample, masked in pairs if sample["is_secret"]]
    missed = Counter(s["kind"] for s, m in true if is_left(s["secret"], m))
    apart = sum(is_left(s["secret"], m, s["text"].replace(s["secret"], "\n")) for s, m in true)
    touched = [(s, m) for s, m in pairs if not s["is_secret"] and m != s["text"]]
    keep = [(s, m) for s, m in touched if s["kind"].startswith("keep-")]
    recall = 1 - missed.total() / len(true)
    print(f"{len(samples)} samples: recall {rate(recall, MIN_SAMPLES)} ({missed.total()} of {len(true)} missed)")
    print(f"  ignoring what the text repeats outside the secret: {1 - apart / len(true):.4f}")
    print("  " + ", ".join(f"{kind} {count}" for kind, count in missed.most_common()))
    print(f"  keep-* changed: {len(keep)} (target: 0); other false samples changed: {len(touched) - len(keep)}")


# Text that would make a careless expression slow. It is repeated up to the length.
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
        "(password) values ('a'', N'",
        "password ?? ",
        "credentials: a / ",
        "enable secret ",
    ),
]


def print_growth() -> None:
    """Print the hostile texts whose time grows most if they are twice as long; about 2 is linear."""
    rows = []
    for unit in HOSTILE:
        half, full = (measure(unit, size) for size in (LONG // 2, LONG))
        rows.append((full / half, full, unit))
    rows.sort(reverse=True)
    slowest = max(rows, key=lambda row: row[1])
    print(f"{len(HOSTILE)} hostile texts of 0.5 and 1 MB. Time for 1 MB divided by time for 0.5 MB, the five largest")
    print(f"(about 2 is linear, 4 would be quadratic; target: below {MAX_RATIO}):")
    print("  " + ", ".join(f"{ratio:.2f} {unit[:16]!r}" for ratio, _, unit in rows[:5]))
    print(f"  slowest: 1 MB of {slowest[2][:20]!r} in {slowest[1]:.2f} s")


def measure(unit: str, size: int) -> float:
    """Return the processor time for a hostile text, the better of two runs."""
    text = (unit * (size // len(unit) + 1))[:size]
    best = float("inf")
    for _ in range(2):
        start = time.process_time()
        mask(text)
        best = min(best, time.process_time() - start)
    return best


def clean_texts() -> dict[str, str]:
    """Return a megabyte of each: the language reference, the standard library, generated Japanese, and a picture."""
    english = "".join(pydoc_data.topics.topics.values())
    sources = sorted(Path(pydoc_data.topics.__file__).parent.parent.glob("*.py"))
    code = "".join(path.read_text(encoding="utf-8", errors="replace") for path in sources)
    dice = random.Random(1)  # noqa: S311 - the same sentences every time
    japanese = "".join(dice.choice(JAPANESE) for _ in range(250_000))
    texts = {"English": english, "code": re.sub(r"[\w.+-]+@\w+\.[\w.-]+", "nobody", code), "Japanese": japanese}
    texts["picture"] = base64.b64encode(dice.randbytes(LONG)).decode()
    return {name: (text * 3)[:LONG] for name, text in texts.items()}


def print_speed() -> None:
    """Print megabytes per second for each text and size of message, and the ratio to another version."""
    before = os.environ.get("ORIHON_MASKING_BEFORE")
    versions = [mask, *([load(before)] if before else [])]
    print(
        "MB/s on text without a secret, in messages of 3 kB and in one piece"
        + ("; (x…): over before" if before else "")
    )
    print(f"{'':10}{'3 kB':>18}{'1 MB':>18}")
    sums = {size: [0.0] * len(versions) for size in (MESSAGE, LONG)}  # seconds for a megabyte of each text
    texts = clean_texts()
    for name, text in texts.items():
        row = ""
        for size, seconds in sums.items():
            rates = race(versions, text, size)
            row += _render_rate(*rates)
            seconds[:] = [total + 1 / each for total, each in zip(seconds, rates, strict=True)]
        print(f"{name:10}{row}")
    means = (_render_rate(*(len(texts) / total for total in seconds)) for seconds in sums.values())
    print(f"{'together':10}" + "".join(means))


def _render_rate(now: float, before: float | None = None) -> str:
    return f"{now:10.0f}" + (f" (x{now / before:.2f})" if before else " " * 8)


def load(root: str) -> Mask:
    """Load the masking of another version without replacing the modules that are loaded."""
    own = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "orihon"}
    sys.path.insert(0, root)
    try:
        package = "orihon.redaction" if (Path(root) / "orihon/redaction").is_dir() else "orihon.secrets"
        other: Mask = importlib.import_module(package).mask
        other("password=hunter22 a@b.cd")  # loads the detectors
    finally:
        sys.path.remove(root)
        for name in [name for name in sys.modules if name.split(".")[0] == "orihon"]:
            del sys.modules[name]
        sys.modules.update(own)
    return other


def race(versions: list[Mask], text: str, size: int) -> list[float]:
    """Return megabytes of UTF-8 per second of processor time: the best of nine runs each, taken in turns."""
    messages = [text[at : at + size] for at in range(0, len(text), size)]
    best = [float("inf")] * len(versions)
    for _ in range(9):
        for which, version in enumerate(versions):
            start = time.process_time()
            for message in messages:
                version(message)
            best[which] = min(best[which], time.process_time() - start)
    return [len(text.encode()) / seconds / 1e6 for seconds in best]


def main() -> None:
    """Score the shapes and the given samples, search for slow text, and measure the speed."""
    score_shapes()
    score_carriers()
    samples = Path(os.environ.get("ORIHON_MASKING_SAMPLES", SAMPLES))
    if samples.is_file():
        score_samples(samples)
    print_growth()
    print_speed()
    print("A shape of every kind through every quick channel of a store (recall: in no file, log or window):")
    channels.report("jsonl", channels.each_kind, channels.all_shapes, channels.QUICK, carry=False)


if __name__ == "__main__":
    main()
