"""The instructions of a repository: the nearest AGENTS.md or CLAUDE.md, which stands in every window of a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from orihon.agent.control import Check
from orihon.agent.sticky_files import StickyFiles
from orihon.agent.tools.workspace import Workspace
from orihon.errors import UsageError
from orihon.settings.schema import Sticky
from orihon.task.task import Task

log = logging.getLogger("orihon")


def find_instructions(workspace: Workspace, settings: Sticky) -> str | None:
    """Return the nearest file of instructions, from the workspace up to the root of its repository; None if none."""
    root = Path(workspace.root)
    for directory in _iter_directories(root):
        for name in settings.instructions:
            if (directory / name).is_file():
                return name if directory == root else str(directory / name)
    return None


def _iter_directories(root: Path) -> Iterator[Path]:
    """Yield the workspace and its parents up to the root of the repository; outside of one, only the workspace."""
    parents = (root, *root.parents)
    repository = next((directory for directory in parents if (directory / ".git").exists()), root)
    yield from parents[: parents.index(repository) + 1]


def make_instructions_check(workspace: Workspace, settings: Sticky) -> Check:
    """Return a check that makes the instructions a sticky file of a new task, and reads them again when they change."""
    watched: dict[str, StickyFiles] = {}

    def check(task: Task) -> None:
        sticky = watched.get(task.uuid)
        if sticky is None:
            sticky = watched[task.uuid] = StickyFiles(task, workspace, share=settings.share)
            add_instructions(sticky, settings)
        if sticky.declared:
            sticky.refresh()

    return check


def add_instructions(sticky: StickyFiles, settings: Sticky) -> None:
    """Declare the instructions in a task that has no sticky files yet."""
    path = None if sticky.declared else find_instructions(sticky.workspace, settings)
    if path is None:
        return
    try:
        sticky.add(path)
    except UsageError as error:
        log.warning("The instructions are not shown to the model. %s", error.message)
