"""Texts that are files of a package, one for each language: whole prompts, and tables of short texts."""

from __future__ import annotations

from functools import cache


@cache
def read(package: str, name: str, language: str) -> str:
    """Return the text of a file."""
    from importlib import resources  # noqa: PLC0415 - it brings a megabyte of modules along

    return resources.files(package).joinpath(f"{name}.{language}.txt").read_text(encoding="utf-8")


@cache
def read_table(package: str, name: str, language: str) -> dict[str, str]:
    """Return the texts of a file that has one `name = text` per line."""
    lines = read(package, name, language).splitlines()
    return dict(line.split(" = ", 1) for line in lines if line)
