"""Maintenance of a store: list, search, copy, back up, clean, check and repair. The commands parse, call and print."""
