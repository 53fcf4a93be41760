"""Times of candidate schedules over published shapes: `python benchmarks/schedule_times.py --dtype f16,e4m3 --out FILE.json`.

The model that chooses schedules is fitted to this record. Each weight of `WEIGHTS` is multiplied by N tokens for each N of `TOKENS`, by
each candidate of `candidates`. A candidate's first result is compared with float64 by the library's bound. Graph replays are
interleaved; the median of the rounds counts. A graph walks through copies of one compressed weight, at least 150 MB, at most 16
copies, so that they leave the L2 cache.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import Target, target
from louver.library.compiled import loaded, record_of
from louver.library.configure import Demand, choose, deepest
from louver.library.launch import Launcher
from louver.library.operand import DeviceOperand, Form, form_of
from louver.library.ranges import Cutting
from louver.library.state import TensorState
from louver.measure.graph import prepare
from louver.measure.machine import header, require_torch
from louver.measure.operands import Operands, make_operands
from louver.measure.problems import TOKENS_MULTIPLE, GemmProblem, parse_dtypes
from louver.measure.protocol import Protocol, interleave, median
from louver.measure.record import write_record
from louver.measure.schedules import rows_of
from louver.measure.verify import verify
from louver.runtime.device import Device, require_device
from louver.runtime.memory import DeviceBuffer

WEIGHTS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "Llama 3 8B": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "Llama 3 70B": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
    "Qwen2.5 7B": ((4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)),
    "Qwen2.5 32B": ((7168, 5120), (5120, 5120), (55296, 5120), (5120, 27648)),
    "Gemma 2 9B": ((8192, 3584), (3584, 4096), (28672, 3584), (3584, 14336)),
    "Phi-3 mini": ((9216, 3072), (3072, 3072), (16384, 3072), (3072, 8192)),
    "Llama 3.2 1B": ((3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192)),
    "BERT large": ((3072, 1024), (1024, 1024), (4096, 1024), (1024, 4096)),
}
"""Weights [M, K] of a layer's products: attention's inputs (joined) and output, the feed-forward's inputs (joined) and output."""

TOKENS = (1, 16, 64, 256, 1024, 4096)

PROTOCOL = Protocol(
    rounds=3,
    burst_seconds=0.012,
    pause_seconds=0.01,
    launches=8,
    graph_seconds=0.002,
    rotation_bytes=150_000_000,
    most_sets=16,
)

WIDE: tuple[Mapping[str, Any], ...] = (
    {"tile_m": 128, "tile_n": 128, "staging": None},
    {"tile_m": 128, "tile_n": 256, "staging": 128, "raster": 16, "l2": "values"},
    {"tile_m": 256, "tile_n": 128, "staging": None, "raster": 16},
    {"tile_m": 256, "tile_n": 192, "staging": 96, "raster": 12, "l2": "values"},
)
MIDDLE: tuple[Mapping[str, Any], ...] = (
    {"tile_m": 128, "tile_n": 64, "staging": None},
    {"tile_m": 128, "tile_n": 128, "staging": None},
    {"tile_m": 128, "tile_n": 256, "staging": 128, "raster": 16, "l2": "values"},
    {"tile_m": 64, "tile_n": 128, "consumers": 1, "staging": None},
)
FEW: tuple[Mapping[str, Any], ...] = ({"tile_m": 128}, {"tile_m": 64, "consumers": 1})


def candidates(problem: Problem, m: int, n: int, k: int, machine: Target, sm_count: int) -> Iterator[Schedule]:
    """Schedules worth a time at N tokens: tiles, whole or cut along K, metadata by registers or in the stage."""
    base = choose(problem, m, n, machine, sm_count, aligned_output=True)
    tiles, ways = (
        (FEW, ("global", "stage")) if n <= 64 else (MIDDLE, ("global", "stage")) if n < 512 else (WIDE, ("global",))
    )
    for tile in tiles:
        for metadata in ways:
            try:
                changed = deepest(problem, base.changed(**{**tile, "metadata": metadata}), machine)
            except ValueError:
                continue
            yield changed
            cut = changed.changed(work="ranges")
            if Cutting.of(Demand.of_problem(problem), cut).best(m, n, k, 1, sm_count).cut:
                yield cut


def copies(operand: DeviceOperand, sets: int) -> list[DeviceOperand]:
    """The operand and others with the same bytes elsewhere."""

    def copied(buffer: DeviceBuffer) -> DeviceBuffer:
        made = DeviceBuffer(buffer.nbytes, ordinal=buffer.ordinal)
        made.write(buffer.read())
        return made

    return [operand] + [
        replace(operand, values=copied(operand.values), positions=copied(operand.positions)) for _ in range(sets - 1)
    ]


def repeated(rows: Any) -> Any:
    """The rows, or copies of one row, as many as a measured problem has at least."""
    return rows.repeat(TOKENS_MULTIPLE, 1) if len(rows) == 1 else rows


def checked(x: Any, y: Any, drawn: Operands) -> Operands:
    """Operands of a check: those drawn, with so many tokens."""
    x = repeated(x)
    return replace(drawn, problem=replace(drawn.problem, n=len(x)), x=x, y=repeated(y))


def time_weight(
    torch: Any, m: int, k: int, dtype: str, place: Device, tokens: tuple[int, ...]
) -> Iterator[dict[str, Any]]:
    """A row for each N."""
    problem = Problem("linear", a=dtype, b=dtype, out="f16" if dtype != "bf16" else "bf16")
    machine = target(place.target)
    sets = PROTOCOL.sets(GemmProblem(m, 16, k, dtype).compressed_bytes)
    drawn = make_operands(torch, GemmProblem(m, max(tokens), k, dtype, problem.out), 1)
    s = drawn.sparse[0]
    held: dict[Form, list[DeviceOperand]] = {}
    for n in tokens:
        x, y = drawn.x[:n], drawn.y[:n]
        dense, result = rows_of(x), rows_of(y)
        calls: dict[Schedule, Any] = {}
        for schedule in candidates(problem, m, n, k, machine, place.sm_count):
            form = form_of(schedule, s)
            if form not in held:
                held[form] = copies(s.derived.of(TensorState).operand(s, 0, form), sets)
            cutting = Cutting.of(Demand.of_problem(problem), schedule) if schedule.cuts else None
            kernel = loaded(problem, schedule, 0)
            launchers = [Launcher(kernel, each, (m, k), cutting) for each in held[form]]
            bound = [each.bound(each.sized(n, dense, result), dense, result) for each in launchers]

            def call(index: int, bound: list[Any] = bound) -> Any:
                bound[index % len(bound)].on(torch.cuda.current_stream().cuda_stream)()

            y.fill_(float("nan"))
            call(0)
            if not verify(torch, checked(x, y, drawn), 0, repeated(y)).ok:
                raise ArithmeticError(f"{schedule} computes wrongly at {m}x{n}x{k} {dtype}")
            calls[schedule] = call
        bursts = {str(i): prepare(torch, call, sets, PROTOCOL).burst for i, call in enumerate(calls.values())}
        times = interleave(bursts, PROTOCOL.rounds, lambda: time.sleep(PROTOCOL.pause_seconds))
        yield {
            "shape": [m, n, k],
            "dtype": dtype,
            "times": [
                {"schedule": schedule.flat(), "us": round(median(times[str(i)]) * 1e6, 3)}
                for i, schedule in enumerate(calls)
            ],
        }


def compile_all(problems: list[tuple[Problem, Schedule]], name: str) -> None:
    """Compile side by side into the cache."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(record_of, *zip(*problems, strict=True), [name] * len(problems)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="f16,e4m3")
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which no weight is begun")
    parser.add_argument("--models", default=",".join(WEIGHTS))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch, place, begin = require_torch(), require_device(), time.monotonic()
    wanted = [(d, w) for model in given.models.split(",") for w in WEIGHTS[model] for d in parse_dtypes(given.dtype)]
    kernels = dict.fromkeys(
        (problem, schedule)
        for dtype, (m, k) in wanted
        for n in TOKENS
        for problem in [Problem("linear", a=dtype, b=dtype, out="f16" if dtype != "bf16" else "bf16")]
        for schedule in candidates(problem, m, n, k, target(place.target), place.sm_count)
    )
    compile_all(list(kernels), place.target)
    print(f"{len(kernels)} kernels compiled after {time.monotonic() - begin:.0f} s", flush=True)
    rows: list[dict[str, Any]] = []
    for dtype, (m, k) in wanted:
        if time.monotonic() - begin > given.budget:
            break
        rows += time_weight(torch, m, k, dtype, place, TOKENS)
        print(f"{m}x{k} {dtype} after {time.monotonic() - begin:.0f} s", flush=True)
        write_record(given.out, {"kind": "schedule times", **header(torch), "protocol": __doc__, "rows": rows})


if __name__ == "__main__":
    main()
