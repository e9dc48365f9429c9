"""Inheritance: what a new task takes over from the last one on the same thing.

    search      which earlier run, and why not the others
    outline     what a task's row keeps for later runs: sections of text, and its tools
    block       summary and outlines as one quoted text that fits
    notice      the comment that says so
    consult     looking things up in that run, on demand
    prepare     all of it, for the engine
    sanitise    no credential and no name of a person or a machine gets through

An earlier run is data. It is quoted with its origin, it can never pose as an instruction, and nothing that is wrong
with it keeps a new task from starting.
"""

from orihon.inheritance.block import Block, block, cap
from orihon.inheritance.consult import consult
from orihon.inheritance.notice import notice
from orihon.inheritance.outline import Outline, Section, make_outline, read_outline
from orihon.inheritance.prepare import Handoff, from_search, prepare
from orihon.inheritance.search import Previous, Search, Skipped, may_inherit, search

__all__ = [
    "Block",
    "Handoff",
    "Outline",
    "Previous",
    "Search",
    "Section",
    "Skipped",
    "block",
    "cap",
    "consult",
    "from_search",
    "make_outline",
    "may_inherit",
    "notice",
    "prepare",
    "read_outline",
    "search",
]
