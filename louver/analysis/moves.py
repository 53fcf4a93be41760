"""Moves of a tile along a row that nothing bounds: those by an argument go to another matrix."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from xdsl.ir import Operation

from louver.analysis.access import Access, Dimension
from louver.analysis.affine import Affine
from louver.analysis.atoms import Iteration
from louver.analysis.batch import batch_entry, is_argument, is_computed, with_fellows
from louver.analysis.integers import steps_of
from louver.ir.polynomial import ONE, Monomial, Part, Polynomial, remainders


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
    # A matrix has the elements of a tile at least, so a number below that moves along a row, whose length is not known.
    tile = 0 if pitch else prod(each.extent for each in found.dimensions)
    rests = {term: rest.factor for rest in remainders(along.first) for term in rest.terms}
    whole = _rows_of_loops(along, affine) if across else None
    span = _span(along, affine)
    jumps = _jumps(Polynomial(frozenset(term for term in along.first if term not in rests)))
    terms = [*(along.first - Polynomial(frozenset(jumps)))]
    moved = [
        (term, by)
        for term, by in terms
        if is_computed(term)
        and not _ends_loop(term, by, along.first, affine)
        and (by == whole or not _goes_on(term, rests.get((term, by), by), (along.extent, span), pitch, sparse, tile))
    ]
    if not moved:
        return found
    # What a loop moves as far, in numbers, goes to the next matrices.
    numbers = [(term, by) for term, by in (*terms, *jumps) if term and not any(is_argument(atom) for atom, _ in term)]
    far = {by for _, by in set(numbers).intersection(moved)}
    moved += [each for each in numbers if each[1] in far and each not in moved]
    gone = with_fellows(moved, along.first)
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


def _span(along: Dimension, affine: Affine) -> int:
    """The elements along a row that loops with a known number of iterations read, from first to last."""
    span = along.extent
    for term, by in along.first:
        ((atom, power), *others) = [*term] or [(None, 0)]
        times = affine.times(atom.loop) if isinstance(atom, Iteration) and power == 1 and not others else None
        span += by * (times.constant - 1) if times is not None and times.constant is not None else 0
    return span


def _goes_on(monomial: Monomial, factor: int, tiles: tuple[int, int], pitch: int, sparse: bool, tile: int) -> bool:
    """Whether a move stays in the row: it follows a loop's iterations, counts tiles, or is by less than a row.

    An iteration times an argument goes to a matrix, such as that of an expert, but whole tiles (`k * PARTS * TK`) stay.
    tiles: the length of a tile, and that of all tiles of loops: parts of a row follow each other.
    pitch: the length of a row, 0 if it is not known; then a matrix has the elements of a tile at least, `tile`.
    """
    times_argument = any(is_argument(atom) for atom, _ in monomial)
    if any(isinstance(atom, Iteration) for atom in Polynomial.of({monomial: 1}).leaves):
        return not times_argument or factor % tiles[0] == 0
    if times_argument:
        return False
    whole = abs(factor) in tiles or (factor % tiles[0] == 0 and abs(factor) < tile)
    return not sparse or abs(factor) < pitch or (whole and sum(power for _, power in monomial) == 1)
