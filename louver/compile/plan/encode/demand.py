"""Computes the encodings that the users of each tile need.

Stores, dots, reductions and atomic operations need each operand in one encoding. The operations before them need
encodings that follow from it, back to ranges, constants, scalars and loads, or to an anchored tile, which is converted.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.effects import is_elementwise
from louver.analysis.passages import came_from, passages
from louver.compile.plan.encode.anchors import Anchor, Natures, is_tile
from louver.ir import tile as tt
from louver.ir.refusal import unsupported
from louver.ir.tile.encodings import DENSE, METADATA, VALUES, Encoding
from louver.ir.tile.layout import Layout
from louver.ir.tile.types import element_bits, tensor_of
from louver.isa.rule import RuleError

SOURCES = (arith.ConstantOp, tt.MakeRangeOp, tt.SplatOp)
"""Operations whose results may have any encoding."""

Wanted = list[tuple[SSAValue, Encoding]]


class Demands:
    """The encodings in which each tile of a function is needed, in the order in which they are found."""

    def __init__(self, function: tt.FuncOp, natures: Natures) -> None:
        self.natures = natures
        self._wanted: dict[SSAValue, dict[Encoding, None]] = {}
        self._pending: list[tuple[SSAValue, Encoding]] = []
        for op in function.body.walk():
            self._want(anchored_operands(op, natures))
        while self._pending:
            self._spread(*self._pending.pop())

    def of(self, value: SSAValue) -> Sequence[Encoding]:
        """The encodings in which users need a tile."""
        return list(self._wanted.get(value, ()))

    def made(self, value: SSAValue) -> Sequence[Encoding]:
        """The encodings in which a tile is computed: its natural encoding, or all that users need."""
        wanted = self.of(value)
        if value in self.natures.copied:
            return [self.natures.copied[value][0]]
        if isinstance(value.owner, tt.CompressOp | tt.DecompressOp):
            return list(dict.fromkeys(self.natures.with_groups(value.owner, each) for each in wanted))
        nature = self.natures.home(value)
        return [nature] if nature is not None and wanted and self.natures.keeps(value) else wanted

    def carried(self, *places: SSAValue) -> Sequence[Encoding]:
        """The encodings in which a loop or branch carries a tile. places: the values that stand for the tile."""
        found = dict.fromkeys(encoding for place in places for encoding in self.of(place))
        nature = next((nature for place in places if (nature := self.natures.home(place))), None)
        return [nature] if found and nature is not None else list(found)

    def _want(self, wanted: Wanted) -> None:
        for value, encoding in wanted:
            known = self._wanted.setdefault(value, {})
            if encoding not in known:
                known[encoding] = None
                self._pending.append((value, encoding))

    def _spread(self, value: SSAValue, encoding: Encoding) -> None:
        nature = self.natures.home(value)
        if nature is not None and self.natures.keeps(value):
            encoding = nature
        if value in self.natures.copied:
            encoding, _ = self.natures.copied[value]
        owner = value.owner
        if is_elementwise(owner):
            self._want(operand_encodings(owner, encoding))
            return
        if isinstance(owner, tt.CompressOp | tt.DecompressOp):
            encoding = self.natures.with_groups(owner, encoding)
        passing = owner.parent_op() if isinstance(owner, Block) else owner
        if isinstance(passing, scf.ForOp | scf.IfOp):
            self._want([(each, encoding) for each in came_from(value)])
        elif isinstance(owner, Operation) and not isinstance(owner, tt.DotOp | Anchor | scf.WhileOp):
            self._want(operand_encodings(owner, encoding))


def anchored_operands(op: Operation, natures: Natures) -> Wanted:
    """The encodings of the operands of an operation that has an effect or a natural encoding."""
    match op:
        case _ if is_elementwise(op):
            return []
        case tt.StoreOp() if is_tile(op.ptr):
            encoding = natures.stores.get(op) or natures.of(op.value) or natures.of(op.ptr) or natures.default(op.value)
            return [(operand, encoding) for operand in op.operands]
        case tt.AtomicRMWOp() | tt.AtomicCASOp() if is_tile(op.ptr):
            return [(operand, natures.place(op)) for operand in op.operands]
        case tt.DotOp():
            return dot_operands(op, natures)
        case tt.ReduceOp() | tt.ScanOp():
            return [(operand, natures.source(op)) for operand in op.srcs]
        case tt.JoinOp():
            return [(operand, natures.halves(op)) for operand in op.operands]
        case tt.GatherOp():
            return [(operand, natures.default(operand)) for operand in op.operands]
        case scf.WhileOp():
            return [
                (each, natures.default(passage.names[0]))
                for passage in passages(op)
                if is_tile(passage.names[0])
                for each in passage.sources
            ]
        case _:
            return []


def dot_operands(op: tt.DotOp, natures: Natures) -> Wanted:
    """The operands of a dot, with the encodings in registers or shared memory from which its products read them."""
    staged = natures.staged
    return [
        (value, tt.SharedAttr.along(staged[value]) if value in staged else encoding)
        for value, encoding in multiplied_operands(op, natures)
    ]


def multiplied_operands(op: tt.DotOp, natures: Natures) -> Wanted:
    """The operands of a dot in the order a, b, metadata, c, scales, with the encodings that its instruction needs."""
    sums = natures.of(op.d)
    assert isinstance(sums, tt.MmaAttr)
    sparse = None if op.sparse_index is None else op.sparse_index.value.data
    wanted: Wanted = []
    for index, value in enumerate((op.a, op.b)):
        if sums.of_warpgroup and value in natures.operands:
            wanted.append((value, tt.SharedAttr.along(natures.operands[value])))
            continue
        encoding = tt.DotOperandAttr.of(index, sums, element_bits(value.type), VALUES if index == sparse else DENSE)
        wanted.append((value, encoding))
    if op.metadata is not None and sparse is not None:
        wanted.append((op.metadata, tt.DotOperandAttr.of(sparse, sums, 16, METADATA)))
    scales = [
        (value, tt.LinearAttr.of(sums.scales(index, tensor_of(value).get_shape())))
        for index, value in enumerate(op.scales)
    ]
    return [*wanted, (op.c, sums), *scales]


def operand_encodings(op: Operation, encoding: Encoding) -> Wanted:
    """The encodings of an operation's operands for a result in `encoding`. Rejects operations without a rule."""
    match op:
        case _ if is_elementwise(op):
            return [(operand, encoding) for operand in op.operands if is_tile(operand)]
        case tt.ExpandDimsOp():
            return [(op.src, tt.SliceAttr.of(op.axis.value.data, encoding))]
        case tt.BroadcastOp():
            return [(op.src, encoding)]
        case tt.TransOp():
            order = list(op.order.get_values())
            back = [order.index(dimension) for dimension in range(len(order))]
            return [(op.src, tt.LinearAttr.of(_layout(op, op.result, encoding).permuted(back)))]
        case tt.ReshapeOp():
            moved = _layout(op, op.result, encoding).reshaped(tensor_of(op.src).get_shape())
            return [(op.src, tt.LinearAttr.of(moved))]
        case tt.SplitOp():
            return [(op.src, tt.LinearAttr.of(_layout(op, op.first, encoding).paired()))]
        case tt.DecompressOp():
            return _parts(op, encoding)
        case tt.CompressOp():
            layout = op.parts.dense(_layout(op, op.result, encoding))
            entries = op.parts.entries(layout, tensor_of(op.metadata).get_shape())
            return [(op.src, tt.LinearAttr.of(layout)), (op.metadata, tt.LinearAttr.of(entries))]
        case tt.LoadOp():
            return [(operand, encoding) for operand in op.operands if is_tile(operand)]
        case _ if isinstance(op, SOURCES):
            return []
        case _:
            raise unsupported(f"{op.name} is not computed on tiles in registers", op)


def _parts(op: tt.DecompressOp, encoding: Encoding) -> Wanted:
    """The encodings of the parts of a sparse tile. Each thread has the parts of its own elements."""
    assert op.metadata is not None
    layout = _layout(op, op.result, encoding)
    entries = op.parts.entries(layout, tensor_of(op.metadata).get_shape())
    return [(op.src, tt.LinearAttr.of(op.parts.values(layout))), (op.metadata, tt.LinearAttr.of(entries))]


def _layout(op: Operation, value: SSAValue, encoding: Encoding) -> Layout:
    shape = tensor_of(value).get_shape()
    try:
        return encoding.layout(shape)
    except RuleError as error:
        raise unsupported(str(error), op) from None
