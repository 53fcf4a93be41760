"""`torch.ops.louver`: products with sparse weights as operators on plain tensors, for autograd, tracers and compilers.

A weight is `values` [rows, kept] and `indices` (uint8), as in Louver's files, with the pattern as text.

- `linear(x, values, indices, bias, scale, dense_scale, pattern, activation, out_dtype)`: as `louver.linear`
- `gated(…)`, the same arguments: the rows of the weight are a pair of `louver.gated`, by turns
- `scaled(x, values, indices, scale, bias, pattern, activation, gated)`: of a quantized weight, x is quantized too
- `dense(values, indices, size, pattern)`: the dense weight [rows, size]
- `take(dense, indices, pattern)`: the kept elements of a dense matrix, the inverse of `dense`
- `transposed(g, values, indices, size, pattern)`: g [tokens, rows] times the weight [rows, size]
- `sampled(g, x, indices, pattern)`: the kept elements [rows, kept] of gᵀ x [rows, size], see `louver.torch.columns`

Gradients of x are `transposed`, see `louver.torch.turned`: a sparse product if the mask keeps the pattern along the rows
too, else a dense one. The backward pass makes the dense weight anew and drops it. Gradients of values are `sampled`; a
pattern never changes. Operands of 8 bits, and scales, have no gradient. The gradient of x in `scaled` takes no notice
of the rounding of x.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

import louver
from louver.formats.gated import GATE_ROWS
from louver.formats.pattern import Pattern
from louver.torch.columns import check_arrays, check_sampled, expanded, kept_products, taken
from louver.torch.compiled import lower, provide
from louver.torch.core import core_of
from louver.torch.known import known_products, modes
from louver.torch.tokens import quantized_tokens
from louver.torch.turned import times_weight

_PRODUCT = (
    "(Tensor x, Tensor values, Tensor indices, Tensor? bias=None, Tensor? scale=None, Tensor? dense_scale=None, "
    'str pattern="2:4", str? activation=None, ScalarType? out_dtype=None) -> Tensor'
)
_SCHEMAS = {
    "linear": _PRODUCT,
    "gated": _PRODUCT,
    "scaled": (
        "(Tensor x, Tensor values, Tensor indices, Tensor scale, Tensor? bias=None, "
        'str pattern="2:4", str? activation=None, bool gated=False) -> Tensor'
    ),
    "dense": '(Tensor values, Tensor indices, SymInt size, str pattern="2:4") -> Tensor',
    "take": '(Tensor dense, Tensor indices, str pattern="2:4") -> Tensor',
    "transposed": '(Tensor g, Tensor values, Tensor indices, SymInt size, str pattern="2:4") -> Tensor',
    "sampled": '(Tensor g, Tensor x, Tensor indices, str pattern="2:4") -> Tensor',
}


def product(
    x: Tensor,
    values: Tensor,
    indices: Tensor,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    dense_scale: Tensor | None = None,
    pattern: str = "2:4",
    activation: Any = None,
    out_dtype: torch.dtype | None = None,
    *,
    gated: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """The product below autograd: x [..., K] with a weight [rows, K], see `louver.linear`. Raises as it does, and as
    `core_of`.
    """
    plain = scale is None and dense_scale is None and out_dtype is None
    if plain:
        y = _launched(x, values, indices, bias, pattern, activation, gated, out)
        if y is not None:
            return y
    y = louver.linear(
        _plain(x),
        core_of(values, indices, pattern, _depth(x), gated=gated),
        None if bias is None else _kept_free(bias),
        out,
        out_dtype,
        scale=None if scale is None else _plain(scale),
        dense_scale=None if dense_scale is None else _plain(dense_scale),
        activation=activation,
    )
    if plain and y.is_cuda:
        known_products().keep(values, indices, pattern, x.shape[-1], activation, gated)
    return y


def multiply(
    x: Tensor,
    values: Tensor,
    indices: Tensor,
    bias: Tensor | None,
    pattern: str,
    *,
    scale: Tensor | None = None,
    activation: Any = None,
    gated: bool = False,
) -> Tensor:
    """`x @ w.T + bias` of a layer: under autocast as `torch.nn.functional.linear`, by the operator where a tracer or
    autograd must see it, else by `product`, which takes less time.

    scale: [rows] of a quantized weight; x is then quantized too, with a scale for each token.
    activation, gated: as of the operator `gated`.
    """
    if scale is None:
        y = _launched(x, values, indices, bias, pattern, activation, gated)
        if y is not None:
            return y
    if torch.compiler.is_compiling() or type(x) not in _PLAIN or modes():
        seen = True
    else:
        trains = x.requires_grad or values.requires_grad or (bias is not None and bias.requires_grad)
        seen = (trains and torch.is_grad_enabled()) or x.is_meta
    device = "cuda" if x.is_cuda else x.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        kind = torch.get_autocast_dtype(device)
        x, values = (each.to(kind) if each.dtype.itemsize > 1 else each for each in (x, values))
        bias = None if bias is None else bias.to(kind)
    tokens = wanted = None
    if scale is not None:
        if torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad)):
            return OPS.scaled(x, values, indices, scale, bias, pattern, activation, gated)
        wanted = x.dtype
        x, tokens = quantized_tokens(x, values.dtype)
    if seen:
        run = OPS.gated if gated else OPS.linear
        return run(x, values, indices, bias, scale, tokens, pattern, activation, wanted)
    return product(x, values, indices, bias, scale, tokens, pattern, activation, wanted, gated=gated)


def scaled(
    x: Tensor,
    values: Tensor,
    indices: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    pattern: str = "2:4",
    activation: str | None = None,
    gated: bool = False,
) -> Tensor:
    """The product of a quantized weight below autograd, in the type of x."""
    given, tokens = quantized_tokens(x, values.dtype)
    return product(given, values, indices, bias, scale, tokens, pattern, activation, x.dtype, gated=gated)


_launched = known_products().launched

_PLAIN = (Tensor, torch.nn.Parameter)


def output_dtype(operand: torch.dtype, *, epilogue: bool) -> torch.dtype:
    """The type of a product's output by default, see `louver.matmul`."""
    if not operand.is_floating_point:
        return torch.float16 if epilogue else torch.int32
    return torch.bfloat16 if operand.itemsize == 1 else operand


def _plain(x: Tensor) -> Tensor:
    return x.detach() if x.requires_grad else x


def _kept_free(bias: Tensor) -> Tensor:
    """A bias whose storage NumPy does not see, so that FSDP can free it."""
    return bias.detach().clone() if bias.device.type == "cpu" else _plain(bias)


def _depth(x: Tensor) -> int:
    if not x.dim():
        raise ValueError("x must be [..., K], got a tensor without axes")
    return x.shape[-1]


def _dense(values: Tensor, indices: Tensor, size: int, pattern: str = "2:4") -> Tensor:
    return expanded(values, indices, Pattern.parse(pattern), size)


def _take(dense: Tensor, indices: Tensor, pattern: str = "2:4") -> Tensor:
    return taken(dense, indices, Pattern.parse(pattern)).contiguous()


def _transposed(g: Tensor, values: Tensor, indices: Tensor, size: int, pattern: str = "2:4") -> Tensor:
    return times_weight(_plain(g), _plain(values), indices, pattern, size)


def _sampled(g: Tensor, x: Tensor, indices: Tensor, pattern: str = "2:4") -> Tensor:
    return kept_products(_plain(g), _plain(x), indices, Pattern.parse(pattern))


# --- shapes and types, without data ------------------------------------------------------------------------------------
def _fake_product(
    x: Tensor,
    values: Tensor,
    indices: Tensor,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    dense_scale: Tensor | None = None,
    pattern: str = "2:4",
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
    *,
    gated: bool = False,
) -> Tensor:
    lower(OPS.linear.default, OPS.gated.default)
    check_arrays(values, indices, Pattern.parse(pattern), _depth(x))
    _check_one_place(x=x, values=values, indices=indices)
    epilogue = any(each is not None for each in (activation, scale, dense_scale))
    wanted = out_dtype or output_dtype(x.dtype, epilogue=epilogue)
    rows = values.shape[0] // 2 if gated else values.shape[0]
    return x.new_empty((*x.shape[:-1], rows), dtype=wanted)


def _fake_scaled(
    x: Tensor,
    values: Tensor,
    indices: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    pattern: str = "2:4",
    activation: str | None = None,
    gated: bool = False,
) -> Tensor:
    return _fake_product(x, values, indices, bias, scale, None, pattern, activation, x.dtype, gated=gated)


def _fake_dense(values: Tensor, indices: Tensor, size: int, pattern: str = "2:4") -> Tensor:
    check_arrays(values, indices, Pattern.parse(pattern), size)
    _check_one_place(values=values, indices=indices)
    return values.new_empty((values.shape[0], size))


def _fake_take(dense: Tensor, indices: Tensor, pattern: str = "2:4") -> Tensor:
    found = Pattern.parse(pattern)
    _check_one_place(dense=dense, indices=indices)
    return dense.new_empty((dense.shape[0], found.groups(dense.shape[1]) * found.n))


def _fake_transposed(g: Tensor, values: Tensor, indices: Tensor, size: int, pattern: str = "2:4") -> Tensor:
    check_arrays(values, indices, Pattern.parse(pattern), size)
    _check_one_place(g=g, values=values, indices=indices)
    return g.new_empty((g.shape[0], size))


def _fake_sampled(g: Tensor, x: Tensor, indices: Tensor, pattern: str = "2:4") -> Tensor:
    found = check_sampled(g, x, indices, Pattern.parse(pattern))
    _check_one_place(g=g, x=x, indices=indices)
    return g.new_empty((g.shape[1], found))


def _check_one_place(**operands: Tensor) -> None:
    """Raises ValueError for operands on several devices. PyTorch calls these functions also if just one operand is on
    the meta device, and the result would be memory that nobody writes.
    """
    if len({each.device for each in operands.values()}) > 1:
        places = ", ".join(f"{name} on {each.device}" for name, each in operands.items())
        raise ValueError(f"operands are on one device, got {places}: move them, or load what is on the meta device")


# --- gradients -----------------------------------------------------------------------------------------------------------
_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda g, z: torch.where(z > 0, g, 0),
    "gelu": lambda g, z: torch.ops.aten.gelu_backward(g, z),
    "gelu_tanh": lambda g, z: torch.ops.aten.gelu_backward(g, z, approximate="tanh"),
    "silu": lambda g, z: torch.ops.aten.silu_backward(g, z),
}
"""For each activation: the gradient of its argument z, from that of its result."""

ACTIVATIONS: dict[str | None, Callable[[Tensor], Tensor]] = {
    None: lambda z: z,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


def _check_gradients(x: Tensor, values: Tensor, scale: Tensor | None, dense_scale: Tensor | None) -> None:
    """Raises RuntimeError if a gradient is asked for that the operators do not give."""
    for name, operand in (("x", x), ("values", values)):
        if operand.requires_grad and operand.dtype.itemsize == 1:
            raise RuntimeError(
                f"{name} of 8 bits has no gradient, got {operand.dtype} that requires grad: train the weight in bf16, and "
                "quantize it afterwards"
            )
    for name, factor in (("scale", scale), ("dense_scale", dense_scale)):
        if factor is not None and factor.requires_grad:
            raise RuntimeError(f"{name} has no gradient, got a tensor that requires grad: call detach() on it")


def _setup_product(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, values, indices, bias, scale, dense_scale, pattern, activation, _ = inputs
    _check_gradients(x, values, scale, dense_scale)
    # `ctx.needs_input_grad` has no entries for trailing arguments that the caller leaves out.
    ctx.needs = x.requires_grad, values.requires_grad, bias is not None and bias.requires_grad
    ctx.pattern, ctx.activation = pattern, activation
    ctx.save_for_backward(x, values, indices, bias, scale, dense_scale)


def _backward_product(ctx: Any, grad: Tensor, *, gated: bool = False) -> tuple[Tensor | None, ...]:
    x, values, indices, bias, scale, dense_scale = ctx.saved_tensors
    pattern = ctx.pattern
    g, flat = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
    if gated and scale is not None and scale.numel() > 1:
        scale = by_turns(scale)
    if dense_scale is not None:
        of_blocks = dense_scale.dtype == torch.uint8
        dense_scale = dense_scale.reshape(-1, dense_scale.shape[-1]) if of_blocks else dense_scale.reshape(-1)
    if gated or ctx.activation:
        operand, factors = flat, dense_scale
        if x.dtype.itemsize > values.dtype.itemsize:
            operand, factors = quantized_tokens(flat, values.dtype)
        added = by_turns(bias) if gated and bias is not None else bias
        z = torch.ops.louver.linear(operand, values, indices, added, scale, factors, pattern, None, torch.float32)
        slope = functools.partial(_gated_slope, activation=ctx.activation) if gated else _SLOPES[ctx.activation]
        g = slope(g.float(), z)
    g_bias = None
    if ctx.needs[2]:
        g_bias = in_order(g.sum(0)) if gated else g.sum(0)
        g_bias = g_bias.to(cast("Tensor", bias).dtype)
    if not any(ctx.needs[:2]):
        return None, None, None, g_bias, None, None, None, None, None
    # Operands with scales of blocks have 8 bits, and so no gradients: these are factors of rows and of tokens.
    for factor in (scale, None if dense_scale is None else dense_scale[:, None]):
        g = g if factor is None else g * factor
    kind = x.dtype if x.dtype.itemsize > 1 else torch.bfloat16
    g = g.to(kind)
    g_x = g_values = None
    if ctx.needs[0]:
        g_x = torch.ops.louver.transposed(g, values, indices, x.shape[-1], pattern).reshape(x.shape)
    if ctx.needs[1]:
        g_values = torch.ops.louver.sampled(g, flat.to(kind), indices, pattern).to(values.dtype)
    return g_x, g_values, None, g_bias, None, None, None, None, None


def _gated_slope(g: Tensor, z: Tensor, activation: str | None) -> Tensor:
    """The gradient of the sums z [tokens, rows] of a pair, whose rows are in turns of blocks."""
    pairs = z.unflatten(1, (z.shape[1] // (2 * GATE_ROWS), 2, GATE_ROWS))
    gate, up = pairs[:, :, 0], pairs[:, :, 1]
    blocks = g.reshape(gate.shape)
    g_gate = blocks * up if activation is None else _SLOPES[activation](blocks * up, gate)
    return torch.stack([g_gate, blocks * ACTIVATIONS[activation](gate)], 2).reshape(z.shape)


def by_turns(x: Tensor) -> Tensor:
    """The gate's elements or rows, then those of the up projection, in the order of the pair's rows."""
    return x.unflatten(0, (2, -1, GATE_ROWS)).transpose(0, 1).flatten(0, 2)


def in_order(x: Tensor) -> Tensor:
    """The inverse of `by_turns`."""
    return x.reshape(-1, 2, GATE_ROWS).transpose(0, 1).reshape(-1)


def _setup_scaled(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, values, indices, scale, bias, pattern, activation, gated = inputs
    _check_gradients(x, values, scale, None)
    ctx.needs = x.requires_grad, False, bias is not None and bias.requires_grad
    ctx.pattern, ctx.activation, ctx.gated = pattern, activation, gated
    ctx.save_for_backward(x, values, indices, bias, scale, None)


def _backward_scaled(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    g_x, _, _, g_bias, *_ = _backward_product(ctx, grad, gated=ctx.gated)
    return g_x, None, None, None, g_bias, None, None, None


def _setup_dense(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, indices, _, pattern = inputs
    ctx.pattern = pattern
    ctx.save_for_backward(indices)


def _setup_take(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    dense, indices, pattern = inputs
    ctx.pattern, ctx.size = pattern, dense.shape[1]
    ctx.save_for_backward(indices)


def _backward_dense(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return torch.ops.louver.take(grad, *ctx.saved_tensors, ctx.pattern), None, None, None


def _backward_take(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return torch.ops.louver.dense(grad.contiguous(), *ctx.saved_tensors, ctx.size, ctx.pattern), None, None


def _setup_transposed(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    g, values, indices, _, pattern = inputs
    ctx.pattern, ctx.needs = pattern, (g.requires_grad, values.requires_grad)
    ctx.save_for_backward(g, values, indices)


def _backward_transposed(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    g, values, indices = ctx.saved_tensors
    g_g = g_values = None
    if ctx.needs[0]:
        weight = torch.ops.louver.dense(values, indices, grad.shape[1], ctx.pattern)
        g_g = grad @ weight.to(grad.dtype).t()
    if ctx.needs[1]:
        g_values = torch.ops.louver.sampled(g, grad, indices, ctx.pattern).to(values.dtype)
    return g_g, g_values, None, None, None


def _setup_sampled(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    g, x, indices, pattern = inputs
    ctx.pattern, ctx.needs = pattern, (g.requires_grad, x.requires_grad)
    ctx.save_for_backward(g, x, indices)


def _backward_sampled(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    g, x, indices = ctx.saved_tensors
    g_g = torch.ops.louver.linear(x, grad, indices, pattern=ctx.pattern) if ctx.needs[0] else None
    g_x = torch.ops.louver.transposed(g, grad, indices, x.shape[1], ctx.pattern) if ctx.needs[1] else None
    return g_g, g_x, None, None


def _recording(name: str, run: Callable[..., Tensor], setup: Any, backward: Any) -> Callable[..., Tensor]:
    """The kernel of an operator where PyTorch may record a gradient. `torch.library.register_autograd` makes one too,
    which takes three times the host time in calls without gradients.
    """
    op: Any = getattr(torch.ops.louver, name).default
    defaults = tuple(each.default_value for each in op._schema.arguments)
    below: Any = torch._C._AutoDispatchBelowAutograd  # pyright: ignore[reportPrivateUsage]

    def forward(ctx: Any, *given: Any) -> Tensor:
        with below():
            y = op(*given)
        setup(ctx, given, y)
        return y

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    recorded: Any = type(f"louver_{name}", (torch.autograd.Function,), methods)

    def kernel(*given: Any) -> Tensor:
        tensors = [each for each in given if isinstance(each, Tensor)]
        if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
            # The dispatcher leaves out arguments at the end that have their defaults.
            return recorded.apply(*given, *defaults[len(given) :])
        if modes() or given[0].is_meta or any(type(each) not in _PLAIN for each in tensors):
            with below():
                return op(*given)
        return run(*given)

    return kernel


# --- the library -----------------------------------------------------------------------------------------------------------
@functools.cache
def library() -> torch.library.Library:
    """The definitions, which PyTorch drops with this object."""
    made = torch.library.Library("louver", "DEF")
    for name, schema in _SCHEMAS.items():
        made.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    gated_product, fake_gated = functools.partial(product, gated=True), functools.partial(_fake_product, gated=True)
    gated_back = functools.partial(_backward_product, gated=True)
    rows: list[tuple[str, Any, Any, Any, Any]] = [
        ("linear", product, _fake_product, _setup_product, _backward_product),
        ("gated", gated_product, fake_gated, _setup_product, gated_back),
        ("scaled", scaled, _fake_scaled, _setup_scaled, _backward_scaled),
        ("dense", _dense, _fake_dense, _setup_dense, _backward_dense),
        ("take", _take, _fake_take, _setup_take, _backward_take),
        ("transposed", _transposed, _fake_transposed, _setup_transposed, _backward_transposed),
        ("sampled", _sampled, _fake_sampled, _setup_sampled, _backward_sampled),
    ]
    for name, run, fake, setup, backward in rows:
        made.impl(name, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"louver::{name}", fake, lib=made)
        made.impl(name, _recording(name, run, setup, backward), "Autograd")
    for name in ("linear", "gated"):
        provide(getattr(OPS, name).default, product, output_dtype, gated=name == "gated")
    return made


OPS = cast("Any", torch.ops.louver)


library()
