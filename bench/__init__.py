"""Benchmarks: `make bench` prints them all, `make bench ARGS="stores"` some."""

from __future__ import annotations

from pathlib import Path


def resident(field: str) -> float:
    """A figure of this process in MB, by its name in /proc."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6
