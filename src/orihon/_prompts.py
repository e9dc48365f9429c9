"""Prompts are files, one for each language, in the package of those who use them."""

from __future__ import annotations

from functools import cache


@cache
def read(package: str, name: str, language: str) -> str:
    """The text of a prompt."""
    from importlib import resources  # noqa: PLC0415 - it brings a megabyte of modules along

    return resources.files(package).joinpath(f"{name}.{language}.txt").read_text(encoding="utf-8")
