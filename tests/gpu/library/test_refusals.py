from __future__ import annotations

from dataclasses import replace
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

    def strided(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        return x.as_strided(shape, strides)

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
    with pytest.raises(ValueError, match=r"bias must be contiguous, got shape \[70\], strides \[2\]"):
        louver.linear(x, sparse(), bias)


def test_outputs_that_no_stride_walks(x: Any, torch: Any) -> None:
    out = torch.ones(2, 5, 5, M, dtype=torch.float16, device="cuda")[:, :3, :4]
    with pytest.raises(ValueError, match="tokens are one axis, or a batch and an axis of tokens"):
        louver.linear(x.reshape(2, 3, 4, K), sparse(), out=out)
    b = torch.ones(2, 3, K, N, dtype=torch.float16, device="cuda")
    columns = torch.ones(2, 5, M, N, dtype=torch.float16, device="cuda")[:, :3]
    with pytest.raises(ValueError, match="a batch is one axis, each with one stride"):
        louver.matmul(sparse(), b, out=columns)
    over = columns.flatten()[: 3 * M * N].as_strided((3, M, N), (M * N - N, N, 1))
    with pytest.raises(ValueError, match="its elements must not overlap each other"):
        louver.matmul(sparse(), b[0], out=over)
    assert (out == 1).all() and (columns == 1).all()


def test_an_out_read_by_steps(torch: Any) -> None:
    b = to_torch(np.ones((K, N), np.float16))
    out = torch.zeros(M, 2 * N, dtype=torch.float16, device="cuda")
    with pytest.raises(ValueError, match="rows must be contiguous"):
        louver.matmul(sparse(), b, out=out[:, ::2])
    assert not out.any()


def test_indices_that_are_none(x: Any, torch: Any) -> None:
    good = sparse()
    indices = good.indices.copy()
    indices[7, 2] &= 0xF0
    bad, out = replace(good, indices=indices), torch.full((N, M), float("nan"), dtype=torch.float16, device="cuda")
    for call in (
        lambda: louver.linear(x, bad, out=out),
        lambda: louver.linear(x, bad, out=out),
        lambda: louver.plan("linear", bad, n=N, like=x),
    ):
        with pytest.raises(ValueError, match="got 0x0 at row 7, group 4: compress"):
            call()
    assert out.isnan().all()
    assert louver.linear(x, good, out=out).isfinite().all(), "what was refused leaves nothing behind"


def test_operands_of_two_devices(x: Any, torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")
    far = x.to("cuda:1")
    with pytest.raises(ValueError, match="out must be on the inputs' device"):
        louver.linear(far, sparse(), out=torch.empty(N, M, dtype=torch.float16, device="cuda:0"))
    with pytest.raises(ValueError, match="bias and x must be on one device, got cuda:0 and cuda:1"):
        louver.linear(far, sparse(), torch.ones(M, dtype=torch.float16, device="cuda:0"))
    s = sparse()
    for _ in range(2):
        here, there = louver.linear(x, s), louver.linear(far, s)
        assert there.device.index == 1 and torch.equal(here.cpu(), there.cpu())
