"""`louver.linear` of tensors that require grad, after `import louver.torch`: the gradients of the operators."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import louver
import louver.torch

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

M, N, K = 16, 5, 48


def weight(dtype: Any = np.float32) -> Any:
    return louver.compress(np.random.default_rng(5).standard_normal((M, K)).astype(dtype), "2:4", method="magnitude")


def dense(s: Any) -> Any:
    return torch.from_numpy(np.array(s.dense(), np.float32))


@pytest.mark.parametrize("activation", [None, "silu", "gelu"])
def test_gradients_are_those_of_the_dense_product(activation: str | None) -> None:
    s = weight()
    x = torch.randn(2, N, K, requires_grad=True)
    bias = torch.randn(M, requires_grad=True)
    act = torch.nn.functional.silu if activation == "silu" else torch.nn.functional.gelu if activation else lambda z: z
    expected = act(torch.nn.functional.linear(x, dense(s), bias))
    wanted = torch.autograd.grad(expected.square().sum(), (x, bias))
    y = louver.linear(x, s, bias, activation=activation)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(torch.autograd.grad(y.square().sum(), (x, bias)), wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


def test_a_transposed_weight_and_a_pair() -> None:
    s = weight()
    x = torch.randn(N, K, requires_grad=True)
    (x @ s.T).sum().backward()
    torch.testing.assert_close(x.grad, dense(s).sum(0).expand(N, K), rtol=1e-4, atol=1e-4)
    x.grad = None
    pair = louver.gated(s, weight())
    louver.linear(x, pair, activation="relu").sum().backward()
    mine, x.grad = x.grad, None
    each = torch.nn.functional.linear(x, dense(s))
    (each.relu() * each).sum().backward()
    torch.testing.assert_close(mine, x.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("gated", [False, True])
def test_the_bias_of_a_product_with_scales_of_blocks(activation: str | None, gated: bool) -> None:
    """The gradient is that of the same numbers without scales: powers of two are in the values."""
    s, up = (
        louver.compress(
            np.random.default_rng(seed).integers(-3, 4, (M, 72)).astype("float8_e4m3fn"), "2:4", method="magnitude"
        )
        for seed in (1, 2)
    )
    operand, rows = (louver.gated(s, up), 2 * M) if gated else (s, M)
    x, bias = torch.randint(-3, 4, (2, N, 72)).to(torch.float8_e4m3fn), torch.randn(rows, requires_grad=True)
    of_rows, of_tokens = torch.full((rows, 2), 128, dtype=torch.uint8), torch.full((2, N, 2), 123, dtype=torch.uint8)
    of_rows[rows // 2 :] = 129
    of_tokens[:, 1:] = 122
    blocks = louver.linear(
        x, operand, bias, scale=of_rows, dense_scale=of_tokens, activation=activation, out_dtype="f32"
    )
    (mine,) = torch.autograd.grad(blocks.square().sum(), bias)
    factors = 2.0 ** (of_rows[:, 0].float() - 127), 2.0 ** (of_tokens[..., 0].float() - 127)
    y = louver.linear(
        x, operand, bias, scale=factors[0], dense_scale=factors[1], activation=activation, out_dtype="f32"
    )
    (wanted,) = torch.autograd.grad(y.square().sum(), bias)
    torch.testing.assert_close(blocks, y, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-4)


def test_types_and_scales() -> None:
    s = weight()
    x, scale, tokens = torch.randn(N, K, requires_grad=True), torch.rand(M), torch.rand(N)
    y = louver.linear(x, s, scale=scale, dense_scale=tokens, out_dtype="bf16")
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    wanted = tokens[:, None] * (scale[:, None] * dense(s)).sum(0)
    torch.testing.assert_close(x.grad, wanted, rtol=1e-2, atol=1e-2)
    with pytest.raises(RuntimeError, match="scale has no gradient"):
        louver.linear(x, s, scale=scale.requires_grad_())


def test_a_call_that_nothing_records_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    s, x = weight(), torch.randn(N, K, requires_grad=True)
    with torch.no_grad():
        assert louver.linear(x, s).grad_fn is None
    assert louver.linear(x.detach(), s).grad_fn is None
    assert isinstance(louver.linear(x.detach().numpy(), s), np.ndarray)


@pytest.mark.parametrize("options", [{"alpha": 2.0}, {"batch_invariant": True}, {"scale": 2.0}, {"accumulate": "f32"}])
def test_other_options_have_no_gradient(options: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"^x: only louver.linear has a gradient, of x and bias after `import louver.torch`"
    ):
        louver.linear(torch.randn(N, K, requires_grad=True), weight(), **options)


def test_without_the_import_the_error_names_it() -> None:
    code = """
import numpy as np, torch, louver
s = louver.compress(np.random.default_rng(5).standard_normal((16, 48)).astype(np.float32), "2:4", method="magnitude")
x = torch.randn(3, 48, requires_grad=True)
try:
    louver.linear(x, s)
except ValueError as error:
    assert "after `import louver.torch`" in str(error), error
else:
    raise AssertionError
import louver.torch
louver.linear(x, s).sum().backward()
assert x.grad.shape == x.shape
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
