"""What the agent is told, one file each, in Japanese and English."""

from __future__ import annotations

from functools import partial

from orihon._prompts import read

prompt = partial(read, __name__)
