"""`python -m orihon` is the command `orihon`."""

from orihon.cli import main

main()
