"""A user's kernel writes its outputs in place, which PyTorch does not see: with gradients or in a trace it is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.jit import kept_kernel
from support.triton.cases import CASES

M, N, K = 200, 96, 256
NO_GRADIENT = "the argument '{}': only louver.linear has a gradient, of x and bias after `import louver.torch`, got a tensor that requires one"


@pytest.fixture
def s(rng: np.random.Generator) -> louver.SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")


def arguments(s: louver.SparseTensor, **changes: Any) -> dict[str, Any]:
    sizes = {"M": M, "N": N, "K": K, "stride_a": K, "stride_b": K, "stride_d": N}
    arrays: dict[str, Any] = {"d": Tensor((M, N)), "a": s, "b": Tensor((N, K))}
    return {**arrays, **sizes, **CASES["made_descriptors"].constexprs, **changes}


@pytest.mark.parametrize("positional", [False, True])
@pytest.mark.parametrize("name", ["b", "d"])
def test_a_kernel_seen_without_gradients_is_refused_with_them(
    gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor, name: str, positional: bool
) -> None:
    kernel, known = kept_kernel("made_descriptors"), arguments(s)

    def call() -> None:
        order = [each.name for each in kernel._parameters]
        if positional:
            kernel[(2, 2)](*[known[each] for each in order])
        else:
            kernel[(2, 2)](**known)

    call()
    call()
    known[name].requires_grad = True
    with pytest.raises(ValueError, match=NO_GRADIENT.format(name)):
        call()
    assert len(gpu.launches) == 2
    torch.gradients = False
    call()
    assert len(gpu.launches) == 3


def test_a_known_kernel_in_a_trace_is_refused(gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor) -> None:
    kernel, known = kept_kernel("made_descriptors"), arguments(s)
    kernel[(2, 2)](**known)
    torch.tracing = object()
    with pytest.raises(ValueError, match="a trace would keep the result of Louver"):
        kernel[(2, 2)](**known)
    assert len(gpu.launches) == 1
