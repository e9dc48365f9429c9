"""Full-text search over a store, with an index that is updated whenever it is used."""

from __future__ import annotations

from orihon.ops.search.index import purge, update_index
from orihon.ops.search.query import SearchMatch, SearchQuery, SearchResult, search

__all__ = ["SearchMatch", "SearchQuery", "SearchResult", "purge", "search", "update_index"]
