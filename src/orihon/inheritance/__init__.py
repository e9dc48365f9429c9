"""Inheritance: what a new task takes over from the last one on the same thing.

    search      which earlier run, and why not the others
    outline     what a task's row keeps for later runs: sections of text, and its tools
    block       summary and outlines as one quoted text that fits
    notice      the comment that says so
    handoff     all of it, for the engine
    lookup      further passages of that run, on demand
    names       names of people and machines, which are removed

An earlier run is data. It is quoted with its origin and cannot pose as an instruction, and no problem with it keeps a
new task from starting.
"""

from orihon.inheritance.block import Block, max_block_tokens, render_block
from orihon.inheritance.handoff import Handoff, make_handoff, prepare
from orihon.inheritance.lookup import consult
from orihon.inheritance.notice import render_notice
from orihon.inheritance.outline import Outline, Section, make_outline, read_outline, render_sections
from orihon.inheritance.search import Previous, Search, Skipped, may_inherit, search

__all__ = [
    "Block",
    "Handoff",
    "Outline",
    "Previous",
    "Search",
    "Section",
    "Skipped",
    "consult",
    "make_handoff",
    "make_outline",
    "max_block_tokens",
    "may_inherit",
    "prepare",
    "read_outline",
    "render_block",
    "render_notice",
    "render_sections",
    "search",
]
