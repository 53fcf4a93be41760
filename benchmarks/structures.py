"""Checks every structure of a kernel on a few small tiles, without torch: `python benchmarks/structures.py GROUP`.

The sanitizer runs this program and benchmarks/one_product.py, which covers the library's choices of schedules. Each
launch has two CTAs, or two clusters, that walk several tiles, so that ring stages and staging areas are reused. Data
are integers, so that sums are exact in any order. Exit status 1 if an element differs, 3 without a GPU.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from one_product import differing, draw, verdict

import louver
from louver.choose.configure import deepest
from louver.compile.plan.schedule import Schedule
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.library.state import TensorState
from louver.measure.launches import rows_of
from louver.runtime.memory import DeviceArray

M, N, K = 336, 528, 1072
"""Not multiples of a tile's sizes. Rows are whole 16-byte chunks in every type."""

ENTRIES = 2
"""Entries of a batch."""

WALKERS = 2
"""CTAs or clusters of a launch."""

POISON = 0xA5

WIDE = Schedule.of(stages=2)
"""For 16-bit operands."""

SHORT = Schedule.of(tile_k=128, stages=2)
"""For 8-bit operands, whose steps have twice the columns."""


@dataclass(frozen=True)
class Structure:
    """A problem and its schedule, which runs with most stages."""

    problem: Problem
    schedule: Schedule


def _of(problem: Problem, base: Schedule, **changes: Any) -> Structure:
    return Structure(problem, base.changed(**changes))


F16, F32 = Problem("linear"), Problem("linear", out="f32")
E4M3 = Problem("linear", "e4m3", "e5m2", "f16")
GATED = Epilogue(gated=True)

GROUPS: dict[str, dict[str, Structure]] = {
    "bulk": {
        "2 bytes": _of(F16, WIDE, store="bulk"),
        "4 bytes": _of(F32, WIDE, store="bulk"),
        "1 byte": _of(Problem("linear", "e4m3", "e4m3", "e4m3"), SHORT, store="bulk"),
        "matmul, 2 bytes": _of(Problem("matmul", "bf16", "bf16", "bf16", b_layout="n_major"), WIDE, store="bulk"),
        "matmul, 1 byte": _of(Problem("matmul", "s8", "u8", "s8"), SHORT, store="bulk"),
        "matmul, 4 bytes": _of(Problem("matmul", "s8", "s8", "s32"), SHORT, store="bulk"),
        "32 columns": _of(F16, WIDE, store="bulk", staging=32),
        "64 columns": _of(F16, WIDE, store="bulk", staging=64),
        "128 columns": _of(F16, WIDE, tile_n=128, store="bulk", staging=128),
    },
    "tiles": {
        "8 columns": _of(F16, WIDE, tile_n=8),
        "two blocks": _of(F16, WIDE, tile_m=256, tile_n=128),
        "two blocks, the most sums": _of(F16, WIDE, tile_m=256, tile_n=192, store="bulk", staging=96),
        "three consumers": _of(F16, WIDE, tile_m=192, tile_n=192, consumers=3),
        "alone": _of(F16, WIDE, tile_m=64, consumers=1, stages=1, specialized=False, in_flight=0),
        "drained": _of(F16, WIDE, in_flight=0),
        "kept in L2": _of(F16, WIDE, store="bulk", l2="values"),
    },
    "clusters": {
        "of the dense operand": _of(F16, WIDE, cluster=2),
        "with bulk stores": _of(F16, WIDE, cluster=2, store="bulk"),
        "of an N-major operand": _of(Problem("matmul", b_layout="n_major"), WIDE, cluster=2),
        "metadata by stage": _of(F16, WIDE, metadata="stage"),
        "metadata by barrier": _of(E4M3, SHORT, metadata="barrier"),
        "metadata by barrier, clusters": _of(F16, WIDE, metadata="barrier", cluster=2),
    },
    "sums": {
        "promoted": _of(Problem("linear", "e4m3", "e4m3", accumulate="promoted"), SHORT, tile_n=128),
        "promoted in clusters": _of(
            Problem("matmul", "e5m2", "e4m3", "f32", accumulate="promoted"), SHORT, tile_n=128, cluster=2
        ),
        "f16": _of(Problem("linear", accumulate="f16"), WIDE, tile_m=256, consumers=4),
        "f16 of 8-bit floats": _of(
            Problem("linear", "e4m3", "e4m3", "f16", accumulate="f16"),
            SHORT,
            tile_m=256,
            consumers=4,
            store="bulk",
            staging=32,
        ),
        "gated": _of(Problem("linear", out="f32", epilogue=GATED), WIDE, tile_n=128),
        "gated matmul": _of(Problem("matmul", "s8", "s8", "f32", epilogue=GATED), SHORT, tile_n=128),
        "gated, staged": _of(Problem("linear", epilogue=GATED), WIDE, tile_n=128, store="bulk"),
        "gated matmul, staged": _of(Problem("matmul", "s8", "s8", "f32", epilogue=GATED), SHORT, store="bulk"),
        "batch of dense operands": _of(Problem("linear", batch="dense"), WIDE, store="bulk"),
        "batch of sparse operands": _of(Problem("matmul", batch="sparse"), WIDE),
        "batch of both": _of(Problem("linear", "e4m3", "e4m3", "f16", batch="both"), SHORT, cluster=2, store="bulk"),
    },
}


def run(structure: Structure) -> int:
    """Number of elements that differ."""
    problem, rng = structure.problem, np.random.default_rng(3)
    schedule = deepest(problem, structure.schedule, SM_90A)
    own_a, own_b = ((ENTRIES,) if own else () for own in (problem.batched_a, problem.batched_b))
    s, a = _sparse(rng, problem, own_a)
    b = draw(rng, (*own_b, K, N), problem.b)
    expected = _expected(problem, a, b)
    placed = b if problem.b_layout == "n_major" else b.swapaxes(-1, -2)
    oriented = expected.swapaxes(-1, -2) if problem.kind == "linear" else expected
    element = element_type(problem.out)
    poisoned = np.full(oriented.size * element.bytes, POISON, np.uint8).view(element.numpy).reshape(oriented.shape)
    x, y = DeviceArray.of(np.ascontiguousarray(placed)), DeviceArray.of(poisoned)
    launcher = TensorState().launcher(s, problem, schedule, 0, 0)
    matrices = rows_of(x), rows_of(y)
    sized = launcher.sized(N, *matrices)._replace(ctas=WALKERS * schedule.order.cluster)
    launcher.bound(sized, *matrices)()
    return differing(y.numpy(), oriented)


def _sparse(rng: np.random.Generator, problem: Problem, own: tuple[int, ...]) -> tuple[SparseTensor, NDArray[Any]]:
    """The sparse operand, and the same dense. A gated operand has the gate's rows before the rows of up."""
    a = louver.prune(draw(rng, (*own, M, K), problem.a), "2:4")
    if not problem.epilogue.gated:
        return louver.compress(a, "2:4"), a
    gate, up = (louver.compress(half, "2:4") for half in (a[: M // 2], a[M // 2 :]))
    return louver.gated(gate, up), a


def _expected(problem: Problem, a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    total = a.astype(np.float64) @ b.astype(np.float64)
    return total[: M // 2] * total[M // 2 :] if problem.epilogue.gated else total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", choices=GROUPS)
    args = parser.parse_args()
    return verdict(lambda: {name: run(structure) for name, structure in GROUPS[args.group].items()})


if __name__ == "__main__":
    raise SystemExit(main())
