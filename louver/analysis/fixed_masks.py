"""Masks that stay while a loop moves their pointer by one tile a step: they compare the number of a lane, not its index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import scf

from louver.analysis.affine import Affine, Elements
from louver.analysis.atoms import Iteration, Lane, lanes
from louver.analysis.masks import Bound
from louver.ir.polynomial import Polynomial

Stepped = tuple[Polynomial, int]
"""A size that a loop goes through in steps of a number of elements."""


def moving(
    bounds: Sequence[Bound], pointer: Elements, shape: Sequence[int], affine: Affine
) -> tuple[list[Bound], list[Stepped]]:
    """The bounds of a load or store, where each that compares lanes with the size of its loop compares indices instead.

    Both are the same for a size that is at most one step or a multiple of it. Those sizes are the second result. Both are
    true in a loop that has only the whole steps of a size.
    """
    found, sizes = list[Bound](), list[Stepped]()
    for bound in bounds:
        loop = _loop(bound, pointer, shape, affine)
        if loop is None:
            found.append(bound)
            continue
        (number,) = lanes(bound.value)
        move = Polynomial.atom(Iteration(loop)) * shape[number]
        found.append(replace(bound, value=bound.value + move, each=(bound.value + move,), unsigned=None))
        size, extent = Polynomial.atom(Lane(number)) - bound.value, shape[number]
        if affine.times(loop) != size // extent:
            sizes.append((size, extent))
    return found, sizes


def _loop(bound: Bound, pointer: Elements, shape: Sequence[int], affine: Affine) -> scf.ForOp | None:
    """The only loop whose steps go through the size of a bound, and move the pointer but not the mask."""
    if len(lanes(bound.value)) != 1 or len(bound.each) != 1:
        return None
    (number,) = lanes(bound.value)
    size, extent = Polynomial.atom(Lane(number)) - bound.value, shape[number]
    if lanes(size) or any(isinstance(atom, Iteration) for atom in size.leaves):
        return None
    lane = Polynomial.atom(Lane(number))
    strides = [part for term in pointer.offset if (part := Polynomial(frozenset([term])).quotient(lane)) is not None]
    found: list[scf.ForOp] = []
    for loop in {atom.loop for atom in pointer.offset.atoms if isinstance(atom, Iteration)}:
        moves = [each * Polynomial.atom(Iteration(loop)) * extent for each in strides]
        goes_through = affine.times(loop) in (size.ceil(extent), size // extent)
        if moves and goes_through and all(move.terms <= pointer.offset.terms for move in moves):
            found.append(loop)
    return found[0] if len(found) == 1 else None
