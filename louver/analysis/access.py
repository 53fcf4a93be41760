"""The tile that a load or store accesses through pointers: for each dimension its start, stride and end. The rest of an
offset selects a matrix of a batch: `e * stride`, where e is a program id, a loop counter, or loaded. Pointers alone do
not identify it. Masks do, because they compare without it: for `x + e * stride + k[None, :]` with k < K, columns would
otherwise end at K + e · stride.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from xdsl.ir import Operation, SSAValue

from louver.analysis.affine import BlockPointer, Elements
from louver.analysis.atoms import Iteration, Lane, Wrapped, lanes
from louver.analysis.batch import Entry, Terms, batch_entry, is_argument, is_computed, pair_of, with_fellows
from louver.analysis.masks import Bound
from louver.ir.polynomial import ONE, Monomial, Part, Polynomial, divide, remainders
from louver.ir.refusal import unsupported

EVERY = (1 << 31) - 1
"""The size of a dimension without a bound. A load without a mask is inside of its tensor."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension of a tile, in elements.

    number: in the tile. extent: the tile's. stride: between neighbours in memory. first: the tile's first index. size:
        of the whole tensor; None without a mask or shape. wrapped: indices from `size` on are other ones below it. again:
        they begin again at 0. floored: a mask excludes indices below 0. unsigned: so does a mask that compares indices as
        unsigned.
    """

    number: int
    extent: int
    stride: Polynomial
    first: Polynomial
    size: Polynomial | None
    wrapped: bool = False
    again: bool = False
    floored: bool = False
    unsigned: bool = False

    @property
    def begins_before(self) -> bool:
        """Whether the first tile, in the order of programs and iterations, begins below 0.

        A dimension has an element at least: `(cdiv(K, BK) - 1) * BK` is 0 or more for K columns.
        """
        sized = frozenset[Hashable]() if self.size is None else self.size.atoms
        least = self.first.over(lambda atom: Polynomial.number(int(atom in sized)))
        others = [factor for monomial, factor in self.first if monomial != ONE]
        return least is not None and (least.constant or 0) < 0 and all(factor > 0 for factor in others)


@dataclass(frozen=True, slots=True)
class Access:
    """A tile in memory. base: the pointer from which offsets count. dimensions: those with more than one element.

    repeated: dimensions along which all elements are the same. within: a mask's bounds on their indices.
    """

    base: SSAValue
    dimensions: tuple[Dimension, ...]
    entry: Entry | None = None
    repeated: tuple[int, ...] = ()
    within: tuple[Polynomial, ...] = ()


def access(
    pointer: Elements | BlockPointer,
    shape: Sequence[int],
    bounds: Sequence[Bound],
    op: Operation,
    *,
    repeats: bool,
    gapless: bool = False,
) -> Access:
    """The elements that `op` accesses with a tile of `shape` through `pointer`, within the bounds of its mask.

    repeats: all elements along a dimension may be the same. gapless: matrices have no gaps, see `batch_entry`.
    Rejects offsets other than a sum of one index times one stride for each dimension, and bounds that limit no index.
    """
    if isinstance(pointer, BlockPointer):
        every = zip(shape, pointer.strides, pointer.first, pointer.sizes, strict=True)
        found = [Dimension(number, *each) for number, each in enumerate(every)]
        entry = batch_entry(pointer.offset, op, gapless=gapless, pitches=pointer.strides)
        return Access(pointer.base, tuple(each for each in found if each.extent > 1), entry)
    wide = [number for number, extent in enumerate(shape) if extent > 1]
    offset = _narrowed(pointer.offset, wide)
    repeated = tuple(number for number in wide if repeats and number not in lanes(offset))
    starts = [_strided(offset, number, shape[number], op) for number in wide if number not in repeated]
    found, outside = _starts(starts, offset, op)
    # A bound of all lanes says nothing of a tile that moves.
    fixed = [each.number for each in found if each.first.constant is not None]
    bounds = [each for each in bounds if not each.always(shape) or lanes(each.value) <= {*fixed}]
    limited = [_narrowed(bound.within(shape), wide) for bound in bounds]
    unsigned = [_narrowed(bound.unsigned, wide) for bound in bounds if bound.unsigned is not None]
    found = [_ended(each, limited) for each in _balanced(found, limited)]
    within = tuple(each for each in limited if len(lanes(each)) == 1 and lanes(each) <= {*repeated})
    whole = [each for each in limited if not lanes(each)]
    limits = [_limit(found, each, op) for each in limited if each not in within and each not in whole]
    masked = frozenset[int]().union(*map(lanes, limited))
    for place, each in enumerate(found):
        own = [size for number, size in (limit for limit in limits if limit) if number == each.number]
        sizes = [size for size in own if size is not None]
        each = replace(each, floored=None in own, again=each.again and each.number not in masked)
        limited_each, terms = _bounded(each, sizes, op)
        index = Polynomial.atom(Lane(each.number)) + limited_each.first
        found[place] = replace(limited_each, unsigned=index in unsigned)
        outside += terms
    if whole and not outside:
        outside += _selected(found, whole)
    pitches = [each.stride for each in found]
    entry = _limited_entry(batch_entry(outside, op, gapless=gapless, pitches=pitches), whole, op)
    if entry is not None:
        entry = replace(entry, unsigned=entry.index in unsigned)
    return Access(pointer.base, tuple(found), entry, repeated, within)


def _balanced(found: list[Dimension], bounds: Sequence[Polynomial]) -> list[Dimension]:
    """The dimensions, with terms that only masks can assign: `row * 104 + n % 2 * 64`, where `n % 2` is `n - row * 2`."""
    for one, other in permutations(range(len(found)), 2):
        moved, own = (_computed_sizes(found[place], bounds) for place in (one, other))
        part = (moved * found[one].stride).quotient(found[other].stride) if moved.terms else None
        if part is not None and own == Polynomial.number(0) - part:
            found = list(found)
            found[one] = replace(found[one], first=found[one].first - moved)
            found[other] = replace(found[other], first=found[other].first + part)
    return found


def _computed_sizes(each: Dimension, bounds: Sequence[Polynomial]) -> Polynomial:
    """The terms of a dimension's size that the kernel computes. A size that masks give is made of arguments otherwise."""
    index = Polynomial.atom(Lane(each.number)) + each.first
    sizes = [index - bound for bound in bounds if lanes(bound) == frozenset([each.number])]
    inner = [term for size in sizes if not lanes(size) for term in size if is_computed(term[0])]
    return Polynomial(frozenset(inner))


def _selected(found: list[Dimension], bounds: Sequence[Polynomial]) -> Terms:
    """The terms, taken from dimensions without a bound, that have an index which a bound without dimensions limits: that
    index selects a matrix.
    """
    indices = {atom for each in bounds for atom in each.atoms if not is_argument(atom)}
    moved = Terms()
    for place, each in enumerate(found):
        terms = [term for term in each.first if any(atom in indices for atom, _ in term[0])]
        if each.size is None and terms:
            gone = Polynomial(frozenset(terms))
            found[place] = replace(each, first=each.first - gone)
            moved += [*(gone * each.stride)]
    return moved


def _limited_entry(entry: Entry | None, bounds: Sequence[Polynomial], op: Operation) -> Entry | None:
    """The entry with its size from bounds without dimensions of the tile."""
    for bound in bounds:
        if entry is None or entry.size is not None:
            raise unsupported(
                "a mask bounds one dimension at a time", op, "write (rows[:, None] < M) & (columns[None, :] < K)"
            )
        entry = replace(entry, size=entry.index - bound)
    return entry


def _narrowed(value: Polynomial, wide: Sequence[int]) -> Polynomial:
    """The value without lanes of dimensions of one element, whose only index is 0."""
    gone = [atom for atom in value.atoms if isinstance(atom, Lane) and atom.dimension not in wide]
    return Polynomial(frozenset(term for term in value if not any(atom in gone for atom, _ in term[0])))


def _index_atoms(monomial: Monomial) -> list[Hashable]:
    return [atom for atom, power in monomial if isinstance(atom, Lane | Wrapped) for _ in range(power)]


def _strided(offset: Polynomial, number: int, extent: int, op: Operation) -> Dimension:
    """The dimension with its stride. A wrapped index also gives its first index and size."""
    strides: dict[Hashable, Polynomial] = {}
    for monomial, factor in offset:
        atoms = _index_atoms(monomial)
        if len(atoms) > 1:
            raise unsupported(
                "offsets are one index times one stride for each dimension, added",
                op,
                "write rows[:, None] * stride + columns[None, :]",
            )
        if atoms and number in lanes(Polynomial.atom(atoms[0])):
            stride = divide(monomial, frozenset({(atoms[0], 1)}))
            assert stride is not None
            strides[atoms[0]] = strides.get(atoms[0], Polynomial.number(0)) + Polynomial.of({stride: factor})
    if len(strides) != 1:
        rule = f"dimension {number} of a tile needs one index and one stride; there are {len(strides)}"
        raise unsupported(rule, op, "" if strides else "its elements are all the same, so load one and broadcast it")
    atom, stride = strides.popitem()
    if len(stride.terms) != 1:
        raise unsupported(
            "a stride is an argument, a number, or a multiple of one", op, "pass other strides as arguments"
        )
    dimension = Dimension(number, extent, stride, Polynomial.number(0), None)
    if isinstance(atom, Wrapped):
        first = atom.index - Polynomial.atom(Lane(number))
        if lanes(first):
            raise unsupported(
                "a wrapped index (%) counts by ones", op, "add first, then wrap, as in (start + range) % M"
            )
        return replace(dimension, first=first, size=atom.size, wrapped=True, again=atom.again)
    return dimension


def _starts(found: list[Dimension], offset: Polynomial, op: Operation) -> tuple[list[Dimension], Terms]:
    """Assign each remaining unit of the offset to the dimension whose stride divides it, or to none (second result)."""
    first, outside = [each.first for each in found], Terms()
    behind, batch = list[tuple[int, Polynomial, Polynomial]](), False
    for unit in _units(offset):
        parts = [(place, unit.quotient(each.stride)) for place, each in enumerate(found)]
        fitting = [(place, part) for place, part in parts if part is not None]
        own = next(((place, part) for place, part in fitting if _ends_before(found[place], part)), None)
        weights = [_weight(found[place].stride) for place, _ in fitting]
        if own is None and fitting and weights.count(max(weights)) > 1:
            raise unsupported(
                "dimensions of a tile must have different strides", op, "pass a stride of its own for each"
            )
        place, part = own or (fitting[weights.index(max(weights))] if fitting else (None, None))
        if place is None or part is None:
            outside.extend(unit)
            continue
        if own is None and found[place].wrapped and any(term != ONE for term, _ in unit):
            behind.append((place, part, unit))
            continue
        _move(found, first, place, part)
        batch |= any(is_computed(term) and any(is_argument(atom) for atom, _ in term) for term, _ in part)
    for place, part, unit in behind:
        # What is added behind the wrap goes to another matrix, such as the second half of a gated weight. In a matrix of a
        # batch, it goes to another part of that.
        size = found[place].size
        times = None if size is None or len(size.terms) != 1 else part.quotient(size)
        if (outside or batch) and times is not None and times.constant is not None:
            _move(found, first, place, part)
        else:
            outside.extend(unit)
    return [replace(each, first=start) for each, start in zip(found, first, strict=True)], outside


def _move(found: list[Dimension], first: list[Polynomial], place: int, part: Polynomial) -> None:
    """Move the start of a dimension. Wrapped rows are the index itself below the size, so that a number moves both."""
    size = found[place].size
    if found[place].wrapped and size is not None:
        found[place] = replace(found[place], size=size + part, again=False)
    first[place] = first[place] + part


def _units(offset: Polynomial) -> list[Polynomial]:
    """The terms of an offset without lanes; those of a remainder are one number: that of `program % 16 * 128`."""
    left, units = Polynomial(frozenset(term for term in offset if not _index_atoms(term[0]))), list[Polynomial]()
    for rest in remainders(left):
        if rest.terms.terms <= left.terms:
            left, units = left - rest.terms, [*units, rest.terms]
    return [*units, *(Polynomial(frozenset([term])) for term in left)]


def _ends_before(each: Dimension, moved: Polynomial) -> bool:
    """Whether rows are their own number below `size - moved`, from where a pointer was moved to."""
    return each.wrapped and each.size is not None and all((one, -by) in each.size.terms for one, by in moved)


def _weight(stride: Polynomial) -> tuple[int, int]:
    """Strides that are arguments come before numbers, larger numbers before smaller ones."""
    ((monomial, factor),) = stride.terms
    return (int(monomial != ONE), abs(factor))


def _ended(each: Dimension, bounds: Sequence[Polynomial]) -> Dimension:
    """The dimension. Rows do not wrap where a mask excludes them from the size on: `rows % N` with the mask `rows < N`."""
    index = Polynomial.atom(Lane(each.number)) + each.first
    return replace(each, wrapped=False) if each.wrapped and any(index - one == each.size for one in bounds) else each


def _limit(found: Sequence[Dimension], bound: Polynomial, op: Operation) -> tuple[int, Polynomial | None] | None:
    """The dimension that a bound limits, and its size (None: the lower bound is 0). None for a redundant bound."""
    bounded = lanes(bound)
    if len(bounded) != 1:
        raise unsupported(
            "a mask bounds one dimension at a time", op, "write (rows[:, None] < M) & (columns[None, :] < K)"
        )
    (number,) = bounded
    (each,) = (each for each in found if each.number == number)
    index = Polynomial.atom(Lane(number)) + each.first
    if bound + index == Polynomial.number(-1):
        return number, None
    if each.wrapped:
        assert each.size is not None
        index = Polynomial.atom(Wrapped(index, each.size, each.again))
    size = index - bound
    if lanes(size):
        raise unsupported(
            "a mask must compare the index that the offsets use with a size", op, "use one expression for both"
        )
    return number, size


def _bounded(each: Dimension, sizes: Sequence[Polynomial], op: Operation) -> tuple[Dimension, Terms]:
    """The dimension with the size from bounds, and the terms that moved its pointer, which the bounds do not contain."""
    if len({*sizes, *([each.size] if each.size is not None else [])}) > 1:
        raise unsupported("all masks of a dimension must compare with one size", op, "mask each dimension once")
    size = sizes[0] if sizes else each.size
    if size is None:
        return each, []
    # A quotient that selects a matrix may also be part of a remainder in the index: 32 * (i % 2) + 8192 * (i // 2).
    quotients = {monomial for monomial, _ in each.first if any(isinstance(atom, Part) for atom, _ in monomial)}
    shared = [term for term in size if term in each.first.terms or term[0] in quotients]
    moved = with_fellows(
        [term for term in shared if is_computed(term[0]) or _goes_to_matrix(term, each, size)], each.first
    )
    size, first = size - moved, each.first - moved
    # A lower bound contains the terms.
    if (moved and each.floored) or any(isinstance(atom, Iteration) for atom in size.leaves):
        raise unsupported(
            "a mask must compare the index that the offsets use with a size", op, "use one expression for both"
        )
    return replace(each, first=first, size=size, again=each.again and not moved), list(moved * each.stride)


def _goes_to_matrix(term: tuple[Monomial, int], each: Dimension, size: Polynomial) -> bool:
    """Whether a product of arguments moves columns to a matrix (`layer * stride`), not along the row (`part * size`)."""
    left = size - Polynomial(frozenset([term]))
    return (
        each.stride == Polynomial.number(1)
        and pair_of(term) is not None
        and Polynomial(frozenset([term])).quotient(left) is None
    )
