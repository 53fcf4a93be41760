"""The tile that a load or store accesses through pointers: for each dimension its start, stride and end. The rest of an
offset selects a matrix of a batch: `e * stride`, where e is a program id, a loop counter, or loaded. Pointers alone do
not identify it. Masks do, because they compare without it: for `x + e * stride + k[None, :]` with k < K, columns would
otherwise end at K + e · stride.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import permutations
from math import gcd
from typing import cast

from xdsl.dialects import arith
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from louver.analysis.affine import Affine, BlockPointer, Elements
from louver.analysis.atoms import Iteration, Lane, Wrapped, lanes
from louver.analysis.integers import steps_of
from louver.analysis.masks import Bound
from louver.ir.arith import ExtSIOp
from louver.ir.polynomial import ONE, Compound, Extreme, Monomial, Part, Polynomial, divide
from louver.ir.refusal import unsupported
from louver.ir.tile import FuncOp

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


Terms = list[tuple[Monomial, int]]
"""Terms of an offset, in elements."""


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
    found = _balanced(found, limited)
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
    inner = [term for size in sizes if not lanes(size) for term in size if _inner(term[0])]
    return Polynomial(frozenset(inner))


def _selected(found: list[Dimension], bounds: Sequence[Polynomial]) -> Terms:
    """The terms, taken from dimensions without a bound, that have an index which a bound without dimensions limits: that
    index selects a matrix.
    """
    indices = {atom for each in bounds for atom in each.atoms if not _is_argument(atom)}
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
        if (
            place is None
            or part is None
            or (own is None and found[place].wrapped and any(term != ONE for term, _ in unit))
        ):
            # What is added behind the wrap goes to another matrix, such as the second half of a gated weight.
            outside.extend(unit)
            continue
        size = found[place].size
        if found[place].wrapped and size is not None:
            # Rows are the index itself below the size, so that a number moves both.
            found[place] = replace(found[place], size=size + part, again=False)
        first[place] = first[place] + part
    return [replace(each, first=start) for each, start in zip(found, first, strict=True)], outside


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
    if each.wrapped and index - bound == each.size:
        # Below the size the wrapped index equals the index.
        return None
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
    shared = [term for term in each.first if term in size.terms]
    moved = _with_fellows([term for term in shared if _inner(term[0]) or _goes_to_matrix(term, each, size)], each.first)
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
        and _pair(term) is not None
        and Polynomial(frozenset([term])).quotient(left) is None
    )


def _pair(term: tuple[Monomial, int]) -> tuple[Polynomial, Polynomial] | None:
    """The two arguments of a product, or None."""
    monomial, factor = term
    atoms = [Polynomial.atom(atom) for atom, power in monomial if power == 1 and _is_argument(atom)]
    return (atoms[0], atoms[1]) if factor == 1 and len(atoms) == len(monomial) == 2 else None


def _with_fellows(moved: Terms, first: Polynomial) -> Polynomial:
    """The terms that moved a pointer, with those that belong to them: all of (entry + 1) * stride."""
    apart = _shared_arguments(moved)
    fellows = [term for term in first if not _inner(term[0]) and apart and apart <= term[0]]
    return Polynomial(frozenset([*moved, *fellows]))


def _shared_arguments(terms: Terms) -> Monomial:
    """The arguments that are factors of all terms."""
    each = [frozenset(atom for atom in monomial if _is_argument(atom[0])) for monomial, _ in terms]
    return frozenset[tuple[Hashable, int]]().union(*each).intersection(*each)


def _inner(monomial: Monomial) -> bool:
    """Whether the kernel computes the monomial, such as from program ids and loop counters."""
    return any(not _is_argument(atom) for atom, _ in monomial)


def _is_argument(atom: Hashable) -> bool:
    """Whether the atom is an argument of the kernel, a part of arguments, or their minimum or maximum."""
    match atom:
        case Compound():
            return all(map(_is_argument, frozenset[Hashable]().union(*(part.leaves for part in atom.parts))))
        case OpResult(op=arith.MinSIOp() | arith.MaxSIOp() | ExtSIOp() as op):
            return all(map(_is_argument, op.operands))
        case _:
            return isinstance(atom, BlockArgument) and isinstance(atom.block.parent_op(), FuncOp)


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
    shared = _shared_arguments(found)
    for monomial, factor in found:
        pair = _pair((monomial, factor)) if gapless and (not shared or len(found) == 1) else None
        if pair is not None and not {*pair} & {*pitches}:
            # A matrix has more elements than a batch has matrices, so the larger argument is the stride.
            one, other = sorted(pair, key=_stride_place)
            stride, index = (Polynomial.atom(Extreme(kind, one, other)) for kind in ("max", "min"))
            indices[stride] = indices.get(stride, Polynomial.number(0)) + index
            continue
        apart = shared or frozenset(each for each in monomial if _is_argument(each[0]))
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


def without_moves(found: Access, op: Operation, affine: Affine, *, sparse: bool, across: bool = False) -> Access:
    """The access, where nothing bounds its columns: a move along a row by an argument goes to another matrix.

    sparse: rows have no gaps and columns are those of the sum, so a move that is not by tiles goes there too. Matrices
    are a row apart at least, so a move by less stays. across: the rows are those of the sum instead. There a loop goes
    on with the next matrix where the loops inside of it have read all rows of one.
    """
    one = Polynomial.number(1)
    along = next((each for each in found.dimensions if (each.stride == one) is not across), None)
    if along is None or along.size is not None:
        return found
    others = () if across else [each for each in found.dimensions if each is not along]
    pitch = min((each.stride.constant or 0 for each in others), default=0)
    rests = {term: rest.factor for rest in remainders(along.first) for term in rest.terms}
    whole = _rows_of_loops(along, affine) if across else None
    jumps = _jumps(along.first)
    terms = [*(along.first - Polynomial(frozenset(jumps)))]
    moved = [
        (term, by)
        for term, by in terms
        if _inner(term)
        and not _ends_loop(term, by, along.first, affine)
        and (by == whole or not _goes_on(term, rests.get((term, by), by), along.extent, pitch, sparse))
    ]
    if not moved:
        return found
    # What a loop moves as far, in numbers, goes to the next matrices.
    numbers = [(term, by) for term, by in (*terms, *jumps) if term and not any(_is_argument(atom) for atom, _ in term)]
    far = {by for _, by in set(numbers).intersection(moved)}
    moved += [each for each in numbers if each[1] in far and each not in moved]
    gone = _with_fellows(moved, along.first)
    selected = Polynomial.number(0) if found.entry is None else found.entry.index * found.entry.stride
    pitches = [each.stride for each in found.dimensions]
    entry = batch_entry([*(gone * along.stride), *selected], op, gapless=sparse, pitches=pitches)
    rest = replace(along, first=along.first - gone)
    dimensions = tuple(rest if each is along else each for each in found.dimensions)
    return replace(found, dimensions=dimensions, entry=entry)


def _jumps(first: Polynomial) -> list[tuple[Monomial, int]]:
    """What quotients move by, beside remainders of the same numbers: 32 * (i % 4) + 16384 * (i // 4) is 32 * i + 16256 * (i // 4)."""
    found: list[tuple[Monomial, int]] = []
    for monomial, times in first:
        ((atom, power), *others) = [*monomial] or [(None, 0)]
        by = atom.by.constant if isinstance(atom, Part) and power == 1 and not others else None
        if not isinstance(atom, Part) or by is None or times < 0:
            continue
        steps = {divmod(first.coefficient(each), own) for each, own in atom.whole}
        found += [(monomial, times + step * by) for step, rest in steps if len(steps) == 1 and step > 0 == rest]
    return found


def _ends_loop(term: Monomial, by: int, first: Polynomial, affine: Affine) -> bool:
    """Whether a loop that moves a tile reads as many elements less as a move is by: those from the move on to K."""
    loops = [atom.loop for atom in first.atoms if isinstance(atom, Iteration)]
    steps = [found for found in map(steps_of, (loop.ub for loop in loops)) if found is not None]
    return any((term, -by) in affine.integer(length).terms for length, _ in steps)


def _rows_of_loops(along: Dimension, affine: Affine) -> int | None:
    """The step of the outermost loop that moves a tile, if the other loops end there; None if numbers do not tell."""
    (most, *steps) = sorted(((by, term) for term, by in along.first), key=lambda each: -each[0]) or [(0, ONE)]
    end = along.extent
    for by, term in steps:
        ((atom, power), *others) = [*term] or [(None, 0)]
        times = affine.times(atom.loop) if isinstance(atom, Iteration) and power == 1 and not others else None
        if times is None or times.constant is None:
            return None
        end += by * (times.constant - 1)
    return most[0] if steps and end == most[0] else None


@dataclass(frozen=True, slots=True)
class Remainder:
    """The terms `factor * (whole - whole // by * by)` of a number: a program's share of K."""

    factor: int
    whole: Polynomial
    by: int
    terms: Polynomial


def remainders(number: Polynomial) -> list[Remainder]:
    """The remainders by numbers among the terms of a number."""
    found: list[Remainder] = []
    for monomial, times in number:
        part = next((atom for atom, _ in monomial if isinstance(atom, Part)), None)
        by = part.by.constant if part is not None and monomial == frozenset({(part, 1)}) else None
        if part is None or not by or by < 1 or times > 0 or times % by:
            continue
        factor = -times // by
        terms = part.whole * factor + Polynomial.of({monomial: times})
        if terms.terms <= number.terms:
            found.append(Remainder(factor, part.whole, by, terms))
    return found


def _goes_on(monomial: Monomial, factor: int, extent: int, pitch: int, sparse: bool) -> bool:
    """Whether a move stays in the row: it follows a loop's iterations, counts tiles, or is by less than a row.

    An iteration times an argument goes to a matrix, such as that of an expert, but whole tiles (`k * PARTS * TK`) stay.
    pitch: the length of a row, 0 if it is not known.
    """
    times_argument = any(_is_argument(atom) for atom, _ in monomial)
    if any(isinstance(atom, Iteration) for atom in Polynomial.of({monomial: 1}).leaves):
        return not times_argument or factor % extent == 0
    if times_argument:
        return False
    return not sparse or abs(factor) < pitch or (abs(factor) == extent and sum(power for _, power in monomial) == 1)
