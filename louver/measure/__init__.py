"""Benchmarks: contenders for one problem, timed side by side in one process, and their record."""
