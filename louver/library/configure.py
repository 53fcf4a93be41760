"""Chooses the schedule of a product: the candidate with the least predicted time."""

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
"""The tile widths that bound a product's tiles by its columns. `TILES` has more."""

MIN_N_MAJOR: Mapping[Unit, int] = {"wgmma": 64, "fma": fma_block.WIDTHS[0]}
"""Least tile width with an N-major dense operand, by multiplier.

On tensor cores it is one swizzle span of 16-bit elements, on CUDA cores the lanes of a warp.
"""

MIN_GATHERED = 16
"""Least tile width of gathered rows on tensor cores: one swizzle span of 32 bytes, in 16-bit elements."""

TILE_K = {32: 32, 16: 64, 8: 128}
"""Dense K elements of a stage, by bits of an element: 64 bytes of a row of stored values, 128 of the dense operand."""

BARRIER_ROOM = 1024
"""Bytes of shared memory reserved for barriers."""

MAX_STAGES = 13
"""Most stages of a ring. With 16 stages, most products of up to 32 tokens take up to 4% longer (`docs/perf-log.md`,
section 57). With 8, they take up to 13% longer.
"""

MANY_STAGES, DEEP_BYTES = 8, 184_000
"""A ring of more than `MANY_STAGES` stages holds at most `DEEP_BYTES`.

Deeper rings of narrow tiles take up to 10% longer. Their CTAs probably drift apart along K, so that they share fewer
reads of the L2 cache.
"""

CONSUMERS = (2, 1, 3, 4)
"""Numbers of consumer warpgroups, in the order in which they are tried for a user's tile."""

WIDEST = TILE_N[-1]

LEAST_PAIRED = 16
"""Least tile width of a pair: each CTA stores 8 columns."""

LEAST_DIVIDED = 64
"""Least tile width of a product that is wider than one tile. Narrower tiles have too few products a step."""

METADATA = ("global", "stage")
"""Ways of metadata among the candidates: loads into registers ("global"), or bulk copies into the stage ("stage")."""

WIDEST_STAGED = 128
"""Widest tile whose metadata goes through the stage.

Wider tiles are slower that way. Where values are few, the metadata also costs them a stage.
"""

TYPICAL_K = 4096
"""The K that is assumed where it is unknown."""

MOST_READS = 3
"""Most vectors that an epilogue of lean tiles may read, for lack of registers. C counts as this many."""

CUT_READS = {2: 2, 4: 1}
"""Most vectors that such an epilogue may read where K is cut, by bytes of an output element."""


@dataclass(frozen=True, slots=True)
class TileShape:
    """A tile that the library compiles, with the fields and limits that depend on it.

    m, n: rows and columns of the tile.
    consumers: consumer warpgroups.
    staging: columns that are staged at a time for bulk stores, by bytes of an output element. `output_layout` chooses
        them for other sizes.
    lean: whether the sums leave few registers. Such a tile takes only bulk stores of outputs in `staging`.
    reads: most vectors that an epilogue may read, for lack of registers; None for any. C counts as `MOST_READS`.
    sums: the kind of sums that it is for; None for any.
    unit: the multiplier that it is for; None for any.
    indexed: whether it is for patterns of vectors; None for all patterns.
    turns: whether it is for gathered rows that are transposed on their way; None for all.
    bits: bits of an element of a that it is for; None for any.
    dependent: whether it is for dependent launches; None for all launches.
    resident: CTAs on an SM.
    steps: factor on the K elements that a stage usually holds.
    lone: whether it is for whole tiles of outputs with one column of tiles only.

    With lean tiles and the widest ones, the L2 cache keeps the values.
    """

    m: int
    n: int
    consumers: int
    staging: Mapping[int, int] = field(default_factory=dict[int, int])
    lean: bool = False
    reads: int | None = None
    sums: Literal["plain", "promoted", "f16"] | None = None
    unit: Unit | None = None
    indexed: bool | None = None
    turns: bool | None = None
    bits: int | None = None
    dependent: bool | None = None
    resident: Literal[1, 2] = 1
    steps: float = 1
    lone: bool = False

    @classmethod
    def of(cls, m: int, n: int, consumers: int, demand: Demand) -> TileShape:
        """The tile of this size in `TILES` for such operands and their multiplier, or else a plain tile."""
        known = (each for each in TILES if (each.m, each.n, each.consumers) == (m, n, consumers) and each.fits(demand))
        return next(known, cls(m, n, consumers))

    def fits(self, demand: Demand) -> bool:
        """Whether the tile is for such operands, their multiplier and such launches."""
        selection = self.indexed in (None, demand.selection.indexed) and self.turns in (None, demand.turns)
        bits = self.bits in (None, element_type(demand.a).bits)
        launches = self.dependent in (None, demand.dependent)
        return selection and bits and launches and self.unit in (None, demand.unit)

    def schedule(self, demand: Demand, *, bulk: bool, **others: Any) -> Schedule:
        """A schedule of this tile, for outputs with many columns of tiles.

        bulk: whether bulk copies can write the output.
        others: fields that are given.
        """
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
        """Whether the tile is for such sums, operands, outputs and epilogues."""
        if self.sums not in (None, demand.sums) or not self.fits(demand):
            return False
        staged = stageable(self.n, demand.out, transposed=demand.transposed, gated=demand.gated)
        if self.reads is not None and demand.reads > self.reads:
            return False
        return not self.lean or (bulk and staged and element_type(demand.out).bytes in self.staging)

    def cuts(self, demand: Demand) -> bool:
        """Whether the tile may be cut along K: the epilogue needs enough registers.

        The tile for few tokens of 8 bits is not cut. Its ranges take up to 13% longer than predicted
        (`docs/perf-log.md`, section 43). Tiles for CUDA cores are not cut either.
        """
        if self.unit == "fma" or self.bits == 8 or self.lone:
            return False
        return not self.lean or demand.reads <= CUT_READS[element_type(demand.out).bytes]

    def works(self, demand: Demand) -> tuple[Literal["tiles", "pairs"], ...]:
        """The values of `Work.unit` that are candidates in their own right.

        A kernel of pairs holds two epilogues. With them the tallest tiles spill. So do the widest ones and those of three
        consumers if the epilogue reads C or as many vectors.
        """
        large = self.n == WIDEST or self.consumers == 3
        spills = self.lean or self.sums == "f16" or (large and demand.reads >= MOST_READS)
        paired = demand.unit == "wgmma" and self.n >= LEAST_PAIRED and not (spills or self.lone)
        return ("tiles", "pairs") if paired else ("tiles",)

    def ways(self, demand: Demand) -> tuple[str, ...]:
        """The ways in `METADATA` that products of this tile may use."""
        if demand.picks:
            return METADATA
        return METADATA[1:] if demand.selection.lifted and self.n <= WIDEST_STAGED else METADATA[:1]

    def takes(self, demand: Demand, metadata: str) -> bool:
        """Whether this tile may use that way of metadata.

        A tile for gathered rows should have few lists. Each list brings rows of its own, and a list that covers several
        windows is longer. So the rows of the tile are one window's, or the tile has the least number of rows. On CUDA
        cores each warpgroup may have a list.

        Short steps on tensor cores are for tiles with a list for each warpgroup, whose rings would otherwise have too
        few stages.
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
        # CUDA cores are so slow that a list for each warpgroup costs no time.
        return self.m == BLOCK_ROWS or length % (own if demand.unit == "fma" else self.m) == 0


TILES = (
    # Sums in f16 take half the registers. The tile has twice the rows, and loads fewer bytes for each row.
    TileShape(256, WIDEST, 4, {1: 64, 2: 32, 4: 16}, sums="f16"),
    # Few staged columns leave room in shared memory: for a fourth stage, because gathered rows arrive later than boxes,
    #     or for the blocks that are transposed.
    TileShape(128, WIDEST, 2, {2: 64, 4: 32}, unit="wgmma", indexed=True),
    # With two lists, a step of half the columns has as many bytes as a full step with one list.
    TileShape(128, WIDEST, 2, {2: 32, 4: 16}, unit="wgmma", indexed=True, turns=False, steps=0.5),
    # One half is written out while the other half is staged.
    TileShape(128, WIDEST, 2, {2: 128}),
    # Of the tiles whose sums fit two consumers, this one loads the fewest bytes for each product. The staged columns
    # leave room for four stages. A producer that gathers would leave the consumers too few registers.
    TileShape(256, 192, 2, {2: 96, 4: 48}, lean=True, reads=MOST_READS, sums="plain", indexed=False),
    TileShape(256, 160, 2, {2: 80, 4: 32}, lean=True, reads=MOST_READS, sums="plain", indexed=False),
    # More sizes of tiles leave fewer columns of a last tile, and fewer SMs of a last wave, without work.
    # Three consumers have 160 registers a thread: with more vectors they spill.
    TileShape(192, 160, 3, reads=1, indexed=False),
    TileShape(192, 128, 3, reads=MOST_READS, indexed=False),
    *(TileShape(128, n, 2, indexed=False) for n in (192, 160, 96)),
    TileShape(128, 192, 2, sums="promoted", indexed=True),
    TileShape(128, 128, 2),
    # With 8 bits, tiles of 64 rows are faster for 16 to 64 tokens, though their predicted time is longer.
    # Tiles of 64 rows end at times that differ less, so that the next of the dependent launches begins sooner.
    *(
        TileShape(128, n, 2, bits=bits, indexed=indexed, dependent=None if indexed else False)
        for bits in (16, 32)
        for indexed in (False, True)
        for n in TILE_N
        if n <= LEAST_DIVIDED
    ),
    TileShape(64, 96, 1, indexed=False),
    *(TileShape(64, n, 1) for n in TILE_N[:-1]),
    TileShape(128, TILE_N[0], 2, bits=8),
    # With few tokens there is little to multiply between two waits. Rows of 128 stored bytes also come from memory
    # faster than rows of 64.
    *(TileShape(64, n, 1, unit="wgmma", steps=2) for n in TILE_N if n <= LEAST_DIVIDED),
    # Where lower tiles leave a last wave almost empty, taller ones need one wave less. In tiles of 64 columns, longer
    # steps would leave few stages.
    *(
        TileShape(m, n, consumers, unit="wgmma", indexed=False, dependent=False, steps=steps, lone=True)
        for m, consumers in ((192, 3), (256, 2))
        for n in TILE_N
        if n <= LEAST_DIVIDED
        for steps in ((1, 2) if n < LEAST_DIVIDED else (1,))
    ),
    # 16 rows and 8 columns for each thread: the fewest loads for each multiply-add.
    TileShape(256, 128, 2, unit="fma"),
    TileShape(128, 128, 1, unit="fma", resident=2),
    # Half of the rows of K: with few vectors in a group, a full step's box leaves little room.
    TileShape(256, 128, 2, unit="fma", steps=0.5),
    TileShape(128, 64, 2, unit="fma", steps=0.5),
)
"""The tiles of the library. If predicted times are equal, the first one is chosen."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The properties of a product that decide about its schedule.

    a, b, out: element types of the operands and the output.
    b_major: the contiguous dimension of b.
    pattern: the sparsity pattern of a; None for a dense a.
    accumulator: element type of the sums.
    promoted: whether sums of 8-bit floats are added to other sums in f32.
    transposed: whether the output is stored transposed.
    gated: whether the output has half of the product's rows.
    step: K elements that a stage usually holds.
    reads: vectors that the epilogue reads. C counts as `MOST_READS`.
    dependent: as in `louver.plan`.
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
        """Whether any `rows` rows of a that start at a multiple of `rows` are in one window."""
        return self.pattern is not None and Pattern.parse(self.pattern).length % rows == 0

    def depth(self, k: int, metadata: str = "global") -> int:
        """Rows of b that each row of a is multiplied with.

        For a list that covers several windows, it is the expected number of rows that these keep.
        """
        if self.pattern is None or not self.selection.indexed:
            return k
        pattern = Pattern.parse(self.pattern)
        if not gathers(self.pattern, metadata):
            return pattern.groups(k) * pattern.n
        # The rows of a tile are one window's, or the tile has one block of rows: see `TileShape.takes`.
        windows = -(-BLOCK_ROWS // pattern.length) if pattern.length % BLOCK_ROWS else 1
        if self.selection.lifted:
            return pattern.groups(k) * pattern.shared * windows
        return round(pattern.groups(k) * pattern.m * pattern.kept_by(windows))

    @property
    def unit(self) -> Unit:
        """The multiplier of the product."""
        return unit_of(self.pattern, self.a)

    @property
    def turns(self) -> bool:
        """Whether rows of b are gathered, and transposed on their way."""
        return turns(self.pattern, self.b)

    @property
    def sums(self) -> Literal["plain", "promoted", "f16"]:
        """The kind of sums, which decides how many registers they take."""
        return "promoted" if self.promoted else "f16" if self.accumulator == "f16" else "plain"

    @classmethod
    def of_problem(cls, problem: Problem, *, dependent: bool = False) -> Demand:
        """The demand of a product of the library."""
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
        """The demand of a user's kernel.

        If its sums are promoted more often than once in the library's step, it takes the shortest step.
        """
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
    # With one column of tiles, each value is read once, and every tile reads the whole dense operand.
    return best.changed(l2="even") if n <= best.tile.n else best


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
            except ValueError:
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

    Raises ValueError unless the left operand is sparse with K contiguous, for a tile that fits no number of warpgroups, and for
    fields that are not compatible.
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
    # The staged columns of a bulk store may leave no room for two stages.
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
    """The nest's tile with the first number of warpgroups whose registers hold its sums. The library's number comes first.

    Raises the ValueError of the first number if none does.
    """
    refusal = None
    known = (each for each in TILES if (each.m, each.n) == (nest.tile_m, nest.tile_n) and each.fits(demand))
    preferred = dict.fromkeys((*(each.consumers for each in known), *CONSUMERS))
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
    """The schedule with as many stages as fit the shared memory, `MAX_STAGES` and `DEEP_BYTES`; 1 without a producer.

    Raises ValueError if two stages do not fit the shared memory, or the sums do not fit the registers.
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
    return schedule.changed(stages=min(MAX_STAGES, stages, max(MANY_STAGES, DEEP_BYTES // stage)))
