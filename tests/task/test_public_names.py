"""docs/tasks.md explains every public name of a task."""

import re

import orihon

# for the packages of Orihon itself, not for users
INTERNAL = {"log", "writer"}


def test_the_page_explains_every_public_name(root):
    """The table of names is complete and has no name that a task lacks."""
    page = (root / "docs/tasks.md").read_text(encoding="utf-8")
    table = page.partition("## All names of a task")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    explained = {name for cell in cells for name in re.findall(r"`(\w+)", cell)}
    with orihon.open("memory:") as engine, engine.start(orihon.TaskKey.local("notes")) as task:
        public = {name for name in {*dir(task), *vars(task)} if not name.startswith("_")}
    assert explained == public - INTERNAL
