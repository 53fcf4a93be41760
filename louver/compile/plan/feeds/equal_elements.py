"""What all elements of a tile have in common is computed once, and loaded once.

The scales of blocks of a weight are such a tile: `tl.load(scales + columns // 128 * stride)` loads one number for all columns
of a tile that lies in one block. Both passes take valid tile IR without sparse types, descriptors and block pointers, before
encodings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    Signedness,
    SignednessAttr,
    i32,
)
from xdsl.ir import Block, Operation, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.rewriter import Rewriter

from louver.analysis.affine import is_count
from louver.analysis.atoms import Lane, Wrapped, lanes
from louver.analysis.effects import has_no_effect, is_elementwise
from louver.analysis.integers import constant_everywhere
from louver.analysis.passages import passed_to
from louver.compile.canonical.describe_tiles import Describer
from louver.compile.rewrite.insert import insert_before, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.arith import ExtSIOp
from louver.ir.polynomial import Polynomial
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import AddPtrOp, BroadcastOp, ExpandDimsOp, FuncOp, LoadOp, SplatOp
from louver.ir.tile.types import as_tensor, element_of, first_of, is_splat, tensor_of

SIGNLESS = SignednessAttr(Signedness.SIGNLESS)


def join_quotients(module: ModuleOp) -> None:
    """join-quotients: computes a quotient of a tile's indices once, if the tile lies in one group of the divisor's size.

    Rows that wrap are taken as if they did not, where no result of theirs is stored.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        divisions = [op for op in function.body.walk() if isinstance(op, arith.DivSIOp) and as_tensor(op.result.type)]
        describer = Describer.of(function) if divisions else None
        for op in divisions:
            found = None if describer is None else _first(describer, op)
            if found is not None:
                quotient = insert_before(op, arith.DivSIOp(found, integer(op, cast(int, constant_everywhere(op.rhs)))))
                Rewriter.replace_op(op, SplatOp(quotient, tensor_of(op.result).get_shape()))
        if divisions:
            remove_dead(function)


def _first(describer: Describer, op: arith.DivSIOp) -> SSAValue | None:
    """The first of the indices that an operation divides, if all have the same quotient."""
    by, shape = constant_everywhere(op.rhs), tensor_of(op.result).get_shape()
    loads = _addressed(op.result)
    if by is None or by < 1 or loads is None or element_of(op.result.type) != i32:
        return None
    try:
        index, size = describer.affine.integer(op.lhs), None
        for atom in index.atoms:
            if isinstance(atom, Wrapped) and index == Polynomial.atom(atom):
                index, size = atom.index, atom.size
        if len(lanes(index)) != 1:
            return None
        (number,) = lanes(index)
        first, extent = index - Polynomial.atom(Lane(number)), shape[number]
        whole = not lanes(first) and first.quotient(Polynomial.number(extent)) is not None
        if not whole or by % extent or not is_count(first):
            return None
        if size is not None:
            for load in loads:
                describer.check_beyond(load, number, first - size)
        start = _scalar(describer, first, op)
        return start if size is None else insert_before(op, arith.RemSIOp(start, _scalar(describer, size, op)))
    except UnsupportedKernelError:
        return None


def _scalar(describer: Describer, value: Polynomial, op: Operation) -> SSAValue:
    found = describer.descriptors.first(value, op)
    return integer(op, found) if isinstance(found, int) else found


def _addressed(value: SSAValue) -> set[LoadOp] | None:
    """The loads whose addresses are computed from a tile of integers; None if it has another use."""
    found, seen, pending = set[LoadOp](), set[SSAValue](), [value]
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        for use in current.uses:
            op = use.operation
            match op:
                case LoadOp() if use.index == 0:
                    found.add(op)
                case ExtSIOp() | arith.MuliOp() | arith.AddiOp() | arith.SubiOp() | AddPtrOp():
                    pending += op.results
                case scf.ForOp() | scf.YieldOp():
                    pending += passed_to(op, use.index)
                case _:
                    return None
    return found


def load_once(module: ModuleOp) -> None:
    """load-once: loads the element once that all elements of a load have in common."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        loads = [op for op in function.body.walk() if isinstance(op, LoadOp) and as_tensor(op.result.type)]
        found = [op for op in loads if all(each is None or _is_common(each) for each in (op.ptr, op.mask, op.other))]
        for op in found:
            made = _Common(op)
            given = [None if each is None else made.of(each) for each in (op.ptr, op.mask, op.other)]
            properties = {name: each for name, each in op.properties.items() if name != "operandSegmentSizes"}
            loaded = LoadOp.build(
                operands=[*given, None, []], properties=properties, result_types=[element_of(op.result.type)]
            )
            Rewriter.replace_op(op, SplatOp(insert_before(op, loaded), tensor_of(op.result).get_shape()))
        if found:
            remove_dead(function)


def _is_common(value: SSAValue) -> bool:
    """Whether all elements of a tile are the same number. A scalar is."""
    op = value.owner
    match op:
        case _ if as_tensor(value.type) is None:
            return True
        case SplatOp():
            return True
        case BroadcastOp() | ExpandDimsOp():
            return _is_common(op.src)
        case arith.ConstantOp(value=DenseIntOrFPElementsAttr() as numbers):
            # A scalar constant has no sign in its type.
            return is_splat(numbers) and getattr(numbers.get_element_type(), "signedness", SIGNLESS) == SIGNLESS
        case Operation() if is_elementwise(op) and has_no_effect(op) and len(op.results) == 1:
            return all(map(_is_common, op.operands))
        case _:
            return False


@dataclass(slots=True)
class _Common:
    """Computes the element that all elements of a tile have in common, before a load."""

    load: LoadOp
    known: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def of(self, value: SSAValue) -> SSAValue:
        """The common element of a tile, or the scalar itself."""
        if as_tensor(value.type) is None:
            return value
        if value not in self.known:
            self.known[value] = self._of(value.owner)
        return self.known[value]

    def _of(self, op: Operation | Block) -> SSAValue:
        if isinstance(op, SplatOp | BroadcastOp | ExpandDimsOp):
            return self.of(op.src)
        if isinstance(op, arith.ConstantOp):
            return insert_before(self.load, arith.ConstantOp(_number(cast(DenseIntOrFPElementsAttr, op.value))))
        assert isinstance(op, Operation)
        made = cast(type[IRDLOperation], type(op))
        new = made.build(
            operands=list(map(self.of, op.operands)),
            properties=dict(op.properties),
            result_types=[element_of(op.results[0].type)],
        )
        return insert_before(self.load, new)


def _number(numbers: DenseIntOrFPElementsAttr) -> IntegerAttr[Any] | FloatAttr[Any]:
    """The number that all elements of a constant are."""
    number, element = first_of(numbers), cast(Any, numbers.get_element_type())
    return IntegerAttr(number, element) if isinstance(number, int) else FloatAttr(number, element)
