"""docs/seeds.md says where every section of the seeds is fulfilled; these tests keep the page true."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "seeds.md"
MODULES = ROOT / "src" / "orihon"

STATES = {"done", "part", "not yet", "text"}
NOTHING = "—"
SECTIONS = {"000": 55, "001": 60, "002": 54, "003": 24, "004": 52}
SECTION_HEAD = ["seed", "title", "where", "test", "state", "note"]
NAME_HEAD = ["seed name", "place in Orihon", "state"]
CLASSES = {
    "TaskContextManager": 9,
    "MessageStore": 7,
    "SummaryStore": 4,
    "ToolStore": 3,
    "ContextCompressor": 4,
    "ContextInheritanceManager": 4,
    "PlanningHistoryStore": 1,
    "PlanningCoordinator": 4,
    "TaskHandler": 2,
    "TaskGetter": 1,
    "LLMClient": 5,
    "ContextManager": 7,  # six of seed 003, and seed 004's class of the same name
    "ContextManagementPlugin": 3,
    "ConversationState": 8,
}


class Section(NamedTuple):
    seed: str
    title: str
    where: str
    test: str
    state: str
    note: str

    @property
    def modules(self) -> list[str]:
        return _names(self.where)

    @property
    def tests(self) -> list[str]:
        return _names(self.test)


class Name(NamedTuple):
    name: str
    place: str
    state: str


def _names(cell: str) -> list[str]:
    return [] if cell == NOTHING else cell.split(", ")


def _rows(head: list[str]) -> list[list[str]]:
    """The cells of all tables on the page that have this head."""
    rows: list[list[str]] = []
    current: list[str] | None = None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            current = None
            continue
        cells = [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        if current is None:
            current = cells
        elif current == head and not set(line) <= set("|-"):
            rows.append(cells)
    return rows


def _module_exists(name: str) -> bool:
    return (MODULES / f"{name}.py").is_file() or (MODULES / name).is_dir()


def _test_exists(name: str) -> bool:
    return name.startswith("tests/") and (ROOT / name).is_file()


def _follows(number: tuple[int, ...], previous: tuple[int, ...]) -> bool:
    """Whether a section number is the first one below the previous, or the next one on some level."""
    level = len(number) - 1
    return number == (*previous, 1) or (*previous[:level], *(n + 1 for n in previous[level : level + 1])) == number


@pytest.fixture(scope="module")
def sections() -> list[Section]:
    return [Section(*row) for row in _rows(SECTION_HEAD)]


@pytest.fixture(scope="module")
def names() -> list[Name]:
    return [Name(*row) for row in _rows(NAME_HEAD)]


def test_every_table_is_read():
    """Every table of the page has one of the two heads, and every row has as many cells as its head."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    heads = [line for line, below in pairwise(lines) if below.startswith("|---")]
    assert {head.strip("| ") for head in heads} == {" | ".join(SECTION_HEAD), " | ".join(NAME_HEAD)}
    assert {len(row) for row in _rows(SECTION_HEAD)} == {len(SECTION_HEAD)}
    assert {len(row) for row in _rows(NAME_HEAD)} == {len(NAME_HEAD)}


def test_states_are_known(sections: list[Section], names: list[Name]):
    """Every row has one of the four states."""
    assert [row for row in (*sections, *names) if row.state not in STATES] == []


def test_no_row_twice(sections: list[Section], names: list[Name]):
    """No section and no class name stands on the page twice."""
    counts = Counter(row.seed for row in sections) + Counter(row.name for row in names)
    assert [name for name, count in counts.items() if count > 1] == []


def test_number_of_sections(sections: list[Section]):
    """Each seed has as many rows as it has sections."""
    assert Counter(row.seed.split()[0] for row in sections) == SECTIONS


@pytest.mark.parametrize("seed", ["000", "001", "002", "004"])
def test_numbers_have_no_gap(sections: list[Section], seed: str):
    """The numbered sections of a seed stand in order, and no number is left out."""
    found = (re.fullmatch(rf"{seed} §([\d.]+)", row.seed) for row in sections)
    numbers = [tuple(int(part) for part in match[1].split(".")) for match in found if match]
    assert numbers[0] == (1,)
    assert [now for before, now in pairwise(numbers) if not _follows(now, before)] == []


def test_rows_have_a_title(sections: list[Section]):
    """Every section has an English title."""
    assert [row.seed for row in sections if not row.title or not row.title.isascii()] == []


def test_what_is_there_exists(sections: list[Section]):
    """A row that is done or in part names modules that exist and tests that exist."""
    there = [row for row in sections if row.state in {"done", "part"}]
    assert [row.seed for row in there if not row.modules or not row.tests] == []
    assert [(row.seed, name) for row in there for name in row.modules if not _module_exists(name)] == []
    assert [(row.seed, name) for row in there for name in row.tests if not _test_exists(name)] == []


def test_what_is_in_part_says_what_is_missing(sections: list[Section]):
    """A row that is in part says what is to come."""
    assert [row.seed for row in sections if row.state == "part" and "to come:" not in row.note] == []


def test_what_is_planned_has_a_place_and_no_test(sections: list[Section]):
    """A row that is not there yet names its planned modules, and no test that exists."""
    planned = [row for row in sections if row.state == "not yet"]
    assert [row.seed for row in planned if not row.modules] == []
    assert [(row.seed, name) for row in planned for name in row.tests if _test_exists(name)] == []


def test_text_asks_for_nothing(sections: list[Section]):
    """A row that is only text names no module and no test."""
    assert [row.seed for row in sections if row.state == "text" and (row.modules or row.tests)] == []


def test_every_class_name_has_a_place(names: list[Name]):
    """Every class that the seeds name is there with each of its methods, and each has a place in Orihon."""
    counts = Counter(re.match(r"`(\w+)", row.name)[1] for row in names)
    assert {name: counts[name] for name in CLASSES} == CLASSES
    assert [row.name for row in names if not row.place] == []
