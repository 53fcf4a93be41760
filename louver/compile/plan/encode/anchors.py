"""Anchors: tiles with a natural encoding, which their operation decides.

Sums of dots and results of reductions have one. Tiles computed from them by elementwise operations have the same one.
All other tiles are computed in the encodings that their users need.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TypeAlias, cast

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.effects import is_elementwise
from louver.analysis.passages import passages
from louver.analysis.runs import Runs
from louver.compile.plan.encode.copied import copied_loads
from louver.compile.plan.encode.reduced import encoding_of_result
from louver.compile.plan.encode.unit import (
    MOST_COLUMNS,
    MOST_SUMS,
    held_sums,
    is_transposed,
    multiplies,
    product_left,
    product_shape,
    turns_sums,
    warpgroup_encoding,
)
from louver.compile.plan.feeds.chunks import chunk_of
from louver.compile.plan.feeds.neighbours import is_computed, is_gathered, loaded_along
from louver.compile.plan.feeds.staged_operands import staged_operands
from louver.ir import tile as tt
from louver.ir.tile.encodings import Encoding
from louver.ir.tile.multiples import has_known_addresses, multiples_of
from louver.ir.tile.parts import KEPT
from louver.ir.tile.types import as_tensor, element_bits, memory_bytes, tensor_of
from louver.isa.instruction import LANES
from louver.isa.memory import MAX_BYTES
from louver.isa.mma import FP8
from louver.isa.mma_fragments import COLUMNS, ROWS
from louver.isa.rule import RuleError
from louver.isa.targets import WARPS_PER_WARPGROUP

DEFAULT_WARPS = 4
"""Warps of a CTA without dots."""

DOT_WARPS = 8
"""The largest number of warps of a CTA with dots."""

WARP_SUMS = 2048
"""Sums of dots for each warp, before another warp is added: 64 registers of a thread.

A second warp is added at half of it. Half of it also holds if operands take more registers or instructions. These are
elements that are moved one by one, decompressed sparse tiles, f32 that warps multiply in parts, and 8-bit floats, which
the assembler of sm_90a widens.
"""


Anchor: TypeAlias = tt.ReduceOp | tt.ScanOp | tt.JoinOp | tt.GatherOp | tt.AtomicRMWOp | tt.AtomicCASOp
"""Operations, beside dots, whose results have one encoding, independent of their users."""


def is_tile(value: SSAValue) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value.type, TensorType)


@functools.cache
def _is_costly(kind: type[Operation | Block]) -> bool:
    return issubclass(kind, Block | tt.DotOp | Anchor | scf.ForOp | scf.IfOp | scf.WhileOp)


def choose_warps(function: tt.FuncOp, asked: int | None = None, *, warpgroups: bool = True) -> int:
    """Warps of a CTA, a power of two: four without dots, else a number that follows from the sums of its dots.

    asked: what the user asks for. A kernel whose threads wait for the products of each step may have fewer.
    warpgroups: whether the target has warpgroup products.
    """
    dots = [op for op in function.body.walk() if isinstance(op, tt.DotOp)]
    sums = sum(prod(tensor_of(op.d).get_shape()) for op in dots)
    if not sums:
        return asked or DEFAULT_WARPS
    staged = staged_operands(function) if warpgroups and has_known_addresses(function) else {}
    single = [op for op in dots if not multiplies(op, staged)]
    widened = any(
        op.parts > 1 or tt.element_name(tensor_of(each).element_type) in FP8 for op in single for each in (op.a, op.b)
    )
    made = any(isinstance(op, tt.DecompressOp) for op in function.body.walk())
    most = WARP_SUMS if has_known_addresses(function) and not widened and not made else WARP_SUMS // 2
    wanted = max(1, sums // most, min(2, sums // (WARP_SUMS // 2)))
    count = min(DOT_WARPS, 1 << (wanted.bit_length() - 1))
    held = [held_sums(op) for op in dots if op not in single]
    if not held:
        return asked or count
    least = max(WARPS_PER_WARPGROUP, max(held) // (MOST_SUMS * LANES))
    # Warps that compute an operand wait for each other once a step, and those that read the sums of a step wait for its
    # products. Two CTAs of few warps wait less than one of many.
    if waits_for_sums(function):
        return min(least, asked or least)
    computes = len(dots) == 1 and any(
        is_computed(each) and element_bits(each.type) > 8 for each in (dots[0].a, dots[0].b)
    )
    return asked or (least if computes else max(count, least))


def waits_for_sums(kernel: Operation) -> bool:
    """Whether a kernel has one dot, and its loop reads the sums in each step, such as to scale them."""
    dots = [op for op in kernel.walk() if isinstance(op, tt.DotOp)]
    if len(dots) != 1 or not isinstance(dots[0].parent_op(), scf.ForOp):
        return False
    users = [use.operation for use in dots[0].d.uses]
    return any(each.parent is dots[0].parent and not isinstance(each, scf.YieldOp) for each in users)


def product_encoding(
    op: tt.DotOp, warps: int, staged: Mapping[SSAValue, int], registers: int, *, apart: bool = False
) -> tt.MmaAttr:
    """The encoding of a dot's sums. With a sparse right operand the product is transposed.

    Warps divide the rows first, so that another dot or a reduction along rows finds the sums in the same warp.

    apart: no dot or reduction uses the sums. Warps then divide rows and columns so that a warp has the fewest elements
    of operands.
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

        divisors = (1 << bit for bit in range(warps.bit_length()))
        fitting = [n for n in divisors if n * COLUMNS <= columns and warps // n * ROWS <= rows]
        along_columns = min(fitting, key=held, default=along_columns)
    return tt.MmaAttr.of(warps // along_columns, along_columns, transposed=transposed)


def turned_encoding(op: tt.DotOp, product: tt.MmaAttr) -> tt.MmaAttr:
    """The encoding of a dot's sums as if its product were not transposed: warps divide the rows of the dot first."""
    rows, columns = tensor_of(op.d).get_shape()
    along_rows = min(product.warps, rows // ROWS)
    along_columns = product.warps // along_rows
    if not product.of_warpgroup:
        return tt.MmaAttr.of(along_rows, along_columns)
    groups = along_rows // WARPS_PER_WARPGROUP
    return tt.MmaAttr.of_warpgroups(groups, along_columns, min(columns // along_columns, MOST_COLUMNS))


def _dots_apart(operations: Sequence[Operation]) -> bool:
    """Whether no dot multiplies the sums of another dot, and there is no reduction."""
    sums: set[SSAValue] = {op.d for op in operations if isinstance(op, tt.DotOp)}
    grown = True
    while grown:
        known = len(sums)
        for op in operations:
            for group in _passed_on(op):
                if not sums.isdisjoint(group):
                    sums.update(group)
            if not isinstance(op, tt.DotOp) and not op.regions and not sums.isdisjoint(op.operands):
                sums.update(op.results)
        grown = len(sums) > known
    multiplied = {operand for op in operations if isinstance(op, tt.DotOp) for operand in (op.a, op.b)}
    return sums.isdisjoint(multiplied) and not any(isinstance(op, tt.ReduceOp) for op in operations)


class Natures:
    """The natural encodings of values.

    warps: warps of a CTA.
    warpgroups: whether warpgroup products are used.
    registers: registers of an SM.
    runs: neighbours in memory.
    operands: operands of dots in shared memory, each with the dimension of its neighbours there.
    staged: those of them that threads load or compute in rows, and then store to shared memory.
    copied: tiles that are copied to shared memory and read from there, each with the encoding of its copies and the
    dimension of neighbours.
    stores: special encodings of stores and atomic operations that gain by them.
    kept: tiles that are computed in only one encoding.
    """

    def __init__(
        self,
        function: tt.FuncOp,
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
        # Warpgroup products gain nothing if elements are moved one by one.
        self.warpgroups = warpgroups and has_known_addresses(function)
        self._found: dict[SSAValue, Encoding] = {}
        self._results: dict[tt.ReduceOp, Encoding] = {}
        self.stores: dict[Operation, Encoding] = {}
        self.kept: dict[SSAValue, Encoding] = {}
        # Bodies come before their loops, which take the encoding of what each step makes rather than of what they begin with.
        operations = list(function.body.walk(region_first=True))
        anchors = [op for op in operations if isinstance(op, Anchor)]
        self.apart = _dots_apart(operations)
        self.operands = staged_operands(function, warpgroups=self.warpgroups) if staged else {}
        for op in operations:
            if isinstance(op, tt.DecompressOp) and op.columns is not None and not self._goes_to_registers(op.result):
                self._found[op.result] = _whole_entries(op, warps)
        self._settle(operations)
        self.staged = {value: along for value, along in self.operands.items() if self.of(value) is None}
        for value, along in self.staged.items():
            self._found[value] = _pieces(value, warps, along)
        self._settle(operations)
        # Reductions of staged tiles use the encodings of these tiles.
        for op in anchors:
            if self._give_default(op):
                self._settle(operations)
        self.copied = {
            value: (_pieces(value, warps, along), along)
            for value, along in (copied_loads(function, self.operands) if copied and self.warpgroups else {}).items()
        }

    def of(self, value: SSAValue) -> Encoding | None:
        """The natural encoding of a value; None if it has none."""
        return self._found.get(value)

    def exchanged(self, value: SSAValue) -> Encoding | None:
        """The encoding to which threads exchange the sums of a dot before they compute with them; None for other values."""
        op, sums = value.owner, self.of(value)
        if not isinstance(op, tt.DotOp) or not isinstance(sums, tt.MmaAttr) or not turns_sums(op):
            return None
        return turned_encoding(op, sums)

    def default(self, value: SSAValue) -> Encoding:
        """The natural encoding of a value, or the default encoding of tiles without dots."""
        return self.of(value) or tt.BlockedAttr.default(tensor_of(value).get_shape(), self.warps, self.together)

    def source(self, op: tt.CombiningOp) -> Encoding:
        """The encoding of the operands of a reduction or scan. By default a thread has neighbours in memory, so that loads are wide and
        nothing is exchanged before the reduction.
        """
        return next((found for each in op.srcs if (found := self.of(each))), None) or self._by_rows(op.srcs[0])

    def _by_rows(self, value: SSAValue) -> Encoding:
        """The encoding of a tile without dots, with lanes along its neighbours in memory first."""
        along, shape = loaded_along(value), tensor_of(value).get_shape()
        if along is None:
            return self.default(value)
        order = (along, *(dimension for dimension in reversed(range(len(shape))) if dimension != along))
        return tt.BlockedAttr.default(shape, self.warps, self.together, order)

    def keeps(self, value: SSAValue) -> bool:
        """Whether a tile is computed only in its natural encoding, because to compute it again is expensive."""
        return value in self.operands or value in self.kept or _is_costly(type(value.owner))

    def home(self, value: SSAValue) -> Encoding | None:
        """The encoding of a tile that is computed in only one encoding."""
        return self.kept.get(value) or self.of(value)

    def _goes_to_registers(self, value: SSAValue) -> bool:
        """Whether only warpgroup products use the elementwise results of a tile, as A from registers."""
        users = [use.operation for use in value.uses]
        return bool(users) and all(
            product_left(user)[0] is value and value not in self.operands
            if isinstance(user, tt.DotOp)
            else (isinstance(user, tt.TransOp) or is_elementwise(user))
            and all(map(self._goes_to_registers, user.results))
            for user in users
        )

    def with_groups(self, op: tt.CompressOp | tt.DecompressOp, encoding: Encoding) -> Encoding:
        """The encoding in which a tile is decompressed or compressed, if `encoding` is needed.

        It is the natural encoding, or `encoding`, or one in which threads have whole groups.
        """
        if (nature := self.of(op.result)) is not None:
            return nature
        layout = encoding.layout(tensor_of(op.result).get_shape())
        try:
            op.parts.dense(layout) if isinstance(op, tt.CompressOp) else op.parts.values(layout)
        except RuleError:
            return _whole_entries(op, self.warps)
        return encoding

    def store_in(self, op: tt.StoreOp | tt.AtomicRMWOp, encoding: Encoding) -> None:
        """Give a special encoding to a store, or to an atomic operation with an unused result."""
        self.stores[op] = encoding
        if isinstance(op, tt.AtomicRMWOp):
            self._found[op.result] = encoding

    def place(self, op: tt.AtomicOp) -> Encoding:
        """The encoding of an atomic operation."""
        return self.stores.get(op) or self.of(op.value) or self.of(op.ptr) or self.default(op.ptr)

    def halves(self, op: tt.JoinOp) -> Encoding:
        """The encoding of the operands of a join."""
        return self.of(op.lhs) or self.default(op.rhs)

    def _settle(self, operations: Sequence[Operation]) -> None:
        """Give encodings until no operation gives another one. Most operations are of scalars, or have theirs already."""
        changed = True
        while changed:
            changed = False
            operations = [op for op in operations if op.regions or not all(map(self._is_settled, op.results))]
            for op in operations:
                for value, encoding in self._given(op):
                    if encoding is not None and value not in self._found and is_tile(value):
                        self._found[value] = encoding
                        changed = True

    def _is_settled(self, value: SSAValue) -> bool:
        return value in self._found or not is_tile(value)

    def _give_default(self, op: Anchor) -> bool:
        """Give the results of an anchor the encoding that they have without any other. Returns whether they had none."""
        match op:
            case tt.AtomicRMWOp() | tt.AtomicCASOp():
                encoding = self.place(op) if is_tile(op.result) else None
            case tt.ReduceOp():
                encoding = self._reduced(op, self.source(op))
            case tt.ScanOp():
                encoding = self.source(op)
            case tt.JoinOp():
                encoding = _paired(op, self.halves(op))
            case tt.GatherOp():
                encoding = self.default(op.indices)
        given = [each for each in op.results if encoding is not None and not self._is_settled(each)]
        for each in given:
            self._found[each] = cast(Encoding, encoding)
        return bool(given)

    def _reduced(self, op: tt.ReduceOp, source: Encoding) -> Encoding:
        if op not in self._results:
            self._results[op] = encoding_of_result(op, source, self.warps, self.runs)
        return self._results[op]

    def _given(self, op: Operation) -> list[tuple[SSAValue, Encoding | None]]:
        """The values to which this operation gives an encoding."""
        if is_elementwise(op):
            return self._moved(op)
        match op:
            case tt.DotOp():
                staged = self.operands if self.warpgroups else {}
                return [(op.d, product_encoding(op, self.warps, staged, self.registers, apart=self.apart))]
            case tt.ReduceOp():
                found = next((found for each in op.srcs if (found := self.of(each))), None)
                return [(each, found and self._reduced(op, found)) for each in op.result]
            case tt.ScanOp():
                found = next((found for each in op.srcs if (found := self.of(each))), None)
                return [(each, found) for each in op.result]
            case tt.JoinOp():
                found = self.of(op.lhs) or self.of(op.rhs)
                return [(op.result, found and _paired(op, found))]
            case tt.GatherOp():
                return [(op.result, self.of(op.indices))]
            case tt.AtomicRMWOp() | tt.AtomicCASOp():
                return [(op.result, self.of(op.value))]
            case scf.ForOp() | scf.IfOp() | scf.WhileOp():
                return self._together(_passed_on(op))
            case tt.LoadOp():
                return []
            case _:
                return self._moved(op)

    def _together(self, groups: Iterable[Sequence[SSAValue]]) -> list[tuple[SSAValue, Encoding | None]]:
        """Give the first natural encoding of each group to the members that a loop or branch defines."""
        found: list[tuple[SSAValue, Encoding | None]] = []
        for group in groups:
            nature = next((nature for each in group if (nature := self.of(each))), None)
            found += [
                (each, nature) for each in group if isinstance(each.owner, Block | scf.ForOp | scf.IfOp | scf.WhileOp)
            ]
        return found

    def _moved(self, op: Operation) -> list[tuple[SSAValue, Encoding | None]]:
        source = next((each for each in op.operands if self.of(each) is not None), None)
        if source is None:
            return []
        encoding = self.exchanged(source) or self.of(source)
        assert encoding is not None
        shape = tensor_of(source).get_shape()
        match op:
            case _ if is_elementwise(op):
                pass
            case tt.TransOp():
                encoding = tt.LinearAttr.of(encoding.layout(shape).permuted(op.order.get_values()))
            case tt.ReshapeOp():
                encoding = tt.LinearAttr.of(encoding.layout(shape).reshaped(tensor_of(op.result).get_shape()))
            case tt.ExpandDimsOp():
                fits = isinstance(encoding, tt.SliceAttr) and encoding.dim.data == op.axis.value.data
                encoding = encoding.parent if fits and isinstance(encoding, tt.SliceAttr) else None
            case tt.BroadcastOp():
                encoding = encoding if _fits(encoding, tensor_of(op.result).get_shape()) else None
            case tt.SplitOp() | tt.DecompressOp() | tt.CompressOp():
                encoding = None
            case _:
                pass
        return [(result, encoding) for result in op.results if as_tensor(result.type) is not None]


def _paired(op: tt.JoinOp, encoding: Encoding) -> Encoding:
    return tt.LinearAttr.of(encoding.layout(tensor_of(op.lhs).get_shape()).paired())


def _pieces(value: SSAValue, warps: int, along: int) -> tt.BlockedAttr:
    """The encoding of loads or copies of a tile in chunks along a dimension."""
    if isinstance(value.owner, tt.LoadOp) and loaded_along(value) not in (along, None):
        return tt.BlockedAttr.turning(
            tensor_of(value).get_shape(), warps, MAX_BYTES * 8 // element_bits(value.type), along
        )
    together = 1 if is_gathered(value) else (_chunk(value, along) or MAX_BYTES) * 8 // element_bits(value.type)
    order = sorted(range(tensor_of(value).get_num_dims()), key=lambda dimension: dimension != along)
    return tt.BlockedAttr.default(tensor_of(value).get_shape(), warps, together, order, whole=True)


def _whole_entries(op: tt.DecompressOp | tt.CompressOp, warps: int) -> tt.BlockedAttr:
    """An encoding for decompression or compression. A thread has all groups of a metadata entry, and whole chunks."""
    assert op.columns is not None
    along, shape = op.columns.value.data, tensor_of(op.result).get_shape()
    entry = op.parts.together // (KEPT if isinstance(op, tt.CompressOp) else 1)
    together = max(entry, MAX_BYTES * 8 // max(8, element_bits(op.result.type)))
    return tt.BlockedAttr.default(shape, warps, together, (along, 1 - along), whole=True)


def _chunk(value: SSAValue, along: int) -> int:
    """Bytes of a loaded tile that a thread may copy at once; 0 for other tiles."""
    if isinstance(value.owner, tt.TransOp):
        value, along = value.owner.src, 1 - along
    return chunk_of(value.owner, along) if isinstance(value.owner, tt.LoadOp) else 0


def _together(function: tt.FuncOp) -> int:
    """The neighbours that a thread has of tiles without dots: as many of the widest elements as one access moves. Only the largest
    tiles count: a list of row numbers has wide elements, but few.

    One if no alignment of addresses is known, because elements are then moved one by one.
    """
    if not has_known_addresses(function):
        return 1
    accesses = [op for op in function.body.walk() if isinstance(op, tt.LoadOp | tt.StoreOp) and is_tile(op.ptr)]
    tiles = [tensor_of(op.ptr) for op in accesses]
    most = max((prod(each.get_shape()) for each in tiles), default=0)
    elements = [cast(tt.PointerType, each.element_type).pointee for each in tiles if prod(each.get_shape()) == most]
    return MAX_BYTES // max(map(memory_bytes, elements), default=MAX_BYTES)


def _passed_on(op: Operation) -> list[tuple[SSAValue, ...]]:
    """Groups of values that a loop or branch passes to each other. The first with an encoding decides for its group."""
    if isinstance(op, scf.IfOp):
        return [(*each.names, *each.sources) for each in passages(op)]
    return [(*reversed(each.sources), *each.names) for each in passages(op)]


def _fits(encoding: Encoding, shape: Sequence[int]) -> bool:
    try:
        encoding.layout(shape)
    except RuleError:
        return False
    return True
