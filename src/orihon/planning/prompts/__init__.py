"""What the model is told while it plans, one file each, in Japanese and English."""

from __future__ import annotations

from functools import partial

from orihon._prompts import read

prompt = partial(read, __name__)
