"""Chooses the tile by waves: SMs take tiles in waves, and the last wave may leave most of them idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SPEED: Mapping[int, float] = {256: 1.0, 128: 0.8, 64: 0.55}
"""Speed of a lone SM on 128 rows by that many columns, beside the widest tile's.

Source: rates at which sparse f16 products are issued from shared memory, 64×128 beside 64×256, 1,226 and 1,545 TFLOP/s on an H200.
64 columns: the bytes that a product reads of shared memory, by the same measure. Those of 8-bit types go alike.
"""

TALL_SPEED: Mapping[int, float] = {16: 1.035, 8: 1.02}
"""Speed of a tile of 256×192 an element of the output, beside one of 128×256, by bits of an operand's element.

It moves a third fewer bytes a product, where energy is the limit. Measured on an H200: `docs/perf-log.md`, section 18.
"""

TALL_MARGIN = 0.005
"""Part of the time that taller tiles must save to be taken."""

MARGIN = 0.1
"""Part of the time that a narrower tile must save to be taken: the model knows no better."""


def waves(tiles: int, sm_count: int) -> float:
    """Time of so many tiles, in units of a full wave's.

    Where power is the limit, what idle SMs leave is the others': half of their part of a last wave is made up for. A lone wave ends
    before that shows.
    """
    full, rest = divmod(tiles, sm_count)
    if rest == 0 or full == 0:
        return full + min(rest, 1)
    return full + (1 + rest / sm_count) / 2


def tall_pays(m: int, n: int, batch: int, sm_count: int, bits: int) -> bool:
    """Whether `batch` products of m × n take less time in tiles of 256×192 than of 128×256. bits: of an operand's element."""
    wide = waves(batch * -(-m // 128) * -(-n // 256), sm_count) * 128 * 256
    tall = waves(batch * -(-m // 256) * -(-n // 192), sm_count) * 256 * 192 / TALL_SPEED[bits]
    return tall < (1 - TALL_MARGIN) * wide


def wave_time(width: int, rows: int, n: int, sm_count: int) -> float:
    """Time of a product with `rows` rows of tiles and n columns, in units of a tile's column at the widest tile's speed."""
    return waves(rows * -(-n // width), sm_count) * width / SPEED[width]


def narrowed(widest: int, widths: Sequence[int], rows: int, n: int, sm_count: int) -> int:
    """The width of tiles for n columns, of those that the product has kernels for: `widest`, or a narrower one that takes less time.

    widest: the narrowest that holds n, or the widest of all. Widths whose speed is not known are left out.
    """
    if widest not in SPEED:
        return widest
    times = {width: wave_time(width, rows, n, sm_count) for width in widths if width in SPEED and width <= widest}
    best = min(times, key=lambda width: (times[width], -width))
    return best if times[best] < (1 - MARGIN) * times[widest] else widest
