"""What integers, masks and pointers of a kernel are: polynomials over its scalars, over lanes of tiles and over steps of loops.

A tensor of offsets is one polynomial: `Lane(d)` stands for an element's index along dimension d, so that
`(first + arange(0, 128))[:, None] * stride` is first·stride + Lane(0)·stride. Pointers that a loop moves on by the same
amount each time are their first value plus `Iteration` times that amount.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from louver.ir.arith import ExtSIOp
from louver.ir.tile import (
    AddPtrOp,
    AdvanceOp,
    BroadcastOp,
    ExpandDimsOp,
    Index,
    MakeRangeOp,
    MakeTensorPtrOp,
    SplatOp,
    TransOp,
)
from louver.ir.tile.syntax import join_indices
from louver.ir.tile.types import as_tensor
from louver.passes.integers import constant_integer
from louver.passes.polynomial import Polynomial
from louver.passes.refusal import unsupported


@dataclass(frozen=True, slots=True)
class Lane:
    """An element's index along a dimension of its tile."""

    dimension: int


@dataclass(frozen=True, slots=True)
class Wrapped:
    """What is left of `index` by `size`: rows beyond the last one begin anew. `index` runs along one dimension."""

    index: Polynomial
    size: Polynomial


@dataclass(frozen=True, slots=True)
class Iteration:
    """How often a loop's body has been run before."""

    loop: scf.ForOp


@dataclass(frozen=True, slots=True)
class Elements:
    """A pointer, or a tensor of pointers, to elements: an argument, and how many elements further each one points."""

    base: SSAValue
    offset: Polynomial


@dataclass(frozen=True, slots=True)
class Tile:
    """A block pointer: per dimension the tensor's size and stride and the block's first element, all in elements."""

    base: SSAValue
    sizes: tuple[Polynomial, ...]
    strides: tuple[Polynomial, ...]
    first: tuple[Polynomial, ...]


Pointer = Elements | Tile


def lanes(value: Polynomial) -> frozenset[int]:
    """The dimensions along which it changes."""
    found: set[int] = set()
    for atom in value.atoms:
        if isinstance(atom, Lane):
            found.add(atom.dimension)
        elif isinstance(atom, Wrapped):
            found |= lanes(atom.index)
    return frozenset(found)


def moved(value: Polynomial, where: Callable[[int], int]) -> Polynomial:
    """The polynomial with its dimensions numbered anew."""
    total = Polynomial.number(0)
    for monomial, factor in value:
        product = Polynomial.number(factor)
        for atom, power in monomial:
            for _ in range(power):
                product = product * Polynomial.atom(_moved_atom(atom, where))
        total = total + product
    return total


def _moved_atom(atom: Hashable, where: Callable[[int], int]) -> Hashable:
    match atom:
        case Lane(dimension):
            return Lane(where(dimension))
        case Wrapped(index, size):
            return Wrapped(moved(index, where), size)
        case _:
            return atom


@dataclass(slots=True)
class Affine:
    """Reads values of one kernel. known: what was read before."""

    known: dict[SSAValue, Polynomial] = field(default_factory=dict[SSAValue, Polynomial])
    pointers: dict[SSAValue, Pointer] = field(default_factory=dict[SSAValue, Pointer])

    def integer(self, value: SSAValue) -> Polynomial:
        """An integer, or a tensor of integers. Refuses tensors that are not made of ranges and scalars."""
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = self._integer(value)
        return found

    def index(self, index: Index) -> Polynomial:
        """An entry of an index list."""
        return Polynomial.number(index) if isinstance(index, int) else self.integer(index)

    def _integer(self, value: SSAValue) -> Polynomial:
        constant = constant_integer(value)
        if constant is not None:
            return Polynomial.number(constant)
        op = value.owner
        match op:
            case Block():
                return self._counted(cast(BlockArgument, value))
            case arith.AddiOp():
                return self.integer(op.lhs) + self.integer(op.rhs)
            case arith.SubiOp():
                return self.integer(op.lhs) - self.integer(op.rhs)
            case arith.MuliOp():
                return self.integer(op.lhs) * self.integer(op.rhs)
            case ExtSIOp():
                return self.integer(op.input)
            case SplatOp() | BroadcastOp():
                return self.integer(op.src)
            case ExpandDimsOp() | TransOp():
                return moved(self.integer(op.src), renumbering(op))
            case MakeRangeOp():
                return Polynomial.number(op.start.value.data) + Polynomial.atom(Lane(0))
            case arith.RemSIOp() if as_tensor(value.type) is not None:
                wrapped = Wrapped(self.integer(op.lhs), self.integer(op.rhs))
                if len(lanes(wrapped.index)) == 1 and not lanes(wrapped.size):
                    return Polynomial.atom(wrapped)
            case _:
                pass
        if as_tensor(value.type) is not None:
            raise unsupported("offsets are ranges and scalars, added, multiplied and wrapped (%) at a size", op)
        return Polynomial.atom(value)

    def _counted(self, value: BlockArgument) -> Polynomial:
        """A loop's number counts iterations, and so does what it carries and adds the same to each time."""
        loop = value.block.parent_op()
        if not isinstance(loop, scf.ForOp):
            return Polynomial.atom(value)
        times = Polynomial.atom(Iteration(loop))
        if value.index == 0:
            first, step = constant_integer(loop.lb), constant_integer(loop.step)
            if first is None or step is None:
                return Polynomial.atom(value)
            return Polynomial.number(first) + Polynomial.number(step) * times
        end = loop.body.block.last_op
        assert end is not None
        with self._supposing():
            self.known[value] = Polynomial.atom(value)
            moved_on = self.integer(end.operands[value.index - 1]) - Polynomial.atom(value)
        if _is_fixed(moved_on, loop):
            return self.integer(loop.iter_args[value.index - 1]) + times * moved_on
        if as_tensor(value.type) is not None:
            raise unsupported("integers that a loop carries grow by the same amount for all lanes and iterations", end)
        return Polynomial.atom(value)

    @contextmanager
    def _supposing(self) -> Generator[None]:
        """Forget afterwards what is read inside, because it rests on an assumption."""
        saved = dict(self.known), dict(self.pointers)
        yield
        self.known, self.pointers = saved

    def pointer(self, value: SSAValue) -> Pointer:
        """A pointer, a tensor of pointers or a block pointer."""
        found = self.pointers.get(value)
        if found is None:
            found = self.pointers[value] = self._pointer(value)
        return found

    def _pointer(self, value: SSAValue) -> Pointer:
        op = value.owner
        match op:
            case Block():
                parent = op.parent_op()
                if isinstance(parent, scf.ForOp):
                    return self._carried(cast(BlockArgument, value), parent)
                return Elements(value, Polynomial.number(0))
            case AddPtrOp():
                source = self._elements(op.ptr, op)
                return replace(source, offset=source.offset + self.integer(op.offset))
            case SplatOp() | BroadcastOp():
                return self._elements(op.src, op)
            case ExpandDimsOp() | TransOp():
                source = self._elements(op.src, op)
                return replace(source, offset=moved(source.offset, renumbering(op)))
            case MakeTensorPtrOp():
                return self._made(op)
            case AdvanceOp():
                source = self._tile(op.ptr, op)
                steps = [self.index(entry) for entry in join_indices(op.offsets, op.static_offsets)]
                return replace(source, first=tuple(a + b for a, b in zip(source.first, steps, strict=True)))
            case _:
                raise unsupported("a pointer is an argument moved by tt.addptr, tt.make_tensor_ptr or tt.advance", op)

    def _elements(self, value: SSAValue, user: Operation) -> Elements:
        found = self.pointer(value)
        if not isinstance(found, Elements):
            raise unsupported("expected pointers to elements, not to a block", user)
        return found

    def _tile(self, value: SSAValue, user: Operation) -> Tile:
        found = self.pointer(value)
        if not isinstance(found, Tile):
            raise unsupported("expected a pointer to a block", user)
        return found

    def _made(self, op: MakeTensorPtrOp) -> Tile:
        lists = ((op.shape, op.static_shape), (op.strides, op.static_strides), (op.offsets, op.static_offsets))
        sizes, strides, first = (
            tuple(self.index(entry) for entry in join_indices(values, literals)) for values, literals in lists
        )
        return Tile(op.base, sizes, strides, first)

    def _carried(self, value: BlockArgument, loop: scf.ForOp) -> Pointer:
        """A pointer that a loop carries and moves on by the same amount in every iteration."""
        start = self.pointer(loop.iter_args[value.index - 1])
        end = loop.body.block.last_op
        assert end is not None
        passed_on = end.operands[value.index - 1]
        # Read the body as if the pointer stood at the origin of a tensor of its own: what comes out is the move.
        with self._supposing():
            if isinstance(start, Elements):
                self.pointers[value] = Elements(value, Polynomial.number(0))
            else:
                self.pointers[value] = Tile(
                    value, start.sizes, start.strides, (Polynomial.number(0),) * len(start.first)
                )
            moved_on = self.pointer(passed_on)
        if moved_on.base is not value:
            raise unsupported("a pointer that a loop carries is moved on by a fixed amount", end)
        times = Polynomial.atom(Iteration(loop))
        if isinstance(start, Elements) and isinstance(moved_on, Elements):
            self._require_fixed(moved_on.offset, loop, end)
            return replace(start, offset=start.offset + times * moved_on.offset)
        assert isinstance(start, Tile) and isinstance(moved_on, Tile)
        for step in moved_on.first:
            self._require_fixed(step, loop, end)
        first = tuple(a + times * step for a, step in zip(start.first, moved_on.first, strict=True))
        return replace(start, first=first)

    def _require_fixed(self, step: Polynomial, loop: scf.ForOp, end: Operation) -> None:
        if not _is_fixed(step, loop):
            rule = "a pointer that a loop carries is moved on by the same amount for all lanes and iterations"
            raise unsupported(rule, end)


def _is_fixed(step: Polynomial, loop: scf.ForOp) -> bool:
    """Whether it has neither lanes nor what changes in the loop."""
    return all(isinstance(atom, SSAValue) and not _inside(cast(SSAValue, atom), loop) for atom in step.atoms)


def renumbering(op: ExpandDimsOp | TransOp) -> Callable[[int], int]:
    """Where each dimension of the source is in the result."""
    if isinstance(op, ExpandDimsOp):
        axis = op.axis.value.data
        return lambda dimension: dimension + (dimension >= axis)
    order = list(op.order.get_values())
    return order.index


def _inside(value: SSAValue, loop: scf.ForOp) -> bool:
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    return block is not None and (block is loop.body.block or loop.is_ancestor(block))
