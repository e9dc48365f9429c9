"""docs/windows.md names, for every rule of a window, the tests that show it."""

import re

from orihon.context.recall import hidden_mark


def test_every_rule_names_tests_that_exist(root):
    """The rules are numbered from 1 to 10, and so are the rows of the table."""
    page = (root / "docs/windows.md").read_text(encoding="utf-8")
    rules = [int(number) for number in re.findall(r"^(\d+)\. \*\*", page, re.MULTILINE)]
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", page, re.MULTILINE)
    assert rules == [int(number) for number, _ in rows] == list(range(1, 11))
    assert [name for _, names in rows for name in names.split(", ") if not (root / name).is_file()] == []


def test_the_page_shows_the_marks_as_they_are(root):
    """A reader finds the mark of the window on the page."""
    page = (root / "docs/windows.md").read_text(encoding="utf-8")
    assert hidden_mark(9, 3, 11, handles=True) in page
