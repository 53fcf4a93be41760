"""A grid without programs launches nothing, as in Triton."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from support.autotune import decorated
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.jit import kept_kernel
from support.triton.cases import CASES
from support.tuned_calls import GRID, Clock
from support.tuned_calls import arguments as tuned_arguments

M, N, K = 128, 64, 64
EMPTY = [(0,), (0, 3), (2, 0), (1, 1, 0), lambda meta: (meta["N"] // (N + 1),), lambda meta: (2, np.int64(0))]


@pytest.fixture
def s(rng: np.random.Generator) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")


def arguments(s: SparseTensor, d: Any, b: Any) -> dict[str, Any]:
    sizes = {"M": M, "N": N, "K": K, "stride_a": K, "stride_b": K, "stride_d": N}
    return {"d": d, "a": s, "b": b, **sizes, **CASES["made_descriptors"].constexprs}


@pytest.mark.parametrize("grid", EMPTY)
def test_nothing_is_interpreted_or_emulated(s: SparseTensor, rng: np.random.Generator, grid: Any) -> None:
    d = rng.standard_normal((M, N)).astype(np.float16)
    before, kernel = d.copy(), kept_kernel("made_descriptors")
    known = arguments(s, d, rng.standard_normal((N, K)).astype(np.float16))
    assert kernel[grid](**known) is None
    report = kernel.emulate[grid](**known)
    assert (report.products, report.bulk_loads, report.instructions.total(), len(report.executed)) == (0, 0, 0, 0)
    np.testing.assert_array_equal(d, before)


@pytest.mark.parametrize("grid", EMPTY)
def test_nothing_is_launched_before_or_after_a_launch(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, grid: Any
) -> None:
    known, kernel = arguments(s, Tensor((M, N)), Tensor((N, K))), kept_kernel("made_descriptors")
    kernel[grid](**known)
    kernel.prepare[grid](**known)
    assert not gpu.launches and not kernel._source.asked, "not even compiled"  # type: ignore[attr-defined]
    kernel[(1, 1)](**known)
    kernel[grid](**known)
    kernel[lambda meta: (1, 1)](**known)
    assert len(gpu.launches) == 2


@pytest.mark.parametrize("grid", [(0,), lambda meta: (0, meta["N"])])
def test_nothing_is_tuned(gpu: FakeGpu, clock: Clock, s: SparseTensor, rng: np.random.Generator, grid: Any) -> None:
    kernel, _ = decorated()
    known = tuned_arguments(
        louver.compress(rng.standard_normal((200, 256)).astype(np.float16), "2:4", method="magnitude")
    )
    kernel[grid](**known)
    kernel.prepare[grid](**known)
    assert not clock.timed and not gpu.launches
    kernel[GRID](**known)
    assert clock.timed


def test_arguments_are_checked_all_the_same(s: SparseTensor) -> None:
    with pytest.raises(TypeError, match="the argument 'b': "):
        kept_kernel("made_descriptors")[(0,)](**arguments(s, np.zeros((M, N), np.float16), object()))
