"""Users' kernels on GPUs without warpgroup products: the same call launches register tiles for the target of the GPU."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import louver
from louver.ir.conditions import Conditions
from louver.library.compiled import _loaded
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.jit import kept_kernel
from support.tile_gpu import TileGpu
from support.triton.cases import CASES

M, N, K = 200, 96, 256


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9), (10, 0), (12, 0), (12, 1)])
def test_a_product_runs_by_register_tiles(
    gpu: FakeGpu,
    torch: FakeTorch,
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    capability: tuple[int, int],
) -> None:
    TileGpu(gpu, monkeypatch, capability)
    s = louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")
    sizes = {"M": M, "N": N, "K": K, "stride_a": K, "stride_b": K, "stride_d": N}
    arrays = {"d": Tensor((M, N)), "a": s, "b": Tensor((N, K))}
    kernel, constants = kept_kernel("made_descriptors"), CASES["made_descriptors"].constexprs
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel[(2, 2)](**arrays, **sizes, **constants)
    (launch,) = gpu.launches
    assert launch.arguments["d"] == arrays["d"].address and launch.grid == 2
    said = kernel.explain(**arrays, **sizes, **constants)
    major, minor = capability
    assert said.family == "register tiles" and said.reasons is not None
    assert said.reasons.detect.startswith("'a' of f16 holds 2:4, promised") and "the dot" in said.reasons.select
    assert f"register tiles on sm_{major}{minor}" in said.reasons.select
    (found,) = _loaded().values()
    assert isinstance(found.launch.checked, Conditions) and found.launch.schedule is None
