"""What a load or store through pointers reaches: per dimension of its tile, where it starts, how it strides, where it ends."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Operation, SSAValue

from louver.passes.affine import Elements, Iteration, Lane, Tile, Wrapped, lanes
from louver.passes.masks import Bound
from louver.passes.polynomial import ONE, Monomial, Polynomial, divide
from louver.passes.refusal import unsupported


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a tile, in elements.

    number: in the tile. extent: the tile's. stride: between neighbours in memory. first: the tile's first index. size: of the
    whole tensor, None where neither mask nor shape says it. wrapped: indices beyond the size begin anew at 0.
    """

    number: int
    extent: int
    stride: Polynomial
    first: Polynomial
    size: Polynomial | None
    wrapped: bool = False


@dataclass(frozen=True, slots=True)
class Access:
    """A tile in memory. base: the pointer that it is counted from. dimensions: those with more than one element."""

    base: SSAValue
    dimensions: tuple[Dimension, ...]


def access(pointer: Elements | Tile, shape: Sequence[int], bounds: Sequence[Bound], op: Operation) -> Access:
    """What `op` reaches with a tile of `shape` through `pointer`, within the bounds of its mask.

    Refuses offsets that are no sum of one index times one stride for each dimension, and bounds on anything but an index.
    """
    if isinstance(pointer, Tile):
        every = zip(shape, pointer.strides, pointer.first, pointer.sizes, strict=True)
        found = [Dimension(number, *each) for number, each in enumerate(every)]
        return Access(pointer.base, tuple(each for each in found if each.extent > 1))
    wide = [number for number, extent in enumerate(shape) if extent > 1]
    offset = _narrowed(pointer.offset, wide)
    found = _starts([_strided(offset, number, shape[number], op) for number in wide], offset, op)
    for bound in bounds:
        found = _bounded(found, _narrowed(bound.value, wide), op)
    return Access(pointer.base, tuple(found))


def _narrowed(value: Polynomial, wide: Sequence[int]) -> Polynomial:
    """Without lanes of dimensions of one element, whose only index is 0."""
    gone = [atom for atom in value.atoms if isinstance(atom, Lane) and atom.dimension not in wide]
    return Polynomial(frozenset(term for term in value if not any(atom in gone for atom, _ in term[0])))


def _index_atoms(monomial: Monomial) -> list[Hashable]:
    return [atom for atom, power in monomial if isinstance(atom, Lane | Wrapped) for _ in range(power)]


def _strided(offset: Polynomial, number: int, extent: int, op: Operation) -> Dimension:
    """The dimension's stride, and its first index and size as far as a wrapped index says them."""
    strides: dict[Hashable, Polynomial] = {}
    for monomial, factor in offset:
        atoms = _index_atoms(monomial)
        if len(atoms) > 1:
            raise unsupported("offsets add one index times one stride for each dimension", op)
        if atoms and number in lanes(Polynomial.atom(atoms[0])):
            stride = divide(monomial, frozenset({(atoms[0], 1)}))
            assert stride is not None
            strides[atoms[0]] = strides.get(atoms[0], Polynomial.number(0)) + Polynomial.of({stride: factor})
    if len(strides) != 1:
        raise unsupported(f"dimension {number} of a tile has one index and one stride; there are {len(strides)}", op)
    atom, stride = strides.popitem()
    if len(stride.terms) != 1:
        raise unsupported("a stride is one argument or one number, or a multiple of it", op)
    dimension = Dimension(number, extent, stride, Polynomial.number(0), None)
    if isinstance(atom, Wrapped):
        first = atom.index - Polynomial.atom(Lane(number))
        if lanes(first) or any(isinstance(each, Iteration) for each in first.atoms):
            raise unsupported(
                "a wrapped index (%) counts by ones and is the same in every iteration: mask it along K", op
            )
        return replace(dimension, first=first, size=atom.size, wrapped=True)
    return dimension


def _starts(found: list[Dimension], offset: Polynomial, op: Operation) -> list[Dimension]:
    """With the rest of the offset shared out: each part goes to the dimension whose stride it is a multiple of."""
    first = [each.first for each in found]
    for monomial, factor in offset:
        if _index_atoms(monomial):
            continue
        fitting: list[tuple[int, Polynomial]] = []
        for place, each in enumerate(found):
            ((stride, by),) = each.stride.terms
            quotient = divide(monomial, stride)
            if quotient is not None and factor % by == 0:
                fitting.append((place, Polynomial.of({quotient: factor // by})))
        if not fitting:
            raise unsupported("where a tile starts is a whole number of strides from its pointer", op)
        weights = [_weight(found[place].stride) for place, _ in fitting]
        if weights.count(max(weights)) > 1:
            raise unsupported("the strides of a tile's dimensions must tell its offsets apart", op)
        place, part = fitting[weights.index(max(weights))]
        if found[place].wrapped:
            raise unsupported("a wrapped index (%) is the whole index of its dimension", op)
        first[place] = first[place] + part
    return [replace(each, first=start) for each, start in zip(found, first, strict=True)]


def _weight(stride: Polynomial) -> tuple[int, int]:
    """Strides that are arguments come before numbers, and larger numbers before smaller ones."""
    ((monomial, factor),) = stride.terms
    return (int(monomial != ONE), abs(factor))


def _bounded(found: list[Dimension], bound: Polynomial, op: Operation) -> list[Dimension]:
    """With the size that a bound on one dimension's index gives it."""
    bounded = lanes(bound)
    if len(bounded) != 1:
        raise unsupported("a mask bounds the index of one dimension at a time", op)
    (number,) = bounded
    (place,) = (place for place, each in enumerate(found) if each.number == number)
    each = found[place]
    index = Polynomial.atom(Lane(number)) + each.first
    if bound + index == Polynomial.number(-1):
        # Not below 0, which no tile that a program reads or writes through a descriptor is.
        return found
    if each.wrapped and index - bound == each.size:
        # Where the index is below the size it is what is left of it.
        return found
    if each.wrapped:
        assert each.size is not None
        index = Polynomial.atom(Wrapped(index, each.size))
    size = index - bound
    if lanes(size) or any(isinstance(atom, Iteration) for atom in size.atoms):
        raise unsupported("a mask compares the index that the offsets have with a size", op)
    if each.size not in (None, size):
        raise unsupported("a dimension of a tile has one size", op)
    return [*found[:place], replace(each, size=size), *found[place + 1 :]]
