"""The shape of the house: who may import whom, how large things may be, what is public, what is documented."""

import ast
import re
import runpy
from pathlib import Path

import click
import pytest

import orihon
from orihon.cli import COMMANDS, cli

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "orihon"
MODULES = sorted(PACKAGE.rglob("*.py"))

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 80
MAX_SINGLE_IMPORTERS = 66  # a module that one other module imports is often a function in the wrong file

# A room may import from the rooms below it, and from its own. Rooms on one line do not know each other.
# A part of a room may have a place of its own: a module belongs to the longest name that fits it.
FLOORS = [
    ["__main__", "tools"],
    ["cli", "web", "integrations", "compat"],
    ["aio"],
    ["telemetry"],
    ["view"],
    ["ops", "chat"],
    ["agent"],
    ["planning"],
    ["engine"],
    ["task"],
    ["inheritance"],
    ["testing"],
    ["stores", "context"],
    ["ingest"],
    ["settings.load", "access"],
    ["settings.yaml", "settings"],
    ["settings.section"],
    ["tokens"],
    ["parts"],
    ["codec", "_prompts", "embedded"],
    ["records"],
    ["redaction"],
    ["task_key"],
    ["coerce"],
    ["errors", "retry", "terminal"],
    ["__init__"],
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room_of(dotted: str) -> str:
    parts = dotted.split(".")[1:] or ["__init__"]
    names = (".".join(parts[:length]) for length in range(len(parts), 1, -1))
    return next((name for name in names if name in FLOOR_OF), parts[0])


def name_of(path: Path) -> str:
    parts = ("orihon", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {
                f"{node.module}.{alias.name}" if node.module == "orihon" else str(node.module) for alias in node.names
            }
    return {name for name in found if name.split(".")[0] == "orihon"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path):
    """A module imports only from floors below its own, or from its own room."""
    if path == PACKAGE / "__init__.py":
        return  # it names the public things of all rooms, and loads none of them
    here = room_of(".".join(("orihon", *path.relative_to(PACKAGE).with_suffix("").parts)))
    wrong = {
        name for name in imports_of(path) if (there := room_of(name)) != here and FLOOR_OF[there] <= FLOOR_OF[here]
    }
    assert not wrong, f"{here} must not know {wrong}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_sizes(path):
    """Files and functions stay small enough to be read in one go."""
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_FILE_LINES
    long = [
        f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert not long


def test_most_functions_fit_in_40_lines():
    """95 % of the functions are short."""
    lengths = sorted(
        node.end_lineno - node.lineno + 1
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert lengths[int(len(lengths) * 0.95)] <= 40


def test_few_modules_have_a_single_importer():
    """What only one module uses usually belongs into that module."""
    importers = {name_of(path): set() for path in MODULES}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None)
                for alias in node.names:
                    name = f"{module}.{alias.name}" if module else alias.name
                    name = name if name in importers else module
                    importers.get(name, set()).add(name_of(path))
    single = [name for name, found in importers.items() if len(found) == 1]
    assert len(single) <= MAX_SINGLE_IMPORTERS, single


def test_no_room_for_odds_and_ends():
    """Nothing is called utils, helpers, common or manager."""
    assert not [
        path for path in MODULES if path.stem in {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
    ]


def test_exports_are_sorted_and_real():
    """`orihon.__all__` is in order, complete, and every name in it can be had."""
    assert orihon.__all__ == sorted(orihon.__all__)
    for name in orihon.__all__:
        assert getattr(orihon, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = orihon.nothing


def test_every_module_says_what_it_is_for():
    """A module opens with its idea."""
    silent = [path for path in MODULES if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert not silent


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_module(command):
    """The module of a command holds a command of that name."""
    assert cli.get_command(click.Context(cli), command).name == command


def test_the_page_of_the_modules_is_up_to_date():
    """`docs/modules.md` is what `docs/generate.py` makes."""
    page = runpy.run_path(str(ROOT / "docs/generate.py"))["modules_page"]()
    assert page == (ROOT / "docs/modules.md").read_text(encoding="utf-8"), "run `make docs`"


def test_hints_name_commands_that_exist():
    """A message never sends somebody to a command that is not there."""
    named = {name for path in MODULES for name in re.findall(r"`orihon ([a-z]+)", path.read_text(encoding="utf-8"))}
    assert named <= set(COMMANDS), named - set(COMMANDS)


def test_every_benchmark_can_be_run():
    """Each name of `make bench` is a module with a `main`."""
    text = (ROOT / "bench" / "__main__.py").read_text("utf-8")
    names = ast.literal_eval(re.search(r"NAMES = (\[.*?\])", text, re.DOTALL)[1])
    for name in names:
        tree = ast.parse((ROOT / "bench" / f"{name}.py").read_text(encoding="utf-8"))
        assert any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body), name
