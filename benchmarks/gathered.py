"""Products with gathered rows of K, and cuBLAS: `python benchmarks/gathered.py --out FILE.json`.

Weights [M, K] have vectors N:M@L or V:N:M. Tokens are [K, N], outputs [M, N]: bf16 of bf16 and e4m3, f32 of f32, s32 of
s8. Each candidate schedule is timed, and for bf16 also Louver's dense product. f32 runs on CUDA cores, also in cuBLAS.
8-bit tokens are transposed for cuBLAS, untimed, because it takes only that layout. Each contender's first result is
compared with float64 on some rows, by the library's bound. Graph replays are interleaved, and the median of the rounds
counts. All launches use the same operands.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from louver.choose.configure import deepest
from louver.choose.demand import Demand
from louver.choose.ranges import Cutting
from louver.choose.tile_shapes import METADATA, TileShape
from louver.compile.plan.schedule import Schedule, steps_of
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.frontend.problem import Problem
from louver.isa.targets import Target, target
from louver.measure.contenders import DENSE_CALLS, dense_product
from louver.measure.machine import header, require_torch
from louver.measure.operands import converted, placed, torch_dtype
from louver.measure.protocol import Protocol
from louver.measure.record import write_record
from louver.measure.vectors import Drawn, Multiplied, drawn, launched, microseconds, on_host
from louver.runtime.device import Device, require_device

SHAPES = ((4096, 4096, 4096), (4096, 8192, 8192), (28672, 4096, 4096), (4096, 512, 4096))
"""M, N, K."""

PATTERNS = ("4:8", "3:8", "2:8", "1:8", "6:8")

LENGTHS = (128, 64)

OUTPUTS = {"bf16": "bf16", "f32": "f32", "e4m3": "bf16", "s8": "s32"}
"""Element types of outputs by element types of operands."""

PROTOCOL = Protocol(rounds=5, burst_seconds=0.05)


SHORT = 0.5
"""A short step, in multiples of the library's."""

TENSOR_CORES = (
    (128, 256, 2, 1, 1),
    (128, 256, 2, 1, SHORT),
    (128, 192, 2, 1, 1),
    (128, 192, 2, 1, SHORT),
    (128, 128, 2, 1, 1),
    (256, 128, 2, 1, 1),
    (256, 128, 2, 1, SHORT),
    (64, 256, 1, 1, 1),
    (64, 128, 1, 1, 1),
    (128, 64, 2, 1, 1),
    (64, 64, 1, 1, 1),
    (64, 64, 1, 1, 2),
)

TILES = dict.fromkeys(OUTPUTS, TENSOR_CORES) | {
    "f32": (
        (256, 128, 2, 1, 1),
        (128, 128, 2, 1, 1),
        (128, 128, 1, 2, 1),
        (128, 64, 2, 1, 1),
        (64, 128, 1, 1, 1),
        (64, 64, 1, 2, 1),
    )
}
"""Rows, columns, consumers, CTAs on an SM, and the step in multiples of the library's."""

FEW = 64
"""On tensor cores, tiles up to this width are for up to this number of tokens, and wider tiles for more tokens."""


def schedules(problem: Problem, machine: Target, sizes: tuple[int, int, int]) -> Iterator[Schedule]:
    """Tiles with most stages, for gathered and for picked rows, uncut and in ranges of K if those cut any tile."""
    demand = Demand.of_problem(problem)
    others = METADATA[1:] if problem.unit == "fma" or demand.selection.lifted else ()
    ways = ((METADATA[0], 1), *itertools.product(others, (1, SHORT) if problem.unit == "fma" else (1,)))
    for (m, n, consumers, resident, steps), (metadata, shorter) in itertools.product(TILES[problem.a], ways):
        if problem.unit == "wgmma" and (n <= FEW) != (sizes[1] <= FEW):
            continue
        # Short steps leave room for one more stage if few columns are staged.
        staging = {2: 64, 4: 32} if steps >= 1 else {2: 32, 4: 16}
        shape = TileShape(m, n, consumers, staging, resident=resident, steps=steps * shorter)
        try:
            schedule = deepest(problem, shape.schedule(demand, bulk=True, metadata=metadata), machine)
        except ValueError:
            continue
        if schedule.tile.k not in steps_of(problem.a, problem.unit, lifted=demand.selection.lifted):
            continue
        yield schedule
        cut = schedule.changed(work="ranges")
        if Cutting.of(demand, cut).best(*sizes[:2], demand.depth(sizes[2], metadata), 1, require_device().sm_count).cut:
            yield cut


def contenders(torch: Any, given: Drawn, b: Any, y: Any, place: Device, dtype: str) -> Iterator[tuple[str, Multiplied]]:
    """cuBLAS, and each schedule of the dense and of the gathered product."""
    m, k = given.dense.shape
    yield "cublas", Multiplied(given.dense, cublas(torch, given.dense, b, y, dtype), y)
    # A dense f32 product would read tf32, and a dense 8-bit one tokens [N, K].
    for pattern in (None, str(given.pattern)) if dtype == "bf16" else (str(given.pattern),):
        problem = Problem("matmul", dtype, dtype, OUTPUTS[dtype], pattern=pattern, b_layout="n_major")
        for schedule in schedules(problem, target(place.target), (m, b.shape[1], k)):
            if pattern is None:
                # A dense product does not read the metadata of this address.
                operand = placed(on_host(torch, given.dense, dtype), np.zeros(4, np.uint32), place.ordinal)
            else:
                operand = given.operand(schedule, place)
            name = f"{'dense' if pattern is None else 'gathered'} {schedule}"
            yield name, launched(torch, operand, problem, schedule, place, given.dense, b, y)


def cublas(torch: Any, weight: Any, b: Any, y: Any, dtype: str) -> Callable[[int], object]:
    """The dense product weight [M, K] @ b [K, N], by PyTorch."""
    multiply = dense_product(torch, DENSE_CALLS[dtype, OUTPUTS[dtype]], y)
    if element_type(dtype).bits == 8:
        b = b.view(torch.uint8).t().contiguous().view(b.dtype).t()
    return lambda _: multiply(weight, b)


def measure(
    torch: Any, generator: Any, shape: tuple[int, int, int], pattern: Pattern, place: Device, dtype: str
) -> dict[str, Any]:
    """A row of the record: microseconds of each contender."""
    m, n, k = shape
    given = drawn(torch, generator, m, k, pattern, dtype)
    b = converted(torch, torch.randn(k, n, device="cuda"), dtype)
    y = torch.empty(m, n, device="cuda", dtype=torch_dtype(torch, OUTPUTS[dtype]))
    us = microseconds(torch, dict(contenders(torch, given, b, y, place, dtype)), b, dtype, str(pattern), PROTOCOL)
    return {"shape": [m, n, k], "dtype": dtype, "pattern": str(pattern), "us": us}


def line(row: dict[str, Any]) -> str:
    """Speed relative to cuBLAS of the best contender of each kind."""
    us = row["us"]
    best = {
        kind: min((time, name) for name, time in us.items() if name.startswith(kind))
        for kind in ("dense", "gathered")
        if any(name.startswith(kind) for name in us)
    }
    parts = [f"{kind} {us['cublas'] / time:.2f} ({name})" for kind, (time, name) in best.items()]
    return f"{row['shape']} {row['dtype']} {row['pattern']}: x cuBLAS {', '.join(parts)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patterns", default=",".join(PATTERNS), help="N:M, separated by commas")
    parser.add_argument(
        "--lengths", default=",".join(map(str, LENGTHS)), help="L, or VL for V:N:M, separated by commas"
    )
    parser.add_argument(
        "--shapes", default=",".join("x".join(map(str, each)) for each in SHAPES), help="MxNxK, separated by commas"
    )
    parser.add_argument(
        "--dtype",
        type=lambda name: element_type(name, OUTPUTS).name,
        default="bf16",
        help=f"of operands: {', '.join(OUTPUTS)}",
    )
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which no shape is begun")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch, place, begin = require_torch(), require_device(), time.monotonic()
    generator, rows = torch.Generator(device="cuda").manual_seed(0), list[dict[str, Any]]()
    wanted = [f"{p}@{length}" for length in given.lengths.split(",") for p in given.patterns.split(",")]
    for shape in (tuple(map(int, each.split("x"))) for each in given.shapes.split(",")):
        for text in wanted:
            if time.monotonic() - begin > given.budget:
                break
            rows.append(measure(torch, generator, shape, Pattern.parse(text), place, given.dtype))
            print(line(rows[-1]), flush=True)
            record = {"kind": "gathered", **header(torch), "protocol": __doc__, "rows": rows}
            write_record(given.out, record)


if __name__ == "__main__":
    main()
