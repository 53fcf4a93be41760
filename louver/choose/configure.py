"""Chooses the schedule of a product: the candidate with the least predicted time."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from louver.choose.demand import Demand
from louver.choose.ranges import Cutting, Ranges
from louver.choose.tile_shapes import LEAST_DIVIDED, LEAST_PAIRED, METADATA, TILE_N, TILES, WIDEST, TileShape
from louver.choose.times import step_clocks
from louver.compile.plan.layout import (
    blocks_bytes,
    dense_layout,
    metadata_bytes,
    output_layout,
    require_picks,
    values_layout,
)
from louver.compile.plan.schedule import Schedule, check_registers, lists_of, steps_of
from louver.frontend.problem import Problem
from louver.ir.product import ProductNest, Unit, require_rows
from louver.isa import fma_block
from louver.isa.rule import RuleError
from louver.isa.targets import Target

MIN_N_MAJOR: Mapping[Unit, int] = {"wgmma": 64, "fma": fma_block.WIDTHS[0]}
"""Least tile width with an N-major dense operand, by multiplier.

On tensor cores it is one swizzle span of 16-bit elements, on CUDA cores the lanes of a warp.
"""

MIN_GATHERED = 16
"""Least tile width of gathered rows on tensor cores: one swizzle span of 32 bytes, in 16-bit elements."""

BARRIER_ROOM = 1024
"""Bytes of shared memory reserved for barriers."""

MAX_STAGES = 13
"""Most stages of a ring. With 16 stages, most products of up to 32 tokens take up to 4% longer
(`docs/perf-log/57-tile-sizes.md`). With 8, they take up to 13% longer.
"""

DEEP_RING = 8, 184_000
"""A ring of more stages than the first number holds at most so many bytes.

Deeper rings of narrow tiles take up to 10% longer. Their CTAs probably drift apart along K, so that they share fewer
reads of the L2 cache.
"""

SHARED_RING, SHARED_COLUMNS = (4, 150_000), 4
"""The same for pairs that cut all tiles, of at least so many columns of tiles. Deeper rings take up to 27% longer
(`docs/perf-log/58-gpc-order.md`).
"""

CONSUMERS = (2, 1, 3, 4)
"""Numbers of consumer warpgroups, in the order in which they are tried for a user's tile."""

TYPICAL_K = 4096
"""The K that is assumed where it is unknown."""


def choose(
    problem: Problem,
    m: int,
    n: int,
    target: Target,
    sm_count: int,
    *,
    aligned_output: bool = False,
    batch: int = 1,
    k: int = TYPICAL_K,
    cuts: bool = False,
    dependent: bool = False,
) -> Schedule:
    """The schedule that `choose_for` chooses for the library's product `a [m, k] @ b [k, n]`.

    batch: the number of such products.
    dependent: as in `louver.plan`.
    """
    demand, sizes = Demand.of_problem(problem, dependent=dependent), (m, n, k, batch)
    return choose_for(demand, sizes, target, sm_count, aligned_output=aligned_output, cuts=cuts)


def choose_for(
    demand: Demand,
    sizes: tuple[int, int, int, int],
    target: Target,
    sm_count: int,
    *,
    aligned_output: bool,
    cuts: bool = False,
) -> Schedule:
    """The candidate with the least predicted time.

    sizes: m, n, k and the number of such products.
    aligned_output: whether bulk copies can write the output. Its address, row pitch and bytes of a row are multiples of
        16.
    cuts: whether K may be cut into ranges.
    """
    best, cut, _ = costs_for(demand, sizes, target, sm_count, aligned_output=aligned_output, cuts=cuts)[0]
    return settled(demand, best, cut, sizes[1], target)


def costs_for(
    demand: Demand,
    sizes: tuple[int, int, int, int],
    target: Target,
    sm_count: int,
    *,
    aligned_output: bool,
    cuts: bool = False,
) -> list[tuple[Schedule, Ranges, float]]:
    """All candidates with their cut and predicted clocks, the best one first. The arguments are those of `choose_for`."""
    m, n, whole, batch = sizes
    times: dict[tuple[Schedule, Ranges], float] = {}
    for schedule, cutting in candidates_for(demand, target, n, bulk=aligned_output):
        sizes = m, n, demand.depth(whole, schedule.ring.metadata), batch
        if not schedule.cuts:
            uncut = cutting.whole(*sizes)
            times[schedule, uncut] = cutting.cycles(uncut, *sizes, sm_count)
        cut = cutting.best(*sizes, sm_count)
        tile, roles = schedule.tile, schedule.roles
        if cuts and cut.cut and TileShape.of(tile.m, tile.n, roles.consumers, demand).cuts(demand):
            cutter = schedule if schedule.cuts else schedule.changed(work="ranges")
            times[cutter, cut] = cutting.cycles(cut, *sizes, sm_count)
    return sorted(((*each, clocks) for each, clocks in times.items()), key=lambda each: each[2])


def settled(demand: Demand, schedule: Schedule, cut: Ranges, n: int, target: Target) -> Schedule:
    """A candidate with the fields that depend on N and on the cut."""
    if n <= schedule.tile.n:
        # Each value is read once, and every tile reads the whole dense operand.
        return schedule.changed(l2="even")
    if schedule.pairs and not cut.whole and -(-n // schedule.tile.n) >= SHARED_COLUMNS:
        return _deepest(demand, schedule, target, SHARED_RING)
    return schedule


def _width_class(demand: Demand, n: int) -> int:
    """The width of the narrowest tile that holds n columns, or of the widest tile."""
    least = MIN_N_MAJOR[demand.unit] if demand.b_major == "mn" else TILE_N[0]
    if demand.unit == "wgmma" and demand.selection.indexed and not demand.turns:
        least = MIN_GATHERED
    return next((width for width in TILE_N if width >= max(n, least)), WIDEST)


def candidates_for(demand: Demand, target: Target, n: int, *, bulk: bool) -> tuple[tuple[Schedule, Cutting], ...]:
    """The schedules that `choose_for` compares for n columns. Their work is whole tiles or pairs.

    `choose_for` adds schedules that cut whole tiles into ranges.

    bulk: whether bulk copies can write the output.
    """
    return _candidates(demand, target, _width_class(demand, n), bulk=bulk)


@functools.lru_cache(maxsize=256)
def _candidates(demand: Demand, target: Target, widest: int, *, bulk: bool) -> tuple[tuple[Schedule, Cutting], ...]:
    """The candidates up to this tile width, for each way of metadata, with the rings of `deepest`."""
    found: list[tuple[Schedule, Cutting]] = []
    for shape, work in ((each, work) for each in TILES for work in each.works(demand)):
        most = widest if work == "tiles" else max(widest, LEAST_PAIRED)
        if not min(widest, LEAST_DIVIDED) <= shape.n <= most or (shape.lone and widest > LEAST_DIVIDED):
            continue
        if not shape.suits(demand, bulk=bulk):
            continue
        for metadata in METADATA:
            if not shape.takes(demand, metadata):
                continue
            fields = {"metadata": metadata, "dependent": demand.dependent, "work": work}
            try:
                schedule = _deepest(demand, shape.schedule(demand, bulk=bulk, **fields), target)
            except RuleError:
                # The sums do not fit the registers, or two stages do not fit the shared memory.
                continue
            found.append((schedule, Cutting.of(demand, schedule)))
    return tuple(found)


def choose_for_nest(
    nest: ProductNest, target: Target, *, aligned_output: bool, fixed: Mapping[str, Any] | None = None
) -> Schedule:
    """The schedule of a kernel whose output tile is fixed by its user.

    It is the schedule that `choose` would take for a product of the library with that tile.

    aligned_output: as for `choose_for`.
    fixed: fields of the schedule that the user sets. The others follow from them.

    Raises ValueError unless the left operand has K contiguous, for a tile that fits no number of warpgroups, and for
    fields that are not compatible.
    """
    require_rows(nest)
    if nest.tile_m % 64:
        raise RuleError(
            f"a warpgroup multiplies whole blocks of 64 rows of the left operand, got a tile of {nest.tile_m}: "
            "make it a multiple of 64"
        )
    demand, given = Demand.of_nest(nest), dict(fixed or {})
    steps = steps_of(nest.a.element, demand.unit)
    own = {"tile_k": nest.tile_k if nest.tile_k in steps else demand.step, **given}
    if not given.get("specialized", True):
        own = {"stages": 1, **own}
    bulk = aligned_output and "store" not in given
    shape = _shape_for(nest, demand, own, target)
    if "stages" in own:
        return shape.schedule(demand, bulk=bulk, **own)
    ways = (given["metadata"],) if "metadata" in given else shape.ways(demand)
    refusal = None
    # The staged columns of a bulk store may leave no room for two stages.
    for stored in dict.fromkeys((bulk, False)):
        found: list[Schedule] = []
        for way in ways:
            try:
                found.append(_deepest(demand, shape.schedule(demand, bulk=stored, **own | {"metadata": way}), target))
            except RuleError as error:
                refusal = refusal or error
        if found:
            return min(found, key=lambda each: step_clocks(demand, each) * demand.depth(TYPICAL_K, each.ring.metadata))
    assert refusal is not None
    raise refusal


def _shape_for(nest: ProductNest, demand: Demand, given: Mapping[str, Any], target: Target) -> TileShape:
    """The nest's tile with the first number of warpgroups whose registers hold its sums. The library's number comes first.

    Raises the RuleError of the first number if none does.
    """
    refusal = None
    known = (each for each in TILES if (each.m, each.n) == (nest.tile_m, nest.tile_n) and each.fits(demand))
    preferred = dict.fromkeys((*(each.consumers for each in known), *CONSUMERS))
    for number in (given["consumers"],) if "consumers" in given else preferred:
        shape = TileShape.of(nest.tile_m, nest.tile_n, number, demand)
        try:
            _check_registers(demand, shape.schedule(demand, bulk=False, **given), target)
        except RuleError as error:
            refusal = refusal or error
        else:
            return shape
    assert refusal is not None
    raise refusal


def deepest(problem: Problem, schedule: Schedule, target: Target) -> Schedule:
    """The schedule with as many stages as fit the shared memory, `MAX_STAGES` and `DEEP_RING`; 1 without a producer.

    Raises ValueError if two stages do not fit the shared memory, or the sums do not fit the registers.
    """
    return _deepest(Demand.of_problem(problem), schedule, target)


def _check_registers(demand: Demand, schedule: Schedule, target: Target) -> None:
    lists = lists_of(demand.pattern, schedule)
    promoted, turned = demand.promoted, demand.turns
    check_registers(
        schedule, demand.accumulator, target, promoted=promoted, lists=lists, unit=demand.unit, turned=turned
    )


def _deepest(demand: Demand, schedule: Schedule, target: Target, limits: tuple[int, int] = DEEP_RING) -> Schedule:
    _check_registers(demand, schedule, target)
    if not schedule.roles.specialized:
        return schedule
    stage = values_layout(schedule, demand.a, demand.selection).bytes
    picked = None
    if schedule.ring.metadata != "global" and not demand.selection.lifted:
        picked = require_picks(demand.pattern, demand.unit, schedule)
    major = "k" if demand.turns else demand.b_major
    stage += max(lists_of(demand.pattern, schedule), 1) * dense_layout(schedule, demand.b, major, picked).bytes
    stage += metadata_bytes(schedule, demand.a, demand.selection)
    beside = blocks_bytes(schedule, lists_of(demand.pattern, schedule)) if demand.turns else 0
    if schedule.store.way == "bulk":
        beside += output_layout(schedule, demand.out, transposed=demand.transposed, gated=demand.gated).bytes
    room = target.shared_bytes(schedule.occupancy.resident)
    stages = (room - BARRIER_ROOM - beside) // stage
    if stages < 2:
        raise RuleError(
            f"two stages of {stage} bytes do not fit the {room} bytes of shared memory of {target.name}: use a smaller tile"
        )
    many, most_bytes = limits
    return schedule.changed(stages=min(MAX_STAGES, stages, max(many, most_bytes // stage)))
