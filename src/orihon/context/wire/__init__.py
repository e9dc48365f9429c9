"""Messages in the four formats that providers take, and what each of them would refuse.

The renderers take a list that `repair` has made right and give a request that can be sent; the rules (`violations`)
are written from what the providers publish, without the renderers, so that the one can catch the other. They also
hold for histories that come from elsewhere.
"""

from __future__ import annotations

from orihon.context.wire.anthropic_messages import anthropic
from orihon.context.wire.gemini_contents import gemini
from orihon.context.wire.openai_chat import openai
from orihon.context.wire.openai_responses import responses
from orihon.context.wire.rules import violations
from orihon.context.wire.schemas import APIS, tools

__all__ = ["APIS", "anthropic", "gemini", "openai", "responses", "tools", "violations"]
