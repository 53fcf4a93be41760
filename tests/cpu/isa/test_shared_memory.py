"""Swizzles, tiles and descriptors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from louver.isa import swizzle as swizzle_room
from louver.isa.swizzle import Descriptor, Swizzle, SwizzledTile, describe

SPANS = (0, 32, 64, 128)


@pytest.mark.parametrize("span", SPANS)
def test_a_swizzle_permutes_chunks_of_a_span_and_undoes_itself(span):
    swizzle = Swizzle(span)
    address = np.arange(4096)
    moved = swizzle.apply(address)
    assert np.array_equal(np.sort(moved), address)
    assert np.array_equal(swizzle.apply(moved), address)
    assert np.array_equal(moved % 16, address % 16)
    assert np.array_equal(moved // swizzle.width, address // swizzle.width)
    assert np.array_equal(swizzle.apply(address + swizzle.repeat), moved + swizzle.repeat)


def test_the_drawing_of_the_128_byte_swizzle_is_true():
    drawn = [line.split()[1:] for line in swizzle_room.__doc__.splitlines() if line[:7].strip().isdigit()]
    chunk = Swizzle(128).apply(np.arange(1024)[::16]).reshape(8, 8) % 128 // 16
    # The drawing lists which chunk stands at each place; `apply` gives the place of each chunk.
    stands = np.argsort(chunk, axis=1)
    assert stands.tolist() == [[int(c) for c in line] for line in drawn]


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("major", ["k", "mn"])
def test_a_tile_holds_each_byte_once(major, span):
    tile = SwizzledTile(major, 24, 256, Swizzle(span))
    offsets = tile.offset(np.arange(24)[:, None], np.arange(256)[None, :])
    assert tile.bytes == 24 * 256 and np.array_equal(np.sort(offsets.reshape(-1)), np.arange(tile.bytes))


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("major", ["k", "mn"])
def test_descriptors_find_what_the_tile_placed(major, span):
    """Along K in every step, and from every group of rows or every span of M or N."""
    swizzle = Swizzle(span)
    tile, base = SwizzledTile(major, 64, 256, swizzle), 4096
    step_bytes = 32 if span == 32 else 64
    for line in (0, 8, 32):
        for byte in range(0, 256, step_bytes if major == "k" else swizzle.width):
            lines, along = (24, step_bytes) if major == "k" else (32, 256 - byte)
            descriptor = describe(tile, base, line, byte)
            assert Descriptor.decode(descriptor.encode()) == descriptor
            chunks = descriptor.chunks(major, lines, along)
            rows = np.arange(line, line + lines)[:, None]
            columns = np.arange(byte, byte + along, 16)[None, :]
            assert np.array_equal(chunks, base + tile.offset(rows, columns))


@given(
    start=st.integers(0, (1 << 14) - 1),
    leading=st.integers(0, (1 << 14) - 1),
    stride=st.integers(0, (1 << 14) - 1),
    span=st.sampled_from(SPANS),
)
def test_descriptors_encode_and_decode(start, leading, stride, span):
    made = Descriptor(16 * start, 16 * leading, 16 * stride, Swizzle(span))
    assert made.encode() == start | leading << 16 | stride << 32 | {0: 0, 128: 1, 64: 2, 32: 3}[span] << 62
    assert Descriptor.decode(made.encode()) == made


def test_adding_to_the_code_moves_the_start():
    made = Descriptor(1024, 16, 1024, Swizzle(128))
    assert Descriptor.decode(made.encode() + (96 >> 4)) == Descriptor(1120, 16, 1024, Swizzle(128))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Swizzle(16), r"spans 0 \(none\), 32, 64 or 128 bytes, got 16"),
        (lambda: SwizzledTile("n", 8, 128, Swizzle(0)), "got 'n'"),
        (lambda: SwizzledTile("k", 12, 128, Swizzle(0)), "multiple of 8 lines, got 12"),
        (lambda: SwizzledTile("k", 0, 128, Swizzle(0)), "multiple of 8 lines, got 0"),
        (lambda: SwizzledTile("k", 8, 96, Swizzle(64)), "whole boxes of 64 bytes, got 96"),
        (lambda: Descriptor(8, 0, 0, Swizzle(0)), "start is a multiple of 16 bytes up to 262128, got 8"),
        (lambda: Descriptor(0, 1 << 18, 0, Swizzle(0)), "leading is a multiple of 16"),
        (lambda: Descriptor(0, 0, -16, Swizzle(0)), "stride is a multiple of 16"),
        (lambda: Descriptor.decode(1 << 64), "has 64 bits"),
        (lambda: Descriptor.decode(1 << 49), "base offset must be 0, got 1"),
        (lambda: Descriptor.decode(1 << 46), "unused bits are 0"),
        (lambda: describe(SwizzledTile("k", 8, 128, Swizzle(128)), 512), "multiple of 1024 bytes, got 0x200"),
        (lambda: describe(SwizzledTile("k", 8, 128, Swizzle(0)), 0, line=4), "multiple of 8 below 8, got 4"),
        (lambda: describe(SwizzledTile("k", 8, 128, Swizzle(0)), 0, line=8), "multiple of 8 below 8, got 8"),
        (lambda: describe(SwizzledTile("k", 8, 128, Swizzle(0)), 0, byte=8), "multiple of 16 below 128, got 8"),
        (lambda: describe(SwizzledTile("k", 8, 128, Swizzle(0)), 0, byte=128), "multiple of 16 below 128, got 128"),
        (lambda: Descriptor(96, 16, 1024, Swizzle(128)).chunks("k", 8, 64), "got a start 96 bytes into it"),
        (lambda: Descriptor(32, 16, 1024, Swizzle(128)).chunks("mn", 8, 128), "got a start 32 bytes into it"),
    ],
)
def test_errors_state_the_rule(make, message):
    with pytest.raises(ValueError, match=message):
        make()
