"""Reports of kernels that compute addresses, as a recording device launches them."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver
from louver.runtime.violations import AddressError, page_of
from support.fake_gpu import FakeGpu, FakeTorch, Tensor

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

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
