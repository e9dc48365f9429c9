"""`python -m orihon.tools.context_stats [--summary] [--user USER] [--status failed] …` is `orihon stats …`."""

from __future__ import annotations

import sys

from orihon.cli import main as orihon


def main(arguments: list[str] | None = None) -> None:
    """Run `orihon stats` with these arguments."""
    orihon(["stats", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    main()
