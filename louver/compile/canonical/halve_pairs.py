"""halve-pairs: changes a product whose columns are pairs to one product for the first of each pair and one for the second.

A kernel may read the columns of a gated weight by turns, one of the gate and one of the up projection, and split the sum:

    i = range(2 * H)                                      h = range(H)
    w = load(.. i // 2 + i % 2 * half ..)                 w_p = load(.. h + p * half ..)
    total = dot(x, w, total)                 ⟶           total_p = dot(x, w_p, total_p)
    gate, up = split(reshape(total, [M, H, 2]))           gate, up = total_0, total_1

Neighbouring columns are then neighbours in memory. Everything between the indices and the split is computed for each half.
Input and output are valid tile IR, before encodings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerType, ModuleOp, TensorType, i32
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.effects import is_elementwise
from louver.analysis.integers import constant_everywhere
from louver.analysis.passages import came_from, end_of
from louver.compile.rewrite.insert import begin_with, end_with, insert
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp
from louver.ir.tile.types import as_tensor, is_splat, tensor_of

LEAST = 64
"""Rows of a weight in one instruction of warpgroups: smaller halves are not worth two products."""

Along: TypeAlias = tuple[SSAValue, int]
"""A tile and the dimension that is halved."""


def halve_pairs(module: ModuleOp) -> None:
    """Rewrite in place. Other kernels do not change."""
    for function in [op for op in module.body.ops if isinstance(op, tt.FuncOp)]:
        halved = False
        for op in [op for op in function.body.walk() if isinstance(op, tt.SplitOp)]:
            pairs = _Pairs.of(op)
            if pairs is not None:
                pairs.rewrite(function)
                halved = True
        if halved:
            remove_dead(function)


@dataclass(slots=True)
class _Pairs:
    """The tiles that are halved for a split. indices: whether one is the quotient or the remainder of an index by 2.

    wanted: dimensions of each tile that are halved. halves: those that are computed already.
    """

    split: tt.SplitOp
    shaped: tt.ReshapeOp
    wanted: dict[SSAValue, set[int]] = field(default_factory=dict["SSAValue", "set[int]"])
    indices: bool = False
    halves: dict[Along, list[SSAValue]] = field(default_factory=dict["Along", "list[SSAValue]"])

    @classmethod
    def of(cls, split: tt.SplitOp) -> _Pairs | None:
        """What a split needs; None if its columns are no pairs, or if a product is needed whole, too."""
        shaped = split.src.owner
        if not isinstance(shaped, tt.ReshapeOp) or not shaped.result.has_one_use():
            return None
        whole, shape = tensor_of(shaped.src).get_shape(), tensor_of(shaped.result).get_shape()
        found = cls(split, shaped)
        if shape != (*whole[:-1], whole[-1] // 2, 2) or shape[-2] < LEAST or not found._want():
            return None
        made = {each.owner for each in found.wanted}
        products = [value for value in found.wanted if isinstance(value.owner, tt.DotOp)]
        users = [use.operation for value in products for use in value.uses]
        alone = all(each is shaped or each in made or isinstance(each, scf.YieldOp) for each in users)
        return found if found.indices and products and alone else None

    def _want(self) -> bool:
        """Record what is halved. Returns whether all of it can be."""
        pending = [self.source]
        while pending:
            value, dimension = pending.pop()
            if dimension in self.wanted.setdefault(value, set()):
                continue
            sources = self._sources(value, dimension)
            if sources is None:
                return False
            self.wanted[value].add(dimension)
            pending += sources
        return True

    @property
    def source(self) -> Along:
        """The tile that is split, and its last dimension."""
        return self.shaped.src, len(tensor_of(self.shaped.src).get_shape()) - 1

    def _sources(self, value: SSAValue, dimension: int) -> Sequence[Along] | None:
        """The tiles of which a half of a tile needs halves; None if it cannot be halved."""
        tile, op = as_tensor(value.type), value.owner
        if tile is None or tile.get_shape()[dimension] % 2:
            return None
        match op:
            case Block() | scf.ForOp():
                loop = op.parent_op() if isinstance(op, Block) else op
                # A counter is no tile, so that an argument is carried.
                carried = isinstance(loop, scf.ForOp)
                return [(each, dimension) for each in (*came_from(value), _argument(loop, value))] if carried else None
            case arith.ConstantOp():
                return () if isinstance(op.value, DenseIntOrFPElementsAttr) and is_splat(op.value) else None
            case tt.SplatOp() | tt.MakeRangeOp():
                return ()
            case tt.ExpandDimsOp():
                return ((op.src, dimension - (dimension > op.axis.value.data)),)
            case tt.BroadcastOp():
                return () if tensor_of(op.src).get_shape()[dimension] == 1 else ((op.src, dimension),)
            case tt.TransOp():
                return ((op.src, op.order.get_values()[dimension]),)
            case tt.DotOp():
                place = dimension - len(tile.get_shape())
                return None if place < -2 else ((op.a if place == -2 else op.b, dimension), (op.c, dimension))
            case _ if _of_pair(op) is not None:
                self.indices = True
                return ()
            case _ if is_elementwise(op) or (isinstance(op, tt.LoadOp) and as_tensor(op.ptr.type) is not None):
                return [(each, dimension) for each in op.operands if as_tensor(each.type) is not None]
            case _:
                return None

    def rewrite(self, function: tt.FuncOp) -> None:
        """Compute the halves, and replace the split by them."""
        self._block(function.body.block)
        Rewriter.replace_op(self.split, [], self.halves[self.source])

    def _block(self, block: Block) -> None:
        for op in list(block.ops):
            if isinstance(op, scf.ForOp):
                self._loop(op)
                continue
            for inner in (each for region in op.regions for each in region.blocks):
                self._block(inner)
            for value in op.results:
                for dimension in sorted(self.wanted.get(value, ())):
                    halves = [self._half(op, value, dimension, parity) for parity in (0, 1)]
                    for half in halves:
                        half.name_hint = value.name_hint
                    self.halves[value, dimension] = halves

    def _loop(self, loop: scf.ForOp) -> None:
        """Carry the halves of the tiles that a loop carries, beside them."""
        block, given = loop.body.block, list(loop.iter_args)
        arguments = block.args[1:]
        carried = [
            (place, each) for place, value in enumerate(arguments) for each in sorted(self.wanted.get(value, ()))
        ]
        for place, dimension in carried:
            halves = self.halves[given[place], dimension]
            self.halves[arguments[place], dimension] = [block.insert_arg(each.type, len(block.args)) for each in halves]
        self._block(block)
        if not carried:
            return
        ends = list(end_of(block).operands)
        end_with(block, [*ends, *(half for place, each in carried for half in self.halves[ends[place], each])])
        new = begin_with(loop, [*given, *(half for place, each in carried for half in self.halves[given[place], each])])
        for first, (place, dimension) in zip(range(len(given), len(new.results), 2), carried, strict=True):
            self.halves[new.results[place], dimension] = list(new.results[first : first + 2])
        for place, old in enumerate(loop.results):
            old.replace_all_uses_with(new.results[place])
        Rewriter.erase_op(loop)

    def _half(self, op: Operation, value: SSAValue, dimension: int, parity: int) -> SSAValue:
        """A half of the result of an operation, computed before it."""
        tile = tensor_of(value)
        element = tile.element_type
        shape = [size // 2 if place == dimension else size for place, size in enumerate(tile.get_shape())]
        type_ = TensorType(element, shape, tile.encoding)

        def add(new: Operation) -> SSAValue:
            return insert(op, new, op).results[0]

        def filled(number: int) -> SSAValue:
            integers = TensorType(cast("IntegerType", element), shape)
            return add(arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(integers, [number])))

        pair = _of_pair(op)
        match op:
            case arith.ConstantOp():
                assert isinstance(op.value, DenseIntOrFPElementsAttr)
                return add(arith.ConstantOp(DenseIntOrFPElementsAttr(type_, op.value.data)))  # type: ignore[arg-type]
            case tt.SplatOp():
                return add(tt.SplatOp(op.src, shape))
            case tt.MakeRangeOp():
                numbers = add(arith.MuliOp(add(tt.MakeRangeOp(0, shape[0])), filled(2)))
                return add(arith.AddiOp(numbers, filled(op.start.value.data + parity)))
            case _ if pair is not None:
                part, start = pair
                if part == "parity":
                    return filled(parity)
                numbers = add(tt.MakeRangeOp(start // 2, start // 2 + shape[0]))
                return numbers if element == i32 else add(ExtSIOp(numbers, type_))
            case tt.BroadcastOp() if tensor_of(op.src).get_shape()[dimension] == 1:
                return add(tt.BroadcastOp(op.src, shape))
            case _:
                sources = self._sources(value, dimension) or ()
                new = op.clone({each: self.halves[each, along][parity] for each, along in sources})
                Rewriter.replace_value_with_new_type(new.results[0], type_)
                return add(new)


def _argument(loop: scf.ForOp, value: SSAValue) -> SSAValue:
    """The argument of a loop's body for one of its results, or for the argument itself."""
    return next(
        (each for each, result in zip(loop.body.block.args[1:], loop.results, strict=True) if result is value), value
    )


def _of_pair(op: Operation) -> tuple[Literal["number", "parity"], int] | None:
    """Whether an operation gives the number of a pair of indices (`i // 2`) or the place in it (`i % 2`), and the first index."""
    if (
        not isinstance(op, arith.DivSIOp | arith.RemSIOp | arith.DivUIOp | arith.RemUIOp)
        or constant_everywhere(op.rhs) != 2
    ):
        return None
    index = op.lhs.owner.input.owner if isinstance(op.lhs.owner, ExtSIOp) else op.lhs.owner
    if not isinstance(index, tt.MakeRangeOp) or index.start.value.data < 0 or index.start.value.data % 2:
        return None
    return "number" if isinstance(op, arith.DivSIOp | arith.DivUIOp) else "parity", index.start.value.data
