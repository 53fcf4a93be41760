"""Encodings of tiles: attributes of a tensor type that give the register, lane and warp of each element.

    #tt.blocked<{sizePerThread = [1, 1], threadsPerWarp = [1, 32], warpsPerCTA = [4, 1], order = [1, 0]}>
    #tt.mma<{version = 2, warpsPerCTA = [2, 1], instrShape = [16, 8]}>
    #tt.mma<{version = 3, warpsPerCTA = [4, 1], instrShape = [64, 128]}>
    #tt.dot_op<{opIdx = 0, parent = #tt.mma<…>, kWidth = 2, meta = 0}>
    #tt.slice<{dim = 1, parent = #tt.mma<…>}>
    #tt.linear<{register = [[0, 1]], lane = [[0, 2], …], warp = []}>

`meta` is the role of a tile: -1 for a dense operand, 0 for the values and 1 for the metadata of a sparse operand. A
further array of a sparse format would get a further number, with an entry in `OPERAND_STEPS`. Fragments of lanes come
from `louver.isa.mma_fragments`.

Source: the sparse compiler's document, "Sparse GPU Encodings". `blocked`, `slice` and `linear` are as in Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import ClassVar, TypeAlias, cast

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile.layout import LANE_BITS, Layout, Steps, Vector
from louver.ir.tile.metadata import WORD_ENTRIES
from louver.isa.fragments import ROWS as WARPGROUP_ROWS
from louver.isa.mma_fragments import COLUMNS, ROWS, ElementBits, warp_accumulator, warp_operand_a, warp_operand_b
from louver.isa.rule import RuleError
from louver.isa.targets import WARPS_PER_WARPGROUP

Integers: TypeAlias = ArrayAttr[IntAttr]

DENSE, VALUES, METADATA = -1, 0, 1
"""The values of `meta`: the role of a tile of a dot's operand."""

BYTES_TAKEN = 4
"""Neighbouring bytes that a thread reads at once from a matrix of bytes that it transposes."""


def integers(numbers: Sequence[int]) -> Integers:
    """An attribute with these numbers."""
    return ArrayAttr([IntAttr(number) for number in numbers])


def numbers_of(attribute: Integers) -> Vector:
    """The numbers of an attribute."""
    return tuple(each.data for each in attribute)


class Encoding(ParametrizedAttribute):
    """The encoding of a tile of any shape. FIELDS: the names of the parameters in the text, in order."""

    FIELDS: ClassVar[tuple[str, ...]] = ()
    OPTIONAL: ClassVar[dict[str, int]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A definition of xDSL would give each class a hash of its own.
        cls.__hash__ = Encoding.__hash__

    def __hash__(self) -> int:
        # Kept: an encoding has up to a hundred parts, and planning looks up thousands of tiles by their encodings.
        kept = vars(self)
        if "hash" not in kept:
            kept["hash"] = hash(self.parameters)
        return kept["hash"]

    def layout(self, shape: Sequence[int]) -> Layout:
        """The layout of a tile of `shape`. Raises ValueError for a shape that the encoding does not fit."""
        return _layout(self, tuple(shape))

    def layout_of(self, shape: Vector) -> Layout:
        """The same, computed anew."""
        raise TypeError(f"{type(self).__name__} has no layout for {list(shape)}")

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        raise TypeError(f"{type(self).__name__} has no number of warps")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        found: dict[str, Attribute] = {name: IntAttr(number) for name, number in cls.OPTIONAL.items()}
        with parser.in_angle_brackets():
            for name, value in parser.parse_comma_separated_list(parser.Delimiter.BRACES, lambda: _parse_field(parser)):
                found[name] = value
        if set(found) != set(cls.FIELDS):
            parser.raise_error(f"{cls.name} has the fields {', '.join(cls.FIELDS)}, got {', '.join(found)}")
        return [found[name] for name in cls.FIELDS]

    def print_parameters(self, printer: Printer) -> None:
        fields = [
            (name, value)
            for name, value in zip(self.FIELDS, self.parameters, strict=True)
            if not (name in self.OPTIONAL and value == IntAttr(self.OPTIONAL[name]))
        ]
        printer.print_string("<{")
        for index, (name, value) in enumerate(fields):
            printer.print_string(f"{', ' if index else ''}{name} = ")
            _print_value(printer, value)
        printer.print_string("}>")


@lru_cache(maxsize=4096)
def _layout(encoding: Encoding, shape: Vector) -> Layout:
    return encoding.layout_of(shape)


def _parse_field(parser: AttrParser) -> tuple[str, Attribute]:
    name = parser.parse_identifier()
    parser.parse_punctuation("=")
    return name, _parse_value(parser)


def _parse_value(parser: AttrParser) -> Attribute:
    number = parser.parse_optional_integer(allow_boolean=False)
    if number is not None:
        return IntAttr(number)
    listed = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_value(parser))
    return parser.parse_attribute() if listed is None else ArrayAttr(listed)


def _print_value(printer: Printer, value: Attribute) -> None:
    match value:
        case IntAttr():
            printer.print_string(str(value.data))
        case ArrayAttr():
            printer.print_string("[")
            printer.print_list(value, lambda each: _print_value(printer, each))
            printer.print_string("]")
        case _:
            printer.print_attribute(value)


@irdl_attr_definition
class BlockedAttr(Encoding):
    """Neighbouring elements are in neighbouring registers, then lanes, then warps.

    order: dimensions, the fastest first.
    """

    name = "tt.blocked"
    FIELDS = ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order")
    sizes: Integers
    lanes: Integers
    warps_per_cta: Integers
    order: Integers

    @classmethod
    def default(
        cls,
        shape: Sequence[int],
        warps: int,
        together: int = 1,
        order: Sequence[int] | None = None,
        *,
        whole: bool = False,
    ) -> BlockedAttr:
        """An encoding with lanes along the last dimension first, or in `order`, and warps along the first dimension
        with room.

        together: neighbours along the fastest dimension in a thread, if the tile has enough for all threads.
        whole: whether a thread has `together` neighbours in any case. Several threads may then have the same elements.
        """
        rank = len(shape)
        lanes, per_warp, left = [1] * rank, [1] * rank, 1 << LANE_BITS
        order = tuple(reversed(range(rank))) if order is None else tuple(order)
        sizes, room = [1] * rank, list(shape)
        if rank:
            fast = order[0]
            each = together if whole else max(1, prod(shape) // (warps << LANE_BITS))
            sizes[fast] = min(together, shape[fast], each)
            room[fast] //= sizes[fast]
        for dimension in order:
            lanes[dimension] = min(left, room[dimension])
            left //= lanes[dimension]
        lanes[order[-1]] *= left
        for dimension in reversed(order):
            per_warp[dimension] = min(warps, max(1, room[dimension] // lanes[dimension]))
            warps //= per_warp[dimension]
        per_warp[order[-1]] *= warps
        return cls(integers(sizes), integers(lanes), integers(per_warp), integers(order))

    @classmethod
    def turning(cls, shape: Sequence[int], warps: int, together: int, fast: int) -> BlockedAttr:
        """An encoding for the transpose of a matrix of bytes: reads are words along the other dimension, stores
        `together` bytes along `fast`.

        Two lanes are along `fast`, so that reads and stores have equal bank conflicts.
        """
        slow = 1 - fast
        sizes, lanes, per_warp = [1, 1], [1, 1], [1, 1]
        sizes[fast], sizes[slow] = min(together, shape[fast]), min(BYTES_TAKEN, shape[slow])
        room = [size // each for size, each in zip(shape, sizes, strict=True)]
        lanes[fast] = min(2, room[fast])
        lanes[slow] = min((1 << LANE_BITS) // lanes[fast], room[slow])
        lanes[fast] = min((1 << LANE_BITS) // lanes[slow], room[fast])
        lanes[slow] = (1 << LANE_BITS) // lanes[fast]
        per_warp[slow] = min(warps, max(1, room[slow] // lanes[slow]))
        per_warp[fast] = warps // per_warp[slow]
        return cls(integers(sizes), integers(lanes), integers(per_warp), integers((fast, slow)))

    @property
    def warps(self) -> int:
        found = 1
        for count in numbers_of(self.warps_per_cta):
            found *= count
        return found

    def layout_of(self, shape: Vector) -> Layout:
        order, extent = numbers_of(self.order), [1] * len(shape)
        parts = [self._spread(numbers_of(each), extent, order) for each in (self.sizes, self.lanes, self.warps_per_cta)]
        register, lane, warp = parts
        repeats = [max(1, size // length) for size, length in zip(shape, extent, strict=True)]
        return Layout.within(shape, register + self._spread(repeats, extent, order), lane, warp)

    @staticmethod
    def _spread(counts: Sequence[int], extent: list[int], order: Sequence[int]) -> Steps:
        """The steps of a number that counts `counts` elements along each dimension. `extent` grows by them."""
        found: list[Vector] = []
        for dimension in order:
            for _ in range(counts[dimension].bit_length() - 1):
                found.append(along(dimension, extent[dimension], len(extent)))
                extent[dimension] *= 2
        return tuple(found)

    def verify(self) -> None:
        fields = [numbers_of(each) for each in (self.sizes, self.lanes, self.warps_per_cta, self.order)]
        rank = len(fields[0])
        if any(len(each) != rank for each in fields) or sorted(fields[3]) != list(range(rank)):
            raise VerifyException(
                f"each field has a number for each dimension, and order names each dimension once, got {self}"
            )
        if any(number < 1 or number & (number - 1) for each in fields[:3] for number in each):
            raise VerifyException(f"sizes, threads and warps are powers of two, got {self}")
        threads = 1
        for count in fields[1]:
            threads *= count
        if threads != 1 << LANE_BITS:
            raise VerifyException(f"threadsPerWarp has {1 << LANE_BITS} threads, got {threads}")


@irdl_attr_definition
class MmaAttr(Encoding):
    """The encoding of the sums of products.

    Version 2 is for products of warps (`mma`, 16×8), version 3 of warpgroups (`wgmma`, 64×n).

    transposed: whether the tile is the transpose of the product. The other fields describe the product.
    warpsPerCTA: warps along rows and columns. In version 3 the four warps of a warpgroup are along the rows.
    """

    name = "tt.mma"
    FIELDS = ("version", "warpsPerCTA", "instrShape", "transposed")
    OPTIONAL: ClassVar[dict[str, int]] = {"transposed": 0}
    version: IntAttr
    warps_per_cta: Integers
    instruction: Integers
    transposed: IntAttr

    @classmethod
    def of(cls, rows: int, columns: int, *, transposed: bool = False) -> MmaAttr:
        """The encoding for products of warps. rows, columns: the number of warps along rows and columns of the product."""
        return cls(IntAttr(2), integers([rows, columns]), integers([ROWS, COLUMNS]), IntAttr(int(transposed)))

    @classmethod
    def of_warpgroups(cls, rows: int, columns: int, n: int, *, transposed: bool = False) -> MmaAttr:
        """The encoding for warpgroup products of n columns.

        rows, columns: warpgroups along rows and columns of the product.
        """
        warps = integers([WARPS_PER_WARPGROUP * rows, columns])
        return cls(IntAttr(3), warps, integers([WARPGROUP_ROWS, n]), IntAttr(int(transposed)))

    @property
    def of_warpgroup(self) -> bool:
        """Whether a warpgroup computes a product, with operands in shared memory."""
        return self.version.data == 3

    @property
    def warps(self) -> int:
        rows, columns = numbers_of(self.warps_per_cta)
        return rows * columns

    @property
    def columns(self) -> int:
        """Columns of a product."""
        return numbers_of(self.instruction)[1]

    def layout_of(self, shape: Vector) -> Layout:
        fragment = warp_accumulator("f32")
        rows, columns = numbers_of(self.warps_per_cta)
        inside = [(0, COLUMNS << bit) for bit in range((self.columns // COLUMNS).bit_length() - 1)]
        register = (
            *(*fragment.element, *inside),
            *_doublings(1, self.columns * columns),
            *_doublings(0, ROWS * rows),
        )
        return self.placed(shape, register, fragment.thread, self.warp_steps(ROWS, self.columns))

    def scales(self, index: int, shape: Sequence[int]) -> Layout:
        """The layout of scales of blocks, [rows of A or columns of B, blocks of K]. index: 0 for A, 1 for B.

        Source: PTX ISA, Block Scaling: of four lanes, the first two supply rows r and r + 8, or all have a column.
        """
        rows, columns = numbers_of(self.warps_per_cta)
        blocks = _doublings(1, 1)
        if index == 0:
            lanes = ((COLUMNS, 0), (0, 0), (1, 0), (2, 0), (4, 0))
            return Layout.within(shape, (*blocks, *_doublings(0, ROWS * rows)), lanes, self.warp_steps(ROWS, 0))
        lanes = ((0, 0), (0, 0), (1, 0), (2, 0), (4, 0))
        warp = [(column, row) for row, column in self.warp_steps(0, COLUMNS)]
        return Layout.within(shape, (*blocks, *_doublings(0, COLUMNS * columns)), lanes, warp)

    def warp_steps(self, row: int, column: int) -> Steps:
        """The steps of warps. row, column: rows and columns of a tile from one warp to the next; 0 if warps share them."""
        rows, columns = numbers_of(self.warps_per_cta)
        along_columns = [(0, column << bit) for bit in range(columns.bit_length() - 1)]
        along_rows = [(row << bit, 0) for bit in range(rows.bit_length() - 1)]
        return (*along_rows, *along_columns) if self.of_warpgroup else (*along_columns, *along_rows)

    def placed(
        self, shape: Sequence[int], register: Sequence[Vector], lane: Sequence[Vector], warp: Sequence[Vector]
    ) -> Layout:
        """The layout of a tile of the product, given its steps by rows and columns.

        shape: the shape of the tile. If `transposed`, the tile is the transpose of the product.
        """
        if len(shape) != 2:
            raise RuleError(f"an encoding of products is for matrices, got a tile of {list(shape)}")
        if not self.transposed.data:
            return Layout.within(shape, register, lane, warp)
        return Layout.within((shape[1], shape[0]), register, lane, warp).permuted((1, 0))

    def verify(self) -> None:
        warps, (rows, columns) = numbers_of(self.warps_per_cta), numbers_of(self.instruction)
        if len(warps) != 2 or any(count < 1 or count & (count - 1) for count in warps):
            raise VerifyException(f"warpsPerCTA has powers of two along rows and columns, got {self}")
        match self.version.data:
            case 2:
                legal = (rows, columns) == (ROWS, COLUMNS)
            case 3:
                powers = columns >= COLUMNS and columns & (columns - 1) == 0
                legal = rows == WARPGROUP_ROWS and powers and warps[0] % WARPS_PER_WARPGROUP == 0
            case _:
                legal = False
        if not legal:
            raise VerifyException(
                f"products of warps are version 2, {ROWS} x {COLUMNS}; those of warpgroups version 3, {WARPGROUP_ROWS} x a power "
                f"of two from {COLUMNS}, with four warps along the rows for each: got {self}"
            )


@irdl_attr_definition
class DotOperandAttr(Encoding):
    """The encoding of a dot's operand in the registers of its instruction. kWidth: elements of a register, along K."""

    name = "tt.dot_op"
    FIELDS = ("opIdx", "parent", "kWidth", "meta")
    OPTIONAL: ClassVar[dict[str, int]] = {"meta": DENSE}
    index: IntAttr
    parent: MmaAttr
    k_width: IntAttr
    meta: IntAttr

    @classmethod
    def of(cls, index: int, parent: MmaAttr, bits: int, meta: int = DENSE) -> DotOperandAttr:
        """The encoding of operand `index`. bits: bits of an element."""
        return cls(IntAttr(index), parent, IntAttr(32 // bits), IntAttr(meta))

    @property
    def warps(self) -> int:
        return self.parent.warps

    @property
    def is_left(self) -> bool:
        """Whether the operand is A of the instruction."""
        return self.index.data == self.parent.transposed.data

    def layout_of(self, shape: Vector) -> Layout:
        bits = cast(ElementBits, 32 // self.k_width.data)
        register, lane, warp = OPERAND_STEPS[self.meta.data](self, bits)
        return self.parent.placed(shape, register, lane, warp)

    def verify(self) -> None:
        if self.index.data not in (0, 1) or self.k_width.data not in (1, 2, 4):
            raise VerifyException(f"a dot has operands 0 and 1, with 1, 2 or 4 elements in a register, got {self}")
        if self.meta.data not in OPERAND_STEPS:
            raise VerifyException(f"meta is one of {', '.join(map(str, OPERAND_STEPS))}, got {self.meta.data}")
        if self.meta.data != DENSE and not self.is_left:
            raise VerifyException(f"an instruction's A may be sparse: transpose the product, got {self}")


OperandSteps: TypeAlias = Callable[[DotOperandAttr, ElementBits], tuple[Steps, Steps, Steps]]


def _matrix_steps(operand: DotOperandAttr, bits: ElementBits) -> tuple[Steps, Steps, Steps]:
    """The steps of a dense operand, or of the values of a sparse one.

    An instruction has the same number of columns for both.
    """
    mma = operand.parent
    rows, columns = numbers_of(mma.warps_per_cta)
    if operand.is_left:
        fragment, along, repeats = warp_operand_a(bits, 256 // bits), 1, _doublings(0, ROWS * rows)
        warp = mma.warp_steps(ROWS, 0)
    else:
        fragment, along, repeats = warp_operand_b(bits, 256 // bits), 0, _doublings(1, COLUMNS * columns)
        warp = mma.warp_steps(0, COLUMNS)
    last = fragment.element[-1][along]
    return (*fragment.element, *_doublings(along, 2 * last), *repeats), fragment.thread, warp


def _metadata_steps(operand: DotOperandAttr, bits: ElementBits) -> tuple[Steps, Steps, Steps]:
    """The steps of metadata: two halves of a word for each lane, one row for 16 rows of A (`louver.ir.tile.metadata`)."""
    rows, _ = numbers_of(operand.parent.warps_per_cta)
    lanes = tuple((0, 2 << bit) for bit in range(LANE_BITS))
    register = ((0, 1), *_doublings(1, WORD_ENTRIES), *_doublings(0, rows))
    return register, lanes, operand.parent.warp_steps(1, 0)


OPERAND_STEPS: dict[int, OperandSteps] = {DENSE: _matrix_steps, VALUES: _matrix_steps, METADATA: _metadata_steps}
"""The steps of registers, lanes and warps, by `meta`."""


@irdl_attr_definition
class SliceAttr(Encoding):
    """The tile of the parent without a dimension.

    It has the places of the parent's first row or column, or of sums over that dimension.
    """

    name = "tt.slice"
    FIELDS = ("dim", "parent")
    dim: IntAttr
    parent: Encoding

    @classmethod
    def of(cls, dim: int, parent: Encoding) -> SliceAttr:
        """The slice of `parent` without dimension `dim`."""
        return cls(IntAttr(dim), parent)

    @property
    def warps(self) -> int:
        return self.parent.warps

    def layout_of(self, shape: Vector) -> Layout:
        dim = self.dim.data
        whole = self.parent.layout((*shape[:dim], 1, *shape[dim:]))

        def without(steps: Steps) -> Steps:
            return tuple(step[:dim] + step[dim + 1 :] for step in steps)

        return Layout(shape, without(whole.register), without(whole.lane), without(whole.warp))

    def verify(self) -> None:
        if self.dim.data < 0:
            raise VerifyException(f"a dimension is counted from 0, got {self.dim.data}")


@irdl_attr_definition
class LinearAttr(Encoding):
    """An encoding that lists all steps of a layout, for tiles that are permuted or reshaped."""

    name = "tt.linear"
    FIELDS = ("register", "lane", "warp")
    register: ArrayAttr[Integers]
    lane: ArrayAttr[Integers]
    warp: ArrayAttr[Integers]

    @classmethod
    def of(cls, layout: Layout) -> LinearAttr:
        """The encoding of one layout."""
        return cls(
            *(ArrayAttr([integers(step) for step in steps]) for steps in (layout.register, layout.lane, layout.warp))
        )

    @property
    def warps(self) -> int:
        return 1 << len(self.warp.data)

    def layout_of(self, shape: Vector) -> Layout:
        return Layout.within(
            shape, *([numbers_of(step) for step in steps] for steps in (self.register, self.lane, self.warp))
        )


def along(dimension: int, step: int, rank: int) -> Vector:
    """A step along one of `rank` dimensions."""
    return tuple(step if axis == dimension else 0 for axis in range(rank))


MOST = 1 << 20
"""The largest number of elements along a dimension of a tile."""


def _doublings(dimension: int, first: int) -> Steps:
    """The steps along a dimension of a matrix from `first` on. Each is twice the one before."""
    found: list[Vector] = []
    while first < MOST:
        found.append(along(dimension, first, 2))
        first *= 2
    return tuple(found)
