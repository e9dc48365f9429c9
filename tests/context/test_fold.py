"""Single contents made small by their kind."""

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orihon.context.fold import fold_content, fold_repeats, picture_line, superseded
from orihon.context.names import index
from orihon.context.trouble import reports_error
from orihon.records import Blob, Part
from support.transcripts import Chance, History

MARK = re.compile(r"\[…\d+ (?:lines?|characters)(?:, m\d+)?\]")

PYTEST = """\
============================= test session starts ==============================
collected 214 items
{passed}
tests/test_cart.py::test_total FAILED
=================================== FAILURES ===================================
    def test_total():
>       assert cart.total() == 42
E       AssertionError: assert 41 == 42
tests/test_cart.py:17: AssertionError
{noise}
========================= 1 failed, 213 passed in 8.1s ========================="""


def run(passed=213, noise=400):
    return PYTEST.format(
        passed="\n".join(f"tests/test_shop.py::test_{n} PASSED [{n // 3}%]" for n in range(passed)),
        noise="\n".join(f"DEBUG {'lmnopq'[n % 6] * (n % 9)} cache was asked for {n}" for n in range(noise)),
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 600))
def test_any_content(seed, max_chars):
    """A fold is small enough or only a mark, never longer than its input, and folding it again changes nothing."""
    text = Chance(seed).text()
    shown = fold_content(text, max_chars=max_chars, handle="m57")
    assert len(shown) <= max(max_chars, 40) or shown == text
    assert len(shown) <= len(text)
    assert fold_content(shown, max_chars=max_chars, handle="m57") == shown
    assert shown == text or "m57" in shown
    for stretch in MARK.split(shown)[1:]:
        assert not stretch.startswith(("\u0301", "\u3099", "\u200d", "\udc80"))


def test_a_test_run():
    """It keeps how it began, what failed and how it ended."""
    shown = fold_content(run(), max_chars=900, handle="m57")
    assert len(shown) <= 900
    lines = shown.splitlines()
    assert lines[0].endswith("test session starts ==============================")
    assert "tests/test_cart.py::test_total FAILED" in lines
    assert "E       AssertionError: assert 41 == 42" in lines
    assert lines[-1].endswith("1 failed, 213 passed in 8.1s =========================")
    assert re.search(r"\[…\d+ lines, m57\]", shown)


def test_marks_count_every_hidden_line():
    """Kept lines and hidden lines together are all lines, repeated ones included."""
    text = run()
    shown = fold_content(text, max_chars=700, handle="m57")
    hidden = sum(int(number) for number in re.findall(r"\[…(\d+) lines", shown)) + shown.count("[…1 line")
    repeated = sum(int(number) for number in re.findall(r"\(× (\d+)\)$", shown, re.MULTILINE))
    kept = sum(not MARK.fullmatch(line) and "(×" not in line for line in shown.splitlines())
    assert hidden + repeated + kept == len(text.splitlines())


def test_repeats():
    """Lines that differ only in numbers are shown once with how often; the first one names the handle."""
    text = "\n".join(["start", *(f"retry {n} after {n * 2} ms" for n in range(212)), "done"])
    assert fold_content(text, max_chars=200, handle="m9") == "start\nretry 0 after 0 ms (× 212, m9)\ndone"
    assert fold_repeats("a 1\na 2\nb") == "a 1\na 2\nb"


def test_a_diff():
    """It keeps the files, then the heads of hunks, then changed lines."""
    hunk = "--- a/f{0}.py\n+++ b/f{0}.py\n@@ -1,9 +1,9 @@ def f{0}():\n{1}\n-    old()\n+    new()\n{1}"
    text = "\n".join(
        f"diff --git a/f{n}.py b/f{n}.py\n" + hunk.format(n, "\n".join(["     pass"] * 20)) for n in range(10)
    )
    shown = fold_content(text, max_chars=1000, handle="m3")
    assert [f"diff --git a/f{n}.py b/f{n}.py" in shown for n in range(10)] == [True] * 10
    assert shown.count("\n@@ -1,9 +1,9 @@") > 5
    assert "     pass\n     pass\n     pass" not in shown


def test_a_list_of_records():
    """JSON that is too long for its place keeps its first records and says how many there were."""
    text = json.dumps([{"id": n, "name": f"item {n}", "tags": ["a", "b"]} for n in range(5000)])
    shown = fold_content(text, max_chars=2000, handle="m4")
    assert len(shown) <= 2000
    *records, cut = json.loads(shown)
    assert records[0] == {"id": 0, "name": "item 0", "tags": ["a", "b"]}
    assert len(records) + cut["[truncated]"]["nodes"] == 5000
    assert cut["[truncated]"]["unfold"] == "m4"


def test_an_outline():
    """Of a tree drawn with spaces the upper levels stay."""
    lines = []
    for window in range(10):
        lines.append(f"[{window}] window 'Main {window}'")
        lines += [f"    [{window * 100 + n}] cell 'value {'abcdefgh'[n % 8] * 3}'" for n in range(40)]
    shown = fold_content("\n".join(lines), max_chars=800, handle="m2")
    assert [f"[{window}] window" in shown for window in range(10)] == [True] * 10


@pytest.mark.parametrize(
    "text",
    [
        "x" * 2_000_000,
        "lorem ipsum dolor " * 111_111,
        "error: line\n" * 166_000,
        "認証処理の不具合を修正しました。" * 125_000,
        json.dumps([{"role": "cell", "value": n} for n in range(70_000)]),
        "[" * 2_000_000,
    ],
    ids=["one line", "words", "lines", "japanese", "json", "brackets"],
)
def test_two_million_characters(text):
    """Any content is folded in time that grows with its length only."""
    begun = time.process_time()
    assert len(fold_content(text, max_chars=4000, handle="m1")) <= 4000
    assert time.process_time() - begun < 2


def test_pictures():
    """A picture is one line: what, how large, and its handle."""
    part = Part(
        type="image", media_type="image/png", width=1280, height=720, blob=Blob(sha256="0" * 64, size_bytes=213_400)
    )
    assert picture_line(part, handle="m12") == "[image image/png, 1280×720, 213 kB, m12]"
    assert picture_line(Part(type="image")) == "[image]"


def test_a_file_read_again_replaces_what_was_read_before():
    """An older result of the same call is replaced, and parts of a file by the whole of it; other files are not."""
    history = History().add("user", "Go.")
    for arguments in (
        {"path": "a.py", "offset": 10},
        {"path": "a.py"},
        {"path": "b.py"},
        {"path": "a.py"},
        {"path": "a.py", "offset": 10},
    ):
        history.unit("", ("read", arguments, "text"))
    assert superseded(history.messages) == {3, 5}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ValueError: bad", True),
        ("build FAILED", True),
        ("接続エラーが発生しました", True),
        ("0 errors, 3 warnings", False),
        ("no errors found", False),
        ("12 passed, 0 failed", False),
        ("エラーはありません", False),
        ("terrorise", False),
    ],
)
def test_error_lines(line, expected):
    """An error is known by its words, and not where they say that there was none."""
    assert reports_error(line) is expected


def test_names():
    """Names are known by their shape; ordinary words are none, and a longer name mentions the shorter one in it."""
    tokens = ["src/app.py", "app.py", "self.max_size", "max_size", "HttpServer", "3f2a9bc", "crate::io::read"]
    found = index([*tokens, "ordinary", "well-known", "1234567", "linux-f527f264", "設定画面"])
    assert found["src/app.py"] == ("app.py", "src/app.py")
    assert found["self.max_size"] == ("max_size", "self.max_size")
    assert found["linux-f527f264"] == ("f527f264",)
    assert found["設定画面"] == ("設定画面",)
    assert not found.keys() & {"ordinary", "well-known", "1234567"}
