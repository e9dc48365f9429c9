"""Where tasks come from: `open_source(name, settings)` returns a source.

local     a Markdown file, a text, or a directory of issues
github    issues and pull requests with the bot's label
gitlab    issues and merge requests with the bot's label
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from orihon.agent.sources.base import Comment, Item, Outcome, SeenComments, Source
from orihon.errors import UsageError
from orihon.ingest import sanitiser_for
from orihon.settings.schema import Settings

__all__ = ["Comment", "Item", "Outcome", "SeenComments", "Source", "open_source"]


def open_source(
    name: Literal["local", "github", "gitlab"],
    settings: Settings,
    *,
    what: str | Path | None = None,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time,
) -> Source:
    """Return the source of this name. For `local`, `what` is a file, a directory or a text."""
    sanitiser = sanitiser_for(settings)
    if name == "local":
        from orihon.agent.sources.local import Local  # noqa: PLC0415 - only the source that is used is loaded

        if what is None:
            raise UsageError("The source local needs a file, a directory or a text.")
        return Local(what, forge=settings.github, sanitiser=sanitiser)
    if name == "github":
        from orihon.agent.sources.github import GitHub  # noqa: PLC0415

        return GitHub(settings.github, sanitiser=sanitiser, sleep=sleep, now=now)
    if name == "gitlab":
        from orihon.agent.sources.gitlab import GitLab  # noqa: PLC0415

        return GitLab(settings.gitlab, sanitiser=sanitiser, sleep=sleep, now=now)
    raise UsageError(f"There is no source {name!a}.", hint="Use local, github or gitlab.")
