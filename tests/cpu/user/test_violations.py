"""Reports of kernels that compute addresses, as a recording device launches them."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver
from louver.runtime.violations import AddressError, page_of
from louver.user import timing
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.tuned_calls import Clock

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

from support.triton.forms.addresses import rows_by

M, N, K, HELD = 32, 64, 128, 80


@pytest.fixture
def known(rng: np.random.Generator) -> dict[str, Any]:
    s = louver.compress(louver.prune(rng.standard_normal((HELD, K)).astype(np.float16), "2:4"), "2:4")
    lists = {name: Tensor.of(np.zeros(size, np.int32)) for name, size in (("table", N), ("bounds", 2))}
    arrays = {"y": Tensor((M, N)), "x": Tensor((M, K)), **lists}
    numbers = {"M": M, "N": N, "K": K, "rows_held": HELD, "apart": 1}
    return {**arrays, "w": s, **numbers, "AT": "listed", "PAGE": 16, "BM": 32, "BN": 32, "BK": 64}


def test_a_launch_binds_values_codes_and_page(gpu: FakeGpu, torch: FakeTorch, known: dict[str, Any]) -> None:
    louver.jit(rows_by)[(1, 2)](**known)
    read = gpu.launches[-1].arguments
    page = page_of("rows_by", 0)
    assert read["violations_flag"] == page.address
    assert read["w_count"] == HELD * K
    assert page.address + 16 == (read["w"] + 2 * read["w_nan"]) & (1 << 64) - 1
    codes = known["w"].indices.tobytes()
    assert gpu.called("cuMemcpyHtoDAsync") and len(codes) == HELD * K // 8


def test_a_report_is_raised_once_at_the_next_call(gpu: FakeGpu, torch: FakeTorch, known: dict[str, Any]) -> None:
    kernel = louver.jit(rows_by)
    kernel[(1, 2)](**known)
    page = page_of("rows_by", 0)
    page.data[0] = 1
    with pytest.raises(AddressError, match="rows_by read a sparse tensor at a computed address against this rule"):
        kernel[(1, 2)](**known)
    kernel[(1, 2)](**known)
    page.data[0] = 1
    with pytest.raises(AddressError):
        louver.jit(rows_by)[(1, 2)](**{**known, "M": M - 1})


def test_synchronize_waits_and_raises(gpu: FakeGpu, torch: FakeTorch, known: dict[str, Any]) -> None:
    louver.jit(rows_by)[(1, 2)](**known)
    louver.synchronize()
    assert gpu.called("cuCtxSynchronize")
    page_of("rows_by", 0).data[0] = 1
    with pytest.raises(AddressError, match="mask rows and columns outside"):
        louver.synchronize()
    louver.synchronize()


def test_a_product_raises_reports(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, known: dict[str, Any]
) -> None:
    louver.jit(rows_by)[(1, 2)](**known)
    page_of("rows_by", 0).data[0] = 1
    s = louver.compress(louver.prune(rng.standard_normal((64, 128)).astype(np.float16), "2:4"), "2:4")
    before = len(gpu.launches)
    with pytest.raises(AddressError):
        louver.matmul(s, Tensor((128, 32)))
    assert len(gpu.launches) == before
    louver.matmul(s, Tensor((128, 32)))


@pytest.mark.parametrize("hooked", [False, True])
def test_an_autotuned_kernel_raises_reports(
    gpu: FakeGpu, torch: FakeTorch, clock: Clock, known: dict[str, Any], hooked: bool
) -> None:
    """A known call with a hook tries other configs after a refusal. A report is none."""
    clock.seconds["rows_by"] = 0.5
    tile, hook = {"BM": 32, "BN": 32, "BK": 64}, (lambda named: None) if hooked else None
    configs = [triton.Config(tile, pre_hook=hook), triton.Config({**tile, "BK": 32}, pre_hook=hook)]
    given = {name: value for name, value in known.items() if name not in tile}
    louver.jit(rows_by)[(1, 2)](**known)
    page = page_of("rows_by", 0)
    page.data[0] = 1
    kernel = louver.jit(triton.autotune(configs, key=["M"])(rows_by))
    before = len(gpu.launches)
    with pytest.raises(AddressError):
        kernel[(1, 2)](**given)
    assert len(gpu.launches) == before
    kernel[(1, 2)](**given)
    kernel[(1, 2)](**given)
    page.data[0] = 1
    before = len(gpu.launches)
    with pytest.raises(AddressError):
        kernel[(1, 2)](**given)
    assert len(gpu.launches) == before


@triton.jit
def beside(y, x, w, v, rows, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """y [TM, N] = x [TM, K] by rows of w from a list, and by all rows of v."""
    m, n, k = tl.arange(0, TM), tl.program_id(0) * TN + tl.arange(0, TN), tl.arange(0, TK)
    row = tl.load(rows + n, mask=n < N, other=0)
    mask = (n < N)[:, None] & (k < K)[None, :]
    one = tl.load(x + m[:, None] * K + k[None, :], mask=(k < K)[None, :], other=0.0)
    two = tl.load(w + row[:, None] * K + k[None, :], mask=mask, other=0.0)
    more = tl.load(v + n[:, None] * K + k[None, :], mask=mask, other=0.0)
    tl.store(y + m[:, None] * N + n[None, :], tl.dot(one, two.T) + tl.dot(one, more.T), mask=(n < N)[None, :])


def test_a_call_that_finds_raises_reports(
    gpu: FakeGpu,
    torch: FakeTorch,
    rng: np.random.Generator,
    known: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sparse tensor at computed addresses stands beside an argument that is found."""

    def faster(trials: Any, ordinal: int, stream: int) -> list[float]:
        return [1.0, 2.0]

    monkeypatch.setattr(timing, "measure", faster)
    w = louver.compress(louver.prune(rng.standard_normal((HELD, 64)).astype(np.float16), "2:4"), "2:4")
    v = Tensor.of(louver.prune(rng.standard_normal((48, 64)).astype(np.float16), "2:4"))
    rows = Tensor.of(np.zeros(48, np.int32))
    given = Tensor((16, 48)), Tensor((16, 64)), w, v, rows, 48, 64
    kernel, tile = louver.jit(beside, find=("v",)), {"TM": 16, "TN": 16, "TK": 64}
    louver.jit(rows_by)[(1, 2)](**known)
    page_of("rows_by", 0).data[0] = 1
    with pytest.raises(AddressError, match="rows_by"):
        kernel[(3,)](*given, **tile)
    kernel[(3,)](*given, **tile)
    page_of("beside", 0).data[0] = 1
    before = len(gpu.launches)
    with pytest.raises(AddressError, match="beside"):
        kernel[(3,)](*given, **tile)
    assert len(gpu.launches) == before
