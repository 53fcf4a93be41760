"""sum-behind-loops: sums over threads once behind a loop what the loop adds to a total in each step.

    repeat                                            repeat
        total = total + sum of x over all threads ⟶       own = own + sum of the thread's own x
                                                      total = total + sum of own over all threads

The same for largest and least elements. A step then has no shuffles and no barriers. The order of the additions changes, and
nothing else. Input and output are valid tile IR with encodings (after assign-encodings).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr, ModuleOp, TensorType, i32
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.passages import end_of
from louver.compile.plan.feeds.loop_totals import MOST, LoopTotal, neutral
from louver.compile.rewrite.insert import insert, insert_before
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir import tile as tt
from louver.ir.tile.encodings import Encoding
from louver.ir.tile.layout import Layout
from louver.ir.tile.types import register_encoding, tensor_of


def sum_behind_loops(module: ModuleOp) -> None:
    """Rewrite in place. The total of an inner loop may be added to that of an outer one, so inner loops come first."""
    for loop in reversed([op for op in module.walk() if isinstance(op, scf.ForOp)]):
        found = [total for number in range(len(loop.iter_args)) if (total := LoopTotal.of(loop, number)) is not None]
        _apart(loop, [each for each in map(_Apart, found) if each.pays()])
    for function in [op for op in module.walk() if isinstance(op, tt.FuncOp)]:
        remove_dead(function)


@dataclass(frozen=True, slots=True)
class _Apart:
    """A total of which each thread may carry its own part."""

    found: LoopTotal

    @property
    def step(self) -> tt.ReduceOp:
        return self.found.step

    def pays(self) -> bool:
        """Whether threads would exchange their parts of the sums, and have few of them."""
        layout, axis = self.layout, self.axis
        own = sum(not step[axis] for step in layout.register)
        return any(step[axis] for step in layout.thread) and 1 << own <= MOST

    @property
    def axis(self) -> int:
        return self.step.axis.value.data

    @property
    def layout(self) -> Layout:
        source = self.step.srcs[0]
        return _encoding(source).layout(tensor_of(source).get_shape())

    def own(self) -> SSAValue:
        """A thread's own sums, in a tile with an element for each thread along the axis."""
        source, axis, layout = self.step.srcs[0], self.axis, self.layout
        shape = tensor_of(source).get_shape()
        bits = [1 << bit for bit in reversed(range(shape[axis].bit_length() - 1))]
        inside = {step[axis] for step in layout.register}
        summed = [place for place, bit in enumerate(bits) if bit in inside]
        if not summed:
            return source
        left = [place for place in range(len(bits)) if place not in summed]
        one_by_one = self._moved(tt.ReshapeOp, source, (*shape[:axis], *(2 for _ in bits), *shape[axis + 1 :]))
        behind = range(axis + len(bits), len(shape) - 1 + len(bits))
        order = [*(axis + place for place in summed), *range(axis), *(axis + place for place in left), *behind]
        turned = self._moved(tt.TransOp, one_by_one, order)
        rest = (*shape[:axis], 1 << len(left), *shape[axis + 1 :])
        folded = self._moved(tt.ReshapeOp, turned, (1 << len(summed), *rest))
        return self._sum_of(folded, 0, tt.SliceAttr.of(0, _encoding(folded)), self.step)

    def _moved(self, kind: type[tt.ReshapeOp | tt.TransOp], value: SSAValue, to: Any) -> SSAValue:
        layout = _encoding(value).layout(tensor_of(value).get_shape())
        op = kind(value, to)
        moved = layout.reshaped(to) if kind is tt.ReshapeOp else layout.permuted(to)
        return insert(self.step, _encoded(op, tt.LinearAttr.of(moved)), self.step).results[0]

    def _sum_of(self, value: SSAValue, axis: int, encoding: Encoding, before: Operation) -> SSAValue:
        tensor = tensor_of(value)
        shape = [size for dimension, size in enumerate(tensor.get_shape()) if dimension != axis]
        made = tt.ReduceOp.create(
            operands=[value],
            result_types=[TensorType(tensor.element_type, shape, encoding) if shape else tensor.element_type],
            properties={**self.step.properties, "axis": IntegerAttr(axis, i32)},
            regions=[self.step.combine.clone()],
        )
        return insert(before, made, self.step).results[0]

    def total(self, own: SSAValue, first: SSAValue, place: Operation) -> SSAValue:
        """The total of all threads and of the number before the loop. place: what follows it."""
        wanted, slice_ = self.step.result[0].type, tt.SliceAttr.of(self.axis, _encoding(own))
        among_warps = any(step[self.axis] for step in self.layout.warp)
        value = self._sum_of(own, self.axis, (among_warps and register_encoding(wanted)) or slice_, place)
        if (encoding := register_encoding(wanted)) is not None and value.type != wanted:
            value = insert(place, tt.ConvertLayoutOp(value, encoding), self.step).results[0]
        for move in self.found.moves:
            value = insert(place, move.clone({move.operands[0]: value}), move).results[0]
        made = type(self.found.add).create(
            operands=[first, value],
            result_types=[self.found.add.results[0].type],
            properties=dict(self.found.add.properties),
        )
        return insert(place, made, self.found.add).results[0]


def _apart(loop: scf.ForOp, totals: Sequence[_Apart]) -> None:
    """Let a loop carry the sums of each thread in place of totals."""
    block, behind = loop.body.block, loop.next_op
    assert behind is not None
    for total in totals:
        own = total.own()
        tensor = tensor_of(own)
        none = neutral(total.found.add, tensor.element_type)
        filled = DenseIntOrFPElementsAttr.from_list(cast(Any, tensor), cast(Any, [none]))
        first, begin = loop.iter_args[total.found.number], insert(loop, arith.ConstantOp(filled), total.step).results[0]
        loop.operands[3 + total.found.number] = begin
        argument = Rewriter.replace_value_with_new_type(block.args[total.found.number + 1], tensor)
        result = Rewriter.replace_value_with_new_type(loop.results[total.found.number], tensor)
        made = type(total.found.add).create(
            operands=[argument, own], result_types=[tensor], properties=dict(total.found.add.properties)
        )
        end_of(block).operands[total.found.number] = insert_before(total.found.add, made)
        if uses := list(result.uses):
            whole = total.total(result, first, behind)
            for use in uses:
                use.operation.operands[use.index] = whole


def _encoding(value: SSAValue) -> Encoding:
    found = register_encoding(value.type)
    assert found is not None
    return found


def _encoded(op: Operation, encoding: Encoding) -> Operation:
    tensor = tensor_of(op.results[0])
    type_ = TensorType(tensor.element_type, tensor.get_shape(), encoding)
    return type(op).create(operands=list(op.operands), result_types=[type_], properties=dict(op.properties))
