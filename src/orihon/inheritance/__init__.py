"""Inheritance: what a new task takes over from the last one on the same thing.

    search      which earlier run, and why not the others
    block       its summary and its plan as one quoted text that fits
    notice      the comment that says so
    consult     looking things up in that run, on demand
    prepare     all of it, for the engine; outline_of, for a task that ends
    sanitise    no credential and no name of a person or a machine gets through

An earlier run is data. It is quoted with its origin, it can never pose as an instruction, and nothing that is wrong
with it keeps a new task from starting.
"""

from orihon.inheritance.block import Block, block, cap
from orihon.inheritance.consult import consult
from orihon.inheritance.notice import notice
from orihon.inheritance.prepare import Handoff, from_search, outline_of, prepare
from orihon.inheritance.search import Previous, Search, Skipped, may_inherit, search

__all__ = [
    "Block",
    "Handoff",
    "Previous",
    "Search",
    "Skipped",
    "block",
    "cap",
    "consult",
    "from_search",
    "may_inherit",
    "notice",
    "outline_of",
    "prepare",
    "search",
]
