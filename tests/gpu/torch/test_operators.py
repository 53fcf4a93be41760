"""`torch.ops.louver` on a GPU: products within their bound of float64, gradients, and captures."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from louver.library.numerics import compare
from support.torch_weights import close, sparse_weight

KINDS = [
    ("2:4", "bfloat16", "bf16"),
    ("2:4", "float16", "f16"),
    ("1:2", "float32", "f32"),
    ("2:16", "float16", "f16"),
    ("4:8@4", "float32", "f32"),
    ("2:8@V16", "bfloat16", "bf16"),
]
ROWS, SIZE = 208, 336


@pytest.fixture
def ops(torch: Any) -> Any:
    # The module registers the operators.
    importlib.import_module("louver.torch.operators")
    torch.manual_seed(13)
    return torch.ops.louver


@pytest.mark.parametrize("shape", [(SIZE,), (1, SIZE), (3, 7, SIZE), (300, SIZE), (0, SIZE)])
@pytest.mark.parametrize(("pattern", "dtype", "out"), KINDS)
def test_products_are_within_their_bound(
    torch: Any, ops: Any, pattern: str, dtype: str, out: str, shape: tuple[int, ...]
) -> None:
    w = sparse_weight(torch, ROWS, SIZE, pattern, dtype, "cuda")
    x = torch.randn(shape, device="cuda").to(w.values.dtype)
    bias = torch.randn(ROWS, device="cuda").to(w.values.dtype)
    y = ops.linear(x, *w.arrays, bias, pattern=pattern)
    assert y.dtype == x.dtype and y.shape == (*shape[:-1], ROWS)
    a, b, c = (each.double().cpu().numpy() for each in (x.reshape(-1, SIZE), w.dense, bias))
    if out == "f32" and pattern == "1:2":
        close(
            torch, y, torch.nn.functional.linear(x.double(), w.dense.double(), bias.double()), 2e-3
        ) if x.numel() else None
        return
    reference, magnitude = a @ b.T + c, np.abs(a) @ np.abs(b).T + np.abs(c)
    agreement = compare(y.reshape(-1, ROWS).float().cpu().numpy(), reference, magnitude, SIZE, out)
    assert agreement.ok, agreement


@pytest.mark.parametrize(("pattern", "dtype", "out"), KINDS)
def test_dense_and_take_are_inverse(torch: Any, ops: Any, pattern: str, dtype: str, out: str) -> None:
    w = sparse_weight(torch, ROWS, SIZE, pattern, dtype, "cuda")
    on_host = [each.cpu() for each in w.arrays]
    assert torch.equal(w.dense.cpu(), ops.dense(*on_host, SIZE, pattern))
    assert torch.equal(ops.take(w.dense, w.indices, pattern), w.values)


def test_rows_whose_pitch_the_kernels_cannot_read(torch: Any, ops: Any) -> None:
    """27 values of a row are no multiple of 16 bytes: the kernels read a padded copy, which must follow the values."""
    w = sparse_weight(torch, 64, 54, "2:4", "bfloat16", "cuda")
    x = torch.randn(5, 54, device="cuda").bfloat16()
    for _ in range(3):
        dense = ops.dense(*w.arrays, 54)
        close(torch, ops.linear(x, *w.arrays), x.float() @ dense.float().t())
        with torch.no_grad():
            w.values.mul_(-2)


def test_operands_of_8_bits(torch: Any, ops: Any) -> None:
    w = sparse_weight(torch, ROWS, SIZE, "2:4", "float8_e4m3fn", "cuda")
    x = torch.randn(33, SIZE, device="cuda").to(torch.float8_e4m3fn)
    scale, tokens = torch.rand(ROWS, device="cuda"), torch.rand(33, device="cuda")
    y = ops.linear(x, *w.arrays, None, scale, tokens)
    assert y.dtype == torch.bfloat16
    close(torch, y, tokens[:, None] * scale * (x.float() @ w.dense.float().t()))


@pytest.mark.parametrize("activation", [None, "silu", "gelu"])
@pytest.mark.parametrize(("pattern", "dtype", "out"), KINDS)
def test_gradients(torch: Any, ops: Any, pattern: str, dtype: str, out: str, activation: str | None) -> None:
    w = sparse_weight(torch, ROWS, SIZE, pattern, dtype, "cuda")
    x = torch.randn(33, SIZE, device="cuda").to(w.values.dtype)
    bias = torch.randn(ROWS, device="cuda").to(w.values.dtype)
    sparse = [each.clone().requires_grad_() for each in (x, w.values, bias)]
    y = ops.linear(sparse[0], sparse[1], w.indices, sparse[2], None, None, pattern, activation)
    g = torch.randn_like(y)
    y.backward(g)
    dense = [each.detach().float().requires_grad_() for each in (x, w.dense, bias)]
    z = torch.nn.functional.linear(*dense)
    (z if activation is None else getattr(torch.nn.functional, activation)(z)).backward(g.float())
    close(torch, sparse[0].grad, dense[0].grad, 0.03)
    close(torch, sparse[1].grad, ops.take(dense[1].grad, w.indices, pattern), 0.03)
    close(torch, sparse[2].grad, dense[2].grad, 0.03)


def test_gated(torch: Any, ops: Any) -> None:
    gate, up = (sparse_weight(torch, 64, SIZE, "2:4", "bfloat16", "cuda") for _ in range(2))

    def joined(first: Any, second: Any) -> Any:
        return torch.stack([part.reshape(-1, 8, part.shape[1]) for part in (first, second)], 1).reshape(
            -1, first.shape[1]
        )

    pair = [joined(a, b) for a, b in zip(gate.arrays, up.arrays, strict=True)]
    x = torch.randn(33, SIZE, device="cuda").bfloat16().requires_grad_()
    y = ops.gated(x, *pair, activation="silu")
    other = x.detach().float().requires_grad_()
    expected = torch.nn.functional.silu(other @ gate.dense.float().t()) * (other @ up.dense.float().t())
    close(torch, y, expected)
    y.float().sum().backward()
    expected.sum().backward()
    close(torch, x.grad, other.grad, 0.03)


def test_a_captured_product_reads_the_present_values(torch: Any, ops: Any) -> None:
    w = sparse_weight(torch, ROWS, SIZE, "2:4", "bfloat16", "cuda")
    x = torch.randn(16, SIZE, device="cuda").bfloat16()
    ops.linear(x, *w.arrays)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ops.linear(x, *w.arrays)
    for _ in range(2):
        graph.replay()
        close(torch, y, x.float() @ ops.dense(*w.arrays, SIZE).float().t())
        w.values.mul_(2)


def test_operators_pass_opcheck(torch: Any, ops: Any) -> None:
    w = sparse_weight(torch, ROWS, SIZE, "2:4", "float16", "cuda")
    x = torch.randn(2, 3, SIZE, device="cuda").half().requires_grad_()
    arguments = (x, w.values.requires_grad_(), w.indices, torch.randn(ROWS, device="cuda").half().requires_grad_())
    torch.library.opcheck(ops.linear.default, arguments, rtol=1e-2, atol=1e-2)
