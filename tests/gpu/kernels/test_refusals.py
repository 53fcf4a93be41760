from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from support.device_products import to_numpy, to_torch, torch_dtype
from support.refusals import REFUSALS, K, M, N, Refusal, sparse


class OnDevice:
    """torch on the device as the refusals see it."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def full(self, shape: tuple[int, ...], dtype: str, value: float = 1.0) -> Any:
        return self.torch.full(shape, value, dtype=torch_dtype(dtype), device="cuda")

    def repeated(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.expand(shape)

    def bytes(self, x: Any) -> bytes:
        return to_numpy(x).tobytes()


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda r: r.name)
def test_refused_before_anything_is_written(torch: Any, refusal: Refusal) -> None:
    library = OnDevice(torch)
    out = library.full((M, N) if refusal.kind == "matmul" else (N, M), "f16", np.nan)
    before = library.bytes(out)
    with pytest.raises(refusal.error, match=refusal.match):
        refusal.call(library, out)
    assert library.bytes(out) == before


@pytest.fixture
def x() -> Any:
    return to_torch(np.ones((N, K), np.float16))


def test_operands_of_two_places(x: Any, torch: Any) -> None:
    out = np.full((N, M), np.nan, np.float16)
    with pytest.raises(ValueError, match="out must be on the inputs' device"):
        louver.linear(x, sparse(), out=out)
    assert np.isnan(out).all()
    on_device = torch.full((N, M), float("nan"), dtype=torch.float16, device="cuda")
    with pytest.raises(ValueError, match="out must be on the inputs' device"):
        louver.linear(np.ones((N, K), np.float16), sparse(), out=on_device)
    with pytest.raises(ValueError, match="bias and x must be on one device, got the host and cuda:0"):
        louver.linear(x, sparse(), np.ones(M, np.float16), out=on_device)
    assert on_device.isnan().all()


def test_a_strided_bias(x: Any) -> None:
    bias = to_torch(np.ones(2 * M, np.float16))[::2]
    with pytest.raises(ValueError, match="bias must be contiguous, got stride 2"):
        louver.linear(x, sparse(), bias)


def test_leading_axes_that_no_stride_walks(x: Any) -> None:
    tokens = x.reshape(4, 6, K).transpose(0, 1)
    with pytest.raises(ValueError, match="leading axes of x must be walkable by one stride"):
        louver.linear(tokens, sparse())
    out = to_torch(np.ones((4, 6, M), np.float16)).transpose(0, 1)
    with pytest.raises(ValueError, match="leading axes of out must be walkable"):
        louver.linear(x.reshape(6, 4, K), sparse(), out=out)
    assert (to_numpy(out) == 1).all()


def test_an_out_read_by_steps(torch: Any) -> None:
    b = to_torch(np.ones((K, N), np.float16))
    out = torch.zeros(M, 2 * N, dtype=torch.float16, device="cuda")
    with pytest.raises(ValueError, match="rows must be contiguous"):
        louver.matmul(sparse(), b, out=out[:, ::2])
    assert not out.any()
