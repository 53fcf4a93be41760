"""Integers, masks and pointers of a kernel as polynomials over its scalars, lanes of tiles and iterations of loops. A
tensor of offsets is a polynomial. `Lane(d)` is an element's index along dimension d, so
`(first + arange(0, 128))[:, None] * stride` is first·stride + Lane(0)·stride. A pointer that a loop moves by a fixed
amount is its first value plus `Iteration` times the amount; after the loop, plus the iteration count times the amount.

A number that a launch computes is a polynomial over the names of a call's numbers (`launch_size`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from louver.analysis.atoms import (
    Iteration,
    Lane,
    Quotient,
    Wrapped,
    always_below,
    divided,
    holds_quotient,
    lanes,
    moved,
)
from louver.analysis.integers import constant_integer, least_of, position, steps_of
from louver.analysis.own_numbers import own_number
from louver.analysis.passages import end_of
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.comparisons import SelectOp
from louver.ir.polynomial import ONE, Extreme, Part, Polynomial, Size, programs, remainders
from louver.ir.refusal import unsupported
from louver.ir.tile import GetNumProgramsOp, Index
from louver.ir.tile.syntax import join_indices
from louver.ir.tile.types import as_tensor


@dataclass(frozen=True, slots=True)
class Elements:
    """Pointers to elements. base: an argument. offset: the distance of each pointer from it, in elements.

    zeros: numbers that the launch must check to be 0: how far an offset moves by each `Quotient`.
    """

    base: SSAValue
    offset: Polynomial
    zeros: tuple[Polynomial, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockPointer:
    """A block pointer: for each dimension the tensor's size and stride and the block's first element, in elements.

    offset: from the argument to the tensor's first element.
    """

    base: SSAValue
    sizes: tuple[Polynomial, ...]
    strides: tuple[Polynomial, ...]
    first: tuple[Polynomial, ...]
    offset: Polynomial


@dataclass(frozen=True, slots=True)
class Round:
    """Consecutive counter values of a loop, at least 0, that contain no multiple of `steps` after the first one.

    count: `steps` as a polynomial. number: the loop's counter. step: its remainder, which grows with it.
    """

    steps: SSAValue
    count: Polynomial
    number: Polynomial
    step: Polynomial


Pointer = Elements | BlockPointer

_OFFSETS = (
    "offsets are ranges and scalars, added, multiplied and wrapped (%) at a size",
    "give rows and columns a range each, as in rows[:, None] * stride + columns[None, :]",
)

_LOADED = (
    "row or column numbers that are loaded describe no tile of neighbours. Neighbours of a sparse tensor share metadata, so a tile needs "
    "neighbouring rows and columns",
    "permute the rows before louver.compress, and the output in return",
)


@dataclass(slots=True)
class Affine:
    """Reads values of a kernel.

    known, pointers: results of earlier reads.
    positive: arguments that reads take to be above 0, for the launch to check; None where it does not check them.
    divides: whether tiles that are divided (`//`, `%`) are read, as `Quotient`.
    """

    known: dict[SSAValue, Polynomial] = field(default_factory=dict[SSAValue, Polynomial])
    pointers: dict[SSAValue, Pointer] = field(default_factory=dict[SSAValue, Pointer])
    positive: set[SSAValue] | None = None
    divides: bool = False

    def integer(self, value: SSAValue) -> Polynomial:
        """An integer or a tensor of integers. Rejects tensors that are not computed from ranges and scalars."""
        found = self.known.get(value)
        if found is None:
            found = self._integer(value)
            if found.is_long:
                if as_tensor(value.type) is not None and isinstance(value.owner, Operation):
                    rule, advice = _OFFSETS
                    raise unsupported(rule, value.owner, advice)
                found = Polynomial.atom(value)
            self.known[value] = found
        return found

    def index(self, index: tt.Index) -> Polynomial:
        return Polynomial.number(index) if isinstance(index, int) else self.integer(index)

    def _integer(self, value: SSAValue) -> Polynomial:
        constant = constant_integer(value)
        if constant is not None:
            return Polynomial.number(constant)
        op = value.owner
        match op:
            case Block():
                return self._counted(cast(BlockArgument, value))
            case scf.ForOp():
                return self._after(op, value)
            case arith.AddiOp():
                return self.integer(op.lhs) + self.integer(op.rhs)
            case arith.SubiOp():
                return self.integer(op.lhs) - self.integer(op.rhs)
            case arith.MuliOp():
                return self.integer(op.lhs) * self.integer(op.rhs)
            case ExtSIOp():
                return self.integer(op.input)
            case tt.SplatOp() | tt.BroadcastOp():
                return self.integer(op.src)
            case tt.ExpandDimsOp() | tt.TransOp():
                return moved(self.integer(op.src), renumbering(op))
            case tt.MakeRangeOp():
                return Polynomial.number(op.start.value.data) + Polynomial.atom(Lane(0))
            case arith.DivSIOp() | arith.RemSIOp() if (
                self.divides and as_tensor(value.type) is not None and (digit := self._digit(op)) is not None
            ):
                return digit
            case arith.RemSIOp() if (found := self._wrapped_below(op)) is not None:
                return found
            case arith.RemSIOp() | arith.MinSIOp() | SelectOp() if (wrapped := self._wrapped(op)) is not None:
                return wrapped
            case arith.RemSIOp() if (found := self._remainder(op)) is not None:
                return found
            case arith.DivSIOp() if (by := constant_integer(op.rhs)) and by > 0 and as_tensor(value.type) is None:
                return _divided(self.integer(op.lhs), by)
            case arith.RemSIOp() if (by := constant_integer(op.rhs)) and by > 0 and as_tensor(value.type) is None:
                whole = self.integer(op.lhs)
                return whole - _divided(whole, by) * by
            case _:
                pass
        if as_tensor(value.type) is not None:
            rule, advice = _LOADED if isinstance(op, tt.LoadOp) else _OFFSETS
            # What wraps at a size of 1 has another form where the size is an argument.
            always = not isinstance(op, arith.RemSIOp | arith.MinSIOp | SelectOp)
            raise unsupported(rule, op, advice, always=always)
        return Polynomial.atom(value)

    def _digit(self, op: arith.DivSIOp | arith.RemSIOp) -> Polynomial | None:
        """A tile divided by a number, or the remainder, if the quotient is read too. Other remainders are rows that wrap."""
        whole, by = self.integer(op.lhs), self.integer(op.rhs)
        quotient = Polynomial.atom(divided(whole, by))
        if isinstance(op, arith.DivSIOp):
            return quotient
        is_digit = any(isinstance(use.operation, arith.DivSIOp) for use in op.lhs.uses) or holds_quotient(whole)
        return whole - quotient * by if is_digit else None

    def _counted(self, value: BlockArgument) -> Polynomial:
        """A block argument. Loop counters and values that grow by a fixed amount are expressed in iterations."""
        loop = value.block.parent_op()
        if not isinstance(loop, scf.ForOp):
            return Polynomial.atom(value)
        if value.index == 0:
            first, step = constant_integer(loop.lb), constant_integer(loop.step)
            if first is None or step is None:
                return Polynomial.atom(value)
            return Polynomial.number(first) + Polynomial.number(step) * Polynomial.atom(Iteration(loop))
        moved_on = self._growth(value, loop)
        if moved_on is not None:
            return self.integer(loop.iter_args[value.index - 1]) + self._so_far(loop, moved_on)
        if as_tensor(value.type) is not None:
            raise unsupported(
                "a tile of integers that a loop carries must grow by one amount for all lanes and iterations",
                end_of(loop.body.block),
                "compute it from the loop's counter",
            )
        return Polynomial.atom(value)

    def _so_far(self, loop: scf.ForOp, step: Polynomial) -> Polynomial:
        """The distance after moves of `step` in each earlier iteration, in terms of the loop's counter."""
        number = self.integer(loop.body.block.args[0])
        if number == Polynomial.atom(loop.body.block.args[0]):
            quotient = step.quotient(self.integer(loop.step))
            if quotient is not None:
                return quotient * (number - self.integer(loop.lb))
        return Polynomial.atom(Iteration(loop)) * step

    def _growth(self, value: BlockArgument, loop: scf.ForOp) -> Polynomial | None:
        """The amount that a loop adds to a carried number in each iteration; None if it varies."""
        with self._supposing():
            self.known[value] = Polynomial.atom(value)
            moved_on = self.integer(end_of(loop.body.block).operands[value.index - 1]) - Polynomial.atom(value)
        return moved_on if _is_fixed(moved_on, loop) else None

    def round_of(self, loop: scf.ForOp) -> Round | None:
        """The round of a loop such as `for i in range(first, min(first + (steps - first % steps), last))`, or None."""
        first = self.integer(loop.lb)
        users = [use.operation for use in loop.lb.uses]
        divided = [each for each in users if isinstance(each, arith.RemSIOp | arith.DivSIOp) and each.lhs is loop.lb]
        for each in divided:
            by, rest = self.integer(each.rhs), Polynomial.atom(each.result)
            if isinstance(each, arith.DivSIOp):
                rest = first - rest * by
            if any(self.integer(end) == first + by - rest for end in least_of(loop.ub)):
                # Offsets use the remainder if the kernel computes one.
                same = [op for op in divided if isinstance(op, arith.RemSIOp) and op.rhs is each.rhs]
                rest = Polynomial.atom(same[0].result) if same else rest
                number = self.integer(loop.body.block.args[0])
                return Round(each.rhs, by, number, rest + number - first)
        return None

    def _remainder(self, op: arith.RemSIOp) -> Polynomial | None:
        """The remainder of a loop's counter, if it grows with the counter."""
        loop = loop_of(op.lhs)
        found = None if loop is None else self.round_of(loop)
        return found.step if found is not None and found.steps is op.rhs else None

    def _after(self, loop: scf.ForOp, value: SSAValue) -> Polynomial:
        """A number that a loop has carried, after the loop."""
        index = position(value, loop.results)
        growth, times = self._growth(loop.body.block.args[index + 1], loop), self.times(loop)
        if growth is not None and times is not None:
            return self.integer(loop.iter_args[index]) + times * growth
        if as_tensor(value.type) is not None:
            raise unsupported(
                "a tile of integers that a loop carries must grow by one amount for all lanes and iterations",
                loop,
                "compute it from the loop's counter",
            )
        return Polynomial.atom(value)

    def times(self, loop: scf.ForOp) -> Polynomial | None:
        """The number of iterations, for a constant start and step and an end that is not below the start."""
        first, step = constant_integer(loop.lb), constant_integer(loop.step)
        if first is None or step is None or step < 1:
            return None
        steps = steps_of(loop.ub)
        whole, by = steps if steps is not None and (first, step) == (0, 1) else (loop.ub, step)
        length = self.integer(whole) - Polynomial.number(first)
        return length.ceil(by) if is_count(length) or self._is_count_if_positive(length) else None

    def _is_count_if_positive(self, value: Polynomial) -> bool:
        """Whether the value is at least 0 if its arguments are above 0, such as `cdiv(K, BK) - 1`. Records them if so."""
        if (
            self.positive is None
            or not is_count(value - value.coefficient(ONE))
            or not all(map(_is_given, value.leaves))
        ):
            return False
        least = value.over(lambda atom: Polynomial.number(1))
        if least is None or (least.constant or 0) < 0:
            return False
        self.positive |= cast(frozenset[SSAValue], value.leaves)
        return True

    def rounds(self, first: Polynomial) -> list[tuple[int, Round]]:
        """The rounds of loops that move an index upwards, each with the factor of its steps."""
        found: list[tuple[int, Round]] = []
        for monomial, factor in first:
            (atom, power), *others = [*monomial] or [(None, 0)]
            if others or power != 1 or factor < 0:
                continue
            loop = loop_of(atom)
            if isinstance(atom, Iteration) and constant_integer(atom.loop.step) == 1:
                loop = atom.loop
            each = None if loop is None else self.round_of(loop)
            if each is not None:
                found.append((factor, replace(each, step=each.step - each.number + self._numbered(atom))))
        return found

    def _numbered(self, atom: Hashable) -> Polynomial:
        """A loop's counter. `atom` may be its iteration count, for steps of 1."""
        return Polynomial.atom(atom) + (self.integer(atom.loop.lb) if isinstance(atom, Iteration) else 0)

    def last(self, first: Polynomial) -> Polynomial | None:
        """The greatest value of an index that only counters and loops move upwards; else None, also for an empty loop."""
        found = Polynomial.number(0)
        for factor, each in self.rounds(first):
            first, found = first - factor * each.step, found + factor * (each.count - 1)
        for monomial, factor in first:
            if monomial == ONE:
                found += factor
                continue
            (atom, power), *others = monomial
            times = self.times(atom.loop) if isinstance(atom, Iteration) else None
            if times is None or others or power != 1 or factor < 0 or times == Polynomial.number(0):
                return None
            found += (times - 1) * factor
        return found

    def _wrapped(self, op: arith.RemSIOp | arith.MinSIOp | SelectOp) -> Polynomial | None:
        """A tile of indices that are their own number below a size, see `own_number`; the indices, where all are below it."""
        tile = as_tensor(op.result.type)
        found = None if tile is None else own_number(op, self.integer)
        if tile is None or found is None or len(lanes(found.index)) != 1 or lanes(found.size):
            return None
        (number,) = lanes(found.index)
        # Of `min(size, BLOCK)` the tile's shape may imply one number.
        rows = tile.get_shape()[number]
        sizes = [size for size in self.least(found.size) if not always_below(found.index - size, number, rows)]
        if not sizes and (
            not found.again or (found.index.coefficient(ONE) >= 0 and not found.index.atoms - {Lane(number)})
        ):
            return found.index
        return Polynomial.atom(replace(found, size=sizes[0]) if len(sizes) == 1 else found)

    def _wrapped_below(self, op: arith.RemSIOp) -> Polynomial | None:
        """Rows that begin again, in one of several parts of a matrix, wrapped at its end: (rows % (N // 2) + N // 2) % N."""
        if as_tensor(op.result.type) is None:
            return None
        whole, end = self.integer(op.lhs), self.integer(op.rhs)
        (wrapped, *others) = [each for each in whole.atoms if isinstance(each, Wrapped)] or [None]
        if wrapped is None or others or not wrapped.again:
            return None
        part = (whole - Polynomial.atom(wrapped)).quotient(wrapped.size)
        number = None if part is None else part.constant
        if number is None or number < 0:
            return None
        # Parts of N // PARTS rows end below N.
        sizes = [atom for atom in wrapped.size.atoms if wrapped.size == Polynomial.atom(atom)]
        parts = [atom.by.constant or 0 for atom in sizes if isinstance(atom, Part) and atom.whole == end]
        rest = (end - wrapped.size * (number + 1)).constant
        return whole if max(parts, default=0) > number or (rest is not None and rest >= 0) else None

    def least(self, value: Polynomial) -> tuple[Polynomial, ...]:
        """The numbers whose minimum a number is, also of a minimum and a constant."""
        more = value.coefficient(ONE)
        alone = next(iter(value.atoms)) if len(value.atoms) == 1 else None
        if not isinstance(alone, SSAValue) or value != Polynomial.atom(cast(Hashable, alone)) + more:
            return (value,)
        parts = least_of(cast(SSAValue, alone))
        if len(parts) == 1:
            return (value,)
        return tuple(each + more for part in parts for each in self.least(self.integer(part)))

    @contextmanager
    def _supposing(self) -> Generator[None]:
        """Forget all reads of the block afterwards, because they depend on an assumption."""
        saved = dict(self.known), dict(self.pointers)
        try:
            yield
        finally:
            self.known, self.pointers = saved

    def pointer(self, value: SSAValue) -> Pointer:
        found = self.pointers.get(value)
        if found is None:
            found = self.pointers[value] = self._pointer(value)
        return found

    def recombined(self, value: SSAValue) -> Pointer:
        """The same, also of a tile that is divided, such as `k // 9 * a + k % 9 * b`. It is `b * k`, if `a - 9 * b` is 0."""
        found = self.pointer(value)
        if not isinstance(found, Elements):
            return found
        offset, zeros = found.offset, list[Polynomial]()
        for atom in [atom for atom in offset.atoms if isinstance(atom, Quotient)]:
            zeros.append(offset.factor(atom))
            offset = offset - zeros[-1] * Polynomial.atom(atom)
        if holds_quotient(offset):
            raise unsupported(_OFFSETS[0], cast(Operation, value.owner), _OFFSETS[1])
        return replace(found, offset=offset, zeros=tuple(zeros))

    def _pointer(self, value: SSAValue) -> Pointer:
        op = value.owner
        match op:
            case Block():
                parent = op.parent_op()
                if isinstance(parent, scf.ForOp):
                    return self._carried(cast(BlockArgument, value), parent, lambda step: self._so_far(parent, step))
                return Elements(value, Polynomial.number(0))
            case scf.ForOp() if (times := self.times(op)) is not None:
                carried = op.body.block.args[position(value, op.results) + 1]
                return self._carried(carried, op, lambda step: times * step)
            case tt.AddPtrOp():
                source = self._elements(op.ptr, op)
                return replace(source, offset=source.offset + self.integer(op.offset))
            case tt.SplatOp() | tt.BroadcastOp():
                return self._elements(op.src, op)
            case tt.ExpandDimsOp() | tt.TransOp():
                source = self._elements(op.src, op)
                return replace(source, offset=moved(source.offset, renumbering(op)))
            case tt.MakeTensorPtrOp():
                return self._made(op)
            case tt.AdvanceOp():
                source = self._tile(op.ptr, op)
                steps = [self.index(entry) for entry in join_indices(op.offsets, op.static_offsets)]
                return replace(source, first=tuple(a + b for a, b in zip(source.first, steps, strict=True)))
            case scf.ForOp():
                raise unsupported(
                    "a pointer that a loop has moved may be used after it only if the loop counts by ones from "
                    "a constant to a size, a number of steps or a part of a size, without subtractions",
                    op,
                    "compute the pointer anew after the loop",
                )
            case _:
                raise unsupported(
                    "a pointer must be an argument, moved by tt.addptr, tt.make_tensor_ptr or tt.advance",
                    op,
                    "choose an offset instead of a pointer: x + tl.where(condition, one, other)",
                    always=True,
                )

    def _elements(self, value: SSAValue, user: Operation) -> Elements:
        found = self.pointer(value)
        if not isinstance(found, Elements):
            raise unsupported("expected pointers to elements, not to a block", user)
        return found

    def _tile(self, value: SSAValue, user: Operation) -> BlockPointer:
        found = self.pointer(value)
        if not isinstance(found, BlockPointer):
            raise unsupported("expected a pointer to a block", user)
        return found

    def _made(self, op: tt.MakeTensorPtrOp) -> BlockPointer:
        start = self._elements(op.base, op)
        lists = ((op.shape, op.static_shape), (op.strides, op.static_strides), (op.offsets, op.static_offsets))
        sizes, strides, first = (
            tuple(self.index(entry) for entry in join_indices(values, literals)) for values, literals in lists
        )
        return BlockPointer(start.base, sizes, strides, first, start.offset)

    def _carried(self, value: BlockArgument, loop: scf.ForOp, after: Callable[[Polynomial], Polynomial]) -> Pointer:
        """A pointer that a loop moves by a fixed amount in each iteration. after: the total distance for a move."""
        start = self.pointer(loop.iter_args[value.index - 1])
        end = end_of(loop.body.block)
        passed_on = end.operands[value.index - 1]
        # Read the body with the pointer at the origin of a separate tensor. The result is the move.
        with self._supposing():
            if isinstance(start, Elements):
                self.pointers[value] = Elements(value, Polynomial.number(0))
            else:
                self.pointers[value] = replace(start, base=value, first=(Polynomial.number(0),) * len(start.first))
            moved_on = self.pointer(passed_on)
        if moved_on.base is not value:
            raise unsupported(
                "a pointer that a loop carries must move by a fixed amount in each iteration",
                end,
                "compute it from the loop's number",
                always=True,
            )
        if isinstance(start, Elements) and isinstance(moved_on, Elements):
            self._require_fixed(moved_on.offset, loop, end)
            return replace(start, offset=start.offset + after(moved_on.offset))
        assert isinstance(start, BlockPointer) and isinstance(moved_on, BlockPointer)
        for step in moved_on.first:
            self._require_fixed(step, loop, end)
        first = tuple(a + after(step) for a, step in zip(start.first, moved_on.first, strict=True))
        return replace(start, first=first)

    def _require_fixed(self, step: Polynomial, loop: scf.ForOp, end: Operation) -> None:
        if not _is_fixed(step, loop):
            rule = "a pointer that a loop carries must move by one amount for all lanes and iterations"
            raise unsupported(rule, end, always=True)


def loop_of(number: Hashable) -> scf.ForOp | None:
    """The loop whose counter the atom is."""
    loop = number.block.parent_op() if isinstance(number, BlockArgument) and number.index == 0 else None
    return loop if isinstance(loop, scf.ForOp) else None


def _is_fixed(step: Polynomial, loop: scf.ForOp) -> bool:
    """Whether the step has no lanes and no values of the loop."""
    return all(isinstance(atom, SSAValue) and not _inside(cast(SSAValue, atom), loop) for atom in step.leaves)


def is_count(value: Polynomial) -> bool:
    """Whether the value has no negative terms, so it is at least 0 if its arguments are."""
    return all(
        factor > 0 and all(not isinstance(atom, Part) or is_count(atom.whole) for atom, _ in monomial)
        for monomial, factor in value
    )


def _divided(whole: Polynomial, by: int) -> Polynomial:
    """The quotient by a number. What is at least 0 and counts programs is divided term by term: that of `8 * x + y` is
    `2 * x + y // 4`.
    """
    found, rests = whole // by, remainders(whole)
    apart = Polynomial.of({monomial: factor % by for monomial, factor in whole})
    numbers = [whole - sum((rest.terms for rest in rests), Polynomial.number(0)), *(rest.whole for rest in rests)]
    counts = all(isinstance(each, SSAValue) and isinstance(each.owner, tt.GetProgramIdOp) for each in whole.leaves)
    by_term = found.constant is None and counts and all(map(is_count, numbers))
    return (whole - apart) // by + apart // by if by_term else found


def _is_given(atom: Hashable) -> bool:
    """Whether an atom is an argument of the kernel."""
    return isinstance(atom, BlockArgument) and isinstance(atom.block.parent_op(), tt.FuncOp)


def renumbering(op: tt.ExpandDimsOp | tt.TransOp) -> Callable[[int], int]:
    """The map from dimensions of the source to dimensions of the result."""
    if isinstance(op, tt.ExpandDimsOp):
        axis = op.axis.value.data
        return lambda dimension: dimension + (dimension >= axis)
    order = list(op.order.get_values())
    return order.index


def _inside(value: SSAValue, loop: scf.ForOp) -> bool:
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    return block is not None and (block is loop.body.block or loop.is_ancestor(block))


def launch_size(value: Polynomial | Index, names: Mapping[SSAValue, str]) -> Size | None:
    """The number as a size that a launch can compute, or None. names: of the arguments that a launch knows."""
    affine = Affine()
    known: dict[Hashable, Size | None] = {}

    def leaf(atom: Hashable) -> Size | None:
        if atom not in known:
            found = read(cast(SSAValue, atom)) if isinstance(atom, SSAValue) else None
            known[atom] = None if found is None or found.is_long else found
        return known[atom]

    def read(value: SSAValue) -> Size | None:
        if value in names:
            return Polynomial.atom(names[value])
        match value.owner:
            case GetNumProgramsOp(axis=axis):
                return Polynomial.atom(programs(axis.value.data))
            case TruncIOp(input=inner):
                # The truncation is exact: a size fits in the shorter type.
                return affine.integer(inner).over(leaf)
            case arith.DivSIOp(lhs=one, rhs=other) | arith.DivUIOp(lhs=one, rhs=other):
                whole, by = (affine.integer(each).over(leaf) for each in (one, other))
                return None if whole is None or by is None else whole // by
            case arith.MinSIOp(lhs=one, rhs=other):
                return Extreme("min", affine.integer(one), affine.integer(other)).over(leaf)
            case arith.MaxSIOp(lhs=one, rhs=other):
                return Extreme("max", affine.integer(one), affine.integer(other)).over(leaf)
            case _:
                return None

    return (value if isinstance(value, Polynomial) else affine.index(value)).over(leaf)
