"""PyTorch tensors on a GPU: gradients and tensors without memory are refused, results are symmetric, torch.compile breaks."""

from __future__ import annotations

from typing import Any

import pytest

import louver
from louver.formats.dynamo import REASON

M, N, K = 256, 64, 512
NO_GRADIENT = (
    "only louver.linear has a gradient, of x and bias after `import louver.torch`, got a tensor that requires one"
)

pytestmark = pytest.mark.usefixtures("without_louver_torch")


@pytest.fixture
def w(torch: Any) -> Any:
    return louver.prune(torch.randn(M, K, device="cuda", dtype=torch.bfloat16), "2:4")


def made(torch: Any, *shape: int) -> Any:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def test_a_call_seen_without_gradients_is_refused_with_them(torch: Any, w: Any) -> None:
    s, bias = louver.compress(w, "2:4"), torch.nn.Parameter(made(torch, M))
    x = made(torch, N, K)
    p = louver.plan("linear", s, n=N, like=x, bias=bias.detach())
    for call in (lambda x, b: louver.linear(x, s, b), lambda x, b: p(x)):
        with torch.no_grad():
            expected = [call(x, bias) for _ in range(4)][-1]
            assert not expected.requires_grad
        with pytest.raises(ValueError, match=NO_GRADIENT):
            call(x.clone().requires_grad_(), bias.detach())
        for _ in range(3):
            assert torch.equal(call(x, bias.detach()), expected)
    with pytest.raises(ValueError, match=f"bias: .*{NO_GRADIENT}"):
        louver.linear(x, s, bias)


def test_weights_are_data_and_results_are_on_the_gpu(torch: Any) -> None:
    layer = torch.nn.Linear(K, M, device="cuda", dtype=torch.bfloat16)
    kept = louver.prune(layer.weight, "2:4")
    s = louver.compress(layer.weight, "2:4", method="magnitude")
    assert kept.is_cuda and kept.dtype == torch.bfloat16 and not kept.requires_grad
    assert torch.equal(s.dense(), kept) and torch.equal(s.to("cpu").dense(), kept.cpu())
    assert louver.check(torch.nn.Parameter(kept), "2:4")
    with pytest.raises(ValueError, match="would lose its history"):
        louver.prune(layer.weight * 2, "2:4")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"])
def test_pruning_is_the_same_on_both_sides(torch: Any, dtype: str) -> None:
    w = (8 * torch.randn(M, K)).to(getattr(torch, dtype))
    here, there = louver.prune(w, "2:4"), louver.prune(w.cuda(), "2:4")
    assert here.dtype == there.dtype == w.dtype and not here.is_cuda and there.is_cuda
    assert torch.equal(here.view(torch.uint8), there.cpu().view(torch.uint8))


def test_freed_and_transformed_tensors_are_refused_when_known_too(torch: Any, w: Any) -> None:
    s, x = louver.compress(w, "2:4"), made(torch, N, K)
    for _ in range(3):
        louver.linear(x, s)
    freed = made(torch, N, K)
    freed.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="x: the tensor's storage must hold its elements.*got a storage of 0 bytes"):
        louver.linear(freed, s)
    with pytest.raises(ValueError, match="x: a tensor needs memory of its own"):
        torch.vmap(lambda each: louver.linear(each, s))(made(torch, 3, N, K))
    with pytest.raises(ValueError, match="x: a trace would keep the result"):
        torch.jit.trace(lambda each: louver.linear(each, s), (x,))


def test_compiled_models_give_the_eager_result(torch: Any, w: Any) -> None:
    s, x = louver.compress(w, "2:4"), made(torch, N, K)

    def model(x: Any) -> Any:
        return torch.relu(louver.linear(x * 2, s)) + (x @ s.T)

    expected = model(x)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        assert torch.equal(compiled(x), expected)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=REASON):
        torch.compile(model, backend="eager", fullgraph=True)(x)
