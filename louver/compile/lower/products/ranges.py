"""Items of work: tiles, and ranges of K of the tiles behind the first `whole` ones."""

from __future__ import annotations

from typing import NamedTuple

from louver.compile.lower.products.state import Lowering
from louver.ptx.module import Reg


class Cut(NamedTuple):
    """A range of K. tile: number of its tile among those that are cut. part: its number among the tile's ranges.

    Both are 0 for a whole tile.
    """

    tile: Reg
    part: Reg


def items(low: Lowering, tiles: Reg) -> Reg:
    """The number of items that so many tiles are."""
    k, whole = low.k, low.sizes["whole"]
    return k.mad_lo(k.sub(tiles, whole), low.sizes["parts"], whole)


def cut_of(low: Lowering, item: Reg) -> Cut:
    """The range that an item is."""
    k, parts = low.k, low.sizes["parts"]
    over = k.sub(item, k.min(item, low.sizes["whole"]))
    tile = k.div(over, parts)
    return Cut(tile, k.sub(over, k.mul_lo(tile, parts)))


def is_whole(low: Lowering, item: Reg) -> Reg:
    """Whether an item is a whole tile."""
    return low.k.setp("lt", "u32", item, low.sizes["whole"])


def tile_of(low: Lowering, item: Reg, first: Reg, last: Reg) -> Reg:
    """The number of an item's tile; sets the item's first step, and the one behind its last."""
    k, steps, length = low.k, low.named["steps"], low.sizes["part_steps"]
    cut = cut_of(low, item)
    k.mul_lo(cut.part, length, into=first)
    end = k.min(k.add(first, length), steps)
    k.selp(steps, end, is_whole(low, item), into=last)
    return k.add(k.min(item, low.sizes["whole"]), cut.tile)
