"""Chooses the schedule of a product: of all candidates, the one with the least predicted time."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from louver.compile.plan.layout import (
    BLOCK_ROWS,
    blocks_bytes,
    dense_layout,
    metadata_bytes,
    output_layout,
    require_picks,
    stageable,
    values_layout,
)
from louver.compile.plan.schedule import Schedule, check_registers, gathers, lists_of, steps_of
from louver.formats.dtypes import element_type
from louver.formats.lists import PICKERS
from louver.formats.pattern import Pattern
from louver.frontend.problem import Problem
from louver.ir.product import (
    LoadMatrix,
    LoadVector,
    ProductNest,
    Selection,
    Unit,
    require_sparse,
    selection_of,
    turns,
    unit_of,
    walk,
)
from louver.isa import fma_block
from louver.isa.targets import Target
from louver.library.ranges import Cutting
from louver.library.times import step_clocks

TILE_N = (8, 16, 32, 64, 128, 256)
"""Tile widths that the library compiles; a width between two of them would add kernels and little speed."""

MIN_N_MAJOR: Mapping[Unit, int] = {"wgmma": 64, "fma": fma_block.WIDTHS[0]}
"""Least tile width with an N-major dense operand: one swizzle span of 16-bit elements, or the lanes of a warp."""

MIN_GATHERED = 16
"""Least tile width of gathered rows on tensor cores: one swizzle span, of 32 bytes, of 16-bit elements."""

TILE_K = {32: 32, 16: 64, 8: 128}
"""Dense K elements of a stage by bits of an element: 64 bytes of each row of stored values, 128 of the dense operand."""

BARRIER_ROOM = 1024
"""Bytes of shared memory left for barriers."""

MAX_STAGES = 16
"""Stages of a ring: of the narrowest tiles, so many keep as many bytes on their way as memory needs to be busy."""

CONSUMERS = (2, 1, 3, 4)
"""Numbers of consumer warpgroups, in the order in which a user's tile is tried with them."""

WIDEST = TILE_N[-1]

LEAST_PAIRED = 16
"""Least tile width of a pair: each CTA stores 8 columns."""

LEAST_DIVIDED = 64
"""Least tile width of a product that is wider: narrower tiles have too few products a step."""

METADATA = ("global", "stage")
"""Ways of metadata that are chosen from: by registers, or by bulk copies into the stage."""

WIDEST_STAGED = 128
"""Widest tile whose metadata comes by the stage: wider ones are slower by it, and lose a stage to it where values are few."""

TYPICAL_K = 4096
"""K of a product of which nobody knows it."""

MOST_READS = 3
"""Vectors that an epilogue may read beside the sums of the tallest tiles, by registers. C takes as many as all of them."""

CUT_READS = {2: 2, 4: 1}
"""Those of them that fit where K is cut, by bytes of an output."""


@dataclass(frozen=True, slots=True)
class TileShape:
    """A tile that the library compiles, and what goes by it.

    staging: columns staged at a time for bulk stores, by bytes of an output; others by `output_layout`.
    lean: for bulk stores of outputs in `staging`, and epilogues of few reads: the sums leave no more registers. The L2 cache keeps the values of
    lean and of the widest tiles. sums, unit: the kind of
    sums and the multiplier that it is for; None for any. indexed, turns: whether it is for patterns of vectors, and for their rows that
    are turned; None for all. bits: of an element of a that it is for; None for any. resident: CTAs on an SM. steps: elements of K that a
    stage holds, in multiples of those of most tiles.
    """

    m: int
    n: int
    consumers: int
    staging: Mapping[int, int] = field(default_factory=dict[int, int])
    lean: bool = False
    sums: Literal["plain", "promoted", "f16"] | None = None
    unit: Unit | None = None
    indexed: bool | None = None
    turns: bool | None = None
    bits: int | None = None
    resident: Literal[1, 2] = 1
    steps: float = 1

    @classmethod
    def of(cls, m: int, n: int, consumers: int, demand: Demand) -> TileShape:
        """The one in `TILES` for such operands and their multiplier, or another of that size."""
        known = (each for each in TILES if (each.m, each.n, each.consumers) == (m, n, consumers) and each.reads(demand))
        return next(known, cls(m, n, consumers))

    def reads(self, demand: Demand) -> bool:
        """Whether it is for such operands and their multiplier."""
        selection = self.indexed in (None, demand.selection.indexed) and self.turns in (None, demand.turns)
        bits = self.bits in (None, element_type(demand.a).bits)
        return selection and bits and self.unit in (None, demand.unit)

    def schedule(self, demand: Demand, *, bulk: bool, **others: Any) -> Schedule:
        """A schedule of this tile, for many columns of tiles. bulk: the output can be stored so. others: fields that are given."""
        stored = self.n // 2 if others.get("work") == "pairs" else self.n
        bulk = bulk and demand.unit == "wgmma"
        bulk = bulk and stageable(stored, demand.out, transposed=demand.transposed, gated=demand.gated)
        fields: dict[str, Any] = {"tile_m": self.m, "tile_n": self.n, "consumers": self.consumers, "stages": 2}
        fields |= {"tile_k": int(demand.step * self.steps), "resident": self.resident}
        if demand.unit == "fma":
            fields["in_flight"] = 0
        if self.n >= WIDEST or self.lean:
            fields["l2"] = "values"
        if bulk:
            staging = self.staging.get(element_type(demand.out).bytes)
            fields |= {"store": "bulk", "staging": staging and min(staging, stored)}
        return Schedule.of(**{**fields, **others})

    def suits(self, demand: Demand, *, bulk: bool) -> bool:
        """Whether it is for such sums, rows, outputs and epilogues."""
        if self.sums not in (None, demand.sums) or not self.reads(demand):
            return False
        staged = stageable(self.n, demand.out, transposed=demand.transposed, gated=demand.gated)
        room = element_type(demand.out).bytes in self.staging and demand.reads <= MOST_READS
        return not self.lean or (bulk and staged and room)

    def cuts(self, demand: Demand) -> bool:
        """Whether registers are left for the epilogue where K is cut. Not for the tile of few tokens of 8 bits: ranges take up to 13% longer
        there than predicted (`docs/perf-log.md`, section 43).
        """
        if self.unit == "fma" or self.bits == 8:
            return False
        return not self.lean or demand.reads <= CUT_READS[element_type(demand.out).bytes]

    def works(self, demand: Demand) -> tuple[Literal["tiles", "pairs"], ...]:
        """Those of `Work.unit` that are candidates of their own. Of pairs, whose kernels hold two epilogues, the tallest tiles spill, and the widest
        ones where the epilogue reads C.
        """
        spills = self.lean or self.sums == "f16" or (self.n == WIDEST and demand.reads >= MOST_READS)
        paired = demand.unit == "wgmma" and self.n >= LEAST_PAIRED and not spills
        return ("tiles", "pairs") if paired else ("tiles",)

    def ways(self, demand: Demand) -> tuple[str, ...]:
        """Those of `METADATA` that its products may have."""
        if demand.picks:
            return METADATA
        return METADATA[1:] if demand.selection.lifted and self.n <= WIDEST_STAGED else METADATA[:1]

    def takes(self, demand: Demand, metadata: str) -> bool:
        """Whether metadata may come so. Of gathered rows, only where the tile's rows are of one window, or as few as can be: every list more
        brings rows of its own, and a list of several windows is longer. Short steps are for tiles with a list for each warpgroup: their
        rings have too few stages otherwise.
        """
        if metadata not in self.ways(demand):
            return False
        if demand.pattern is None or not gathers(demand.pattern, metadata):
            return True
        length, own = Pattern.parse(demand.pattern).length, self.m // self.consumers
        if self.steps < 1 and demand.unit == "wgmma":
            return length % own == 0 and length % self.m != 0 and not demand.selection.lifted
        if self.steps < 1 or (self.steps > 1 and demand.turns):
            return False
        # CUDA cores are slow enough that each warpgroup may have a list.
        return self.m == BLOCK_ROWS or length % (own if demand.unit == "fma" else self.m) == 0


TILES = (
    # Sums in f16 take half the registers: twice the rows, and less to load for each.
    TileShape(256, WIDEST, 4, {1: 64, 2: 32, 4: 16}, sums="f16"),
    # Few staged columns leave room for a fourth stage, as gathered rows come later than boxes, or for the blocks that are turned.
    TileShape(128, WIDEST, 2, {2: 64, 4: 32}, unit="wgmma", indexed=True),
    # Two lists: a step of half the columns has as many bytes as one of a list.
    TileShape(128, WIDEST, 2, {2: 32, 4: 16}, unit="wgmma", indexed=True, turns=False, steps=0.5),
    # The first half is on its way while the other is staged.
    TileShape(128, WIDEST, 2, {2: 128}),
    # The fewest bytes a product of which two consumers hold the sums. The staged columns leave room for four stages. A producer that gathers
    # leaves them too few registers.
    TileShape(256, 192, 2, {2: 96, 4: 48}, lean=True, sums="plain", indexed=False),
    TileShape(128, 192, 2, sums="promoted"),
    TileShape(128, 128, 2),
    # Of 8 bits, tiles of 64 rows are faster for 16 to 64 tokens, though predicted slower.
    *(TileShape(128, n, 2, bits=bits) for bits in (16, 32) for n in TILE_N if n <= LEAST_DIVIDED),
    *(TileShape(64, n, 1) for n in TILE_N[:-1]),
    TileShape(128, TILE_N[0], 2, bits=8),
    # Few tokens leave little to multiply between two waits, and rows of 128 stored bytes come from memory faster than those of 64.
    *(TileShape(64, n, 1, unit="wgmma", steps=2) for n in TILE_N if n <= LEAST_DIVIDED),
    # 16 rows and 8 columns a thread: the fewest loads of a multiply-add.
    TileShape(256, 128, 2, unit="fma"),
    TileShape(128, 128, 1, unit="fma", resident=2),
    # Half of the rows of K: of few vectors in a group their box leaves little room.
    TileShape(256, 128, 2, unit="fma", steps=0.5),
    TileShape(128, 64, 2, unit="fma", steps=0.5),
)
"""Of equal times the first counts."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The demands of a product on its schedule.

    a, b, out: element types. b_major: the contiguous dimension of b. pattern: of a, None for a dense one. promoted: whether sums of 8-bit floats are added to others in f32.
    step: elements of K that a stage holds. transposed: whether the output is stored so. gated: whether it has half of the product's
    rows. reads: vectors that the epilogue reads, C counted as `MOST_READS`. dependent: as in `louver.plan`.
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
    dependent: bool = False

    @property
    def selection(self) -> Selection:
        """The way in which a selects rows of b."""
        return selection_of(self.pattern)

    @property
    def picks(self) -> bool:
        """Whether threads can pick rows of b from a stage."""
        return self.unit == "fma" and self.together(PICKERS)

    def together(self, rows: int) -> bool:
        """Whether so many rows of a, from a multiple of them on, are of one window."""
        return self.pattern is not None and Pattern.parse(self.pattern).length % rows == 0

    def depth(self, k: int, metadata: str = "global") -> int:
        """Rows of b, of K, that each row of a is multiplied with; of a list of several windows as many as they are likely to keep."""
        if self.pattern is None or not self.selection.indexed:
            return k
        pattern = Pattern.parse(self.pattern)
        if not gathers(self.pattern, metadata):
            return pattern.groups(k) * pattern.n
        # Tiles are whole windows, or have one block of rows: see `TileShape.takes`.
        windows = -(-BLOCK_ROWS // pattern.length) if pattern.length % BLOCK_ROWS else 1
        if self.selection.lifted:
            return pattern.groups(k) * pattern.shared * windows
        return round(pattern.groups(k) * pattern.m * pattern.kept_by(windows))

    @property
    def unit(self) -> Unit:
        """Its multiplier."""
        return unit_of(self.pattern, self.a)

    @property
    def turns(self) -> bool:
        """Whether rows of b are gathered, and turned on their way."""
        return turns(self.pattern, self.b)

    @property
    def sums(self) -> Literal["plain", "promoted", "f16"]:
        """The kind of sums, by what they take of the registers."""
        return "promoted" if self.promoted else "f16" if self.accumulator == "f16" else "plain"

    @classmethod
    def of_problem(cls, problem: Problem, *, dependent: bool = False) -> Demand:
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
            sum(map(bool, vectors)) + MOST_READS * (epilogue.c is not None),
            dependent,
        )

    @classmethod
    def of_nest(cls, nest: ProductNest) -> Demand:
        """Of a user's kernel. Sums that are promoted more often than the library's step take the least step."""
        step = TILE_K[element_type(nest.b.element).bits]
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
            steps_of(nest.a.element)[0] if nest.promoted is not None and nest.promoted < step else step,
            sum(MOST_READS if isinstance(each, LoadMatrix) else isinstance(each, LoadVector) for each in nodes),
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
    k: int = TYPICAL_K,
    cuts: bool = False,
    dependent: bool = False,
) -> Schedule:
    """A schedule for `a [m, k] @ b [k, n]` of the library, as `choose_for` chooses it. dependent: as in `louver.plan`."""
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
    """The candidate of the least predicted time.

    sizes: m, n, k and how many such products there are. aligned_output: the output's address, row pitch and rows' bytes are multiples
    of 16, so that bulk copies can write it. cuts: whether K may be cut into ranges.
    """
    m, n, whole, batch = sizes
    times: dict[Schedule, float] = {}
    for schedule, cutting in candidates_for(demand, target, n, bulk=aligned_output):
        sizes = m, n, demand.depth(whole, schedule.ring.metadata), batch
        if not schedule.cuts:
            times[schedule] = cutting.cycles(cutting.whole(*sizes), *sizes, sm_count)
        cut = cutting.best(*sizes, sm_count)
        tile, roles = schedule.tile, schedule.roles
        if cuts and cut.cut and TileShape.of(tile.m, tile.n, roles.consumers, demand).cuts(demand):
            cutter = schedule if schedule.cuts else schedule.changed(work="ranges")
            times[cutter] = cutting.cycles(cut, *sizes, sm_count)
    best = min(times, key=lambda each: times[each])
    # One column of tiles reads each value once, and all its tiles the dense operand.
    return best.changed(l2="even") if n <= best.tile.n else best


def _width_class(demand: Demand, n: int) -> int:
    """The width of the narrowest tile that holds n columns, or of the widest tile of all."""
    least = MIN_N_MAJOR[demand.unit] if demand.b_major == "mn" else TILE_N[0]
    if demand.unit == "wgmma" and demand.selection.indexed and not demand.turns:
        least = MIN_GATHERED
    return next((width for width in TILE_N if width >= max(n, least)), WIDEST)


def candidates_for(demand: Demand, target: Target, n: int, *, bulk: bool) -> tuple[tuple[Schedule, Cutting], ...]:
    """The schedules that `choose_for` chooses from for n columns, of whole tiles or pairs; the first may be cut into ranges too.

    bulk: whether bulk copies can write the output.
    """
    return _candidates(demand, target, _width_class(demand, n), bulk=bulk)


@functools.lru_cache(maxsize=256)
def _candidates(demand: Demand, target: Target, widest: int, *, bulk: bool) -> tuple[tuple[Schedule, Cutting], ...]:
    """Tiles of at most that width, metadata by registers or in the stage, with rings as deep as they can be."""
    found: list[tuple[Schedule, Cutting]] = []
    for shape, work in ((each, work) for each in TILES for work in each.works(demand)):
        most = widest if work == "tiles" else max(widest, LEAST_PAIRED)
        if not min(widest, LEAST_DIVIDED) <= shape.n <= most or not shape.suits(demand, bulk=bulk):
            continue
        for metadata in METADATA:
            if not shape.takes(demand, metadata):
                continue
            fields = {"metadata": metadata, "dependent": demand.dependent, "work": work}
            try:
                schedule = _deepest(demand, shape.schedule(demand, bulk=bulk, **fields), target)
            except ValueError:
                # The sums do not fit the registers, or two stages the shared memory.
                continue
            found.append((schedule, Cutting.of(demand, schedule)))
    return tuple(found)


def choose_for_nest(
    nest: ProductNest, target: Target, *, aligned_output: bool, fixed: Mapping[str, Any] | None = None
) -> Schedule:
    """A schedule of a kernel whose tile of the output is its user's: what `choose` would take for a library product of that tile.

    aligned_output: as for `choose`. fixed: fields of the schedule that the user says; the others go by them.
    Raises ValueError for a product without a 2:4 sparse operand, a tile that no number of warpgroups goes with, and for fields that do not go together.
    """
    require_sparse(nest)
    if nest.tile_m % 64:
        raise ValueError(
            f"a warpgroup multiplies whole blocks of 64 rows of the sparse operand, got a tile of {nest.tile_m}: "
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
    # The staged columns of bulk stores may leave no room for two stages.
    for stored in dict.fromkeys((bulk, False)):
        found: list[Schedule] = []
        for way in ways:
            try:
                found.append(_deepest(demand, shape.schedule(demand, bulk=stored, **own | {"metadata": way}), target))
            except ValueError as error:
                refusal = refusal or error
        if found:
            return min(found, key=lambda each: step_clocks(demand, each) * demand.depth(TYPICAL_K, each.ring.metadata))
    assert refusal is not None
    raise refusal


def _shape_for(nest: ProductNest, demand: Demand, given: Mapping[str, Any], target: Target) -> TileShape:
    """The nest's tile with a number of warpgroups that holds its sums. Raises the first number's ValueError where none does."""
    refusal = None
    # The widest tile is the library's for sums in f16, with its warpgroups.
    preferred = (4, *CONSUMERS) if (nest.tile_m, nest.tile_n) == (256, WIDEST) else CONSUMERS
    for number in (given["consumers"],) if "consumers" in given else preferred:
        shape = TileShape.of(nest.tile_m, nest.tile_n, number, demand)
        try:
            _check_registers(demand, shape.schedule(demand, bulk=False, **given), target)
        except ValueError as error:
            refusal = refusal or error
        else:
            return shape
    assert refusal is not None
    raise refusal


def deepest(problem: Problem, schedule: Schedule, target: Target) -> Schedule:
    """The schedule with as many stages as shared memory holds, at most `MAX_STAGES`; 1 without a producer.

    Raises ValueError where two stages do not fit, or the sums do not fit the registers.
    """
    return _deepest(Demand.of_problem(problem), schedule, target)


def _check_registers(demand: Demand, schedule: Schedule, target: Target) -> None:
    lists = lists_of(demand.pattern, schedule)
    promoted, turned = demand.promoted, demand.turns
    check_registers(
        schedule, demand.accumulator, target, promoted=promoted, lists=lists, unit=demand.unit, turned=turned
    )


def _deepest(demand: Demand, schedule: Schedule, target: Target) -> Schedule:
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
        raise ValueError(
            f"two stages of {stage} bytes do not fit the {room} bytes of shared memory of {target.name}: use a smaller tile"
        )
    return schedule.changed(stages=min(MAX_STAGES, stages))
