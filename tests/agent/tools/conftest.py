"""A workspace, a box of tools for it, and calls as a task gives them."""

import itertools
import os

import pytest

from orihon.agent.tools.toolbox import Toolbox
from orihon.errors import ToolError
from orihon.task.tool_run import PendingCall

_ids = itertools.count(1)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """MCP servers and shells end in threads of their own."""


def call(name, **arguments):
    """A call of the model's."""
    return PendingCall(id=f"call_{next(_ids)}", name=name, arguments=arguments, text=str(arguments))


class Desk:
    """A box, and short ways to use it."""

    def __init__(self, box, root):
        self.box, self.root = box, root

    def do(self, name, *, on_output=None, **arguments):
        return self.box.run(call(name, **arguments), on_output=on_output)

    def refusal(self, name, **arguments):
        """The sentence that the model is given instead of a result."""
        with pytest.raises(ToolError) as caught:
            self.do(name, **arguments)
        return str(caught.value)

    def put(self, path, content):
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return place


@pytest.fixture
def make(tmp_path):
    """Boxes over one workspace, all of them closed in the end."""
    root = tmp_path / "work"
    root.mkdir()
    open_handles = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH112
    boxes = []

    def make(**options):
        boxes.append(Toolbox(root, **({"approve": "all"} | options)))
        return Desk(boxes[-1], root)

    yield make
    for box in boxes:
        box.close()
    if open_handles:
        assert len(os.listdir("/proc/self/fd")) <= open_handles, "a tool left a file open"


@pytest.fixture
def desk(make):
    return make()
