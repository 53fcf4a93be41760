"""Shared-memory layout of the tiles of a stage: boxes, swizzles and the offsets that each product reads.

The values of the left operand have one record, and the dense operand has another. The generator makes copies and
products from them. The signature makes tensor maps from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from louver.compile.plan.schedule import Schedule
from louver.compile.plan.turned import PART_BYTES, Turned
from louver.formats.dtypes import element_type
from louver.formats.lists import PICK_BYTES, PICKERS
from louver.formats.pattern import Pattern
from louver.ir.product import Selection, Unit
from louver.isa.bulk import SwizzleBytes
from louver.isa.metadata import LOAD_BYTES, columns_per_load
from louver.isa.rule import RuleError
from louver.isa.targets import TENSOR_MAP_MAX_BOX

SPAN = 128
"""The widest swizzle span in bytes. The inner dimension of a box is at most this wide."""

STAGED_BYTES = 32
"""Bytes of columns that are staged together: two pieces of 16 bytes of a line. Bytes of a chunk's line are a multiple.
"""

BLOCK_ROWS = 64
"""Rows of sums that a warpgroup holds in one set of accumulators."""

COMBINED = 32
"""Registers of partial sums that a thread reads at a time. Their loads overlap."""

STAGED_WORDS = 32
"""Columns of 32-bit results that are staged at a time.

Twice as many cost narrow tiles a stage or two, and do not make the widest one faster (`docs/perf-log/60-tiles-256x176.md`).
"""


@dataclass(frozen=True, slots=True)
class OperandLayout:
    """The tile of one operand in a stage.

    box: elements of a copy in each dimension, innermost first.
    copies: copies of a stage.
    copy_step: distance from one copy to the next in each dimension, in elements, innermost first.
    swizzle: span in bytes.
    element_bytes: bytes of an element.
    major: the contiguous dimension, "k" or "mn".
    """

    box: tuple[int, int]
    copies: int
    copy_step: tuple[int, int]
    swizzle: SwizzleBytes
    element_bytes: int
    major: Literal["k", "mn"]

    @property
    def box_bytes(self) -> int:
        """Bytes of one copy."""
        return self.box[0] * self.box[1] * self.element_bytes

    @property
    def bytes(self) -> int:
        """Bytes of the operand's tile in a stage."""
        return self.box_bytes * self.copies

    def offset(self, column: int) -> int:
        """Bytes from the tile's start to stored column `column` along K."""
        if self.major == "mn":
            return column * self.box[0] * self.element_bytes
        box, inside = divmod(column, self.box[0])
        return box * self.box_bytes + inside * self.element_bytes


def values_layout(schedule: Schedule, element: str, selection: Selection) -> OperandLayout:
    """The values of the left operand: rows along K. A lifted operand stores half of K."""
    stored = schedule.tile.k // (2 if selection.lifted else 1)
    return _k_major(stored, schedule.tile.m, element)


def dense_layout(
    schedule: Schedule, element: str, major: Literal["k", "mn"], picked: Pattern | None = None
) -> OperandLayout:
    """The dense operand: boxes of one swizzle span, side by side along K (K-major) or along N (MN-major).

    picked: the pattern by which threads pick rows of K. The layout is then one box without a swizzle. The box has all
    rows of the groups of a step.
    """
    if picked is not None:
        rows, size = picked_rows(picked, schedule.tile.k), element_type(element).bytes
        return OperandLayout((schedule.tile.n, rows), 1, (0, 0), 0, size, "mn")
    if major == "k":
        return _k_major(schedule.tile.k, schedule.tile.n, element)
    size = element_type(element).bytes
    inner = min(schedule.tile.n, SPAN // size)
    if schedule.tile.n % inner or inner * size not in (32, 64, 128):
        raise RuleError(
            f"an N-major dense tile of {element} is made of whole swizzle spans: tile_n must be {32 // size}, {64 // size} or a multiple "
            f"of {SPAN // size}, got {schedule.tile.n}"
        )
    return OperandLayout(
        (inner, schedule.tile.k), schedule.tile.n // inner, (inner, 0), _span(inner * size), size, "mn"
    )


def picked_rows(pattern: Pattern, step: int) -> int:
    """The largest number of rows of K in the groups of `step` stored columns. A step may begin within a group.

    The number is even. So a box of the narrowest block is a multiple of 128 bytes, as bulk copies need it.
    """
    groups = step // pattern.n if step % pattern.n == 0 else (step - 2) // pattern.n + 2
    return groups * pattern.m + groups * pattern.m % 2


def require_picks(pattern: str | None, unit: Unit, schedule: Schedule) -> Pattern:
    """The pattern by which threads pick rows of a stage. Raises ValueError if they cannot pick rows."""
    way = schedule.ring.metadata
    if unit != "fma" or pattern is None or way != "stage":
        raise RuleError(
            f"stages hold metadata of 2:4 operands, and rows to pick of f32, got {way!r} for {pattern}: use 'global'"
        )
    parsed = Pattern.parse(pattern)
    if parsed.length % PICKERS:
        raise RuleError(f"{PICKERS} rows pick together, got windows of {parsed.length} rows: use metadata 'global'")
    rows = picked_rows(parsed, schedule.tile.k)
    if rows > TENSOR_MAP_MAX_BOX:
        raise RuleError(
            f"a box has {TENSOR_MAP_MAX_BOX} rows of K at most, got {pattern}, of which {schedule.tile.k} columns come from {rows}: use metadata 'global'"
        )
    return parsed


def _k_major(columns: int, rows: int, element: str) -> OperandLayout:
    """Rows along K, in boxes of one swizzle span side by side."""
    size = element_type(element).bytes
    inner = min(columns, SPAN // size)
    return OperandLayout((inner, rows), columns // inner, (inner, 0), _span(inner * size), size, "k")


def metadata_bytes(schedule: Schedule, element: str, selection: Selection) -> int:
    """Bytes of metadata or of picks in a stage, for all rows of the tile; 0 if stages hold neither."""
    if selection == Selection() or schedule.ring.metadata == "global":
        return 0
    if selection.lifted:
        return schedule.tile.m // 64 * schedule.tile.k * LOAD_BYTES // columns_per_load(element)
    return schedule.tile.m // PICKERS * schedule.tile.k * PICK_BYTES


def blocks_bytes(schedule: Schedule, lists: int) -> int:
    """Bytes of the blocks that threads of the producer copy and turn in a step, for this number of lists."""
    return lists * Turned(schedule.tile.n, schedule.tile.k).parts * PART_BYTES


def parts_together(registers: int) -> int:
    """The number of parts of a tile, cut along K, that a thread reads at a time. registers: its registers of sums."""
    return max(1, COMBINED // registers)


@dataclass(frozen=True, slots=True)
class OutputLayout:
    """How warpgroups stage an output: in chunks of `rows` rows of m and `columns` columns of n, in turn.

    A chunk has the output rows of 64 rows of sums: 64, or 32 for a gated product. The last chunk may have fewer columns.
    So a chunk is sent by copies of boxes that divide all chunks.

    box: elements of a copy in each dimension, innermost first.
    swizzle: span in bytes; a staged line is as long.
    element_bytes: bytes of an element.
    buffers: buffers of each warpgroup. A chunk takes one.
    warpgroups: warpgroups that store.
    """

    rows: int
    columns: int
    box: tuple[int, int]
    swizzle: SwizzleBytes
    element_bytes: int
    buffers: int
    warpgroups: int

    @property
    def bytes(self) -> int:
        """Bytes of the staging area."""
        return self.rows * self.columns * self.element_bytes * self.buffers * self.warpgroups


def output_layout(schedule: Schedule, element: str, *, transposed: bool, gated: bool = False) -> OutputLayout:
    """The staged output. A box has one line along n for each row, or (transposed) one line along m for each column.

    A tile is staged `schedule.store.staging` columns at a time. By default, 8- and 16-bit results are staged at once,
    and 32-bit results `STAGED_WORDS` columns at a time. There are two buffers if there is more than one chunk.

    gated: two rows of sums give one row of the output.

    Raises ValueError if the columns of a tile or chunk are not a multiple of `staged_columns`.
    """
    size = element_type(element).bytes
    least = staged_columns(element, transposed=transposed, gated=gated)
    if least is None:
        raise RuleError(f"gated products store {element} along their rows directly, got a bulk store")
    stored = schedule.stored_columns
    if stored % least:
        raise RuleError(
            f"bulk stores of {element} take tiles of a multiple of {least} columns, got {stored}: store directly"
        )
    columns = schedule.store.staging or (min(stored, STAGED_WORDS) if size == 4 else stored)
    common = math.gcd(stored, columns)
    if columns % least:
        raise RuleError(
            f"{element} is staged in multiples of {least} columns, got staging {columns}: stage more at a time"
        )
    rows = BLOCK_ROWS // (2 if gated else 1)
    if transposed:
        span = min(SPAN, rows * size)
        box = (span // size, common)
    else:
        span = math.gcd(SPAN, common * size)
        box = (span // size, rows)
    buffers = min(2, schedule.blocks * -(-schedule.tile.n // columns))
    return OutputLayout(rows, columns, box, _span(span), size, buffers, schedule.roles.consumers)


def staged_columns(element: str, *, transposed: bool, gated: bool) -> int | None:
    """The columns of a staged chunk are a multiple of this number; None if results cannot be staged.

    In a gated product a warp has 8 output rows in place of 16. So the four matrices of a store instruction span twice
    as many columns. A column of 8-bit results has only 8 bytes, and a piece needs 16.
    """
    size = element_type(element).bytes
    if gated and size < 4:
        return None if transposed and size == 1 else 2 * STAGED_BYTES // size
    return STAGED_BYTES // size


def stageable(tile_n: int, element: str, *, transposed: bool, gated: bool = False) -> bool:
    """Whether bulk stores take tiles of `tile_n` columns."""
    least = staged_columns(element, transposed=transposed, gated=gated)
    return least is not None and tile_n % least == 0


def _span(size: int) -> SwizzleBytes:
    if size not in (32, 64, 128):
        raise RuleError(f"a box's inner dimension must fill a swizzle span of 32, 64 or 128 bytes, got {size}")
    return size
