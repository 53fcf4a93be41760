"""Products whose rows of K are gathered, beside cuBLAS: `python benchmarks/gathered.py --out FILE.json`.

Weights [M, K] of bf16 or f32 with vectors N:M@L, tokens [K, N], outputs [M, N]. Each candidate schedule is timed, and for bf16 the dense
product of Louver's own. Products of f32 run on CUDA cores, cuBLAS's too. A contender's first result is compared with float64 on some rows, by the library's bound. Graph replays are
interleaved; the median of the rounds counts. Operands are the same in each launch.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from louver.compile.plan.schedule import Schedule, list_rows
from louver.formats.dtypes import element_type
from louver.formats.lists import gathered_rows, picks
from louver.formats.pattern import Pattern
from louver.frontend.problem import Problem
from louver.ir.product import unit_of
from louver.isa.targets import Target, target
from louver.library.compiled import loaded
from louver.library.configure import METADATA, Demand, TileShape, deepest
from louver.library.forms import Operand
from louver.library.launch import Launcher
from louver.library.numerics import accumulation, compare
from louver.library.ranges import Cutting
from louver.measure.graph import prepare
from louver.measure.machine import header, require_torch
from louver.measure.operands import placed, torch_dtype
from louver.measure.protocol import Protocol, interleave, median
from louver.measure.record import write_record
from louver.measure.schedules import rows_of
from louver.runtime.device import Device, require_device

SHAPES = ((4096, 4096, 4096), (4096, 8192, 8192), (28672, 4096, 4096), (4096, 512, 4096))
"""M, N, K."""

PATTERNS = ("4:8", "3:8", "2:8", "1:8", "6:8")

LENGTHS = (128, 64)

DTYPES = ("bf16", "f32")

SAMPLE = 64
"""Rows of the output that are compared."""

PROTOCOL = Protocol(rounds=5, burst_seconds=0.05)


@dataclass(frozen=True, slots=True)
class Drawn:
    """values [M, kept] and windows [windows, kept] as `gathered_rows` takes them; dense: the same on the GPU and on the host, [M, K]."""

    pattern: Pattern
    values: np.ndarray[Any, Any]
    windows: np.ndarray[Any, Any]
    dense: Any
    dense_on_host: np.ndarray[Any, Any]


def drawn(torch: Any, rng: np.random.Generator, m: int, k: int, pattern: Pattern, dtype: str) -> Drawn:
    """Normal values, in rows of K that are drawn at random for each window."""
    windows, groups = -(-m // pattern.length), pattern.groups(k)
    order = np.argsort(rng.random((windows, groups, pattern.m)), axis=2)[:, :, : pattern.n]
    rows = (np.sort(order, axis=2) + np.arange(groups)[:, None] * pattern.m).reshape(windows, -1)
    element = element_type(dtype)
    values = torch.randn(m, rows.shape[1], device="cuda", dtype=torch_dtype(torch, dtype))
    index = torch.from_numpy(np.repeat(rows, pattern.length, axis=0)[:m]).cuda()
    dense = torch.zeros(m, groups * pattern.m, device="cuda", dtype=values.dtype).scatter_(1, index, values)
    dense = dense[:, :k].contiguous()
    raw = torch.int16 if element.bytes == 2 else torch.int32
    hosts = [each.cpu().view(raw).numpy().view(element.numpy) for each in (values, dense)]
    return Drawn(pattern, hosts[0], rows, dense, hosts[1])


TILES = {
    "bf16": ((128, 256, 2, 1), (128, 192, 2, 1), (128, 128, 2, 1), (256, 128, 2, 1), (64, 256, 1, 1), (64, 128, 1, 1)),
    "f32": ((256, 128, 2, 1), (128, 128, 2, 1), (128, 128, 1, 2), (128, 64, 2, 1), (64, 128, 1, 1), (64, 64, 1, 2)),
}
"""Rows, columns, consumers, and CTAs on an SM."""

SHORT = 16
"""Elements of K of a short step, beside the library's own."""


def schedules(problem: Problem, machine: Target, sizes: tuple[int, int, int]) -> Iterator[Schedule]:
    """Tiles with rings as deep as they can be, by gathered rows and by picked ones, whole and, where that cuts any, in ranges of K."""
    demand = Demand.of_problem(problem)
    ways = (
        (METADATA[0], None),
        *((each, step) for each in METADATA[1:] for step in (None, SHORT) if problem.unit == "fma"),
    )
    for (m, n, consumers, resident), (metadata, step) in itertools.product(TILES[problem.a], ways):
        shape = TileShape(m, n, consumers, {2: 64}, dict.fromkeys((16, 32), 16), resident=resident, step=step)
        try:
            schedule = deepest(problem, shape.schedule(demand, bulk=True, metadata=metadata), machine)
        except ValueError:
            continue
        yield schedule
        cut = schedule.changed(work="ranges")
        if Cutting.of(demand, cut).best(*sizes[:2], demand.depth(sizes[2], metadata), 1, require_device().sm_count).cut:
            yield cut


def operand(given: Drawn, problem: Problem, schedule: Schedule, place: Device) -> Operand:
    """The arrays that the product reads of the weight."""
    if problem.pattern is None:
        # No metadata: a dense product is given an address that it does not read.
        return placed(given.dense_on_host, np.zeros(4, np.uint32), place.ordinal)
    if schedule.ring.metadata != "global":
        picked = picks(given.windows, given.pattern, len(given.values), schedule.tile.k)
        return placed(given.values, picked, place.ordinal)
    rows, k = list_rows(problem.pattern, schedule), given.dense.shape[1]
    made = gathered_rows(given.values, given.windows, given.pattern.length, k, rows)
    return placed(made.values, made.lists, place.ordinal)


def contenders(
    torch: Any, given: Drawn, b: Any, y: Any, place: Device, dtype: str
) -> Iterator[tuple[str, Callable[[int], object]]]:
    """cuBLAS, and each schedule of the dense and of the gathered product."""
    m, k = given.dense.shape
    yield "cublas", lambda _: torch.mm(given.dense, b, out=y)
    # A dense product of f32 reads tf32.
    for pattern in (None, str(given.pattern)) if dtype == "bf16" else (str(given.pattern),):
        problem = Problem("matmul", dtype, dtype, dtype, pattern=pattern, b_layout="n_major")
        for schedule in schedules(problem, target(place.target), (m, b.shape[1], k)):
            cutting = Cutting.of(Demand.of_problem(problem), schedule) if schedule.cuts else None
            launcher = Launcher(
                loaded(problem, schedule, place.ordinal), operand(given, problem, schedule, place), (m, k), cutting
            )
            dense, out = rows_of(b), rows_of(y)
            bound = launcher.bound(launcher.sized(b.shape[1], dense, out), dense, out)

            # The launcher holds the operand's memory, a bound launch only its address.
            def call(_: int, held: Any = (launcher, bound)) -> None:
                held[1].on(torch.cuda.current_stream().cuda_stream)()

            yield f"{'dense' if pattern is None else 'gathered'} {schedule}", call


def is_right(torch: Any, given: Drawn, b: Any, y: Any, dtype: str) -> bool:
    """Compare some rows of the output with float64."""
    rows = torch.randint(len(y), (SAMPLE,), device="cuda")
    a, dense = given.dense[rows].double(), b.double()
    reference, magnitude = (a @ dense).cpu().numpy(), (a.abs() @ dense.abs()).cpu().numpy()
    how = accumulation(dtype, unit=unit_of(str(given.pattern), dtype))
    return compare(y[rows].double().cpu().numpy(), reference, magnitude, len(b), dtype, how).ok


def measure(
    torch: Any, rng: np.random.Generator, shape: tuple[int, int, int], pattern: Pattern, place: Device, dtype: str
) -> dict[str, Any]:
    """A row of the record: microseconds of each contender."""
    m, n, k = shape
    given, b = (
        drawn(torch, rng, m, k, pattern, dtype),
        torch.randn(k, n, device="cuda", dtype=torch_dtype(torch, dtype)),
    )
    y = torch.empty(m, n, device="cuda", dtype=b.dtype)
    calls = dict(contenders(torch, given, b, y, place, dtype))
    for name, call in calls.items():
        y.fill_(math.nan)
        call(0)
        if not is_right(torch, given, b, y, dtype):
            raise ArithmeticError(f"{name} computes wrongly at {m}x{n}x{k}, {pattern}")
    bursts = {name: prepare(torch, call, 1, PROTOCOL).burst for name, call in calls.items()}
    times = interleave(bursts, PROTOCOL.rounds, lambda: time.sleep(PROTOCOL.pause_seconds))
    us = {name: round(median(taken) * 1e6, 3) for name, taken in times.items()}
    return {"shape": [m, n, k], "dtype": dtype, "pattern": str(pattern), "us": us}


def line(row: dict[str, Any]) -> str:
    """The best of each kind, as speed beside cuBLAS."""
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
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="L, separated by commas")
    parser.add_argument(
        "--shapes", default=",".join("x".join(map(str, each)) for each in SHAPES), help="MxNxK, separated by commas"
    )
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which no shape is begun")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch, place, begin = require_torch(), require_device(), time.monotonic()
    rng, rows = np.random.default_rng(0), list[dict[str, Any]]()
    wanted = [f"{p}@{length}" for length in given.lengths.split(",") for p in given.patterns.split(",")]
    for shape in (tuple(map(int, each.split("x"))) for each in given.shapes.split(",")):
        for text in wanted:
            if time.monotonic() - begin > given.budget:
                break
            rows.append(measure(torch, rng, shape, Pattern.parse(text), place, given.dtype))
            print(line(rows[-1]), flush=True)
            record = {"kind": "gathered", **header(torch), "protocol": __doc__, "rows": rows}
            write_record(given.out, record)


if __name__ == "__main__":
    main()
