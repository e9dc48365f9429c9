"""Benchmarks: `make bench` prints them all, `make bench ARGS="stores"` some."""
