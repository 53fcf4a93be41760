"""Benchmarks: contenders for one problem, timed side by side in one process, and the record of it."""
