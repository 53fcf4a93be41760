"""How wide a tile is to be: SMs take tiles in waves, and the last wave may leave most of them idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SPEED: Mapping[int, float] = {256: 1.0, 128: 0.8, 64: 0.55}
"""Speed of a lone SM on 128 rows by that many columns, beside the widest tile's.

Source: rates at which sparse f16 products are issued from shared memory, 64×128 beside 64×256, 1,226 and 1,545 TFLOP/s on an H200.
64 columns: the bytes that a product reads of shared memory, by the same measure. Those of 8-bit types go alike.
"""

MARGIN = 0.1
"""Part of the time that a narrower tile must save to be taken: the model knows no better."""


def wave_time(width: int, rows: int, n: int, sm_count: int) -> float:
    """Time of a product with `rows` rows of tiles and n columns, in units of a tile's column at the widest tile's speed."""
    tiles = rows * -(-n // width)
    return -(-tiles // sm_count) * width / SPEED[width]


def narrowed(widest: int, widths: Sequence[int], rows: int, n: int, sm_count: int) -> int:
    """The width of tiles for n columns, of those that the product has kernels for: `widest`, or a narrower one that takes less time.

    widest: the narrowest that holds n, or the widest of all. Widths whose speed is not known are left out.
    """
    if widest not in SPEED:
        return widest
    times = {width: wave_time(width, rows, n, sm_count) for width in widths if width in SPEED and width <= widest}
    best = min(times, key=lambda width: (times[width], -width))
    return best if times[best] < (1 - MARGIN) * times[widest] else widest
