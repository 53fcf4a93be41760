"""Proves that a tensor map brings exactly the elements of a load: for each lane of its tile, program and iteration,

1. the address of a place is that of the pointer: an access is the sum of its indices times their strides;
2. a lane that the mask excludes is outside of the map, so that it reads zero: a dimension that a mask bounds has its size,
   and the mask is true for the indices below it, also if the pointer moves and the mask does not (`access`);
3. any other lane is inside of the map. No index is above it: along a dimension without a mask, the map has every index of
   an element of the array, because no other index is below 0. No index is below 0: see `Mapped`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from louver.analysis.access import EVERY, Access, Dimension
from louver.analysis.affine import Affine, launch_size
from louver.analysis.ends import Ends
from louver.analysis.implied import facts_at
from louver.ir.polynomial import Polynomial, Size


@dataclass(frozen=True, slots=True)
class Mapped:
    """The map of an access, if the launch finds that no index is below 0. Dimensions are innermost first.

    sizes: None for a dimension that no mask bounds, and whose last index is not known.
    least: numbers that are at least 0 then.
    free: the dimension with an index that a launch does not know, such as a loaded one; None if there is none. All
        indices are at least 0 if the other dimensions end before its stride: its index is then the quotient of an
        element's offset in the array.
    above: for each dimension, whether no tile begins below 0. Else a mask excludes lanes there.
    """

    sizes: tuple[Size | None, ...]
    strides: tuple[Size, ...]
    least: tuple[Size, ...]
    free: int | None
    above: tuple[bool, ...]


def mapped(
    found: Access, ordered: Sequence[Dimension], affine: Affine, names: Mapping[SSAValue, str], op: Operation
) -> Mapped | None:
    """The map of an access with these dimensions, and with its batch as the last dimension. None if a launch cannot
    compute it, or if an index may be below 0.

    names: of the arguments that a launch knows. op: the load, which branches around it may limit.
    """
    entry, ends = found.entry, Ends(affine, names, facts_at(affine, op))
    sizes: list[Size | None] = []
    for size, last in [
        *((each.size, _end(each, affine)) for each in ordered),
        *([] if entry is None else [(entry.size, None)]),
    ]:
        bounded = size is not None and size.constant != EVERY
        end = size if bounded else last
        known = None if end is None else launch_size(end, names)
        if bounded and known is None:
            return None
        sizes.append(known)
    strides = [each.stride for each in ordered[1:]] + ([] if entry is None else [entry.stride])
    steps = [launch_size(each, names) for each in strides]
    begins = [(each.first, each.floored, each.unsigned) for each in ordered]
    begins += [] if entry is None else [(entry.index, False, entry.unsigned)]
    # Where a mask says that an index may be below 0, it may.
    above = [not floored and ends.require(ends.of(first, "least")) for first, floored, _ in begins]
    unknown = [
        place
        for place, ((_, floored, unsigned), proved) in enumerate(zip(begins, above, strict=True))
        if not (proved or floored or unsigned)
    ]
    if len(unknown) > 1 or None in steps:
        return None
    return Mapped(
        tuple(sizes),
        tuple(each for each in steps if each is not None),
        tuple(sorted(set(ends.needs), key=str)),
        next(iter(unknown), None),
        tuple(proved or place in unknown for place, proved in enumerate(above)),
    )


def _end(each: Dimension, affine: Affine) -> Polynomial | None:
    """The end of the last tile of a loop."""
    last = affine.last(each.first)
    return None if last is None else last + each.extent
