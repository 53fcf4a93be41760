"""Evaluates an address expression of a tile at other places than those of its own elements.

A tile of pointers has one element for each element that a kernel reads. Values and codes of a sparse tensor need the addresses
of some of these elements only, in another order. `Samples.at` computes them by the kernel's own arithmetic: the numbers
of a range become the given places, and each elementwise operation is repeated on the sampled operands. Loads of row
numbers are repeated too, right before the original ones, so they read the same memory. A tile that a loop carries gets a
sampled companion.

Pointers to a sparse argument become i64 offsets from it, in elements of the dense tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr, TensorType, i32, i64
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.apart import Apart
from louver.analysis.effects import has_no_effect
from louver.analysis.integers import constant_integer, repeated
from louver.analysis.passages import end_of
from louver.compile.canonical.propagate_sparsity import encoding_of
from louver.compile.rewrite.insert import carrying, end_with, insert, insert_before, with_ends
from louver.compile.rewrite.tile_numbers import Number, TileNumbers, like, shape_of
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.polynomial import Size
from louver.ir.refusal import unsupported
from louver.ir.tile.types import as_tensor, element_of, first_of, is_splat, tensor_of


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an offset, i64. Rows: the numbers by which a distance is multiplied. Rest: the summands that are no multiple of it.

    The offset is rows * size + rest. A rest that a loop does not change is computed before it.
    """

    of: Literal["rows", "rest"]
    apart: Apart
    size: Size


@dataclass(frozen=True, slots=True)
class Places:
    """Elements of a tile, arranged in another tile.

    shape: of the other tile. indices: for each dimension of the first tile the element's number, i32, a tile that broadcasts
    to `shape`. None for a dimension of one element. part: what is sampled of an offset; None for all of it.
    """

    shape: tuple[int, ...]
    indices: tuple[SSAValue | None, ...]
    part: Part | None = None

    def of(self, indices: Sequence[SSAValue | None]) -> Places:
        """The same arrangement of elements of a tile with other dimensions."""
        return replace(self, indices=tuple(indices))


class Samples:
    """Samples tiles of one function. Operations are inserted before those that they repeat. own: remainders that count as their
    dividends.
    """

    def __init__(self, function: tt.FuncOp, own: Collection[Operation] = ()) -> None:
        self.own = own
        first = cast(Operation, function.body.block.first_op)
        self.start = insert(first, arith.ConstantOp(IntegerAttr(0, i32)), first)
        """Places are computed before this operation, where each sampled one sees them."""
        self._known: dict[tuple[SSAValue, Places], SSAValue] = {}
        self._moved: dict[SSAValue, SSAValue] = {}

    def at(self, value: SSAValue, places: Places) -> SSAValue:
        """The elements at these places: a scalar, or a tile that broadcasts to the shape of the places.

        Rejects, with its line, an operation that needs all elements of a tile of two dimensions or more.
        """
        value = self.live(value)
        if isinstance(value.owner, arith.RemSIOp) and value.owner in self.own:
            value = value.owner.lhs
        if as_tensor(value.type) is None:
            if encoding_of(value) is None and places.part is None:
                return value
            places = places.of(())
        if (value, places) not in self._known:
            found = None if places.part is None else self._part(value, places, places.part)
            self._known[value, places] = self._found(value, places) if found is None else found
        return self.live(self._known[value, places])

    def live(self, value: SSAValue) -> SSAValue:
        """The value that replaced a result of a loop or branch that carries more now."""
        while value in self._moved:
            value = self._moved[value]
        return value

    def _found(self, value: SSAValue, places: Places) -> SSAValue:
        owner = value.owner
        if isinstance(owner, Block):
            return self._argument(cast(BlockArgument, value), owner, places)
        match owner:
            case tt.MakeRangeOp():
                index, start = places.indices[0], owner.start.value.data
                if index is None:
                    return TileNumbers(owner).constant(start)
                return TileNumbers(owner).add(index, start) if start else index
            case tt.SplatOp():
                return self.at(owner.src, places)
            case arith.ConstantOp(value=DenseIntOrFPElementsAttr() as numbers) if is_splat(numbers):
                number, element = first_of(numbers), tensor_of(value).element_type
                make = TileNumbers(owner)
                return (
                    make.constant(number, element)
                    if isinstance(number, int)
                    else make.filled(number, element, places.shape)
                )
            case tt.ExpandDimsOp():
                axis = owner.axis.value.data
                return self.at(owner.src, places.of([*places.indices[:axis], *places.indices[axis + 1 :]]))
            case tt.BroadcastOp():
                sizes = tensor_of(owner.src).get_shape()
                pairs = zip(sizes, places.indices, strict=True)
                return self.at(owner.src, places.of([None if size == 1 else index for size, index in pairs]))
            case tt.TransOp():
                indices: list[SSAValue | None] = [None] * len(places.indices)
                for dimension, source in enumerate(owner.order.get_values()):
                    indices[source] = places.indices[dimension]
                return self.at(owner.src, places.of(indices))
            case tt.ReshapeOp():
                return self.at(owner.src, self._reshaped(owner, places))
            case scf.ForOp():
                number = owner.results.index(value)
                block = owner.body.block
                carried = self.at(block.args[number + 1], places)
                if carried.owner is not block:
                    # No iteration changes it.
                    return carried
                loop = block.parent_op()
                assert loop is not None
                return loop.results[cast(BlockArgument, carried).index - 1]
            case scf.IfOp():
                return self._branch(value, places)
            case tt.AddPtrOp() if encoding_of(value) is not None:
                offset = self.at(owner.offset, places)
                base = self.at(owner.ptr, places)
                make = TileNumbers(owner)
                return make.add(base, make.wide(self.live(offset)))
            case tt.LoadOp():
                return self._repeated(owner, places)
            case _ if _by_element(owner):
                return self._repeated(owner, places)
            case _ if len(places.indices) == 1 and places.indices[0] is not None:
                return self._gathered(owner, value, places.indices[0])
            case _:
                raise unsupported(
                    "the address of a sparse tile is computed by operations on elements, and by loads",
                    owner,
                    "compute row and column numbers as vectors, and join them as rows[:, None] * stride + columns[None, :]",
                )

    # --- parts of offsets ---------------------------------------------------------------------------------------------
    def _part(self, value: SSAValue, places: Places, part: Part) -> SSAValue | None:
        """A part of a sum, a product, or an operand of them; None for what only passes values on, whose sources have parts."""
        match owner := value.owner:
            case arith.MuliOp(lhs=left, rhs=right):
                for factor, other in ((left, right), (right, left)):
                    if (rows := self._rows(factor, part)) is not None:
                        return self._zero if part.of == "rest" else self._multiplied(owner, other, rows, places)
            case arith.AddiOp() | arith.SubiOp() | tt.AddPtrOp():
                return self._sum(owner, places)
            case ExtSIOp() | TruncIOp():
                return self.at(owner.input, places)
            case tt.SplatOp() | tt.ExpandDimsOp() | tt.BroadcastOp() | tt.TransOp() | tt.ReshapeOp():
                return None
            case Block() | scf.ForOp() | scf.IfOp() if (
                as_tensor(value.type) is not None or encoding_of(value) is not None
            ):
                return None
            case _:
                pass
        if part.of == "rows":
            return self._zero
        whole = self.live(self.at(value, replace(places, part=None)))
        return self._wide(whole)

    def _wide(self, value: SSAValue) -> SSAValue:
        """A number as i64, where it is known."""
        owner = value.owner
        after = owner.first_op if isinstance(owner, Block) and owner.parent_op() is not self.start.parent_op() else None
        after = owner.next_op if isinstance(owner, Operation) else after
        return cast(SSAValue, TileNumbers(after or self.start).wide(value))

    @property
    def _zero(self) -> SSAValue:
        return TileNumbers(self.start).constant(0, i64)

    def _multiplied(self, op: Operation, other: SSAValue, rows: Number, places: Places) -> SSAValue:
        sampled = self.live(self.at(other, replace(places, part=None)))
        make = TileNumbers(op)
        return make.times(make.wide(sampled), rows)

    def _rows(self, factor: SSAValue, part: Part) -> Number | None:
        """The number of distances that a factor is, i64; None if it is not known to be whole distances."""
        factor = repeated(factor)
        owner = factor.owner
        number = part.apart.distances(factor, part.size)
        if number is not None or not isinstance(owner, arith.MuliOp) or as_tensor(factor.type) is not None:
            return number
        make = TileNumbers(owner)
        for one, other in (owner.operands, reversed(owner.operands)):
            if (rows := self._rows(one, part)) is not None:
                return make.times(make.wide(other), rows)
        return None

    def _sum(self, op: Operation, places: Places) -> SSAValue:
        left, right = (self.at(each, places) for each in op.operands)
        left, right, make = self.live(left), self.live(right), TileNumbers(op)
        if constant_integer(right) == 0:
            return left
        if isinstance(op, arith.SubiOp):
            return make.minus(left, right)
        return right if constant_integer(left) == 0 else make.add(left, right)

    # --- operations ---------------------------------------------------------------------------------------------------
    def _repeated(self, op: Operation, places: Places) -> SSAValue:
        """An operation on the sampled operands."""
        sampled: list[SSAValue] = []
        for index in range(len(op.operands)):
            # A sampled operand may have moved a loop: the operands are read anew.
            sampled.append(self.at(op.operands[index], places))
        operands = TileNumbers(op).broadcast([self.live(each) for each in sampled])
        element = element_of(op.results[0].type)
        if encoding_of(op.results[0]) is not None:
            element = i64
        shape = next((shape for each in operands if (shape := shape_of(each))), ())
        made = type(op).create(
            operands=operands,
            result_types=[like(element, shape)],
            properties=dict(op.properties),
            attributes=dict(op.attributes),
        )
        return insert_before(op, made)

    def _reshaped(self, op: tt.ReshapeOp, places: Places) -> Places:
        """The places in the source of a reshape."""
        make = TileNumbers(self.start)
        flat = make.constant(0)
        for size, index in zip(tensor_of(op.result).get_shape(), places.indices, strict=True):
            flat = make.times(flat, size)
            flat = flat if index is None else make.add(flat, index)
        found: list[SSAValue | None] = []
        for size in reversed(tensor_of(op.src).get_shape()):
            found.insert(0, None if size == 1 else make.rest(flat, size))
            flat = make.quotient(flat, size)
        return places.of(found)

    def _gathered(self, op: Operation, value: SSAValue, index: SSAValue) -> SSAValue:
        """Elements of a vector that is computed as a whole."""
        after = cast(Operation, op.next_op)
        shape = tensor_of(index).get_shape()
        count = prod(shape)
        flat = insert_before(after, tt.ReshapeOp(index, [count]))
        gathered = tt.GatherOp.build(
            operands=[value, flat],
            properties={"axis": IntegerAttr(0, i32)},
            result_types=[TensorType(tensor_of(value).element_type, [count])],
        )
        return insert_before(after, tt.ReshapeOp(insert_before(after, gathered), shape))

    # --- loops and branches -------------------------------------------------------------------------------------------
    def _argument(self, value: BlockArgument, block: Block, places: Places) -> SSAValue:
        loop = block.parent_op()
        if not isinstance(loop, scf.ForOp):
            if isinstance(loop, tt.FuncOp):
                return TileNumbers(self.start).constant(0, i64)
            raise unsupported(
                "a loop without a count may not carry the address of a sparse tile",
                cast(Operation, loop),
                "write for step in range(tl.cdiv(K, BLOCK_K)), and compute the address from the step",
            )
        index = value.index - 1
        first = self._carried(loop, self.at(loop.iter_args[index], places), value, places)
        loop = cast(scf.ForOp, block.parent_op())
        carried = block.insert_arg(first.type, len(block.args))
        self._known[value, places] = carried
        # The companion is complete only after what an iteration passes on is sampled: until then it passes itself on.
        new = carrying(loop, [*loop.iter_args, first], [*end_of(block).operands, carried])
        self._replace(loop, new.results[: len(loop.results)])
        following = self.at(end_of(block).operands[index], places)
        end = end_of(block)
        if following is carried:
            # No iteration changes it: nothing is carried.
            carried.replace_all_uses_with(first)
            self._moved[carried] = first
            return first
        end.operands[carried.index - 1] = self._carried(end, following, value, places)
        return carried

    def _carried(self, before: Operation, found: SSAValue, value: SSAValue, places: Places) -> SSAValue:
        """Sampled elements in the shape in which loops and branches carry them."""
        return found if as_tensor(value.type) is None else TileNumbers(before).whole(found, places.shape)

    def _branch(self, value: SSAValue, places: Places) -> SSAValue:
        sampled: list[SSAValue] = []
        for index in range(2):
            branch, number = self._branch_of(value)
            sampled.append(self.at(end_of(branch.regions[index].block).operands[number], places))
        known = self._known.get((value, places))
        if known is not None:
            # A loop around the branch carries its result, and has sampled the branch.
            return known
        branch, _ = self._branch_of(value)
        for region, found in zip(branch.regions, sampled, strict=True):
            end = end_of(region.block)
            end_with(region.block, [*end.operands, self._carried(end, self.live(found), value, places)])
        new = with_ends(branch)
        self._replace(branch, new.results[: len(branch.results)])
        return new.results[-1]

    def _branch_of(self, value: SSAValue) -> tuple[scf.IfOp, int]:
        """The branch whose result a value is now, and the number of the result."""
        live = cast(OpResult, self.live(value))
        return cast(scf.IfOp, live.owner), live.index

    def _replace(self, old: Operation, results: Sequence[SSAValue]) -> None:
        for before, after in zip(old.results, results, strict=True):
            after.name_hint = before.name_hint
            before.replace_all_uses_with(after)
            self._moved[before] = after
        Rewriter.erase_op(old)


def _by_element(op: Operation) -> bool:
    shapes = {tensor.get_shape() for value in (*op.operands, *op.results) if (tensor := as_tensor(value.type))}
    return has_no_effect(op) and not op.regions and len(op.results) == 1 and len(shapes) == 1
