"""`python -m bench [NAME]…`: run the benchmarks and print their tables as Markdown."""

from __future__ import annotations

import importlib
import platform
import sys

NAMES = [
    "tokens",
    "masking",
    "channels",
    "stores",
    "postgres",
    "window",
    "engine",
    "loop",
    "memory",
    "agent",
    "conversation",
    "ops",
    "care",
    "imports",
    "search",
    "checkpoints",
    "fidelity",
]


def main() -> None:
    """Run the benchmarks that were named, or all."""
    print(f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}")
    names, sys.argv[1:] = sys.argv[1:] or NAMES, []
    for name in names:
        if name not in NAMES:
            sys.exit(f"There is no benchmark {name!r}; there are {', '.join(NAMES)}.")
        print(f"\n## {name}\n")
        importlib.import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
