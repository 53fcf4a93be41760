"""The tiles that the library compiles, with the fields and limits that depend on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from louver.choose.demand import MOST_READS, Demand
from louver.compile.plan.layout import BLOCK_ROWS, stageable
from louver.compile.plan.schedule import Schedule, gathers
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.ir.product import Unit

TILE_N = (8, 16, 32, 64, 128, 256)
"""The tile widths that bound a product's tiles by its columns. `TILES` has more."""

WIDEST = TILE_N[-1]

CLASS_COLUMNS = 16
"""All tile widths but 8 are multiples of this number."""

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

CUT_READS = {2: 2, 4: 1}
"""Most vectors that such an epilogue may read where K is cut, by bytes of an output element; of a gated product one less."""


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
        (`docs/perf-log/43-power-model.md`). Tiles for CUDA cores are not cut either.
        """
        if self.unit == "fma" or self.bits == 8 or self.lone:
            return False
        return not self.lean or demand.reads + demand.gated <= CUT_READS[element_type(demand.out).bytes]

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
    # Sums in f16 take half the registers. The tile has twice the rows, and loads fewer bytes for each row. A producer that
    # transposes gathered rows has too few registers beside four consumers.
    TileShape(256, WIDEST, 4, {1: 64, 2: 32, 4: 16}, sums="f16", turns=False),
    # Few staged columns leave room in shared memory: for a fourth stage, because gathered rows arrive later than boxes,
    #     or for the blocks that are transposed.
    TileShape(128, WIDEST, 2, {2: 64, 4: 32}, unit="wgmma", indexed=True),
    # With two lists, a step of half the columns has as many bytes as a full step with one list.
    TileShape(128, WIDEST, 2, {2: 32, 4: 16}, unit="wgmma", indexed=True, turns=False, steps=0.5),
    # One half is written out while the other half is staged.
    TileShape(128, WIDEST, 2, {2: 128}),
    # Of the tiles whose sums fit two consumers, these load the fewest bytes for each product. The staged columns leave
    # room for four stages. A producer that gathers would leave the consumers too few registers.
    *(
        TileShape(256, n, 2, staging, lean=True, reads=MOST_READS, sums="plain", indexed=False)
        for n, staging in ((192, {2: 96, 4: 48}), (176, {2: 96, 4: 48}), (160, {2: 80, 4: 32}))
    ),
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


def column_class(n: int) -> int:
    """The greatest N of the class of `n`. All N of a class have as many columns of tiles, for each candidate tile.

    The library chooses the same schedule for both, because predicted times count whole tiles.
    """
    width = TILE_N[0] if n <= TILE_N[0] else CLASS_COLUMNS
    return -(-n // width) * width
