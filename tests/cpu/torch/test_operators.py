"""`torch.ops.louver` on plain tensors, by the reference path."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import louver
from support.torch_weights import PATTERNS, close, sparse_weight

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

import louver.torch.operators  # noqa: E402
from louver.frontend import epilogue  # noqa: E402
from louver.torch import operators  # noqa: E402

OPS = torch.ops.louver
SIZE = 50
ACTIVATIONS = {
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(5)


@pytest.mark.parametrize(("pattern", "dtype"), PATTERNS)
def test_dense_and_take_are_inverse_for_every_pattern(pattern: str, dtype: str) -> None:
    w = sparse_weight(torch, 24, SIZE, pattern, dtype)
    kept = louver.SparseTensor.dense(louver.torch.core.fresh(*w.arrays, pattern, SIZE))
    assert torch.equal(w.dense.float(), torch.from_numpy(kept.astype("float32")))
    assert torch.equal(OPS.take(w.dense, w.indices, pattern), w.values)


@pytest.mark.parametrize("shape", [(SIZE,), (3, SIZE), (2, 0, SIZE), (2, 3, 5, SIZE)])
@pytest.mark.parametrize(("pattern", "dtype"), PATTERNS)
def test_linear_takes_any_leading_axes(pattern: str, dtype: str, shape: tuple[int, ...]) -> None:
    w = sparse_weight(torch, 24, SIZE, pattern, dtype)
    x, bias = torch.randn(shape).to(w.values.dtype), torch.randn(24).to(w.values.dtype)
    y = OPS.linear(x, *w.arrays, bias, pattern=pattern)
    assert y.dtype == x.dtype
    if x.numel():
        close(torch, y, torch.nn.functional.linear(x.float(), w.dense.float(), bias.float()))
    else:
        assert y.shape == (2, 0, 24)


def test_linear_takes_any_strides() -> None:
    w = sparse_weight(torch, 24, SIZE)
    x = torch.randn(SIZE, 7, 3).bfloat16().permute(2, 1, 0)
    assert torch.equal(OPS.linear(x, *w.arrays), OPS.linear(x.contiguous(), *w.arrays))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_epilogue_is_that_of_linear(activation: str) -> None:
    w = sparse_weight(torch, 24, SIZE, "2:4", "float16")
    x, bias = torch.randn(5, SIZE).half(), torch.randn(24).half()
    scale, dense_scale = torch.rand(24) + 0.5, torch.rand(5) + 0.5
    y = OPS.linear(x, *w.arrays, bias, scale, dense_scale, activation=activation, out_dtype=torch.float32)
    z = dense_scale[:, None] * scale * (x.float() @ w.dense.float().t()) + bias.float()
    close(torch, y, ACTIVATIONS[activation](z), 1e-3)


@pytest.mark.parametrize(
    ("dtype", "out", "epilogue"),
    [("int8", "int32", False), ("int8", "float16", True), ("float8_e4m3fn", "bfloat16", True)],
)
def test_operands_of_8_bits_have_the_output_type_of_louver(dtype: str, out: str, epilogue: bool) -> None:
    w = sparse_weight(torch, 24, SIZE, "2:4", dtype)
    x = (torch.randint(-8, 9, (5, SIZE)) if dtype == "int8" else torch.randn(5, SIZE)).to(getattr(torch, dtype))
    scale = torch.rand(24) if epilogue else None
    y = OPS.linear(x, *w.arrays, None, scale)
    assert y.dtype == getattr(torch, out)
    close(torch, y, (x.float() @ w.dense.float().t()) * (1 if scale is None else scale))


def test_gated_is_the_product_of_a_pair() -> None:
    gate, up = sparse_weight(torch, 16, SIZE), sparse_weight(torch, 16, SIZE)
    pair = tuple(joined(a, b) for a, b in zip(gate.arrays, up.arrays, strict=True))
    x = torch.randn(5, SIZE).bfloat16()
    y = OPS.gated(x, *pair, activation="silu")
    close(torch, y, torch.nn.functional.silu(x.float() @ gate.dense.float().t()) * (x.float() @ up.dense.float().t()))


def joined(first: Any, second: Any) -> Any:
    """Rows of two matrices in turns of 8."""
    return torch.stack([part.reshape(-1, 8, part.shape[1]) for part in (first, second)], 1).reshape(-1, first.shape[1])


CHECKED = [
    ("linear", {}),
    ("linear", {"bias": True}),
    ("linear", {"bias": True, "activation": "silu"}),
    ("linear", {"bias": True, "scale": True, "tokens": True, "activation": "gelu"}),
    ("gated", {"activation": "gelu_tanh", "bias": True}),
    ("gated", {"scale": True}),
]


@pytest.mark.parametrize(("name", "options"), CHECKED)
@pytest.mark.parametrize("pattern", ["2:4", "2:8@V16"])
def test_products_pass_opcheck(name: str, options: dict[str, Any], pattern: str) -> None:
    if name == "gated" and pattern != "2:4":
        pattern = "3:8"  # A pair keeps a pattern of elements.
    w = sparse_weight(torch, 32, SIZE, pattern, "float16")
    x, values = torch.randn(2, 3, SIZE).half().requires_grad_(), w.values.clone().requires_grad_()
    bias = torch.randn(32).half().requires_grad_() if "bias" in options else None
    scale = torch.rand(32) + 0.5 if "scale" in options else None
    tokens = torch.rand(2, 3) + 0.5 if "tokens" in options else None
    arguments = (x, values, w.indices, bias, scale, tokens, pattern, options.get("activation"))
    known = inspect.signature(torch.library.opcheck).parameters
    # PyTorch 2.6 has no tolerances.
    tolerance = {each: 1e-2 for each in ("rtol", "atol") if each in known}
    torch.library.opcheck(getattr(OPS, name).default, arguments, **tolerance)


@pytest.mark.parametrize(("pattern", "dtype"), PATTERNS)
def test_dense_and_take_pass_opcheck(pattern: str, dtype: str) -> None:
    w = sparse_weight(torch, 24, SIZE, pattern, dtype)
    torch.library.opcheck(OPS.dense.default, (w.values.requires_grad_(), w.indices, SIZE, pattern))
    torch.library.opcheck(OPS.take.default, (w.dense.requires_grad_(), w.indices, pattern))


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize(("pattern", "dtype"), PATTERNS)
def test_gradients_are_those_of_the_dense_product(pattern: str, dtype: str, activation: str | None) -> None:
    w = sparse_weight(torch, 24, SIZE, pattern, dtype)
    kind = w.values.dtype
    x, bias, scale, tokens = torch.randn(2, 3, SIZE), torch.randn(24), torch.rand(24) + 0.5, torch.rand(2, 3) + 0.5
    sparse = [each.to(kind).requires_grad_() for each in (x, w.values.clone(), bias)]
    y = OPS.linear(sparse[0], sparse[1], w.indices, sparse[2], scale, tokens, pattern, activation)
    g = torch.randn_like(y)
    y.backward(g)
    dense = [each.detach().float().requires_grad_() for each in (sparse[0], w.dense, sparse[2])]
    z = (dense[0] @ dense[1].t()) * scale * tokens[..., None] + dense[2]
    (z if activation is None else ACTIVATIONS[activation](z)).backward(g.float())
    assert [each.grad.dtype for each in sparse] == [kind] * 3
    close(torch, sparse[0].grad, dense[0].grad)
    close(torch, sparse[1].grad, OPS.take(dense[1].grad, w.indices, pattern))
    close(torch, sparse[2].grad, dense[2].grad)


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_gradients_of_a_pair_are_those_of_both_weights(activation: str | None) -> None:
    parts = [sparse_weight(torch, 16, SIZE, "2:4", "float16") for _ in range(2)]
    values, indices = (joined(*(getattr(part, name) for part in parts)) for name in ("values", "indices"))
    x, bias, scale = torch.randn(5, SIZE).half(), torch.randn(32).half(), torch.rand(32) + 0.5
    sparse = [each.clone().requires_grad_() for each in (x, values, bias)]
    y = OPS.gated(sparse[0], sparse[1], indices, sparse[2], scale, None, "2:4", activation)
    g = torch.randn_like(y)
    y.backward(g)
    dense = [each.detach().float().requires_grad_() for each in (x, parts[0].dense, parts[1].dense, bias)]
    gate, up = (
        (dense[0] @ dense[1 + i].t()) * scale[16 * i : 16 * i + 16] + dense[3][16 * i : 16 * i + 16] for i in (0, 1)
    )
    ((gate if activation is None else ACTIVATIONS[activation](gate)) * up).backward(g.float())
    close(torch, sparse[0].grad, dense[0].grad)
    taken = [OPS.take(dense[1 + i].grad, parts[i].indices) for i in (0, 1)]
    close(torch, sparse[1].grad, joined(*taken))
    close(torch, sparse[2].grad, dense[3].grad)


def test_gradients_when_only_values_require_them() -> None:
    w = sparse_weight(torch, 24, SIZE, "2:4", "float32")
    x, values = torch.randn(7, SIZE), w.values.clone().requires_grad_()
    OPS.linear(x, values, w.indices).square().sum().backward()
    dense = w.dense.clone().requires_grad_()
    (x @ dense.t()).square().sum().backward()
    close(torch, values.grad, OPS.take(dense.grad, w.indices), 1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(())}, r"x must be \[\.\.\., K\], got a tensor without axes"),
        ({"x": torch.zeros(3, 60)}, r"2:4 of 60 columns keeps 30 values of a row, got values of shape \[24, 26\]"),
        ({"x": torch.zeros(3, SIZE)}, "x and s must have one element type, got f32 and bf16"),
        ({"indices": torch.zeros(24, 8, dtype=torch.uint8)}, r"are uint8 of shape \[24, 7\], got torch.uint8 of shape \[24, 8\]"),
        ({"values": torch.zeros(24)}, r"values are \[rows, kept\], got shape \[24\]"),
        ({"pattern": "two"}, "a pattern is written"),
        ({"activation": "tanh"}, "activation"),
        ({"indices": torch.zeros(24, 7, dtype=torch.uint8, device="meta")}, "values and indices are in one place|meta"),
    ],
)  # fmt: skip
def test_bad_arguments_name_the_rule(change: dict[str, Any], message: str) -> None:
    w = sparse_weight(torch, 24, SIZE)
    arguments = {"x": torch.zeros(3, SIZE).bfloat16(), "values": w.values, "indices": w.indices} | change
    with pytest.raises((ValueError, RuntimeError), match=message):
        louver.torch.operators.product(**arguments)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x", "x of 8 bits has no gradient, got torch.float8_e4m3fn that requires grad"),
        ("values", "values of 8 bits has no gradient"),
        ("scale", r"scale has no gradient, got a tensor that requires grad: call detach\(\) on it"),
        ("dense_scale", "dense_scale has no gradient"),
    ],
)
def test_gradients_that_do_not_exist_are_refused_at_the_call(name: str, message: str) -> None:
    w = sparse_weight(torch, 24, SIZE, "2:4", "float8_e4m3fn")
    arguments = {
        "x": torch.randn(3, SIZE).to(torch.float8_e4m3fn),
        "values": w.values,
        "indices": w.indices,
        "scale": torch.rand(24),
        "dense_scale": torch.rand(3),
    }
    arguments[name] = arguments[name].detach().clone().requires_grad_()
    with pytest.raises(RuntimeError, match=message):
        OPS.linear(**arguments)


def test_each_activation_has_its_function_and_gradient() -> None:
    assert operators._SLOPES.keys() == epilogue.ACTIVATIONS.keys() == operators.ACTIVATIONS.keys() - {None}
