"""docs/specification.md names, for every section of the specification, the tests that show it."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "specification.md"


def rows():
    """Return the cells of each row that names a section."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\| 00\d ", line)]


def test_every_row_names_tests_that_exist():
    """Each section is shown by at least one test file of this repository."""
    named = [(section, name) for section, _, tests, _ in rows() for name in tests.split(", ")]
    assert len(named) > 150
    assert [(section, name) for section, name in named if not (ROOT / name).is_file()] == []


def test_no_section_is_listed_twice():
    """A section has one row."""
    sections = [section for section, *_ in rows()]
    assert len(sections) == len(set(sections))
