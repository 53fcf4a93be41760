"""The costs of `louver.jit`: `python benchmarks/user_kernel.py --out FILE.json`; `--start` alone needs no GPU.

Speed: a user's tensor-descriptor kernel of 128×256 tiles and `louver.linear` on the same operands, timed as in `louver
bench gemm` (bursts in turns, medians). Results are compared with float64 first. Start: from a kernel and its arguments
to a cubin, after the import of Triton. New processes have Python's bytecode and a separate cache directory, empty or
filled by the previous process. Host: from the call to its return, while the GPU works, as in `louver bench host`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import louver
from louver.user.arguments import classify
from louver.user.compiled import Wanted, record_of
from louver.user.hints import REGISTER_TILES, Hints
from louver.user.source import TritonSource

sys.path.insert(0, str(Path(__file__).resolve().parent))

SHAPE = (4096, 8192, 8192)
TILES = {"f16": {"BM": 128, "BN": 256, "BK": 64}, "e4m3": {"BM": 128, "BN": 256, "BK": 128}}
ROUNDS = 5

HINTS = {"linear": {}, "linear by register tiles": {"family": REGISTER_TILES}}
"""Hints of the compiled kernels."""


def wanted(name: str) -> Wanted:
    """The kernel for arguments of its usual types."""
    import triton_kernels

    s = louver.compress(louver.prune(np.ones((128, 64), np.float16), "2:4"), "2:4")
    array = np.ones((128, 128), np.float16)
    given = {"y": array, "w": s, "x": array, "M": 4096, "N": 8192, "K": 8192, **TILES["f16"]}
    source = TritonSource(triton_kernels.linear)
    return Wanted(source, classify(source.parameters, given).kind, Hints.of(HINTS[name]), "bulk", "sm_90a")


def take(name: str) -> float:
    """Seconds from a kernel and its arguments to a cubin, in this process."""
    asked = wanted(name)
    begin = time.perf_counter()
    record_of(asked)
    return time.perf_counter() - begin


def start_times(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Median seconds with an empty cache and with a full one, by kernel. Raises RuntimeError if a process fails."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as bytecode:
        for name in HINTS:
            seconds: dict[str, list[float]] = {"cold": [], "warm": []}
            for number in range(rounds + 1):
                with tempfile.TemporaryDirectory() as directory:
                    taken = [_process(name, directory, bytecode) for _ in seconds]
                # The first round compiles Python's bytecode, which an installed package has.
                for state, each in zip(seconds, taken if number else (), strict=False):
                    seconds[state].append(each)
            rows.append(_medians(name, seconds))
    return rows


def _medians(name: str, seconds: dict[str, list[float]]) -> dict[str, Any]:
    return {
        "kernel": name,
        **{f"{state}_ms": round(statistics.median(taken) * 1e3, 2) for state, taken in seconds.items()},
    }


def _process(name: str, directory: str, bytecode: str) -> float:
    given = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, __file__, "--take", name]
    # The timed process imports no more than a user's.
    from louver.measure.start import in_new_process

    return in_new_process(command, directory, {**given, "PYTHONPYCACHEPREFIX": bytecode})


def speed(torch: Any, dtype: str) -> tuple[dict[str, Any], dict[str, float]]:
    """A user's kernel and the library's product: a row of times, and host microseconds of the user's call."""
    import triton_kernels

    from louver.measure.contenders import Contender, ours
    from louver.measure.host import batch_times, summary
    from louver.measure.operands import make_operands, verify
    from louver.measure.problems import GemmProblem
    from louver.measure.protocol import Protocol, median, spread
    from louver.measure.sustained import prepare, take_turns

    m, n, k = SHAPE
    protocol, problem = Protocol(), GemmProblem(m, n, k, dtype, "f16")
    operands = make_operands(torch, problem, protocol.sets(problem.compressed_bytes))
    kernel, tile = louver.jit(triton_kernels.linear), TILES[dtype]
    grid = (-(-m // tile["BM"]), -(-n // tile["BN"]))

    def call(index: int) -> Any:
        s = operands.sparse[index % operands.sets]
        kernel[grid](operands.y, s, operands.x, m, n, k, BM=tile["BM"], BN=tile["BN"], BK=tile["BK"])
        return operands.y

    contenders = {"user": Contender("user", call, "tokens", {}), "library": ours(operands)}
    for name, contender in contenders.items():
        operands.poison()
        if not verify(torch, operands, 0, contender.result(0)).ok:
            raise ArithmeticError(f"the {name}'s kernel is wrong on {problem}")
    loads = {name: prepare(torch, each.call, operands.sets, protocol) for name, each in contenders.items()}
    times = take_turns(loads, protocol)
    row: dict[str, Any] = {"shape": list(SHAPE), "dtype": dtype, "out": "f16", "tile": tile}
    row |= {f"{name}_us": round(median(taken) * 1e6, 3) for name, taken in times.items()}
    row |= {f"{name}_spread": round(spread(taken), 4) for name, taken in times.items()}
    row["share_of_library"] = round(row["library_us"] / row["user_us"], 4)
    row["TFLOP/s"] = round(2 * m * n * k / row["user_us"] / 1e6, 1)
    synchronize = torch.cuda.synchronize
    host = summary("jit", batch_times(lambda: call(0), synchronize, 16, 100))
    return row, {"us": round(host.us, 3), "least_us": round(host.least_us, 3), "p90_us": round(host.p90_us, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--start", action="store_true", help="only the times of new processes, without a GPU")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--take", metavar="KERNEL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.take:
        import triton_kernels  # noqa: F401 - Triton's import is not timed

        print(take(args.take))
        return
    started = start_times(args.rounds)
    for each in started:
        print(
            f"{each['kernel']}: {each['cold_ms']:.0f} ms with an empty cache, {each['warm_ms']:.1f} ms with a full one"
        )
    if args.start:
        return
    from louver.measure.machine import host_header, require_torch
    from louver.measure.record import write_record

    torch = require_torch()
    rows: list[dict[str, Any]] = []
    host: dict[str, Any] = {}
    for dtype in TILES:
        row, host[dtype] = speed(torch, dtype)
        rows.append(row)
        print(
            f"{dtype}: {row['user_us']:.1f} µs, {row['share_of_library']:.1%} of the library's speed; {host[dtype]['us']:.1f} µs of host time"
        )
    if args.out:
        versions = {"triton": sys.modules["triton"].__version__}
        header = host_header(torch)
        header["versions"] |= versions
        record = {"kind": "user kernel", **header, "protocol": __doc__, "rows": rows, "start": started, "host": host}
        print(f"wrote {write_record(args.out, json.loads(json.dumps(record)))}")


if __name__ == "__main__":
    main()
