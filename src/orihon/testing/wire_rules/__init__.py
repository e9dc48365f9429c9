"""What the providers refuse, from what they publish and from the errors they give; knows nothing of the renderers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from orihon.errors import UsageError
from orihon.testing.wire_rules import anthropic, gemini, openai, responses
from orihon.testing.wire_rules.shared import unsendable

_RULES: dict[str, Callable[[Any, str], Iterator[str]]] = {
    "openai": openai.broken,
    "responses": responses.broken,
    "anthropic": anthropic.broken,
    "gemini": gemini.broken,
}


def violations(api: str, rendered: Any, *, model: str = "") -> list[str]:
    """Every rule of the API that the request breaks, each with its place; none when it can be sent.

    `rendered` is the list of messages or items for `openai` and `responses`, and the object that holds the messages
    or contents for `anthropic` and `gemini`. Some rules hold only for some models.
    """
    if api not in _RULES:
        raise UsageError(f"There is no API called {api!r}.", hint=f"Use one of: {', '.join(_RULES)}.")
    found: list[str] = []
    try:
        for broken in chain(unsendable(rendered), _RULES[api](rendered, model)):
            found.append(broken)  # noqa: PERF402 - what was found before it broke off counts
    except (AttributeError, KeyError, TypeError) as error:
        found.append(f"the request does not have the shape of the API: {error}")
    return found
