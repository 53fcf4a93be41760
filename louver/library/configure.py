"""Chooses the schedule of a product by a small model, from the problem's sizes and the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from louver.compile.plan.layout import dense_layout, metadata_bytes, output_layout, stageable, values_layout
from louver.compile.plan.schedule import STEPS, Schedule, check_registers, list_rows
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.frontend.problem import Problem
from louver.ir.product import (
    LoadMatrix,
    LoadVector,
    ProductNest,
    Selection,
    require_sparse,
    selection_of,
    walk,
)
from louver.isa.targets import Target
from louver.library.ranges import Cutting
from louver.library.waves import narrowed, tall_pays

TILE_N = (8, 16, 32, 64, 128, 256)
"""Tile widths that the library compiles; a width between two of them would add kernels and little speed."""

MIN_N_MAJOR = 64
"""Least tile width with an N-major dense operand: one swizzle span of 16-bit elements."""

TILE_K = {16: 64, 8: 128}
"""Dense K elements of a stage by bits of an element: 64 bytes of each row of stored values, 128 of the dense operand."""

BARRIER_ROOM = 1024
"""Bytes of shared memory left for barriers."""

MAX_STAGES = 8

CONSUMERS = (2, 1, 3, 4)
"""Numbers of consumer warpgroups, in the order in which a user's tile is tried with them."""

STREAMED = 256
"""Tile width from which the values are kept in the L2 cache, for all columns of tiles, while the dense operand passes by."""

RASTER = {16: 16, 8: 24}
"""Rows of tiles walked before the next column, by bits of an element: 8-bit values leave room for more in the L2 cache."""

HALF_STAGING = 128
"""Columns staged at a time of 256, by two consumers, of 2-byte outputs: the first half is on its way while the other is staged."""

CUT_MARGIN = 0.05
"""Part of the time that ranges of K must save to be taken. 1: never, since no GPU has run such kernels yet; 0.05 once one has.
`louver tune` takes them where it measures that they pay."""

TALL = {"tile_m": 256, "tile_n": 192}
"""The tile with the fewest bytes a product whose f32 sums two consumers hold. It leaves room for nothing else, so that it is for
bulk stores.
"""

TALL_RASTER = 12
"""Rows of such tiles walked before the next column."""

TALL_STAGING = {2: 96, 4: 48}
"""Columns of such tiles staged at a time, by bytes of an output: what leaves room for four stages. Outputs of one byte change lanes in
more registers than the sums leave.
"""

TALL_READS = 3
"""Vectors that an epilogue may read with such tiles: what fits the registers beside the sums. C takes as many as all of them."""

WIDE_STAGING = {1: 64, 2: 32, 4: 16}
"""Columns staged at a time by each of four consumers, by bytes of an output: what leaves room for four stages."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The demands of a product on its schedule.

    a, b, out: element types. b_major: the contiguous dimension of b. pattern: of a, None for a dense one. promoted: whether sums of 8-bit floats are added to others in f32.
    step: elements of K that a stage holds. transposed: whether the output is stored so. gated: whether it has half of the product's
    rows. reads: vectors that the epilogue reads, C counted as `TALL_READS`.
    """

    a: str
    b: str
    b_major: Literal["k", "mn"]
    pattern: str | None
    accumulator: str
    promoted: bool
    out: str
    transposed: bool
    gated: bool
    step: int
    reads: int

    @property
    def selection(self) -> Selection:
        """How a selects rows of b."""
        return selection_of(self.pattern)

    def lists(self, schedule: Schedule) -> int:
        """Lists of rows of b that a tile has, each with rows of its own in a stage; 1 where nothing is gathered."""
        if self.pattern is None or self.selection != "indexed":
            return 1
        return schedule.tile.m // list_rows(self.pattern, schedule)

    @classmethod
    def of_problem(cls, problem: Problem) -> Demand:
        """Of a product of the library."""
        epilogue = problem.epilogue
        vectors = (problem.bias, epilogue.dense_bias, epilogue.scale == "row", epilogue.dense_scale == "column")
        return cls(
            problem.a,
            problem.b,
            "k" if problem.b_layout == "k_major" else "mn",
            problem.pattern,
            problem.accumulator,
            problem.accumulate == "promoted",
            problem.out,
            problem.kind == "linear",
            epilogue.gated,
            TILE_K[element_type(problem.b).bits],
            sum(map(bool, vectors)) + TALL_READS * (epilogue.c is not None),
        )

    @classmethod
    def of_nest(cls, nest: ProductNest) -> Demand:
        """Of a user's kernel. Sums that are promoted more often than the library's step take the least step."""
        step = TILE_K.get(element_type(nest.b.element).bits, STEPS[0])
        nodes = set(walk(nest.epilogue))
        return cls(
            nest.a.element,
            nest.b.element,
            "k" if nest.b.k_major else "mn",
            nest.a.pattern,
            nest.accumulator,
            nest.promoted is not None,
            nest.store.element,
            nest.store.transposed,
            nest.gated,
            STEPS[0] if nest.promoted is not None and nest.promoted < step else step,
            sum(TALL_READS if isinstance(each, LoadMatrix) else isinstance(each, LoadVector) for each in nodes),
        )


def choose(
    problem: Problem,
    m: int,
    n: int,
    target: Target,
    sm_count: int,
    *,
    aligned_output: bool = False,
    batch: int = 1,
    k: int | None = None,
) -> Schedule:
    """A schedule for `a [m, k] @ b [k, n]` of the library, as `choose_for` chooses it. Only where `k` is given may it be cut."""
    demand = Demand.of_problem(problem)
    sizes = m, n, batch
    schedule = choose_for(demand, sizes, target, sm_count, aligned_output=aligned_output)
    if k is None:
        return schedule
    wide = _of_width(demand, sizes, target, sm_count, widest_for(demand, n), aligned_output=aligned_output)
    return _least(demand, (m, n, k, batch), sm_count, schedule, wide)


def choose_for(
    demand: Demand, sizes: tuple[int, int, int], target: Target, sm_count: int, *, aligned_output: bool
) -> Schedule:
    """A schedule by sizes: the narrowest tile that holds n, at most 256; narrower where SMs would idle, twice as tall where that fills
    them as well.

    sizes: m, n and how many such products there are. aligned_output: the output's address, row pitch and rows' bytes are multiples of 16,
    so that bulk copies can write it.
    """
    m, n, batch = sizes
    rows = -(-m // Schedule().tile.m) * batch
    tile_n = narrowed(widest_for(demand, n), _widths(demand), rows, n, sm_count)
    return _of_width(demand, sizes, target, sm_count, tile_n, aligned_output=aligned_output)


def _widths(demand: Demand) -> list[int]:
    least = MIN_N_MAJOR if demand.b_major == "mn" else TILE_N[0]
    return [width for width in TILE_N if width >= least]


def widest_for(demand: Demand, n: int) -> int:
    """The width of the narrowest tile that holds n columns, or of the widest tile of all."""
    widths = _widths(demand)
    return next((width for width in widths if width >= n), widths[-1])


def _least(
    demand: Demand, sizes: tuple[int, int, int, int], sm_count: int, schedule: Schedule, wide: Schedule
) -> Schedule:
    """`schedule`, or one of the two with K cut into ranges, where that takes less time by the model."""
    m, n, k, batch = sizes
    cutting = Cutting.of(demand, schedule)
    best, least = schedule, (1 - CUT_MARGIN) * cutting.cycles(cutting.whole(m, n, k, batch), *sizes, sm_count)
    for candidate in dict.fromkeys((schedule, wide)):
        cutting = Cutting.of(demand, candidate)
        cut = cutting.best(*sizes, sm_count)
        cycles = cutting.cycles(cut, *sizes, sm_count)
        if cut.cut and cycles < least:
            best, least = candidate.changed(work="ranges"), cycles
    return best


def _of_width(
    demand: Demand, sizes: tuple[int, int, int], target: Target, sm_count: int, tile_n: int, *, aligned_output: bool
) -> Schedule:
    """A schedule whose tiles are so wide, or about so."""
    m, n, batch = sizes
    bits = element_type(demand.b).bits
    if demand.promoted and tile_n > 128:
        tile_n = _promoted_width(n)
    bulk = aligned_output and stageable(tile_n, demand.out, transposed=demand.transposed, gated=demand.gated)
    schedule = Schedule.of(tile_n=tile_n, tile_k=demand.step, stages=2, store="bulk" if bulk else "direct")
    if demand.selection == "indexed":
        schedule = _one_list(demand, schedule)
    elif demand.accumulator == "f16" and tile_n == 256 and batch * -(-m // 256) * -(-n // 256) >= sm_count:
        # Sums in f16 take half the registers: twice the rows, and less to load for each.
        schedule = schedule.changed(tile_m=256, consumers=4)
    elif bulk and tile_n == STREAMED and _tall_pays(demand, m, n, batch, sm_count):
        schedule = schedule.changed(**TALL)
    schedule = schedule.changed(**_walk(schedule, bits, columns=n))
    if bulk:
        schedule = schedule.changed(staging=_staging(schedule, demand.out))
    return _deepest(demand, schedule, target)


def _one_list(demand: Demand, schedule: Schedule) -> Schedule:
    """The tile, or one of half its rows where that has windows of its own, or parts of fewer: two lists bring twice the rows."""
    assert demand.pattern is not None
    halves = Pattern.parse(demand.pattern).length % schedule.tile.m
    return schedule.changed(tile_m=64, consumers=1) if halves else schedule


def _walk(schedule: Schedule, bits: int, *, columns: int | None) -> dict[str, Any]:
    """How tiles are walked and what the L2 cache keeps meanwhile. columns: N; None where nobody knows, but it takes many tiles."""
    if columns is not None and columns <= schedule.tile.n:
        # Each value is read once, the dense operand by every tile.
        return {}
    if _is_tall(schedule):
        return {"raster": TALL_RASTER, "l2": "values"}
    return {"raster": RASTER[bits], "l2": "values"} if schedule.tile.n >= STREAMED else {}


def _staging(schedule: Schedule, out: str) -> int | None:
    """Columns staged at a time for bulk stores, None for what the layout takes by itself."""
    size = element_type(out).bytes
    if _is_tall(schedule):
        return TALL_STAGING.get(size)
    if schedule.tile.n != STREAMED:
        return None
    if schedule.roles.consumers == 4:
        return WIDE_STAGING[size]
    return HALF_STAGING if size == 2 and schedule.roles.consumers == 2 else None


def _is_tall(schedule: Schedule) -> bool:
    return {"tile_m": schedule.tile.m, "tile_n": schedule.tile.n} == TALL


def _tall_pays(demand: Demand, m: int, n: int, batch: int, sm_count: int) -> bool:
    # Sums in f16 have a larger tile still, promoted ones are held twice.
    if demand.accumulator == "f16" or demand.promoted or demand.reads > TALL_READS:
        return False
    if element_type(demand.out).bytes not in TALL_STAGING:
        return False
    return tall_pays(m, n, batch, sm_count, element_type(demand.b).bits)


def _promoted_width(n: int) -> int:
    """The tile width with promoted sums, which take as many registers again: 192, unless that wastes much more than 128."""
    wide, narrow = (-(-n // width) * width for width in (192, 128))
    return 192 if wide <= narrow + narrow // 16 else 128


def choose_for_nest(
    nest: ProductNest, target: Target, *, aligned_output: bool, fixed: Mapping[str, Any] | None = None
) -> Schedule:
    """A schedule of a kernel whose tile of the output is its user's: what `choose` would take for a library product of that tile.

    aligned_output: as for `choose`. fixed: fields of the schedule that the user says; the others go by them.
    Raises ValueError for a product without a 2:4 sparse operand, a tile that no number of warpgroups goes with, and for fields that do not go together.
    """
    require_sparse(nest)
    given = dict(fixed or {})
    element = nest.store.element
    transposed, gated = nest.store.transposed, nest.gated
    bulk = aligned_output and "store" not in given
    bulk = bulk and stageable(nest.tile_n, element, transposed=transposed, gated=gated)
    schedule = _tiled(nest, given, target)
    walk = _walk(schedule, element_type(nest.b.element).bits, columns=None)
    schedule = schedule.changed(**{**walk, **given})
    if "stages" in given:
        return schedule.changed(store="bulk") if bulk else schedule
    demand = Demand.of_nest(nest)
    if not bulk:
        return _deepest(demand, schedule, target)
    try:
        staged = {"store": "bulk", "staging": _staging(schedule, element), **given}
        return _deepest(demand, schedule.changed(**staged), target)
    except ValueError:
        # The staging area leaves no room for two stages.
        return _deepest(demand, schedule, target)


def _tiled(nest: ProductNest, given: Mapping[str, Any], target: Target) -> Schedule:
    """A schedule of the nest's tile with a number of warpgroups that holds its sums, at its least depth."""
    refusal = None
    if nest.tile_m % 64:
        raise ValueError(
            f"a warpgroup multiplies whole blocks of 64 rows of the sparse operand, got a tile of {nest.tile_m}"
        )
    # The widest tile is the library's for sums in f16, with its warpgroups.
    preferred = (4, *CONSUMERS) if (nest.tile_m, nest.tile_n) == (256, 256) else CONSUMERS
    fields: dict[str, Any] = {"stages": 2 if given.get("specialized", True) else 1, **given}
    for number in (given["consumers"],) if "consumers" in given else preferred:
        try:
            fields["consumers"] = number
            schedule = Schedule.of(
                tile_m=nest.tile_m,
                tile_n=nest.tile_n,
                tile_k=nest.tile_k if nest.tile_k in STEPS else Demand.of_nest(nest).step,
                **fields,
            )
            check_registers(schedule, nest.accumulator, target, promoted=nest.promoted is not None)
        except ValueError as error:
            refusal = refusal or error
        else:
            return schedule
    assert refusal is not None
    raise refusal


def deepest(problem: Problem, schedule: Schedule, target: Target) -> Schedule:
    """The schedule with as many stages as shared memory holds, at most 8; 1 without a producer.

    Raises ValueError where two stages do not fit, or the sums do not fit the registers.
    """
    return _deepest(Demand.of_problem(problem), schedule, target)


def _deepest(demand: Demand, schedule: Schedule, target: Target) -> Schedule:
    gathers = demand.selection == "indexed"
    check_registers(schedule, demand.accumulator, target, promoted=demand.promoted, gathers=gathers)
    if not schedule.roles.specialized:
        return schedule
    stage = values_layout(schedule, demand.a, demand.selection).bytes
    stage += demand.lists(schedule) * dense_layout(schedule, demand.b, demand.b_major).bytes
    stage += metadata_bytes(schedule, demand.a, demand.selection)
    staging = 0
    if schedule.store.way == "bulk":
        staging = output_layout(schedule, demand.out, transposed=demand.transposed, gated=demand.gated).bytes
    stages = (target.max_shared_bytes - BARRIER_ROOM - staging) // stage
    if stages < 2:
        raise ValueError(
            f"two stages of {stage} bytes do not fit the {target.max_shared_bytes} bytes of shared memory of "
            f"{target.name}: use a smaller tile"
        )
    return schedule.changed(stages=min(MAX_STAGES, stages))
