"""Numbers items of work. An item is a tile, or a range of K of a tile after the first `whole` tiles."""

from __future__ import annotations

from typing import NamedTuple

from louver.compile.lower.products.state import Lowering
from louver.ptx.module import Reg


class Cut(NamedTuple):
    """A range of K. Both fields are 0 for a whole tile.

    tile: the number of its tile among the tiles that are cut.
    part: its number among the ranges of the tile.
    """

    tile: Reg
    part: Reg


def items(low: Lowering, tiles: Reg) -> Reg:
    """The number of items of `tiles` tiles."""
    k, whole = low.k, low.sizes["whole"]
    return k.mad_lo(k.sub(tiles, whole), low.sizes["parts"], whole)


def cut_of(low: Lowering, item: Reg) -> Cut:
    """The range of an item."""
    k, parts = low.k, low.sizes["parts"]
    over = k.sub(item, k.min(item, low.sizes["whole"]))
    tile = k.div(over, parts)
    return Cut(tile, k.sub(over, k.mul_lo(tile, parts)))


def is_whole(low: Lowering, item: Reg) -> Reg:
    """Whether an item is a whole tile."""
    return low.k.setp("lt", "u32", item, low.sizes["whole"])


def tile_of(low: Lowering, item: Reg, first: Reg, last: Reg) -> Reg:
    """The number of an item's tile. Sets `first` to the item's first step, and `last` to the end of its steps."""
    k, steps, length = low.k, low.named["steps"], low.sizes["part_steps"]
    cut = cut_of(low, item)
    k.mul_lo(cut.part, length, into=first)
    end = k.min(k.add(first, length), steps)
    k.selp(steps, end, is_whole(low, item), into=last)
    return k.add(k.min(item, low.sizes["whole"]), cut.tile)
