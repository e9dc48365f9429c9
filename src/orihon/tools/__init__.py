"""Aliases for two command names of the specification: `context_viewer` and `context_stats`."""
