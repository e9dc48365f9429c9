"""Full text over everything in a store: an index that is filled when it is used, and what is found in it."""

from __future__ import annotations

from orihon.ops.search.fill import index_some, purge
from orihon.ops.search.find import Found, Place, Wanted, search

__all__ = ["Found", "Place", "Wanted", "index_some", "purge", "search"]
