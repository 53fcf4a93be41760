"""Makes descriptors of tensors that a kernel accesses through pointers, and the indices of a tile in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerType, i32, i64
from xdsl.ir import BlockArgument, Operation, SSAValue

from louver.analysis.access import EVERY, Access, Dimension
from louver.analysis.affine import Affine
from louver.analysis.atoms import Iteration
from louver.analysis.batch import Entry
from louver.analysis.integers import constant_integer, without_extension
from louver.compile.rewrite.insert import insert, insert_before, integer
from louver.compile.rewrite.materialize import Maker, dominates, earliest
from louver.compile.rewrite.tile_sizes import TileSizes
from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.comparisons import CmpiOp
from louver.ir.polynomial import Monomial, Part, Polynomial
from louver.ir.refusal import unsupported
from louver.ir.tile import GetProgramIdOp, Index, MakeTensorDescriptorOp
from louver.ir.walk import ancestors


@dataclass(slots=True)
class Descriptors:
    """Makes descriptors for one kernel. places: the positions of its values before the rewrite, then of counts of programs."""

    affine: Affine
    sizes: TileSizes
    places: dict[SSAValue, int]

    def make(self, op: Operation, found: Access, ordered: Sequence[Dimension], sizes: Sequence[Polynomial]) -> SSAValue:
        """A descriptor of the tensor that `op` accesses, with these dimensions and sizes.

        The dimension of a batch comes first.
        """
        steps: list[Polynomial] = [each.stride for each in ordered]
        extents, block = list(sizes), [each.extent for each in ordered]
        if found.entry is not None:
            extents.insert(0, self._matrices(found.entry, op))
            steps.insert(0, found.entry.stride)
            block.insert(0, 1)
        # Sizes that depend on the grid are computed first.
        start = self._known_from(self.sizes.end(), op, (*steps, *extents))
        made = MakeTensorDescriptorOp(
            found.base,
            [self._number(each, i32, start, op) for each in extents],
            [self._number(each, i64, start, op) for each in steps],
            block,
        )
        name = found.base.name_hint
        made.result.name_hint = None if name is None else f"{name}_tensor"
        return insert(start, made, op).results[0]

    def of_batch(
        self, op: MakeTensorDescriptorOp, one: MakeTensorDescriptorOp, base: SSAValue, entry: Entry
    ) -> SSAValue:
        """A descriptor of a batch, before `op`. `one` describes one of its matrices."""
        extent, step = self._matrices(entry, op), entry.stride
        start = self._known_from(self.sizes.end(), op, (step, extent))
        sizes = [self._number(extent, i32, start, op), *one.sizes]
        steps = [self._number(step, i64, start, op), *one.steps]
        made = MakeTensorDescriptorOp(base, sizes, steps, [1, *one.block.get_shape()])
        if one.padding is not None:
            made.properties["padding"] = one.padding
        made.result.name_hint = one.result.name_hint
        return insert_before(op, made)

    def indices(self, op: Operation, found: Access, ordered: Sequence[Dimension]) -> list[Index]:
        """The start of a tile along each dimension of its descriptor."""
        entry = [] if found.entry is None else [found.entry.index]
        return [self.first(each, op) for each in (*entry, *(each.first for each in ordered))]

    def ratio(self, whole: Polynomial, by: Polynomial, op: Operation) -> Polynomial:
        """The quotient of two strides that are computed from arguments and numbers."""
        quotient = whole // by
        if not any(isinstance(atom, Part) for atom in quotient.atoms):
            return quotient
        start = self.sizes.end()
        maker = Maker(start, op, self.affine.known, self.places)
        made = insert(start, arith.DivSIOp(maker.value(whole, i64), maker.value(by, i64)), op).results[0]
        self.sizes.made.append(insert(start, TruncIOp(made, i32), op).results[0])
        return Polynomial.atom(self.sizes.made[-1])

    def _known_from(self, start: Operation, op: Operation, numbers: Sequence[Polynomial]) -> Operation:
        """The operation before which all numbers can be computed: `start` if they are known there, else `op`."""
        given = self.sizes.given
        return start if all(atom in given for number in numbers for atom in number.leaves) else op

    def last(self, index: Polynomial, op: Operation) -> Polynomial | None:
        """The greatest value of an index, of programs or of loops; None if it is not known."""
        count = self._entries(index, op)
        if count.constant == EVERY:
            return self.affine.last(index)
        (atom,) = count.atoms
        self.places.setdefault(cast(SSAValue, atom), len(self.places))
        return count - 1

    def _matrices(self, entry: Entry, op: Operation) -> Polynomial:
        """The number of matrices of a batch: the entry's, or that of its index."""
        return self._entries(entry.index, op) if entry.size is None else entry.size

    def _entries(self, index: Polynomial, op: Operation) -> Polynomial:
        """The number of matrices of a batch, from the grid; `EVERY` if the grid does not give it, or a branch may leave some
        programs out.
        """
        for atom in index.atoms:
            program = cast(SSAValue, atom).owner if isinstance(atom, SSAValue) else None
            if (
                isinstance(program, GetProgramIdOp)
                and Polynomial.atom(program.result) == index
                and not _is_chosen_by(program.result, op)
            ):
                return self.sizes.programs(program, 1, op)
        return Polynomial.number(EVERY)

    def _number(self, value: Polynomial, type_: IntegerType, start: Operation, op: Operation) -> Index:
        found = self.sizes.entry(value)
        if isinstance(found, int) or (found is not None and found.type == type_):
            return found
        if found is not None and type_ == i64:
            return insert(start, ExtSIOp(found, i64), op).results[0]
        return Maker(start, op, self.affine.known, self.places).value(value, type_)

    def terms(self, value: Polynomial, op: Operation) -> list[tuple[Monomial, int]]:
        """The terms of a number, in one order in every run."""
        return Maker(op, op, self.affine.known, self.places).terms(value)

    def compute(self, value: Polynomial, op: Operation) -> None:
        """Compute a number that `op` uses as early as it is known, such as before a loop."""
        before = earliest(op, value)
        made = Maker(before, op, self.affine.known, self.places, self.sizes.end()).value(value, i32)
        self.affine.known[made] = value

    def first(self, value: Polynomial, op: Operation) -> Index:
        """The index at which a tile starts: an existing value, a multiple of one, or a number that is computed from
        values.
        """
        for known, polynomial in self.affine.known.items():
            if polynomial == value and known.type == i32 and dominates(known, op):
                return known
        constant = value.constant
        if constant is not None:
            return integer(op, constant)
        if len(value.terms) == 1:
            ((monomial, factor),) = value.terms
            (atom, power), *others = monomial
            if not others and power == 1:
                number = _multiple_of(atom, factor)
                if number is not None and number[0].type == i32:
                    return _multiple(*number, op)
        return Maker(op, op, self.affine.known, self.places, self.sizes.end()).value(value, i32)


def _multiple_of(atom: object, factor: int) -> tuple[SSAValue, int] | None:
    if isinstance(atom, SSAValue):
        return cast(SSAValue, atom), factor
    if isinstance(atom, Iteration):
        first, step = constant_integer(atom.loop.lb), constant_integer(atom.loop.step)
        if first == 0 and step and factor % step == 0:
            return atom.loop.body.block.args[0], factor // step
    return None


def _multiple(value: SSAValue, factor: int, op: Operation) -> SSAValue:
    if factor == 1:
        return value
    constant = integer(op, factor)
    return insert_before(op, arith.MuliOp(value, constant))


def _is_chosen_by(value: SSAValue, op: Operation) -> bool:
    """Whether a branch around an operation compares a value."""
    return any(isinstance(each, scf.IfOp) and _compares(each.cond, value) for each in ancestors(op))


def _compares(condition: SSAValue, value: SSAValue) -> bool:
    match condition.owner:
        case CmpiOp(operands=operands):
            return value in map(without_extension, operands)
        case arith.AndIOp() | arith.OrIOp() | arith.XOrIOp() as op:
            return any(_compares(each, value) for each in op.operands)
        case _:
            return False


def _is_argument(leaf: object) -> bool:
    return isinstance(leaf, BlockArgument)


def contiguous_last(found: Access, op: Operation) -> list[Dimension]:
    """The dimensions of a tile in the order of a descriptor, with a contiguous one last."""
    contiguous = [each for each in found.dimensions if each.stride == Polynomial.number(1)]
    if not contiguous:
        strides = [each.stride for each in found.dimensions]
        named = any(
            stride == Polynomial.atom(leaf) for stride in strides for leaf in stride.leaves if _is_argument(leaf)
        )
        advice = (
            "pass its stride, 1, as a constexpr"
            if named
            else "no argument is its stride: make a contiguous copy of the operand"
        )
        raise unsupported("one dimension of a tile must be contiguous", op, advice)
    last = contiguous[-1]
    return [*(each for each in found.dimensions if each is not last), last]
