"""docs/api.md has every public name, with what its docstring says, an example that runs, and its errors."""

import ast
import inspect
import re
import runpy
import subprocess
import sys

import pytest

import orihon
from support.pages import ROOT, blocks

PAGE = ROOT / "docs" / "api.md"
ERRORS = {name for name in orihon.__all__ if inspect.isclass(getattr(orihon, name))}
ERRORS = {name for name in ERRORS if issubclass(getattr(orihon, name), orihon.OrihonError)}
NAMES = [name for name in orihon.__all__ if name not in ERRORS]


def sections():
    parts = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return {part.splitlines()[0].removeprefix("`orihon.").rstrip("`"): part for part in parts}


def test_the_page_is_up_to_date():
    """The tables are what `docs/generate.py` makes of the docstrings."""
    assert runpy.run_path(str(ROOT / "docs" / "generate.py"))["api_page"]() == PAGE.read_text("utf-8"), (
        "run `make docs`"
    )


def test_the_page_has_every_public_name():
    """`orihon.__all__` and the sections are the same, and every class of error is in the table."""
    assert set(sections()) == {*NAMES, "Errors"}
    assert {name for name in ERRORS if f"\n| `{name}` |" in sections()["Errors"]} == ERRORS


@pytest.mark.parametrize("name", NAMES)
def test_a_name_has_a_docstring_an_example_and_its_errors(name):
    """And the errors that a section names are public."""
    section = sections()[name]
    assert inspect.getdoc(getattr(orihon, name)).splitlines()[0] in section
    assert "```python" in section
    (said,) = re.findall(r"^\*\*Errors\.\*\* (.*?)(?=\n\n|\Z)", section, re.MULTILINE | re.DOTALL)
    named = {word for word in re.findall(r"`([A-Z]\w+)`", said) if word.endswith("Error") or word in ERRORS}
    assert named <= ERRORS
    assert named or said.startswith("None")


@pytest.mark.parametrize("name", ["Engine", "Task", "TaskKey", "Window"])
def test_every_public_method_says_what_it_does(name):
    """No method is without a docstring, and each is in the table."""
    for member, value in vars(getattr(orihon, name)).items():
        function = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
        if not member.startswith("_") and inspect.isfunction(function):
            assert function.__doc__, member
            assert re.search(rf"^\| `{member}[`(]", sections()[name], re.MULTILINE), member


def test_every_example_of_an_error_raises_it(tmp_path):
    """The program of the page, where a `try` that ends without an error is a failure."""
    tree = ast.parse("\n".join(block.text for block in blocks(PAGE, "python")))
    attempts = [node for node in ast.walk(tree) if isinstance(node, ast.Try)]
    assert len(attempts) >= len(NAMES) - 1
    for node in attempts:
        node.orelse = ast.parse(f"raise AssertionError({ast.unparse(node.body[0])!r})").body
    program = ast.unparse(ast.fix_missing_locations(tree))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
