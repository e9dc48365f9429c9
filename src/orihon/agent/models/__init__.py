"""Models: what answers a window, whoever makes it.

    model = open_model("anthropic:claude-sonnet-5", settings)
    task.add_reply(model.reply(task.window(), on_text=print))

A model holds no history and no store. A reply is given whole or not at all: what fails on the way is tried again, and
what still fails is a `ModelError` after which the log is as it was. `ContextOverflow` asks for `task.shrink_budget()`.
"""

from orihon.agent.models.base import Model, was_cut
from orihon.agent.models.patience import Patience
from orihon.agent.models.registry import open_model

__all__ = ["Model", "Patience", "open_model", "was_cut"]
