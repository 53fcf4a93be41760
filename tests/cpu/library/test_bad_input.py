"""Arrays that no product can read or write are refused, whichever option they come by; what is NaN stays NaN where it belongs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from support.fake_gpu import FakeGpu, FakeTorch, Tensor

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

M, N, K = 136, 16, 72


@pytest.fixture
def s(rng: np.random.Generator) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")


def options() -> dict[str, Tensor]:
    """An array for every option that takes one, of a linear product with N tokens."""
    return {
        "bias": Tensor((M,)),
        "dense_bias": Tensor((N,)),
        "scale": Tensor((M,), "float32"),
        "dense_scale": Tensor((N,), "float32"),
        "c": Tensor((N, M)),
        "out_scale": Tensor((1,), "float32"),
    }


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("name", options())
def test_every_option_is_on_the_operands_device(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, name: str, warm: bool
) -> None:
    x, y, given = Tensor((N, K)), Tensor((N, M)), options()
    if warm:
        louver.linear(x, s, out=y, **given)
        gpu.launches.clear()
    given[name].device.index = 1
    with pytest.raises(ValueError, match=f"{name} and x must be on one device, got cuda:1 and cuda:0"):
        louver.linear(x, s, out=y, **given)
    with pytest.raises(ValueError, match=f"{name} and x must be on one device, got the host and cuda:0"):
        louver.linear(x, s, out=y, **{**given, name: np.ones(given[name].shape, np.float32)})
    assert not gpu.launches


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("name", ["x", *options()])
def test_no_input_lies_under_the_output(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, name: str, warm: bool) -> None:
    x, y, given = Tensor((N, K)), Tensor((N, M)), options()
    if warm:
        louver.linear(x, s, out=y, **given)
        gpu.launches.clear()
    under = x if name == "x" else given[name]
    # By the last of its elements, and from the output's last one on.
    size = under.dtype.nbytes
    for address in (y.address - size * (int(np.prod(under.shape)) - 1), y.address + 2 * (N * M - 2)):
        under.address = address
        with pytest.raises(ValueError, match="out must not overlap an input, unless it is c itself"):
            louver.linear(x, s, out=y, **given)
    assert not gpu.launches


@pytest.mark.parametrize("name", ["x", "y", *options()])
def test_every_array_is_aligned_to_its_elements(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, name: str) -> None:
    x, y, given = Tensor((N, K)), Tensor((N, M)), options()
    louver.linear(x, s, out=y, **given)
    gpu.launches.clear()
    odd = {"x": x, "y": y, **given}[name]
    odd.address += 1
    with pytest.raises(ValueError, match=f"aligned to {odd.dtype.nbytes} bytes, got address"):
        louver.linear(x, s, out=y, **given)
    assert not gpu.launches


def test_host_arrays_may_lie_at_odd_addresses(s: SparseTensor, rng: np.random.Generator) -> None:
    def odd(array: np.ndarray) -> np.ndarray:
        moved = np.frombuffer(b"\0" + array.tobytes(), array.dtype, offset=1).reshape(array.shape)
        assert not moved.flags.aligned
        return moved

    x, bias = rng.standard_normal((N, K)).astype(np.float16), rng.standard_normal(M).astype(np.float16)
    np.testing.assert_array_equal(louver.linear(odd(x), s, odd(bias)), louver.linear(x, s, bias))


def corrupt(s: SparseTensor, code: int) -> SparseTensor:
    """The tensor with a code that no product can read in row 77, group 10."""
    indices = s.indices.copy()
    indices[77, 5] = indices[77, 5] & 0xF0 | code
    return replace(s, indices=indices)


@pytest.mark.parametrize("code", [0x0, 0x5, 0xF])
def test_indices_that_are_none_are_refused_on_a_device(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, code: int
) -> None:
    """Each time and in every way, before anything is launched."""
    bad, x = corrupt(s, code), Tensor((N, K))
    for call in (
        lambda: louver.linear(x, bad),
        lambda: louver.linear(x, bad),
        lambda: louver.plan("linear", bad, n=N, like=x),
        lambda: louver.prepare(bad, n=N),
    ):
        with pytest.raises(ValueError, match=f"got {code:#x} at row 77, group 10: compress"):
            call()
    assert not gpu.launches


def test_indices_that_are_none_are_refused_by_the_reference_path(s: SparseTensor) -> None:
    with pytest.raises(ValueError, match="row 77"):
        louver.linear(np.ones((N, K), np.float16), corrupt(s, 0x0))


NAN = float("nan")
ROW, TOKEN = 5, 3


def one_nan(size: int, at: int) -> np.ndarray:
    found = np.ones(size, np.float32)
    found[at] = NAN
    return found


def nan_c() -> np.ndarray:
    c = np.ones((N, M), np.float32)
    c[TOKEN, ROW] = NAN
    return c


NANS: dict[str, tuple[dict[str, Any], Any]] = {
    "alpha": ({"alpha": NAN}, np.s_[:]),
    "a number as scale": ({"scale": NAN}, np.s_[:]),
    "one element as scale": ({"scale": one_nan(1, 0)}, np.s_[:]),
    "a scale of rows": ({"scale": one_nan(M, ROW)}, np.s_[:, ROW]),
    "a scale of tokens": ({"dense_scale": one_nan(N, TOKEN)}, np.s_[TOKEN]),
    "out_scale": ({"out_scale": NAN}, np.s_[:]),
    "one element as out_scale": ({"out_scale": one_nan(1, 0)}, np.s_[:]),
    "bias": ({"bias": one_nan(M, ROW)}, np.s_[:, ROW]),
    "dense_bias": ({"dense_bias": one_nan(N, TOKEN)}, np.s_[TOKEN]),
    "c": ({"c": nan_c()}, np.s_[TOKEN, ROW]),
    "beta": ({"c": np.ones((N, M), np.float32), "beta": NAN}, np.s_[:]),
}


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("name", NANS)
def test_nan_shows_where_it_belongs(s: SparseTensor, rng: np.random.Generator, name: str, activation: Any) -> None:
    given, where = NANS[name]
    x = rng.standard_normal((N, K)).astype(np.float16)
    expected = np.zeros((N, M), bool)
    expected[where] = True
    for out in ("f16", "e4m3"):
        y = louver.linear(x, s, out_dtype=out, activation=activation, **given)
        np.testing.assert_array_equal(np.isnan(y.astype(np.float32)), expected)
    whole = louver.linear(x, s, out_dtype="s8", activation=activation, **given)
    assert not whole[expected].any(), "s8 has no NaN: it becomes 0"
