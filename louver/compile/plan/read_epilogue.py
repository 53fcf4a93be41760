"""Reads the epilogue from tile IR: the operations on each element between the sum of products and the store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from louver.analysis.integers import literal
from louver.compile.plan.trace import Position, Trace
from louver.formats.gated import GATE_ROWS
from louver.ir import tile as tt
from louver.ir.arith import FPToSIOp, SIToFPOp
from louver.ir.comparisons import CmpfOp, CmpiOp, SelectOp
from louver.ir.elementwise import choice_of, step_of
from louver.ir.polynomial import Size
from louver.ir.product import (
    Accumulator,
    Apply,
    Batch,
    Cast,
    Constant,
    Expression,
    LoadMatrix,
    LoadScalar,
    LoadVector,
    Number,
    parts_of,
)
from louver.ir.refusal import unsupported
from louver.ir.tile.types import as_tensor, element_of, tensor_of
from louver.ir.walk import each_once

EXACT = 1 << 24
"""Integers below this limit are exact in f32. A larger integer does not convert to a value below the limit. So
comparisons with integers below the limit give the same result in f32.
"""

Writing: TypeAlias = tt.DescriptorStoreOp | tt.DescriptorReduceOp

Axis = Literal["m", "n"]
Axes = tuple[Axis | None, ...]
"""The axis of the product along which each dimension of a tensor runs; None for a dimension of one element."""


class Part(NamedTuple):
    """One of the two parts of a gated sum: the sum, the number of the part, and the operations that extract it."""

    total: SSAValue
    number: Literal[0, 1]
    operations: tuple[Operation, ...]


def gated_part(value: SSAValue) -> Part | None:
    """The part that `value` [M / 2, N] is, if it is every second block of 8 rows of a sum [M, N]; None otherwise.

    In Triton: reshape to [M/16, 2, 8, N], permute to [M/16, 8, N, 2], split, reshape to [M/2, N].
    """
    join = value.owner
    split = join.src.owner if isinstance(join, tt.ReshapeOp) else None
    turn = split.src.owner if isinstance(split, tt.SplitOp) else None
    divide = turn.src.owner if isinstance(turn, tt.TransOp) else None
    if not (isinstance(join, tt.ReshapeOp) and isinstance(split, tt.SplitOp) and isinstance(turn, tt.TransOp)):
        return None
    if not isinstance(divide, tt.ReshapeOp) or not isinstance(divide.src.owner, scf.ForOp):
        return None
    rows, columns = tensor_of(divide.src).get_shape()
    blocks = (rows // (2 * GATE_ROWS), 2, GATE_ROWS, columns)
    if tensor_of(divide.result).get_shape() != blocks or turn.order.get_values() != (0, 2, 3, 1):
        return None
    if tensor_of(value).get_shape() != (rows // 2, columns):
        return None
    return Part(divide.src, 0 if join.src is split.first else 1, (join, split, turn, divide))


class Source(NamedTuple):
    """The loop result from which a stored value is computed, whether it is transposed, and whether it is gated."""

    total: SSAValue
    transposed: bool
    gated: bool


def find_sum(store: Writing) -> Source:
    """The sum from which the stored tile is computed."""
    found: dict[Source, None] = {}
    pending = [(store.src, False)]
    for current, transposed in each_once(pending):
        op = current.owner
        part = gated_part(current)
        if part is not None:
            found[Source(part.total, transposed, True)] = None
        elif isinstance(op, scf.IfOp):
            raise unsupported(
                "a branch in an epilogue must not read or write memory, nor divide integers",
                op,
                "load in front of the branch",
            )
        elif isinstance(op, scf.ForOp):
            found[Source(current, transposed, False)] = None
        elif isinstance(op, Operation):
            flips = isinstance(op, tt.TransOp)
            pending += [(operand, transposed != flips) for operand in op.operands if _is_matrix(operand)]
    if len(found) != 1:
        raise unsupported(
            f"a stored tile must come from one sum of products, in one orientation; there are {len(found)}",
            store,
            "add both sums, or store each in a kernel of its own",
            always=len(found) > 1,
        )
    return next(iter(found))


def _is_matrix(value: SSAValue) -> bool:
    """Whether a value is a matrix, or a block that holds one matrix of a batch."""
    tensor = as_tensor(value.type)
    return tensor is not None and (
        tensor.get_num_dims() == 2 or (tensor.get_num_dims(), tensor.get_shape()[0]) == (3, 1)
    )


MOST_PARTS = 4096
"""The most parts of an epilogue. The longest that people write have some hundred."""


@dataclass(frozen=True, slots=True)
class EpilogueReader:
    """Reads expressions over `total`, the sum of products.

    positions: the start of an output tile along each axis.
    extents: the size of the output along each axis.
    entry: the axis of the grid that numbers the entries of the output; None without a batch.
    batch: the batch of the output.
    known: expressions that were read. sizes: of these and their parts, by identity.
    """

    trace: Trace
    total: SSAValue
    positions: dict[Axis, Position]
    extents: dict[Axis, Size]
    entry: int | None = None
    batch: Batch | None = None
    known: dict[tuple[SSAValue, Axes], Expression] = field(default_factory=dict[tuple[SSAValue, Axes], Expression])
    sizes: dict[int, int] = field(default_factory=dict[int, int])

    def read(self, value: SSAValue, axes: Axes, user: Operation) -> Expression:
        """The expression of a tensor. Its dimensions run along `axes` of the product."""
        found = self.known.get((value, axes))
        if found is None:
            found = self.known[value, axes] = self._read(value, axes, user)
            if self._size(found) > MOST_PARTS:
                raise unsupported(
                    f"an epilogue has at most {MOST_PARTS} parts, where what is used twice counts twice",
                    user,
                    "compute a part in a kernel of its own",
                )
            if isinstance(value.owner, Operation):
                self.trace.places.setdefault(found, value.owner.location)
        return found

    def _size(self, expression: Expression) -> int:
        """The parts of an expression. Expressions with common parts are read once, but printed, compared and lowered as trees."""
        size = self.sizes.get(id(expression))
        if size is None:
            size = self.sizes[id(expression)] = 1 + sum(map(self._size, parts_of(expression)))
        return size

    def _read(self, value: SSAValue, axes: Axes, user: Operation) -> Expression:
        if value is self.total:
            return Accumulator()
        part = gated_part(value)
        if part is not None and part.total is self.total:
            self.trace.explained.update(part.operations)
            return Accumulator(part.number)
        if isinstance(value, BlockArgument):
            return self._argument(value, user)
        op = self.trace.definition(value, user)
        step = step_of(op)
        if step is not None:
            return Apply(step, tuple(self.read(operand, axes, op) for operand in op.operands))
        match op:
            case tt.FpToFpOp():
                if op.rounding is not None and op.rounding.data != "rtne":
                    raise unsupported(
                        "an epilogue must round to nearest even (rtne)", op, "leave fp_downcast_rounding out"
                    )
                return Cast(self.read(op.src, axes, op), tt.element_name(element_of(op.result.type)))
            case arith.ExtFOp() | arith.TruncFOp() | SIToFPOp() | FPToSIOp():
                return Cast(self.read(op.input, axes, op), tt.element_name(element_of(op.result.type)))
            case tt.TransOp():
                order = op.order.get_values()
                return self.read(op.src, tuple(axes[order.index(i)] for i in range(len(order))), op)
            case tt.BroadcastOp():
                return self.read(op.src, _before_broadcast(op, axes), op)
            case tt.ExpandDimsOp():
                axis = op.axis.value.data
                return self.read(op.src, axes[:axis] + axes[axis + 1 :], op)
            case tt.ReshapeOp() if (moved := _reshaped(op, axes)) is not None:
                return self.read(op.src, moved, op)
            case tt.SplatOp():
                return self.read(op.src, (), op)
            case tt.LoadOp() if not axes:
                return self._scalar(op)
            case SelectOp():
                return self._choice(op, axes)
            case tt.ClampFOp():
                return self._clamped(op, axes)
            case arith.ConstantOp():
                return _constant(op)
            case tt.DescriptorLoadOp():
                return self._vector(op, axes) if len(axes) == 1 else self._matrix(op, axes)
            case _:
                raise unsupported(
                    "an epilogue may only apply elementwise steps, casts and broadcasts",
                    op,
                    "reduce, scan and reshape in a kernel of its own",
                )

    def _branch(self, op: SelectOp, axes: Axes) -> Expression:
        """A choice between two tiles or numbers by one condition."""
        if tt.element_name(element_of(op.result.type)) != "f32":
            raise unsupported("a choice by one number must be between f32 tiles", op, "convert them first")
        values = {value: self.read(value, axes, op) for value in (op.lhs, op.rhs)}
        if op.cond in self.trace.names:
            flag = Number(self.trace.names[op.cond])
            return Apply.of("where_equal", flag, Constant(0.0, "f32"), values[op.rhs], values[op.lhs])
        comparison = self.trace.definition(op.cond, op)
        found = choice_of(comparison, op) if isinstance(comparison, CmpfOp | CmpiOp) else None
        if found is None:
            raise unsupported(
                "a choice in an epilogue needs one comparison of numbers as its condition",
                comparison,
                "compare two numbers, and nest choices for more conditions",
            )
        step, (one, other, chosen, rest) = found
        compared = (self._number(each, comparison) for each in (one, other))
        return Apply.of(step, *compared, values[chosen], values[rest])

    def _number(self, value: SSAValue, user: Operation) -> Expression:
        """A side of a comparison of two numbers: an argument or a constant, exact in f32."""
        integer = literal(value)
        if integer is not None and abs(integer) < EXACT:
            return Constant(float(integer), "f32")
        if isinstance(user, CmpiOp):
            others = [operand for operand in user.operands if operand is not value]
            if value not in self.trace.names or not others or literal(others[0]) is None:
                raise unsupported(f"an integer argument must be compared with a constant below {EXACT}", user)
            return Number(self.trace.names[value])
        if str(value.type) != "f32":
            raise unsupported(
                "a choice in an epilogue must compare f32 numbers or integers", user, "convert both sides to tl.float32"
            )
        return self.read(value, (), user)

    def _argument(self, value: BlockArgument, user: Operation) -> Number:
        if value not in self.trace.names or str(value.type) != "f32":
            raise unsupported(
                "a scalar in an epilogue must be an f32 argument, or be loaded through a pointer argument",
                user,
                "pass it as a float, or load it with tl.load(pointer)",
            )
        return Number(self.trace.names[value])

    def _scalar(self, load: tt.LoadOp) -> LoadScalar:
        names, pointer = self.trace.names, load.ptr
        while isinstance(pointer.owner, tt.AddPtrOp) and literal(pointer.owner.offset) == 0:
            pointer = pointer.owner.ptr
        if pointer not in names or not isinstance(pointer.type, tt.PointerType):
            raise unsupported(
                "a scalar in an epilogue must be an f32 argument, or be loaded through a pointer argument",
                load,
                "pass it as a float, or load it with tl.load(pointer)",
            )
        if load.mask is not None and not self._holds(load.mask, load):
            raise unsupported("a scalar in an epilogue must be loaded without a mask", load, "leave the mask out")
        return LoadScalar(names[pointer], tt.element_name(pointer.type.pointee))

    def _holds(self, mask: SSAValue, user: Operation) -> bool:
        """Whether a mask asks whether the first row or column is inside. A product has one, as a launch checks."""
        match mask.owner:
            case (
                CmpiOp(name_of_predicate="slt", lhs=first, rhs=size)
                | CmpiOp(name_of_predicate="sgt", lhs=size, rhs=first)
            ):
                return literal(first) == 0 and self.trace.size(size, user) in self.extents.values()
            case _:
                return False

    def _choice(self, op: SelectOp, axes: Axes) -> Expression:
        if as_tensor(op.cond.type) is None:
            return self._branch(op, axes)
        comparison = self.trace.definition(op.cond, op)
        found = choice_of(comparison, op) if isinstance(comparison, CmpfOp) else None
        if found is None:
            raise unsupported(
                "a choice in an epilogue needs one comparison of floating-point numbers as its condition",
                comparison,
                "compare two f32 tiles, and nest tl.where for more conditions",
            )
        name, operands = found
        return Apply(name, tuple(self.read(operand, axes, comparison) for operand in operands))

    def _clamped(self, op: tt.ClampFOp, axes: Axes) -> Expression:
        x, low, high = (self.read(operand, axes, op) for operand in (op.x, op.low, op.high))
        number = "" if op.propagate_nan.data == "all" else "_number"
        return Apply.of(f"minimum{number}", Apply.of(f"maximum{number}", x, low), high)

    def _vector(self, op: tt.DescriptorLoadOp, axes: Axes) -> LoadVector:
        axis = axes[0]
        if axis is None:
            raise unsupported(
                "a vector in an epilogue must lie along one axis of the product",
                op,
                "load it at the rows or at the columns of the tile",
            )
        view = self.trace.view(op.desc, op)
        if view.pattern is not None:
            raise unsupported("a vector in an epilogue must be dense", op, "pass a dense array")
        if not self.trace.same(view.sizes[0], self.extents[axis]):
            raise unsupported(
                f"a vector along {axis} must have the product's size there, {self.extents[axis]}",
                op,
                "mask it with that size",
            )
        if self.trace.position(op.offsets[0], op) != self.positions[axis]:
            raise unsupported(
                f"a vector along {axis} must be read where the tile starts",
                op,
                "load it at the rows or columns of the store",
            )
        return LoadVector(view.argument, view.element, axis)

    def _matrix(self, op: tt.DescriptorLoadOp, axes: Axes) -> LoadMatrix:
        along: list[Axis] = [axis for axis in axes if axis is not None]
        if sorted(along) != ["m", "n"]:
            raise unsupported(
                "an epilogue may read vectors, and arrays of the output's shape",
                op,
                "load it at rows[:, None] and columns[None, :] of the store",
            )
        view, offsets, batch, entry = self.trace.block(op.desc, op.offsets, op)
        whole = all(self.trace.same(size, self.extents[axis]) for size, axis in zip(view.sizes, along, strict=True))
        if view.pattern is not None or not whole:
            raise unsupported(
                "an array that an epilogue reads must be dense, with the output's sizes",
                op,
                "pass a dense array, masked like the store",
            )
        own, stored = (None if each is None else each.extent for each in (batch, self.batch))
        if entry != self.entry or not self.trace.same(own, stored):
            raise unsupported(
                "an array that an epilogue reads must have the output's batch",
                op,
                "select its matrix by the number that selects the output's",
            )
        if [self.trace.position(offset, op) for offset in offsets] != [self.positions[axis] for axis in along]:
            raise unsupported(
                "an array that an epilogue reads must be read where the tile is stored",
                op,
                "load it at the rows and columns of the store",
            )
        batch = None if batch is None else replace(batch, extent=stored)
        return LoadMatrix(view.argument, view.element, view.strides[0], along == ["n", "m"], batch)


def _constant(op: arith.ConstantOp) -> Constant:
    values: set[object]
    match op.value:
        case DenseIntOrFPElementsAttr() as numbers:
            values = set(numbers.iter_values())
        case FloatAttr() | IntegerAttr() as number:
            values = {number.value.data}
        case _:
            values = set()
    if len(values) != 1:
        raise unsupported(
            "a constant in an epilogue must be one number for all elements", op, "load other constants as a vector"
        )
    (value,) = values
    if not isinstance(value, int | float):
        raise unsupported("a constant in an epilogue must be a real number", op)
    return Constant(float(value), tt.element_name(element_of(op.result.type)))


def _reshaped(op: tt.ReshapeOp, axes: Axes) -> Axes | None:
    """The axes of the source, if the reshape adds or drops a first dimension of one element; None otherwise."""
    source, result = tensor_of(op.src).get_shape(), tensor_of(op.result).get_shape()
    if result == (1, *source):
        return axes[1:]
    return (None, *axes) if source == (1, *result) else None


def _before_broadcast(op: tt.BroadcastOp, axes: Axes) -> Axes:
    source, result = tensor_of(op.src).get_shape(), tensor_of(op.result).get_shape()
    return tuple(None if size == 1 and to != 1 else axis for size, to, axis in zip(source, result, axes, strict=True))
