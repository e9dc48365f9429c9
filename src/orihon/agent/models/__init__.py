"""Models: whatever answers a window.

    model = open_model("anthropic:claude-sonnet-5", settings)
    task.add_reply(model.reply(task.window(), on_text=print))

A model keeps no history and no store. A reply is complete or an error: failed attempts are repeated, and an attempt
that fails for good is a `ModelError` that leaves the log unchanged. After `ContextOverflow`, call
`task.shrink_budget()`.
"""

from orihon.agent.models.base import Model, was_cut
from orihon.agent.models.registry import open_model

__all__ = ["Model", "open_model", "was_cut"]
