"""The prompts, one file each, in Japanese and English; `config.yaml` can replace them."""

from __future__ import annotations

from functools import partial

from orihon._prompts import read

prompt = partial(read, __name__)
