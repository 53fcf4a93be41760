"""widen-steps: takes two steps of K at once, where a row of a step is at most half of a line of shared memory.

    for i in 0 … cdiv(K, 32):                     for i in 0 … cdiv(K, 32), step 2:
        a, b = load [M, 32], [32, N]       ⟶          a, b = load [M, 64], [64, N]
        c = dot a, b, c                               c = dot a, b, c

Each step costs a wait and a barrier, and sparse tensor cores take its columns by one instruction. Steps of 32 columns of 8
bits are less than what they take, so that such a kernel is refused if it stays. The addresses and masks
of a step must be those of the step before, further on. Both operands must read zeros behind the last step, or the number
of steps must be known to be even: a call with such a K takes a kernel that is told so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp, TensorType
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.alike_steps import CASTS, AlikeSteps, source_dimension
from louver.analysis.effects import has_no_effect
from louver.analysis.integers import constant_integer, position
from louver.analysis.passages import end_of
from louver.compile.condition_attributes import prefer_multiple
from louver.compile.rewrite.insert import insert, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.tile import (
    BroadcastOp,
    DotOp,
    ExpandDimsOp,
    FuncOp,
    LoadOp,
    MakeRangeOp,
    SplatOp,
    TransOp,
    element_name,
    sparse_encoding,
)
from louver.ir.tile.dot import promotion
from louver.ir.tile.multiples import multiples_of
from louver.ir.tile.types import element_bits, tensor_of
from louver.isa.swizzle import BANK_LINE

STEPS = 2
"""Steps that are taken at once."""


def widen_steps(module: ModuleOp) -> None:
    """Rewrite loops in place."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        loops = [
            op for op in function.body.walk() if isinstance(op, scf.ForOp) and constant_integer(op.step) is not None
        ]
        widened = [loop for loop in loops if _widen(function, loop)]
        if widened:
            remove_dead(function)


def _widen(function: FuncOp, loop: scf.ForOp) -> bool:
    """Rewrite a loop that only sums products of narrow tiles. Returns whether it could."""
    block, end = loop.body.block, end_of(loop.body.block)
    dots = [op for op in block.ops if isinstance(op, DotOp)]
    others = [op for op in block.ops if op is not end and not isinstance(op, DotOp | LoadOp)]
    if not dots or not all(map(_is_narrow, dots)) or not all(has_no_effect(op) and not op.regions for op in others):
        return False
    columns = tensor_of(dots[0].a).get_shape()[1]
    sums = [position(dot.d, end.operands) if any(each is dot.d for each in end.operands) else None for dot in dots]
    carried = all(at is not None and block.args[at + 1] is dot.c for at, dot in zip(sums, dots, strict=True))
    used = [at for at, result in enumerate(loop.results) if result.first_use is not None and at not in sums]
    steps = AlikeSteps(loop, columns, STEPS)
    operands = [(each, dimension) for dot in dots for each, dimension in ((dot.a, 1), (dot.b, 0))]
    if not carried or used or not all(steps.are_alike(*each) for each in operands):
        return False
    if not steps.are_whole(STEPS) and not all(steps.end(*each) for each in operands):
        length, names, whole = steps.length(), function.argument_names, STEPS * columns
        if length is None or length not in names:
            return False
        if dict(zip(names, multiples_of(function), strict=True))[length] % whole:
            prefer_multiple(function, names[length], whole)
            return False
    _rewrite(steps, dots)
    return True


def _is_narrow(dot: DotOp) -> bool:
    """Whether a dot multiplies a sparse tile whose rows of a step are narrow, and only adds to its sums."""
    a = tensor_of(dot.a)
    return (
        len(a.get_shape()) == 2
        and a.get_shape()[1] * element_bits(a) * STEPS <= BANK_LINE * 8
        and any(map(_is_sparse, (dot.a, dot.b)))
        and promotion(dot, element_name(a.element_type)) is None
        and dot.d.has_one_use()
        and dot.c.has_one_use()
    )


def _is_sparse(value: SSAValue) -> bool:
    """Whether a tile is sparse, also one whose elements are converted for the dot."""
    if isinstance(value.owner, CASTS):
        return _is_sparse(value.owner.operands[0])
    return sparse_encoding(value.type) is not None


def _rewrite(steps: AlikeSteps, dots: list[DotOp]) -> None:
    loop, old = steps.loop, steps.loop.body.block
    end, by = end_of(old), cast(int, constant_integer(loop.step))
    arguments, sums = old.args[1:], {dot.c: dot for dot in dots}
    outside = _Copies(steps, loop)
    given = [outside.passed(first, argument) for argument, first in zip(arguments, loop.iter_args, strict=True)]
    body = Block(arg_types=[old.args[0].type, *(each.type for each in given)])
    for argument, new in zip(old.args, body.args, strict=True):
        new.name_hint = argument.name_hint
    last = scf.YieldOp()
    body.add_op(last)

    def ends(number: SSAValue, values: list[SSAValue]) -> list[SSAValue]:
        """What the loop carries on with after one step. Sums stay."""
        copies = _Copies(steps, last, dict(zip(old.args, [number, *values], strict=True)), outside)
        return [
            value if argument in sums else copies.passed(passed, argument)
            for argument, value, passed in zip(arguments, values, end.operands, strict=True)
        ]

    first = _Copies(steps, last, dict(zip(old.args, body.args, strict=True)), outside)
    made = {dot.c: first.dot(dot) for dot in dots}
    passed = ends(body.args[0], list(body.args[1:]))
    number = insert(last, arith.AddiOp(body.args[0], integer(last, by, old.args[0].type)), loop).results[0]
    passed = ends(number, passed)
    new_end = scf.YieldOp(*(made.get(argument, value) for argument, value in zip(arguments, passed, strict=True)))
    new_end.location = end.location
    Rewriter.replace_op(last, new_end, [])
    new = scf.ForOp(loop.lb, loop.ub, integer(loop, by * STEPS, loop.step.type), given, Region(body))
    new.attributes = dict(loop.attributes)
    insert(loop, new, loop)
    Rewriter.replace_op(loop, [], list(new.results))


@dataclass(slots=True)
class _Copies:
    """Copies of a loop's operations, before an operation. same: with the columns of one step. wide: with those of all.

    outside: copies of what is computed before the loop; None for these themselves.
    """

    steps: AlikeSteps
    before: Operation
    same: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    outside: _Copies | None = None
    wide: dict[tuple[SSAValue, int], SSAValue] = field(default_factory=dict[tuple[SSAValue, int], SSAValue])

    def dot(self, dot: DotOp) -> SSAValue:
        """The sums of a dot of wide tiles."""
        new = dot.clone({dot.a: self.widened(dot.a, 1), dot.b: self.widened(dot.b, 0), dot.c: self.copied(dot.c)})
        return insert(self.before, new, dot).results[0]

    def passed(self, value: SSAValue, argument: SSAValue) -> SSAValue:
        """The copy of a value that the loop carries as `argument`."""
        dimension = self.steps.carried.get(argument)
        return self.copied(value) if dimension is None else self.widened(value, dimension)

    def copied(self, value: SSAValue) -> SSAValue:
        """The copy of a value."""
        if value not in self.same and self.steps.is_inside(value):
            op = cast(Operation, value.owner)
            copy = insert(self.before, op.clone({each: self.copied(each) for each in op.operands}), op)
            self.same |= dict(zip(op.results, copy.results, strict=True))
        return self.same.get(value, value)

    def widened(self, value: SSAValue, dimension: int) -> SSAValue:
        """The copy of a value with the columns of all steps along a dimension."""
        if not self.steps.varies(value, dimension):
            return self.copied(value)
        if self.outside is not None and not self.steps.is_inside(value):
            return self.outside.widened(value, dimension)
        if isinstance(value.owner, Block):
            return self.same[value]
        key = (value, dimension)
        if key not in self.wide:
            made = self.wide[key] = insert(self.before, self._made(value, dimension), value.owner).results[0]
            made.name_hint = value.name_hint
        return self.wide[key]

    def _made(self, value: SSAValue, dimension: int) -> Operation:
        op, tensor = cast(Operation, value.owner), tensor_of(value)
        shape = [size * STEPS if each == dimension else size for each, size in enumerate(tensor.get_shape())]
        match op:
            case MakeRangeOp():
                return MakeRangeOp(op.start.value.data, op.start.value.data + shape[0])
            case SplatOp():
                return SplatOp(self.copied(op.src), shape)
            case ExpandDimsOp():
                return ExpandDimsOp(self.widened(op.src, source_dimension(op, dimension)), op.axis.value.data)
            case BroadcastOp():
                return BroadcastOp(self.widened(op.src, dimension), shape)
            case TransOp():
                return TransOp(self.widened(op.src, source_dimension(op, dimension)), list(op.order.get_values()))
            case arith.ConstantOp(value=DenseIntOrFPElementsAttr() as numbers):
                type_ = TensorType(tensor.element_type, shape, tensor.encoding)
                return arith.ConstantOp(DenseIntOrFPElementsAttr(cast(Any, type_), numbers.data))
            case _:
                new = op.clone({each: self.widened(each, dimension) for each in op.operands})
                type_ = TensorType(tensor.element_type, shape, tensor.encoding)
                Rewriter.replace_value_with_new_type(new.results[0], type_)
                return new
