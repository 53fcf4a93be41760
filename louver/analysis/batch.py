"""The matrix of a batch that holds a tile, and the terms of offsets that select it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import cast

from xdsl.dialects import arith
from xdsl.ir import BlockArgument, Operation, OpResult

from louver.ir.arith import ExtSIOp
from louver.ir.polynomial import ONE, Compound, Extreme, Monomial, Polynomial
from louver.ir.refusal import unsupported
from louver.ir.tile import FuncOp

Terms = list[tuple[Monomial, int]]
"""Terms of an offset, in elements."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The matrix of a batch that holds a tile. index: of the matrix. stride: between matrices, in elements. size:
    number of matrices from a mask. several: the index and the stride of each dimension of a batch that has several,
        whose strides are multiples of `stride` without gaps.
    unsigned: the mask compares the index as unsigned.
    """

    index: Polynomial
    stride: Polynomial
    size: Polynomial | None = None
    several: tuple[tuple[Polynomial, Polynomial], ...] = ()
    unsigned: bool = False

    @property
    def moves(self) -> tuple[tuple[Polynomial, Polynomial], ...]:
        """The index and the stride of each dimension of the batch."""
        return self.several or ((self.index, self.stride),)


def batch_entry(
    terms: Iterable[tuple[Monomial, int]], op: Operation, *, gapless: bool = False, pitches: Sequence[Polynomial] = ()
) -> Entry | None:
    """The matrix that terms of an offset select: an index times a stride of arguments or a number.

    gapless: a batch may have several dimensions, each with a stride. Its matrices have no gaps, so they form one row of
        matrices with the least stride. The launch must check that the other strides are multiples of it. pitches:
        strides inside a matrix, which are not strides between matrices even when multiplied by an argument.

    The index may be a loop's iteration, and the stride what the loop moves a pointer by: `k * TK` under a mask that stays.
    Such matrices are parts of rows and overlap the next ones. `mapped` proves their map, so these loads keep bulk copies.
    """
    indices: dict[Polynomial, Polynomial] = {}
    found = list(terms)
    shared = shared_arguments(found)
    for monomial, factor in found:
        pair = pair_of((monomial, factor)) if gapless and (not shared or len(found) == 1) else None
        if pair is not None and not {*pair} & {*pitches}:
            # A matrix has more elements than a batch has matrices, so the larger argument is the stride.
            one, other = sorted(pair, key=_stride_place)
            stride, index = (Polynomial.atom(Extreme(kind, one, other)) for kind in ("max", "min"))
            indices[stride] = indices.get(stride, Polynomial.number(0)) + index
            continue
        apart = shared or frozenset(each for each in monomial if is_argument(each[0]))
        by = _whole_rows(factor, pitches) if apart else factor
        index = Polynomial.of({monomial - apart: factor // by})
        if monomial == ONE:
            raise unsupported(
                "offsets count from an argument's first element, or from a matrix of a batch",
                op,
                "add no other constant",
            )
        stride = Polynomial.of({apart: by})
        indices[stride] = indices.get(stride, Polynomial.number(0)) + index
    numbers = sum(stride.constant is not None for stride in indices)
    if len(indices) > 1 and (not gapless or 0 < numbers < len(indices)):
        raise unsupported(
            "a matrix of a batch is selected by one index times one stride, as in x + entry * stride",
            op,
            "write it so, with the stride as an argument",
        )
    if len(indices) > 1:
        return _in_one_row(indices)
    return next((Entry(index, stride) for stride, index in indices.items()), None)


def _whole_rows(factor: int, pitches: Sequence[Polynomial]) -> int:
    """The part of a factor that belongs to a stride beside arguments, because matrices are whole rows: 64 of
    `page * N * 64`, where rows are 64 apart.
    """
    numbers = [each.constant for each in pitches]
    longest = max((each for each in numbers if each is not None), default=1)
    return longest if None not in numbers and factor % longest == 0 else 1


def _in_one_row(indices: Mapping[Polynomial, Polynomial]) -> Entry:
    """A batch of several dimensions, by stride, as one row of matrices. Its quotients depend on strides only."""
    strides = sorted(indices, key=_stride_place)
    numbers = [stride.constant for stride in strides]
    if None not in numbers:
        unit = Polynomial.number(gcd(*cast("list[int]", numbers)))
    else:
        unit = reduce(lambda one, other: Polynomial.atom(Extreme("min", one, other)), strides)
    index = sum((indices[stride] * (stride // unit) for stride in strides), Polynomial.number(0))
    return Entry(index, unit, several=tuple((indices[stride], stride) for stride in strides))


def _stride_place(stride: Polynomial) -> tuple[list[int], str]:
    """The order of strides by the arguments in them, which is the same in every run."""
    arguments = sorted(atom.index for atom in stride.leaves if isinstance(atom, BlockArgument))
    return arguments, str(sorted(factor for _, factor in stride))


def pair_of(term: tuple[Monomial, int]) -> tuple[Polynomial, Polynomial] | None:
    """The two arguments of a product, or None."""
    monomial, factor = term
    atoms = [Polynomial.atom(atom) for atom, power in monomial if power == 1 and is_argument(atom)]
    return (atoms[0], atoms[1]) if factor == 1 and len(atoms) == len(monomial) == 2 else None


def with_fellows(moved: Terms, first: Polynomial) -> Polynomial:
    """The terms that moved a pointer, with those that belong to them: all of (entry + 1) * stride."""
    apart = shared_arguments(moved)
    fellows = [term for term in first if not is_computed(term[0]) and apart and apart <= term[0]]
    return Polynomial(frozenset([*moved, *fellows]))


def shared_arguments(terms: Terms) -> Monomial:
    """The arguments that are factors of all terms."""
    each = [frozenset(atom for atom in monomial if is_argument(atom[0])) for monomial, _ in terms]
    return frozenset[tuple[Hashable, int]]().union(*each).intersection(*each)


def is_computed(monomial: Monomial) -> bool:
    """Whether the kernel computes the monomial, such as from program ids and loop counters."""
    return any(not is_argument(atom) for atom, _ in monomial)


def is_argument(atom: Hashable) -> bool:
    """Whether the atom is an argument of the kernel, a part of arguments, or their minimum or maximum."""
    match atom:
        case Compound():
            return all(map(is_argument, frozenset[Hashable]().union(*(part.leaves for part in atom.parts))))
        case OpResult(op=arith.MinSIOp() | arith.MaxSIOp() | ExtSIOp() as op):
            return all(map(is_argument, op.operands))
        case _:
            return isinstance(atom, BlockArgument) and isinstance(atom.block.parent_op(), FuncOp)
