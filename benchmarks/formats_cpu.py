"""Times prune, check, compress and dense of a float16 matrix on one CPU core: `python benchmarks/formats_cpu.py`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

import louver

T = TypeVar("T")


def timed(name: str, work: Callable[[], T], repeats: int) -> T:
    """Print the least time of `repeats` runs in seconds."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    print(f"{name:10} {best:6.3f} s")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--columns", type=int, default=14336)
    parser.add_argument("--pattern", default="2:4")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    weight = np.random.default_rng(0).standard_normal((args.rows, args.columns), np.float32).astype(np.float16)
    pruned = timed("prune", lambda: louver.prune(weight, args.pattern), args.repeats)
    report = timed("check", lambda: louver.check(pruned, args.pattern), args.repeats)
    sparse = timed("compress", lambda: louver.compress(pruned, args.pattern), args.repeats)
    dense = timed("dense", sparse.dense, args.repeats)
    if not report.ok or not np.array_equal(dense.view(np.uint16), pruned.view(np.uint16)):
        raise SystemExit("the dense matrix did not come back")


if __name__ == "__main__":
    main()
