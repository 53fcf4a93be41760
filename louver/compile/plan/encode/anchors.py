"""Anchors: tiles with an encoding of their own.

Sums of dots and results of reductions have one, and tiles computed from these element by element keep it. All other tiles are
computed in the encodings that their users want.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TypeAlias, cast

from xdsl.dialects import scf
from xdsl.dialects.builtin import (
    BFloat16Type,
    FixedBitwidthType,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float16Type,
    Float32Type,
    IntegerType,
    TensorType,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue

from louver.analysis.elementwise import ELEMENTWISE
from louver.analysis.passages import passages
from louver.compile.plan.encode.copied import copied_loads
from louver.compile.plan.encode.unit import (
    MOST_SUMS,
    held_sums,
    is_transposed,
    multiplies,
    product_left,
    product_shape,
    warpgroup_encoding,
)
from louver.compile.plan.feeds.chunks import Runs, chunk_of
from louver.compile.plan.feeds.neighbours import is_computed, loaded_along
from louver.compile.plan.feeds.staged_operands import staged_operands
from louver.ir.tile import (
    AtomicCASOp,
    AtomicOp,
    AtomicRMWOp,
    BlockedAttr,
    BroadcastOp,
    CombiningOp,
    CompressOp,
    DecompressOp,
    DotOp,
    ExpandDimsOp,
    FuncOp,
    GatherOp,
    JoinOp,
    LinearAttr,
    LoadOp,
    MmaAttr,
    PointerType,
    ReduceOp,
    ReshapeOp,
    ScanOp,
    SliceAttr,
    SplitOp,
    StoreOp,
    TransOp,
    element_name,
)
from louver.ir.tile.encodings import Encoding
from louver.ir.tile.multiples import has_known_addresses, multiples_of
from louver.ir.tile.parts import KEPT
from louver.ir.tile.types import as_tensor, tensor_of
from louver.isa.instruction import LANES
from louver.isa.memory import MAX_BYTES
from louver.isa.mma import FP8
from louver.isa.mma_fragments import COLUMNS, ROWS
from louver.isa.targets import WARPS_PER_WARPGROUP

DEFAULT_WARPS = 4
"""Warps of a CTA without dots."""

DOT_WARPS = 8
"""Warps of a CTA with dots, at most."""

WARP_SUMS = 2048
"""Sums of dots for each warp, before another warp takes part: 64 registers of a thread. Half as many before a second one does, and
where operands take more registers or instructions: elements that are moved one by one, sparse tiles that are decompressed, f32
that warps multiply in parts, and 8-bit floats, which sm_90a's assembler widens.
"""


Anchor: TypeAlias = ReduceOp | ScanOp | JoinOp | GatherOp | AtomicRMWOp | AtomicCASOp
"""Operations, beside dots, that give their results in one encoding, whatever it is wanted in."""


def is_tile(value: SSAValue) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value.type, TensorType)


def choose_warps(function: FuncOp, *, warpgroups: bool = True) -> int:
    """Warps of a CTA, a power of two: four, or as many as its dots have work for. warpgroups: whether the target multiplies by them."""
    dots = [op for op in function.body.walk() if isinstance(op, DotOp)]
    sums = sum(prod(tensor_of(op.d).get_shape()) for op in dots)
    if not sums:
        return DEFAULT_WARPS
    staged = staged_operands(function) if warpgroups and has_known_addresses(function) else {}
    single = [op for op in dots if not multiplies(op, staged)]
    widened = any(
        op.parts > 1 or element_name(tensor_of(each).element_type) in FP8 for op in single for each in (op.a, op.b)
    )
    made = any(isinstance(op, DecompressOp) for op in function.body.walk())
    most = WARP_SUMS if has_known_addresses(function) and not widened and not made else WARP_SUMS // 2
    wanted = max(1, sums // most, min(2, sums // (WARP_SUMS // 2)))
    count = min(DOT_WARPS, 1 << (wanted.bit_length() - 1))
    held = [held_sums(op) for op in dots if op not in single]
    if not held:
        return count
    least = max(WARPS_PER_WARPGROUP, max(held) // (MOST_SUMS * LANES))
    # Warps that compute an operand wait for each other once a step: two CTAs of few warps wait less than one of many.
    computes = len(dots) == 1 and any(is_computed(each) and element_bits(each) > 8 for each in (dots[0].a, dots[0].b))
    return least if computes else max(count, least)


def element_bits(value: SSAValue) -> int:
    """Bits of an operand's elements."""
    element = tensor_of(value).element_type
    assert isinstance(element, FixedBitwidthType)
    return element.bitwidth


def product_encoding(
    op: DotOp, warps: int, staged: Mapping[SSAValue, int], registers: int, *, apart: bool = False
) -> MmaAttr:
    """The encoding of a dot's sums. A sparse right operand makes it the transposed product.

    Warps are along the rows first, so that sums stay in their warp on the way to another dot or a sum along rows; where sums go no
    such way they are along both, such that a warp has the fewest elements of operands.
    """
    if (found := warpgroup_encoding(op, warps, staged, registers)) is not None:
        return found
    rows, columns = product_shape(op)
    transposed = is_transposed(op)
    along_rows = min(warps, max(1, rows // ROWS))
    along_columns = min(warps // along_rows, max(1, columns // COLUMNS))
    if apart:
        kept = 1 if op.sparse_index is None else 2

        def held(across: int) -> float:
            return rows / (warps // across) / kept + columns / across

        fitting = [n for n in _divisors(warps) if n * COLUMNS <= columns and warps // n * ROWS <= rows]
        along_columns = min(fitting, key=held, default=along_columns)
    return MmaAttr.of(warps // along_columns, along_columns, transposed=transposed)


def _divisors(warps: int) -> list[int]:
    return [1 << bit for bit in range(warps.bit_length())]


def _dots_apart(operations: Sequence[Operation]) -> bool:
    """Whether sums of dots are multiplied by no other dot, and nothing is reduced."""
    sums: set[SSAValue] = {op.d for op in operations if isinstance(op, DotOp)}
    grown = True
    while grown:
        known = len(sums)
        for op in operations:
            for group in _passed_on(op):
                if not sums.isdisjoint(group):
                    sums.update(group)
            if not isinstance(op, DotOp) and not op.regions and not sums.isdisjoint(op.operands):
                sums.update(op.results)
        grown = len(sums) > known
    multiplied = {operand for op in operations if isinstance(op, DotOp) for operand in (op.a, op.b)}
    return sums.isdisjoint(multiplied) and not any(isinstance(op, ReduceOp) for op in operations)


class Natures:
    """The encodings that values have by nature. warps: of a CTA. warpgroups: whether the target multiplies by warpgroups.
    registers: of an SM. runs: which neighbours are together in memory.

    staged: operands of dots that go through shared memory, which are computed in rows, each with the dimension of its rows.
    copied: tiles that are loaded to shared memory and taken from there, each with the encoding of its copies and their dimension.
    stores: encodings of stores and atomic operations that gain by one of their own. kept: tiles that are computed in one encoding alone.
    """

    def __init__(
        self,
        function: FuncOp,
        warps: int,
        *,
        registers: int,
        staged: bool = True,
        warpgroups: bool = True,
        copied: bool = False,
    ) -> None:
        self.warps, self.registers = warps, registers
        self.together = _together(function)
        self.runs = Runs(dict(zip(function.body.block.args, multiples_of(function), strict=True)))
        # Elements that are moved one by one leave a warpgroup nothing to gain.
        self.warpgroups = warpgroups and has_known_addresses(function)
        self._found: dict[SSAValue, Encoding] = {}
        self.stores: dict[Operation, Encoding] = {}
        self.kept: dict[SSAValue, Encoding] = {}
        operations = list(function.body.walk())
        anchors = [op for op in operations if isinstance(op, Anchor)]
        self.apart = _dots_apart(operations)
        self.operands = staged_operands(function, warpgroups=self.warpgroups) if staged else {}
        for op in operations:
            if isinstance(op, DecompressOp) and op.columns is not None and not self._goes_to_registers(op.result):
                self._found[op.result] = _whole_entries(op, warps)
        self._settle(operations)
        self.staged = {value: along for value, along in self.operands.items() if self.of(value) is None}
        for value, along in self.staged.items():
            self._found[value] = _pieces(value, warps, along)
        self._settle(operations)
        # Reductions of staged tiles are where these are.
        for op in anchors:
            self._give_default(op)
            self._settle(operations)
        self.copied = {
            value: (_pieces(value, warps, along), along)
            for value, along in (copied_loads(function, self.operands) if copied and self.warpgroups else {}).items()
        }

    def of(self, value: SSAValue) -> Encoding | None:
        """The value's own encoding, if it has one."""
        return self._found.get(value)

    def default(self, value: SSAValue) -> Encoding:
        """The value's own encoding, or that of tiles that meet no dot."""
        return self.of(value) or BlockedAttr.default(tensor_of(value).get_shape(), self.warps, self.together)

    def source(self, op: CombiningOp) -> Encoding:
        """The encoding in which a reduction or scan takes its operands."""
        return next((found for each in op.srcs if (found := self.of(each))), self.default(op.srcs[0]))

    def keeps(self, value: SSAValue) -> bool:
        """Whether a tile with an encoding by nature is computed there alone, because it is not cheaply computed again."""
        computed = Block | DotOp | Anchor | scf.ForOp | scf.IfOp | scf.WhileOp
        return value in self.operands or value in self.kept or isinstance(value.owner, computed)

    def home(self, value: SSAValue) -> Encoding | None:
        """The encoding in which a tile is computed that is computed in one alone."""
        return self.kept.get(value) or self.of(value)

    def _goes_to_registers(self, value: SSAValue) -> bool:
        """Whether nothing but products of warpgroups take what is made of a tile element by element, from registers."""
        users = [use.operation for use in value.uses]
        return bool(users) and all(
            product_left(user)[0] is value and value not in self.operands
            if isinstance(user, DotOp)
            else isinstance(user, (TransOp, *ELEMENTWISE)) and all(map(self._goes_to_registers, user.results))
            for user in users
        )

    def with_groups(self, op: CompressOp | DecompressOp, encoding: Encoding) -> Encoding:
        """The encoding in which a tile is decompressed, or compressed, that is wanted in one: its own, or one with whole groups."""
        if (nature := self.of(op.result)) is not None:
            return nature
        layout = encoding.layout(tensor_of(op.result).get_shape())
        try:
            op.parts.dense(layout) if isinstance(op, CompressOp) else op.parts.values(layout)
        except ValueError:
            return _whole_entries(op, self.warps)
        return encoding

    def store_in(self, op: StoreOp | AtomicRMWOp, encoding: Encoding) -> None:
        """Give a store, or an atomic operation whose result nothing uses, an encoding of its own."""
        self.stores[op] = encoding
        if isinstance(op, AtomicRMWOp):
            self._found[op.result] = encoding

    def place(self, op: AtomicOp) -> Encoding:
        """The encoding in which an atomic operation is done."""
        return self.stores.get(op) or self.of(op.value) or self.of(op.ptr) or self.default(op.ptr)

    def halves(self, op: JoinOp) -> Encoding:
        """The encoding in which a join takes its operands."""
        return self.of(op.lhs) or self.default(op.rhs)

    def _settle(self, operations: Sequence[Operation]) -> None:
        changed = True
        while changed:
            changed = False
            for op in operations:
                for value, encoding in self._given(op):
                    if encoding is not None and value not in self._found and is_tile(value):
                        self._found[value] = encoding
                        changed = True

    def _give_default(self, op: Anchor) -> None:
        match op:
            case AtomicRMWOp() | AtomicCASOp():
                encoding = self.place(op) if is_tile(op.result) else None
            case ReduceOp():
                encoding = SliceAttr.of(op.axis.value.data, self.source(op))
            case ScanOp():
                encoding = self.source(op)
            case JoinOp():
                encoding = _paired(op, self.halves(op))
            case GatherOp():
                encoding = self.default(op.indices)
        for result in op.results:
            if is_tile(result) and encoding is not None:
                self._found.setdefault(result, encoding)

    def _given(self, op: Operation) -> list[tuple[SSAValue, Encoding | None]]:
        """Values that get an encoding by this operation."""
        match op:
            case DotOp():
                staged = self.operands if self.warpgroups else {}
                return [(op.d, product_encoding(op, self.warps, staged, self.registers, apart=self.apart))]
            case ReduceOp():
                found = next((found for each in op.srcs if (found := self.of(each))), None)
                return [(each, found and SliceAttr.of(op.axis.value.data, found)) for each in op.result]
            case ScanOp():
                found = next((found for each in op.srcs if (found := self.of(each))), None)
                return [(each, found) for each in op.result]
            case JoinOp():
                found = self.of(op.lhs) or self.of(op.rhs)
                return [(op.result, found and _paired(op, found))]
            case GatherOp():
                return [(op.result, self.of(op.indices))]
            case AtomicRMWOp() | AtomicCASOp():
                return [(op.result, self.of(op.value))]
            case scf.ForOp() | scf.IfOp() | scf.WhileOp():
                return self._together(_passed_on(op))
            case LoadOp():
                return []
            case _:
                return self._moved(op)

    def _together(self, groups: Iterable[Sequence[SSAValue]]) -> list[tuple[SSAValue, Encoding | None]]:
        """Values that are passed on to each other: all but what is computed elsewhere get the first one's encoding."""
        found: list[tuple[SSAValue, Encoding | None]] = []
        for group in groups:
            nature = next((nature for each in group if (nature := self.of(each))), None)
            found += [
                (each, nature) for each in group if isinstance(each.owner, Block | scf.ForOp | scf.IfOp | scf.WhileOp)
            ]
        return found

    def _moved(self, op: Operation) -> list[tuple[SSAValue, Encoding | None]]:
        sources = [self.of(operand) for operand in op.operands]
        encoding = next((each for each in sources if each is not None), None)
        if encoding is None:
            return []
        source = next(each for each in op.operands if self.of(each) is not None)
        shape = tensor_of(source).get_shape()
        match op:
            case TransOp():
                encoding = LinearAttr.of(encoding.layout(shape).permuted(op.order.get_values()))
            case ReshapeOp():
                encoding = LinearAttr.of(encoding.layout(shape).reshaped(tensor_of(op.result).get_shape()))
            case ExpandDimsOp():
                fits = isinstance(encoding, SliceAttr) and encoding.dim.data == op.axis.value.data
                encoding = encoding.parent if fits and isinstance(encoding, SliceAttr) else None
            case BroadcastOp():
                encoding = encoding if _fits(encoding, tensor_of(op.result).get_shape()) else None
            case SplitOp() | DecompressOp() | CompressOp():
                encoding = None
            case _:
                pass
        return [(result, encoding) for result in op.results if as_tensor(result.type) is not None]


def _paired(op: JoinOp, encoding: Encoding) -> Encoding:
    return LinearAttr.of(encoding.layout(tensor_of(op.lhs).get_shape()).paired())


def _pieces(value: SSAValue, warps: int, along: int) -> BlockedAttr:
    """The encoding in which a tile is loaded, or copied, in chunks along a dimension."""
    if isinstance(value.owner, LoadOp) and loaded_along(value) not in (along, None):
        return BlockedAttr.turning(tensor_of(value).get_shape(), warps, MAX_BYTES * 8 // element_bits(value), along)
    together = (_chunk(value, along) or MAX_BYTES) * 8 // element_bits(value)
    order = sorted(range(tensor_of(value).get_num_dims()), key=lambda dimension: dimension != along)
    return BlockedAttr.default(tensor_of(value).get_shape(), warps, together, order, whole=True)


def _whole_entries(op: DecompressOp | CompressOp, warps: int) -> BlockedAttr:
    """The encoding in which a tile is decompressed, or compressed: a thread has all groups of an entry of metadata, and whole chunks."""
    assert op.columns is not None
    along, shape = op.columns.value.data, tensor_of(op.result).get_shape()
    entry = op.parts.together // (KEPT if isinstance(op, CompressOp) else 1)
    together = max(entry, MAX_BYTES * 8 // max(8, element_bits(op.result)))
    return BlockedAttr.default(shape, warps, together, (along, 1 - along), whole=True)


def _chunk(value: SSAValue, along: int) -> int:
    """Bytes that a thread may copy at once of a tile that is loaded; 0 for other tiles."""
    if isinstance(value.owner, TransOp):
        value, along = value.owner.src, 1 - along
    return chunk_of(value.owner, along) if isinstance(value.owner, LoadOp) else 0


def _together(function: FuncOp) -> int:
    """Neighbours that a thread has of tiles that meet no dot: as many of the widest elements as an access moves.

    One where no address is known to be a multiple of anything, so that they would be moved one by one.
    """
    if not has_known_addresses(function):
        return 1
    pointers = [op.ptr for op in function.body.walk() if isinstance(op, LoadOp | StoreOp) and is_tile(op.ptr)]
    elements = [cast(PointerType, tensor_of(pointer).element_type).pointee for pointer in pointers]
    return MAX_BYTES * 8 // max(map(memory_bits, elements), default=MAX_BYTES * 8)


def memory_bits(element: Attribute) -> int:
    """Bits of an element in memory; a pointer's for what is none of the known ones."""
    match element:
        case IntegerType():
            return max(8, element.width.data)
        case Float32Type():
            return 32
        case Float16Type() | BFloat16Type():
            return 16
        case Float8E4M3FNType() | Float8E5M2Type():
            return 8
        case _:
            return 64


def _passed_on(op: Operation) -> list[tuple[SSAValue, ...]]:
    """Values that a loop or branch makes one of the other, in groups; the first one that has an encoding decides."""
    if isinstance(op, scf.IfOp):
        return [(*each.names, *each.sources) for each in passages(op)]
    return [(*reversed(each.sources), *each.names) for each in passages(op)]


def _fits(encoding: Encoding, shape: Sequence[int]) -> bool:
    try:
        encoding.layout(shape)
    except ValueError:
        return False
    return True
