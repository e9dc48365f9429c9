"""Patterns for paths: what fits is what a plain, slow comparison finds, and no pattern takes longer than it should.

A pattern whose work grows exponentially would not end before the machine does; these tests only have to end.
"""

import functools
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orihon.agent.sources.local import parse_page
from orihon.agent.tools import globs
from orihon.agent.tools.diff import render_full_lines
from orihon.agent.tools.fuzzy_match import find_similar, suggest_piece
from orihon.agent.tools.globs import GlobError, compile_glob, is_ignored, parse_gitignore
from orihon.agent.tools.search import parse_glob
from orihon.context.recall import _LINES
from orihon.context.transcript import quoted
from orihon.errors import ToolError
from orihon.planning.verification import find_placeholders


def fits_slowly(pattern, path):
    """By trying everything, with the results remembered: `*`, `?` and `**` as a whole name, and nothing else."""

    @functools.cache
    def rest(at, place):
        if at == len(pattern):
            return place == len(path)
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
            ends = [place, *(end + 1 for end in range(place, len(path)) if path[end] == "/")]
            return any(rest(at + 3, end) for end in ends)
        if pattern[at] == "*":
            end = place
            while not rest(at + 1, end):
                if end == len(path) or path[end] == "/":
                    return False
                end += 1
            return True
        same = place < len(path) and (path[place] == pattern[at] or (pattern[at] == "?" and path[place] != "/"))
        return same and rest(at + 1, place + 1)

    if "/" not in pattern:
        return any(rest(0, place) for place in range(len(path)) if place == 0 or path[place - 1] == "/")
    return rest(0, 0)


NAME = st.text(alphabet="ab.", min_size=1, max_size=4)
PATH = st.lists(NAME, min_size=1, max_size=4).map("/".join)
PART = st.one_of(
    st.just("**"),
    st.text(alphabet="ab.*?", min_size=1, max_size=5).filter(lambda text: "**" not in text and text != "."),
)
PATTERN = st.lists(PART, min_size=1, max_size=4).filter(lambda parts: parts[-1] != "**").map("/".join)


@given(pattern=PATTERN, path=PATH)
@example(pattern="**/a*b/**/a", path="a/ab/b/a")
@example(pattern="a*/b", path="a/a/b")
@example(pattern="**/*a*a/b", path="a/aa/b")
def test_what_fits_is_what_fits_slowly(pattern, path):
    """Name by name, and without ever going back inside a name."""
    assert compile_glob(pattern).matches(path) == fits_slowly(pattern, path)
    assert is_ignored(path, parse_gitignore(pattern, ""), is_directory=False) == fits_slowly(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("*.py", ["a.py", "src/a.py"], ["a.pyc", "py"]),
        ("src/**/*.{ts,tsx}", ["src/a.ts", "src/b/c/d.tsx"], ["a.ts", "src/a.js"]),
        ("src/**", ["src/a", "src/b/c"], ["src", "a/src/b"]),
        ("**.py", ["a.py", "b/a.py"], ["a.pyc"]),
        ("src/**.py", ["src/a.py", "src/b/a.py"], ["a.py"]),
        ("./*.md", ["a.md", "docs/a.md"], []),
        ("[a-c]?[!x]", ["bzz"], ["bzx", "dzz", "bz"]),
        ("[]]", ["]"], ["["]),
        ("[a&&b]", ["&", "a"], ["c"]),
        ("a[", ["a["], ["a"]),
        (r"\*", ["*"], ["a"]),
    ],
)
def test_what_people_write(pattern, fitting, others):
    """The forms that models and people use."""
    fits = compile_glob(pattern).matches
    assert [path for path in [*fitting, *others] if fits(path)] == fitting


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("unit", ["*a", "a*", "*", "**", "?*", "*a*b", "[ab]*", "**/", "*/", "{a,b}", "**a", "[", "\\"])
def test_no_pattern_takes_long(unit):
    """Neither one of a model's, nor a line of a .gitignore, on a long name or a deep path."""
    deep = "/".join(["a" * 20] * 100)
    for count in (5, 12, 60, 500):
        for text in (unit * count + "b", "b" + unit * count, unit * count):
            try:
                fits = compile_glob(text).matches
            except GlobError:
                fits = str.isdigit
            for path in ("a" * 60, "a" * 255, deep, f"{deep}/{'a' * 255}", "ab" * 100):
                fits(path)
                is_ignored(path, parse_gitignore(text, "x") + parse_gitignore(text, ""), is_directory=True)


def test_the_pattern_of_the_report(desk):
    """A dozen stars, and a name of sixty letters that almost fits."""
    desk.put("a" * 60, "")
    assert desk.do("list_files", glob="*a" * 12 + "b").startswith("There are no files")
    assert desk.do("list_files", glob="*a" * 12) == "a" * 60
    assert "0 files" in desk.do("search", pattern="x", glob="*a" * 12 + "b")


@pytest.mark.parametrize("text", ["*" * 1001, "{a,b}" * 7, "[z-a]"])
def test_what_is_refused_is_explained(desk, text):
    """A pattern that stands for too much, or for nothing."""
    assert "cannot be read" in desk.refusal("list_files", glob=text)
    with pytest.raises(ToolError):
        parse_glob(text)


def test_a_gitignore_without_end_is_read_to_a_point(make):
    """A workspace of somebody else's cannot make a listing wait for a million rules."""
    desk = make(environ={"PATH": "/nonexistent"})
    desk.put(".gitignore", "*.log\n" + "a*a*a*a*b\n" * 90_000)
    desk.put("a" * 60, "")
    desk.put("x.log", "")
    assert desk.do("list_files", glob="*").split() == [".gitignore", "a" * 60]
    assert len(parse_gitignore("x\n" * 100_000, "")) == globs.MAX_RULES


def test_blanks_in_ranges_of_lines(desk):
    """A range of lines with a hundred thousand blanks is refused like any other that cannot be read."""
    desk.put("x", "one\n")
    for blanks in ("1-" + " " * 100_000 + "x", " " * 100_000 + "x"):
        assert "lines" in desk.refusal("read", path="x", lines=blanks)
        assert _LINES.fullmatch(blanks) is None


def test_text_that_was_slow_to_read(tmp_path):
    """Lines of nothing but blanks, comments or headings cost no more than other text."""
    assert quoted("\n" * 300_000 + "  [USER]: x").endswith("  \\[USER]: x")
    assert parse_page("# " * 100_000 + "x", "name").title.endswith("x")
    assert parse_page("# The title ##\nbody", "name").title == "The title"
    (tmp_path / "a.txt").write_text("-" * 300_000 + "\n// TODO later\n")
    lines = {"-" * 300_000, "// TODO later"}
    assert find_placeholders(tmp_path, {"a.txt": lines}) == ["a.txt:2: // TODO later"]


def test_what_was_perhaps_meant_among_many():
    """Thousands of lines that all look find_similar are not compared letter by letter."""
    near = "".join(f"{number:x}" for number in range(75))
    lines = [near[turn:] + near[:turn] for turn in range(len(near))] * 100
    assert suggest_piece(near.replace("1", "z"), "\n".join(lines).encode()).startswith("The most similar lines are:")
    assert suggest_piece("b\n" + "a\n" * 9000, ("a\n" * 19_000).encode())
    assert find_similar("basket.py", ["basket.py2", "ticket.py", "x"], limit=1) == ["basket.py2"]
    long = "".join(map(chr, range(0x4E00, 0x5E00)))
    assert suggest_piece("needle here\n" + long * 20, f"needle her\n{long * 20}\n".encode()).startswith(
        "The most similar lines are:"
    )


def test_a_difference_of_large_files():
    """What is too long to be compared line by line is shown as replaced."""
    old = "".join(f"{number % 300}\n" for number in range(60_000)).encode()
    shown = render_full_lines(old, b"x\n" + old[::-1])
    assert len(shown.splitlines()) == 61
    assert re.match(r"@@ -1,\d+ \+1,\d+ @@\n-0\n-1\n", shown)
