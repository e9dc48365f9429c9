"""Adapters for agent frameworks. Each module needs the extra of its name and is imported only by those who use it."""
