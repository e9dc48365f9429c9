"""`python -m orihon.tools.context_viewer --uuid UUID [--messages] [--summaries] [--tools]` is `orihon show UUID …`."""

from __future__ import annotations

import argparse
import sys

from orihon.cli import main as orihon


def main(arguments: list[str] | None = None) -> None:
    """Run `orihon show` with these arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--uuid")
    known, rest = parser.parse_known_args(sys.argv[1:] if arguments is None else arguments)
    orihon(["show", *([known.uuid] if known.uuid is not None else []), *rest])


if __name__ == "__main__":
    main()
