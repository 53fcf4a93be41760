"""What each part of a product's schedule is worth: `python benchmarks/schedule_parts.py --out FILE.json`.

Protocol: f16 products of a 2:4 weight [M, K] with tokens [N, K] at one tile of 128×256×64. "whole" is the library's
schedule. Rows without "…" change one part of it; rows with "…" change all parts up to theirs. "not persistent" launches
a CTA for each tile. Register tiles have the same tile, and no warp that only copies: the library's kernel (`cp.async`) and
a user's kernel with tensor descriptors (bulk copies). All run in turns in one process, by CUDA graphs as `louver bench
gemm` runs them. Results are compared with float64 for some tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from triton_kernels import linear

import louver
from louver.choose.configure import deepest
from louver.compile.plan.register_tiles import AnySchedule, RegisterTiles
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import target as machine
from louver.library.fused import NOTHING_BOUND
from louver.library.numerics import accumulation
from louver.library.state import TensorState
from louver.measure.launches import compile_all, rows_of
from louver.measure.machine import forbid_short_sums, require_torch
from louver.measure.operands import Operands, beside_float64, make_operands, sampled
from louver.measure.problems import GemmProblem, parse_shapes
from louver.measure.protocol import Protocol, median
from louver.measure.record import write_record
from louver.measure.sustained import prepare, take_turns
from louver.runtime.device import Device, require_device
from louver.user.hints import REGISTER_TILES
from script import arguments, facts_of

M, N, K = 128, 256, 64
"""The tile."""

PROBLEM = Problem("linear")
WHOLE = {"tile_m": M, "tile_n": N, "tile_k": K, "consumers": 2, "store": "bulk", "l2": "values"}

PARTS: Mapping[str, Mapping[str, Any]] = {
    "even L2 priority": {"l2": "even"},
    "metadata by bulk copies": {"metadata": "stage"},
    "direct stores": {"store": "direct"},
    "products ended each step": {"in_flight": 0},
}
"""Fields of a schedule without a part, in the order in which parts are left out."""

ALONE = "not persistent"
PROTOCOL = Protocol(burst_seconds=0.04, pause_seconds=0.03)


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel of the table. alone: whether each tile gets a CTA of its own."""

    name: str
    schedule: AnySchedule
    alone: bool = False


def variants(place: Device) -> Iterator[Variant]:
    """The library's kernels. Rings are as deep as fit, unless the name says otherwise."""

    def scheduled(**fields: Any) -> Schedule:
        return deepest(PROBLEM, Schedule.of(**WHOLE | fields), machine(place.target))

    yield Variant("whole", scheduled())
    yield Variant("clusters of 2", scheduled(cluster=2))
    for name, fields in PARTS.items():
        yield Variant(name, scheduled(**fields))
    yield Variant(ALONE, scheduled(), alone=True)
    without: dict[str, Any] = {}
    for name, fields in PARTS.items():
        without |= fields
        if len(without) > 1:
            yield Variant(f"… {name}", scheduled(**without))
    last = scheduled(**without)
    yield Variant(f"… {ALONE}", last, alone=True)
    yield Variant("… 3 stages", last.changed(stages=3), alone=True)
    yield Variant("… 2 stages", last.changed(stages=2), alone=True)
    yield Variant("register tiles, cp.async", RegisterTiles(place.target, M, N, K))


def launched(torch: Any, operands: Operands, variant: Variant, place: Device) -> Callable[[int], None]:
    """Launches a kernel of the library on PyTorch's current stream."""
    problem, states = operands.problem, [TensorState() for _ in operands.sparse]
    dense, out = rows_of(operands.x), rows_of(operands.y)
    tiles = -(-problem.m // M) * -(-problem.n // N)
    made: list[Any] = []
    launchers: list[Any] = []
    for state, s in zip(states, operands.sparse, strict=True):
        launcher = state.launcher(s, PROBLEM, variant.schedule, place.ordinal, 0)
        sized = launcher.sized(problem.n, dense, out)
        sized = sized._replace(ctas=tiles) if variant.alone else sized
        launchers.append(launcher)
        made.append(launcher.bound(sized, dense, out, NOTHING_BOUND))

    # Launchers keep the operands' memory alive; bound launches have only its address.
    def call(index: int, held: Any = (states, launchers)) -> None:
        made[index % len(made)].on(torch.cuda.current_stream().cuda_stream)()

    return call


def jitted(operands: Operands) -> Callable[[int], None]:
    """The product as a user's kernel."""
    kernel, problem = louver.jit(linear, family=REGISTER_TILES), operands.problem
    m, n, k = problem.shape
    grid = (-(-m // M), -(-n // N))

    def call(index: int) -> None:
        kernel[grid](operands.y, operands.sparse[index % operands.sets], operands.x, m, n, k, BM=M, BN=N, BK=K)

    return call


def measure(torch: Any, shape: tuple[int, int, int], place: Device) -> list[dict[str, Any]]:
    """A row for each kernel."""
    m, n, k = shape
    problem = GemmProblem(m, n, k, "f16")
    operands = make_operands(torch, problem, PROTOCOL.sets(problem.compressed_bytes))
    calls = {each.name: launched(torch, operands, each, place) for each in variants(place)}
    calls["register tiles, bulk copies"] = jitted(operands)
    tokens = sampled(torch, n)
    for name, call in calls.items():
        operands.poison()
        call(0)
        agreement = beside_float64(operands.x, operands.dense[0], operands.y, tokens, "f16", accumulation("f16"))
        if not agreement.ok:
            raise ArithmeticError(f"{name} is wrong in {agreement.violations} results of {shape}")
    loads = {name: prepare(torch, call, operands.sets, PROTOCOL) for name, call in calls.items()}
    times = {name: median(taken) for name, taken in take_turns(loads, PROTOCOL).items()}
    rows: list[dict[str, Any]] = []
    for name, seconds in times.items():
        rate, share = 2 * m * n * k / seconds / 1e12, times["whole"] / seconds
        rows.append(
            {"kernel": name, "us": round(1e6 * seconds, 2), "tflops": round(rate, 1), "of_whole": round(share, 3)}
        )
        print(f"{m}×{n}×{k}  {name:36} {1e6 * seconds:8.1f} µs {rate:7.0f} TFLOP/s  {share:.3f}", flush=True)
    return rows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shapes", default="4096x4096x4096,4096x8192x8192")
    given = parser.parse_args()
    torch, place = require_torch(), require_device()
    forbid_short_sums(torch)
    compile_all(((PROBLEM, each.schedule) for each in variants(place)), place.target)
    rows = [{"shape": list(shape), "kernels": measure(torch, shape, place)} for shape in parse_shapes(given.shapes)]
    if given.out is not None:
        record = {**facts_of(torch, "schedule parts", __doc__), "rows": rows}
        print(f"wrote {write_record(given.out, record)}")


if __name__ == "__main__":
    main()
