"""What the model is told while it plans, one file each, in Japanese and English."""

from __future__ import annotations

from functools import cache


@cache
def prompt(name: str, language: str) -> str:
    """The text of a prompt."""
    from importlib import resources  # noqa: PLC0415 - it brings a megabyte of modules along

    return resources.files(__name__).joinpath(f"{name}.{language}.txt").read_text(encoding="utf-8").strip()
