"""Render messages in the four formats that providers take.

The renderers take a list that `repair` has made valid. The rules that check the result (`orihon.testing.model`
and `tests/support/wire_rules.py`) are written from what the providers publish, without the renderers.
"""

from __future__ import annotations

from orihon.context.wire.anthropic_messages import anthropic
from orihon.context.wire.gemini_contents import gemini
from orihon.context.wire.openai_chat import openai
from orihon.context.wire.openai_responses import responses
from orihon.context.wire.schemas import APIS, tools

__all__ = ["APIS", "anthropic", "gemini", "openai", "responses", "tools"]
