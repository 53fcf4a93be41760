"""Chooses the tile of a product that runs as register tiles, by waves over the SMs of a card.

The model counts clocks of an SM: what its tensor cores, its shared memory and its share of the L2 cache take for a step,
and the latency that the ring does not hide. Most rates come from documents. `louver tune` measures.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from louver.compile.plan.register_tiles import (
    LEAST_ROTATED,
    MOST_SLOTS,
    OTHER_REGISTERS,
    WIDEST_MULTIPLE,
    RegisterTiles,
    ctas_of,
)
from louver.formats.dtypes import element_type, multiplied_as
from louver.formats.pattern import LIFTED_PATTERNS
from louver.frontend.problem import Problem
from louver.isa.instruction import LANES
from louver.isa.mma import kind_of
from louver.isa.narrow import SCALED
from louver.isa.targets import TARGETS, MmaFamily, Target

TILES = (
    *((128, 256, 8), (128, 128, 8), (128, 128, 4), (128, 64, 4), (64, 128, 4), (64, 64, 4)),
    *((128, 32, 4), (64, 32, 4), (64, 16, 4), (64, 8, 4), (32, 16, 2), (32, 8, 2), (16, 8, 1)),
)
"""Rows, columns and warps of the tiles that are compared. A thread holds at most 128 sums."""

STEP_BYTES = 128
"""Bytes of a row of the dense operand that a step takes; a candidate may take half of them for a deeper ring."""

MULTIPLIED = 4096
"""Bytes of stored values times columns that the tensor cores of an SM multiply in a clock: 1,024 multiply-adds of stored
f16 (NVIDIA A100 whitepaper, table 3: 2,048 of the dense matrix).
"""

SHARED_BYTES = 128
"""Bytes of shared memory that an SM reads or writes in a clock (CUDA C++ Programming Guide: 32 banks of 4 bytes)."""

CACHE_BYTES = 44
"""Bytes that an SM takes from the L2 cache in a clock, if all of them read: nearly what the A100 whitepaper says (5,120 of
108 SMs). This and `MEETING` are fitted to 40 tiles of sm_80 and sm_86 on an H200 (`h200/mma.json`).
"""

LATENCY = 800
"""Clocks from a copy to the first of its data, if other SMs copy too."""

MEETING = 250
"""Clocks of a step in which the warps of a CTA wait for each other. Two CTAs hide two thirds of it, four seven eighths."""

LEAST_WARPS = 4
"""Warps of a CTA that use all schedulers of an SM. 4096×16×4096 took 31.8 µs by tiles of two warps, and 14.3 by tiles of four
(H200, kernels of sm_80).
"""

ROWS_OF_WARP, COLUMNS_OF_WARP, BYTES_OF_WARP = 16, 8, 64
"""Rows, columns and bytes of a column of one `mma.sp`."""

_FAMILY: MmaFamily = "mma.sp::ordered_metadata"


@dataclass(frozen=True, slots=True)
class TileCost:
    """A candidate with what it is predicted to take.

    ctas: CTAs that an SM is expected to hold. slots: of the ring.
    waves: tiles that the busiest SM computes, divided by `ctas`, rounded up.
    tensor, shared, cache, waiting: clocks of one step of one CTA by what limits it. The largest one counts.
    clocks: of the product.
    """

    schedule: RegisterTiles
    ctas: int
    slots: int
    waves: int
    tensor: float
    shared: float
    cache: float
    waiting: float
    clocks: float

    @property
    def limit(self) -> str:
        """What takes longest in a step."""
        names = {"tensor cores": self.tensor, "shared memory": self.shared, "L2 cache": self.cache}
        return max({**names, "latency": self.waiting}.items(), key=lambda each: each[1])[0]

    def __str__(self) -> str:
        tile = self.schedule
        return (
            f"{tile.tile_m}×{tile.tile_n}×{tile.tile_k}, {tile.warps} warps, {self.ctas} CTAs an SM, {self.slots} slots: "
            f"{self.waves} waves, {self.clocks:,.0f} clocks, limited by {self.limit}"
        )


def choose_tiles(
    problem: Problem,
    sizes: tuple[int, int, int, int],
    target: Target,
    sm_count: int,
    *,
    aligned_output: bool,
) -> RegisterTiles:
    """The tile with the least predicted time for the product `a [m, k] @ b [k, n]`. sizes: m, n, k and the number of such
    products.
    """
    return costs(problem, sizes, target, sm_count, aligned_output=aligned_output)[0].schedule


@functools.lru_cache(maxsize=1024)
def costs(
    problem: Problem, sizes: tuple[int, int, int, int], target: Target, sm_count: int, *, aligned_output: bool
) -> tuple[TileCost, ...]:
    """All candidates, the best one first. Raises ValueError if the target has no sparse product for the problem."""
    check_tiles(problem, target)
    m, n, k, _ = sizes
    k_multiple = min(k & -k, WIDEST_MULTIPLE)
    widest = STEP_BYTES // element_type(problem.b).bytes
    found = [
        _cost(
            problem,
            RegisterTiles(target.name, rows, columns, step, warps, k_multiple, aligned_output),
            sizes,
            target,
            sm_count,
        )
        for rows, columns, warps in TILES
        for step in (widest, widest // 2)
        # A gated tile has both halves of its output, in groups of 8 rows.
        if rows // problem.rows_per_output >= ROWS_OF_WARP and rows < 2 * max(m, 32) and columns < 2 * max(n, 8)
    ]
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.clocks))


def check_tiles(problem: Problem, target: Target) -> None:
    """Raises ValueError for a product that register tiles of a target do not have."""
    rule = broken_rule(target, problem.pattern, problem.a, problem.b, scaled=problem.epilogue.scaled)
    if rule is not None:
        raise ValueError(rule)
    if problem.accumulate == "promoted":
        raise ValueError(
            f'{target.name} adds no sums of mma.sp to others in f32, got accumulate="promoted": leave accumulate out, or use a '
            "GPU of target sm_90a"
        )


def broken_rule(target: Target, pattern: str | None, a: str, b: str, *, scaled: bool = False) -> str | None:
    """The rule that operands break for which a target has no products; None if it has them. scaled: by blocks of K."""
    if not scaled and all(target.support("wgmma.sp", multiplied_as(each)) for each in (a, b)):
        return None
    if pattern not in LIFTED_PATTERNS:
        return (
            f"{target.name} multiplies weights of 2:4, and of 1:2 in f32, by mma.sp, got {pattern}: prune to one of these, or "
            "use a GPU of target sm_90a"
        )
    if not multiplies(target, a, b, scaled=scaled):
        first = next(each.name for each in TARGETS.values() if multiplies(each, a, b, scaled=scaled))
        return (
            f"{target.name} has no sparse product of {a}×{b}{' with scales of blocks' if scaled else ''} that is one instruction; the first target with one is {first}: "
            "compress to f16, bf16 or s8"
        )
    return None


def multiplies(target: Target, a: str, b: str, *, scaled: bool = False) -> bool:
    """Whether one instruction of a target multiplies a sparse A of a type by a B of another one. scaled: by blocks."""
    one, other = multiplied_as(a), multiplied_as(b)
    kind = SCALED if scaled else kind_of(one, other)
    return all(target.support(_FAMILY, each, kind) == "native" for each in (one, other))


def _cost(
    problem: Problem, schedule: RegisterTiles, sizes: tuple[int, int, int, int], target: Target, sm_count: int
) -> TileCost | None:
    """What a candidate takes; None if two slots do not fit the shared memory."""
    m, n, k, batch = sizes
    rows, columns, step, warps = schedule.tile_m, schedule.tile_n, schedule.tile_k, schedule.warps
    a, b = element_type(problem.a), element_type(problem.b)
    stored = rows * step * a.bytes // 2
    metadata = rows * step // (8 if a.bits < 32 else 4)
    stage = stored + metadata + columns * step * b.bytes
    ctas = max(1, ctas_of(target, rows * columns // (LANES * warps) + OTHER_REGISTERS, LANES * warps))
    fitting = [count for count in range(ctas, 0, -1) if target.shared_bytes(count) >= 2 * stage]
    if not fitting:
        return None
    ctas = fitting[0]
    slots = min(MOST_SLOTS, target.shared_bytes(ctas) // stage)
    across = _warps_across(rows, columns, warps)
    read = across * (stored + metadata) + warps // across * columns * step * b.bytes
    tensor = stored * columns / MULTIPLIED
    shared, cache = (read + stage) / SHARED_BYTES, stage / CACHE_BYTES
    tiles = -(-m // rows) * -(-n // columns) * batch
    beside = min(ctas, -(-tiles // sm_count))
    waiting = (LATENCY + cache) / ((slots - 1) * beside)
    whole, rest = divmod(tiles, ctas * sm_count)
    turns = whole * ctas + -(-rest // sm_count)
    output = rows // problem.rows_per_output * columns * element_type(problem.out).bytes
    waves = -(-turns // ctas)
    each = (max(tensor, shared, cache, waiting) + MEETING / beside**1.5) * max(1, LEAST_WARPS / warps)
    blocks = rows * columns * step * b.bytes // (ROWS_OF_WARP * COLUMNS_OF_WARP * BYTES_OF_WARP)
    if blocks < LEAST_ROTATED * warps:
        # Warps load operands between products, not during them, where those of another CTA do not multiply.
        each += min(tensor, shared) / beside**0.5
    clocks = turns * (-(-k // step) * each + output / CACHE_BYTES) + waves * LATENCY
    return TileCost(schedule, ctas, slots, waves, tensor, shared, cache, waiting, clocks)


def _warps_across(rows: int, columns: int, warps: int) -> int:
    """Warps along the columns, chosen as for the kernel: those that read the fewest elements of both operands."""
    fitting = [
        across
        for across in (1 << bit for bit in range(warps.bit_length()))
        if across * COLUMNS_OF_WARP <= columns and warps // across * ROWS_OF_WARP <= rows
    ]
    return min(fitting, key=lambda across: rows * across / warps / 2 + columns / across)
