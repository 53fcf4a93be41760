"""Convolutions whose kernels put a place of the filter together from its channel, row and column."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import louver
from louver.ir.refusal import UnsupportedKernelError
from louver.runtime.violations import AddressError

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.convolutions import by_digits, by_taps, channels_first, channels_last, in_two_arms


def expected(x: NDArray[np.float16], w: NDArray[np.float16]) -> NDArray[np.float64]:
    """The convolution of x[c, h, w] with w[o, c, h, w], as [places, o]."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape[2:], axis=(1, 2))
    return np.einsum("cpqhw,ochw->pqo", windows, w.astype(np.float64)).reshape(-1, len(w))


def of_strides(
    rng: np.random.Generator, channels: int, out: int, side: int, strides: tuple[int, int, int]
) -> tuple[Any, ...]:
    """The arguments of a convolution with these strides of channels, rows and columns of a filter, and the sparse weight."""
    x = rng.standard_normal((channels, 9, 11)).astype(np.float16)
    s = louver.compress(louver.prune(rng.standard_normal((out, channels * side**2)).astype(np.float16), "2:4"), "2:4")
    oh, ow = 10 - side, 12 - side
    y = np.full((oh * ow, out), np.nan, np.float32)
    return x, s, y, channels, 9, 11, out, oh, ow, side, side, 99, 11, 1, channels * side**2, *strides


@pytest.mark.parametrize("tile", [{"BM": 64, "BN": 32, "BK": 32}, {"BM": 32, "BN": 64, "BK": 64}])
@pytest.mark.parametrize(("channels", "out", "side"), [(8, 40, 3), (12, 24, 2)])
def test_a_filter_is_read_by_channel_row_and_column(
    rng: np.random.Generator, channels: int, out: int, side: int, tile: dict[str, int]
) -> None:
    given, kernel = of_strides(rng, channels, out, side, (side**2, side, 1)), louver.jit(channels_first)
    x, s, y = given[:3]
    grid = -(-len(y) // tile["BM"]), -(-out // tile["BN"])
    assert "computed addresses" not in str(kernel.explain[grid](*given, **tile))
    kernel.emulate[grid](*given, **tile)
    np.testing.assert_allclose(y, expected(x, s.dense().reshape(out, channels, side, side)), rtol=1e-3, atol=2e-2)


def test_other_strides_of_a_filter_are_no_neighbours(rng: np.random.Generator) -> None:
    given = of_strides(rng, 8, 40, 3, (1, 24, 8))
    with pytest.raises(AddressError, match="neighbours along the sparse axis"):
        louver.jit(channels_first).emulate[1, 2](*given, BM=64, BN=32, BK=32)


def along_taps(rng: np.random.Generator, channels: int, axis: int) -> tuple[Any, ...]:
    """The arguments of `by_taps` with filters [OUT, C, 4] that are sparse along an axis, and what it should give."""
    x = rng.standard_normal((21, channels)).astype(np.float16)
    turned = np.swapaxes(rng.standard_normal((24, channels, 4)).astype(np.float16), axis, 2)
    w = np.ascontiguousarray(np.swapaxes(louver.prune(turned, "2:4"), axis, 2))
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), 4, axis=0)
    y = np.full((18, 24), np.nan, np.float32)
    given = x, louver.compress(w, "2:4", axis=axis), y, channels, 21, 24
    return given, np.einsum("pct,oct->po", windows, w.astype(np.float64))


@pytest.mark.parametrize(("channels", "told"), [(48, 16), (16, 16), (24, 4)])
def test_channels_that_a_filter_keeps_apart_are_the_sparse_axis(
    rng: np.random.Generator, channels: int, told: int
) -> None:
    """A number of channels that 16 divides begins a tap at a whole piece."""
    given, right = along_taps(rng, channels, 1)
    kernel, tile = louver.jit(by_taps), {"TAPS": 4, "BM": 32, "BN": 32, "BK": 32}
    assert f"w is read at computed addresses, in pieces of {told} bytes" in str(kernel.explain[1, 1](*given, **tile))
    if channels % 16:
        with pytest.raises(AddressError, match="16 neighbours along the sparse axis"):
            kernel.emulate[1, 1](*given, **tile)
    else:
        kernel.emulate[1, 1](*given, **tile)
        np.testing.assert_allclose(given[2], right, rtol=1e-3, atol=2e-2)


def test_a_sum_across_the_sparse_axis_is_refused(rng: np.random.Generator) -> None:
    """All its pieces would break the rule: the refusal says how to compress."""
    given, _ = along_taps(rng, 48, 2)
    with pytest.raises(
        UnsupportedKernelError,
        match=r"these elements are 4 apart in memory, got .*: compress the tensor along the axis",
    ):
        louver.jit(by_taps).emulate[1, 1](*given, TAPS=4, BM=32, BN=32, BK=32)


@pytest.mark.parametrize(("channels", "side"), [(8, 3), (12, 2)])
def test_a_filter_is_masked_by_channel_row_and_column(rng: np.random.Generator, channels: int, side: int) -> None:
    x, s, y, _, _, w, out, oh, ow, *_ = of_strides(rng, channels, 40, side, (0, 0, 0))
    given, kernel, grid = (
        (x, s, y, channels, w, out, oh, ow, side, side, 99, side**2, side),
        louver.jit(by_digits),
        (-(-len(y) // 64), 2),
    )
    tile = {"BM": 64, "BN": 32, "BK": 32}
    assert "computed addresses" not in str(kernel.explain[grid](*given, LEFT=0, **tile))
    kernel.emulate[grid](*given, LEFT=0, **tile)
    np.testing.assert_allclose(y, expected(x, s.dense().reshape(out, channels, side, side)), rtol=1e-3, atol=2e-2)
    # Columns that are left out are no whole pieces.
    with pytest.raises(AddressError, match="with one mask"):
        kernel.emulate[grid](*given, LEFT=1, **tile)


def test_a_tile_of_the_image_is_loaded_once(rng: np.random.Generator) -> None:
    given = of_strides(rng, 8, 64, 3, (9, 3, 1))
    text = louver.jit(channels_first).explain[1, 1](*given, BM=64, BN=64, BK=32, num_warps=4).ptx
    loop = text[text.index("\nloop_") :]
    # A thread copies single elements of the filter's values, 64 by 16, only where their address is odd.
    assert len(re.findall(r"st\.shared\S*\.b16", loop)) == 64 * 32 // 128 + 64 * 16 // 128


@pytest.mark.parametrize("tile", [{"BM": 128, "BN": 32, "BK": 64}, {"BM": 64, "BN": 64, "BK": 32}])
def test_taps_of_a_filter_pass_the_border(rng: np.random.Generator, tile: dict[str, int]) -> None:
    channels, h, w, out = 72, 7, 9, 40
    x = rng.standard_normal((h, w, channels)).astype(np.float16)
    filters = louver.prune(rng.standard_normal((out, 9 * channels)).astype(np.float16), "2:4")
    s, y, kernel = louver.compress(filters, "2:4"), np.full((h * w, out), np.nan, np.float32), louver.jit(channels_last)
    given = (x, s, y, channels, h, w, out, h, w, 9 * channels)
    kernel.emulate[-(-h * w // tile["BM"]), -(-out // tile["BN"])](*given, KH=3, KW=3, **tile)
    image = np.pad(x, ((1, 1), (1, 1), (0, 0))).transpose(2, 0, 1)
    dense = filters.reshape(out, 3, 3, channels).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(y, expected(image, dense), rtol=1e-3, atol=3e-2)


def test_conditions_of_rows_leave_the_loop(rng: np.random.Generator) -> None:
    channels, h, w, out = 128, 7, 9, 32
    x, y = rng.standard_normal((h, w, channels)).astype(np.float16), np.zeros((h * w, out), np.float32)
    s = louver.compress(louver.prune(rng.standard_normal((out, 9 * channels)).astype(np.float16), "2:4"), "2:4")
    given = (x, s, y, channels, h, w, out, h, w, 9 * channels)
    text = louver.jit(channels_last).explain[1, 1](*given, KH=3, KW=3, BM=128, BN=32, BK=64).ptx
    loop = text[text.rindex("\nloop_", 0, text.index("mma.sp")) : text.index("mma.sp")]
    assert re.findall(r"setp\.(\w+)\.s32", loop) == ["lt"]
    assert loop.count("setp.ne.u32") == loop.count("cp.async.cg") == 128 * 64 * 2 // (128 * 16) * 2


def test_conditions_are_kept_for_each_loop(rng: np.random.Generator) -> None:
    channels, h, w, out, first = 128, 16, 12, 24, 64
    x, y = rng.standard_normal((h, w, channels)).astype(np.float16), np.full((h * w, out), np.nan, np.float32)
    s = louver.compress(louver.prune(rng.standard_normal((out, channels)).astype(np.float16), "2:4"), "2:4")
    given = (x, s, y, channels, h, w, out, first)
    louver.jit(in_two_arms).emulate[-(-h * w // 64),](*given, BM=64, BN=32, BK=64)
    image = x.astype(np.float64)
    image[1:-1, 1:-1] = 0
    image = image.reshape(-1, channels)
    odd = np.arange(h * w) // 64 % 2 == 1
    image[odd, :first] = 0
    image[odd] *= -1
    np.testing.assert_allclose(y, image @ s.dense().astype(np.float64).T, rtol=1e-3, atol=1e-2)
