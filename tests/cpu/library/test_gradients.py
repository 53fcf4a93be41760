"""Without `louver.torch` there are no gradients: a call that PyTorch would record is refused, and weights are data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor

torch = pytest.importorskip("torch")

M, N, K = 12, 8, 20
NO_GRADIENT = r"only louver.linear has a gradient, of x and bias after `import louver.torch`, got a tensor that requires one .*no_grad\(\), or give the tensor's detach\(\)"

pytestmark = pytest.mark.usefixtures("without_louver_torch")


@pytest.fixture
def s(rng: np.random.Generator) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float32), "2:8"), "2:8")


def made(*shape: int) -> Any:
    return torch.randn(shape)


OPERANDS = {
    "x": (N, K),
    "bias": (M,),
    "dense_bias": (N,),
    "scale": (M,),
    "dense_scale": (N,),
    "c": (N, M),
    "out_scale": (1,),
    "out": (N, M),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_an_operand_that_requires_a_gradient_is_refused_by_its_name(s: SparseTensor, name: str) -> None:
    given = {"x": made(*OPERANDS["x"]), name: made(*OPERANDS[name]).requires_grad_()}
    with pytest.raises(ValueError, match=f"^{name}: .*{NO_GRADIENT}"):
        louver.linear(given.pop("x"), s, **given)


@pytest.mark.filterwarnings("ignore:louver computes")
def test_plans_and_their_calls_refuse_gradients(s: SparseTensor) -> None:
    with pytest.raises(ValueError, match=f"^bias: .*{NO_GRADIENT}"):
        louver.plan("matmul", s, n=N, bias=made(M).requires_grad_())
    with pytest.raises(ValueError, match=f"^b: .*{NO_GRADIENT}"):
        louver.plan("matmul", s, n=N, like=made(K, N).requires_grad_())
    p = louver.plan("matmul", s, n=N, c=made(M, N))
    for name, options in {
        "b": {},
        "c": {"c": made(M, N).requires_grad_()},
        "out": {"out": made(M, N).requires_grad_()},
    }.items():
        x = made(K, N).requires_grad_(name == "b")
        with pytest.raises(ValueError, match=f"^{name}: .*{NO_GRADIENT}"):
            p(x, **options)
    with torch.no_grad():
        assert p(made(K, N).requires_grad_()).shape == (M, N)


@pytest.mark.filterwarnings("ignore:louver computes")
def test_every_product_refuses_an_activation_with_a_gradient(s: SparseTensor) -> None:
    x = made(N, K).requires_grad_()
    for product in (
        lambda: louver.linear(x, s),
        lambda: louver.matmul(s, x.T),
        lambda: louver.matmul(x, s.T),
        lambda: x @ s.T,
        lambda: s @ x.T,
        lambda: louver.linear(x * 2, s),
    ):
        with pytest.raises(ValueError, match=NO_GRADIENT):
            product()
        with torch.no_grad():
            expected = x.detach().numpy() @ s.dense().T
            y = product()
            assert not y.requires_grad
            y = y if y.shape == (N, M) else y.T
            factor = 1 if np.allclose(y, expected, atol=1e-5) else 2
            np.testing.assert_allclose(y.numpy(), factor * expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:louver computes")
def test_tensors_without_a_gradient_multiply_while_gradients_are_enabled(s: SparseTensor) -> None:
    x = made(N, K)
    weight = torch.nn.Parameter(made(N, M))
    loss = (louver.linear(x, s) * weight).sum()
    loss.backward()
    np.testing.assert_allclose(weight.grad.numpy(), x.numpy() @ s.dense().T, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:louver computes")
def test_a_trace_is_refused(s: SparseTensor) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def model(x: Any) -> Any:
        return torch.relu(louver.linear(x, s))

    for trace in (lambda: torch.jit.trace(model, (made(N, K),)), lambda: make_fx(model)(made(N, K))):
        with pytest.raises(
            ValueError, match="x: a trace would keep the result of Louver as a constant.*outside the traced"
        ):
            trace()


def test_parameters_are_weights_and_their_results_carry_no_gradient(rng: np.random.Generator) -> None:
    layer = torch.nn.Linear(K, M)
    kept = louver.prune(layer.weight, "2:4")
    assert type(kept) is torch.Tensor and not kept.requires_grad and kept.grad_fn is None
    s = louver.compress(layer.weight, "2:4", method="magnitude")
    along, across = louver.compress_both(layer.weight)
    assert np.array_equal(np.asarray(s), kept.numpy())
    assert np.array_equal(np.asarray(along), np.asarray(across))
    assert louver.check(torch.nn.Parameter(kept), "2:4")
    t = louver.from_indices(torch.nn.Parameter(torch.from_numpy(s.values.copy())), s.unpacked_indices(), "2:4", (M, K))
    assert np.array_equal(np.asarray(t), np.asarray(s))
    s.update_(torch.nn.Parameter(torch.from_numpy(-s.values)))
    assert np.array_equal(np.asarray(s), -kept.numpy())


def test_results_of_operations_with_gradients_are_no_data(rng: np.random.Generator) -> None:
    w = torch.nn.Parameter(made(M, K)) * 2
    s = louver.compress(louver.prune(w.detach(), "2:4"), "2:4")
    no_data = r"would lose its history, got a tensor with a grad_fn: give its detach\(\)"
    for call in (
        lambda: louver.prune(w, "2:4"),
        lambda: louver.compress(w, "2:4", method="magnitude"),
        lambda: louver.compress_both(w),
        lambda: s.update_(w[:, : K // 2]),
    ):
        with pytest.raises(ValueError, match=no_data):
            call()
        with torch.no_grad():
            call()
    assert louver.check(w, "4:4"), "a report has no gradient"
