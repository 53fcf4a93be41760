"""A known call is launched at once, and yet refused when PyTorch records it or its memory is gone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from support.fake_gpu import FakeGpu, FakeTorch, Parameter, Tensor

M, N, K = 136, 16, 72
NO_GRADIENT = (
    "only louver.linear has a gradient, of x and bias after `import louver.torch`, got a tensor that requires one"
)

pytestmark = pytest.mark.usefixtures("without_louver_torch")


@pytest.fixture
def s(rng: np.random.Generator) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")


@pytest.fixture(params=[True, False], ids=["guards", "keys"])
def torch_of(request: pytest.FixtureRequest, torch: FakeTorch) -> FakeTorch:
    """PyTorch with and without guards of tensors."""
    if not request.param:
        del torch._C._dynamo
    return torch


def recording(tensor: Tensor) -> Tensor:
    tensor.requires_grad = True
    return tensor


def calls_of(s: SparseTensor, bias: Any) -> list[Any]:
    plan = louver.plan("linear", s, n=N, bias=Tensor((M,)) if bias is None else bias, like=Tensor((N, K)))
    return [lambda x, bias, y: louver.linear(x, s, bias, out=y), lambda x, bias, y: plan(x, out=y)]


@pytest.mark.parametrize("number", [0, 1])
def test_a_call_seen_without_gradients_is_refused_with_them(
    gpu: FakeGpu, torch_of: FakeTorch, s: SparseTensor, number: int
) -> None:
    call = calls_of(s, None)[number]
    x, y = Tensor((N, K)), Tensor((N, M))
    for _ in range(3):
        call(x, None, y)
    for given in ((recording(Tensor((N, K))), None, y), (x, None, recording(Tensor((N, M))))):
        with pytest.raises(ValueError, match=NO_GRADIENT):
            call(*given)
    assert len(gpu.launches) == 3
    torch_of.gradients = False
    call(recording(Tensor((N, K))), None, y)
    assert len(gpu.launches) == 4


@pytest.mark.parametrize("number", [0, 1])
def test_a_parameter_seen_without_gradients_is_refused_when_they_are_enabled(
    gpu: FakeGpu, torch_of: FakeTorch, s: SparseTensor, checked: list[str], number: int
) -> None:
    bias = recording(Parameter((M,)))
    torch_of.gradients = False
    call = calls_of(s, bias)[number]
    x, y = Tensor((N, K)), Tensor((N, M))
    for _ in range(4):
        call(x, bias, y)
    assert len(gpu.launches) == 4 and len(checked) == 1, "known under no_grad"
    torch_of.gradients = True
    with pytest.raises(ValueError, match=f"bias: .*{NO_GRADIENT}"):
        call(x, bias, y)
    assert len(gpu.launches) == 4


def test_a_known_call_in_a_trace_is_refused(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    del torch._C._dynamo
    x, y = Tensor((N, K)), Tensor((N, M))
    louver.linear(x, s, out=y)
    torch.tracing = object()
    with pytest.raises(ValueError, match="a trace would keep the result"):
        louver.linear(x, s, out=y)
    assert len(gpu.launches) == 1


def test_known_tensors_whose_storage_was_freed_are_refused(gpu: FakeGpu, torch_of: FakeTorch, s: SparseTensor) -> None:
    """Address 0 is aligned as any other."""
    x, y = Tensor((N, K)), Tensor((N, M))
    louver.linear(x, s, out=y)
    gone = [Tensor(shape, address=0) for shape in ((N, K), (N, M))]
    for each in gone:
        each.held = 0
    for given in ((gone[0], y), (x, gone[1])):
        with pytest.raises(
            ValueError, match="storage must hold its elements, .* got a storage of 0 bytes: it was freed"
        ):
            louver.linear(given[0], s, out=given[1])
    assert len(gpu.launches) == 1
