"""Reads tile IR backwards from a value to its definition, and records the operations that it has read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.traits import is_side_effect_free

from louver.analysis.access import EVERY
from louver.analysis.affine import launch_size
from louver.analysis.integers import literal
from louver.compile.canonical.make_host_descriptors import own_sizes
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.polynomial import Size
from louver.ir.product import Argument, Batch, Part
from louver.ir.refusal import unsupported
from louver.ir.tile.types import tensor_of

PAD_ZERO = 1
"""The `padding` of a descriptor that reads zeros outside the tensor. Source: Triton's PaddingOption."""


@dataclass(frozen=True, slots=True)
class Position:
    """The first element of a tile: the program number along a grid axis times `scale` elements.

    axis: None if there is only one tile. It starts at 0, and its scale is 0.
    """

    axis: int | None
    scale: int


ONLY = Position(None, 0)
"""The start of the only tile along a dimension."""


@dataclass(frozen=True, slots=True)
class View:
    """A descriptor: its argument, element type and pattern, and size, stride and block of each dimension, in elements."""

    argument: str
    element: str
    pattern: str | None
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    block: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The number of a batch entry that is read from memory.

    It is the element of `argument`, "s32" or "s64", at the program number along `axis` of the grid.
    """

    argument: str
    element: Literal["s32", "s64"]
    axis: int


class Block(NamedTuple):
    """A block of a matrix that is loaded or stored.

    view: the matrix.
    offsets: the block's first element in each dimension.
    entry: the axis of the grid whose program number is the entry, or the array that holds the entry; None without a
    batch.
    """

    view: View
    offsets: tuple[tt.Index, ...]
    batch: Batch | None
    entry: int | Chosen | None


@dataclass(slots=True)
class Trace:
    """A kernel that is being read.

    explained: operations that have been read.
    equal: pairs of sizes that the launch must find equal, because the caller gives the sizes of each descriptor.
    at_most: sizes, each with the number that it must not exceed at the launch.
    places: source locations.
    """

    function: tt.FuncOp
    names: dict[SSAValue, str] = field(init=False)
    explained: set[Operation] = field(default_factory=set[Operation])
    equal: set[tuple[Size, Size]] = field(default_factory=set[tuple[Size, Size]])
    at_most: set[tuple[Size, int]] = field(default_factory=set[tuple[Size, int]])
    places: dict[Part, LocationAttr] = field(default_factory=dict[Part, LocationAttr])

    def __post_init__(self) -> None:
        self.names = self.function.argument_names

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The kernel's arguments in order."""
        return tuple(Argument(name, str(value.type)) for value, name in self.names.items())

    def require_all_explained(self) -> None:
        """Reject the kernel if an operation with an effect has not been read."""
        for op in self.function.body.walk():
            if op not in self.explained and not isinstance(op, tt.ReturnOp) and not is_side_effect_free(op):
                raise unsupported(
                    "each load, store and other effect of a kernel must be part of its product",
                    op,
                    "move other loads, stores and prints to a kernel of their own",
                )

    def definition(self, value: SSAValue, user: Operation) -> Operation:
        """The operation that defines `value`, added to `explained`. The error names `user` if there is none."""
        if isinstance(value, BlockArgument):
            raise unsupported(f"operand %{value.name_hint or value.index} must come from an operation", user)
        op = cast(Operation, value.owner)
        self.explained.add(op)
        return op

    def size(self, index: tt.Index, user: Operation) -> Size:
        """A size or stride that a launch can compute. It must not be a sum."""
        size = launch_size(index, self.names)
        if size is None or len(size.terms) > 1:
            culprit = user if isinstance(index, int) else self._culprit(index, user)
            raise unsupported(
                "sizes and strides must be arguments or constants, or products of these",
                culprit,
                "pass the sum as an argument",
            )
        return size

    def same(self, one: Size | None, other: Size | None) -> bool:
        """Whether two sizes are equal. None: a size that the kernel does not give.

        A size of a descriptor that the caller gives is taken to be equal to the other. The launch then checks this.
        """
        if one == other or one is None or other is None:
            return one == other
        described = {self.names[value] for value in own_sizes(self.function)}
        if described.isdisjoint((one.name, other.name)):
            return False
        self.equal.add((min(one, other, key=str), max(one, other, key=str)))
        return True

    def within(self, size: Size, most: int) -> bool:
        """Whether a size is at most a number. If the size is an argument, the launch checks this."""
        if size.name in self.names.values():
            self.at_most.add((size, most))
            return True
        return size.constant is not None and size.constant <= most

    def position(self, index: tt.Index, user: Operation) -> Position:
        """The first element of a tile: a program number times a constant, or 0."""
        if literal(index) == 0:
            return ONLY
        product = None if isinstance(index, int) else index.owner
        if isinstance(product, arith.MuliOp):
            for program, scale in ((product.lhs, product.rhs), (product.rhs, product.lhs)):
                constant = literal(scale)
                if isinstance(program.owner, tt.GetProgramIdOp) and constant is not None:
                    self.places.setdefault("tiles", program.owner.location)
                    return Position(program.owner.axis.value.data, constant)
        culprit = user if isinstance(index, int) else self._culprit(index, user)
        raise unsupported(
            "a tile must start at a program's number times a constant, or be the only one and start at 0",
            culprit,
            "number tiles as tl.program_id(0) * BLOCK",
        )

    def view(self, descriptor: SSAValue, user: Operation) -> View:
        """The tensor that a descriptor describes."""
        op = self.definition(descriptor, user)
        if not isinstance(op, tt.MakeTensorDescriptorOp):
            raise unsupported("a descriptor must be made by tt.make_tensor_descriptor", op)
        if op.padding is not None and op.padding.value.data != PAD_ZERO:
            raise unsupported("a descriptor must read zeros outside its tensor", op, "leave padding_option out")
        if op.base not in self.names:
            raise unsupported("a descriptor's base must be an argument", op, "move tiles by offsets, not by the base")
        strides = tuple(self.size(step, op) for step in op.steps)
        if strides[-1].constant != 1:
            raise unsupported(
                "a descriptor's last stride must be the constant 1", op, "pass the stride 1 as a constant"
            )
        encoding = tt.sparse_encoding(op.block)
        return View(
            self.names[op.base],
            tt.element_name(cast(tt.PointerType, op.base.type).pointee),
            None if encoding is None else encoding.format.pattern,
            tuple(self.size(size, op) for size in op.sizes),
            strides,
            op.block.get_shape(),
        )

    def block(self, descriptor: SSAValue, offsets: tuple[tt.Index, ...], user: Operation) -> Block:
        """The block that `user` reads or writes at `offsets`.

        The first of three dimensions is a batch, with blocks of one entry. A batch of one matrix is that matrix.
        """
        view = self.view(descriptor, user)
        if len(offsets) != 3:
            return Block(view, offsets, None, None)
        if view.block[0] != 1:
            raise unsupported(
                "a block of three dimensions must have a first size of 1, for one matrix of a batch", user
            )
        matrix = View(view.argument, view.element, view.pattern, view.sizes[1:], view.strides[1:], view.block[1:])
        if view.sizes[0].constant == 1 and literal(offsets[0]) == 0:
            return Block(matrix, offsets[1:], None, None)
        batch = Batch(None if view.sizes[0].constant == EVERY else view.sizes[0], view.strides[0])
        return Block(matrix, offsets[1:], batch, self._entry(offsets[0], user))

    def without_entry(self, value: SSAValue, user: Operation) -> Operation:
        """The operation that defines a matrix. A reshape that drops a first dimension of one element is skipped."""
        op = self.definition(value, user)
        if isinstance(op, tt.ReshapeOp) and tensor_of(op.src).get_shape() == (1, *tensor_of(op.result).get_shape()):
            return self.definition(op.src, op)
        return op

    def _entry(self, index: tt.Index, user: Operation) -> int | Chosen:
        """The entry that `index` selects: the axis of the grid whose program number it is, or the array that holds it."""
        if not isinstance(index, int):
            value = self._without_width(index)
            if isinstance(value.owner, tt.LoadOp):
                return self._chosen(value.owner)
            axis = self._program(value)
            if axis is not None:
                return axis
        raise unsupported(
            "the index in a batch must be a program's number, or be loaded at one (tl.load(ids + tl.program_id(0)))",
            user,
        )

    def _chosen(self, load: tt.LoadOp) -> Chosen:
        """The array that a load of one number reads. It has one number for each tile along an axis of the grid."""
        address = load.ptr.owner
        element = str(load.result.type)
        if (
            isinstance(address, tt.AddPtrOp)
            and address.ptr in self.names
            and element in ("i32", "i64")
            and not (load.mask or load.fresh)
        ):
            axis = self._program(self._without_width(address.offset))
            if axis is not None:
                self.explained.add(load)
                return Chosen(self.names[address.ptr], "s32" if element == "i32" else "s64", axis)
        raise unsupported(
            "the index in a batch must be loaded without a mask from an array of int32 or int64 with one "
            "number for each tile along an axis",
            load,
            "write tl.load(ids + pid), where pid is the tile's number",
        )

    def _program(self, value: SSAValue) -> int | None:
        """The axis of the grid whose program number `value` is; None for another value."""
        if not isinstance(value.owner, tt.GetProgramIdOp):
            return None
        return value.owner.axis.value.data

    def _without_width(self, value: SSAValue) -> SSAValue:
        """The value before integer conversions. The number of an entry or tile fits both widths."""
        while isinstance(value.owner, ExtSIOp | TruncIOp):
            value = value.owner.operands[0]
        return value

    def _culprit(self, value: SSAValue, user: Operation) -> Operation:
        return user if isinstance(value, BlockArgument) else cast(Operation, value.owner)
