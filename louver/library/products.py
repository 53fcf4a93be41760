"""`matmul` and `linear`: sparse products, on the GPU or by the reference path."""

from __future__ import annotations

from typing import Any

from louver.formats.tensor import SparseTensor
from louver.frontend.epilogue import Activation
from louver.frontend.problem import Kind
from louver.library.fused import Given, given_of
from louver.library.host import by_reference, usable_device
from louver.library.request import Accumulate, check_kernel, check_sparse, request
from louver.library.state import TensorState, state_of
from louver.runtime.arrays import view


def matmul(
    a: Any,
    b: Any,
    out: Any = None,
    out_dtype: object = None,
    accumulate: Accumulate = "auto",
    *,
    bias: Any = None,
    dense_bias: Any = None,
    scale: Any = None,
    dense_scale: Any = None,
    c: Any = None,
    out_scale: Any = None,
    alpha: float | None = None,
    beta: float | None = None,
    activation: Activation | None = None,
    batch_invariant: bool = False,
) -> Any:
    """`s [M, K] @ b [..., K, N]` or `x [..., M, K] @ s [K, N]` -> [..., M, N], s sparse, and in the same kernel, all of it optional,

        out_scale · activation(alpha · scale · dense_scale · (a @ b) + bias + dense_bias + beta · c)

    s: sparse along K, f16, bf16, e4m3, e5m2, s8, u8 or f32, on the host or on the dense operand's GPU. Arrays on the host may be of any
    type and pattern. On a GPU there are 2:4 and V:N:M of 16 and 8 bits, 1:2 of f32, and any pattern but these; of V:N:M and others rows of the
    dense operand are gathered; it is read in place where N has unit stride and a 16-byte pitch. The dense operand: the
    same element type (8-bit floats mix, and so do 8-bit integers), on a GPU or on the host, any strides; rows or columns of unit
    stride and 16-byte pitch are read in place, of 8-bit types and 2:4 those along K only, anything else is copied first. out: an array to write, its rows contiguous, not
    overlapping an input (it may be `c` itself); by default a new array of the dense operand's kind.
    Leading axes of b are a batch, which one launch computes; s [..., M, K] is a batch of sparse matrices, with b [K, N] for all
    of them or [..., K, N] with the same leading axes. A batch is read in place where one stride that is a multiple of 16 bytes
    walks it, and must be so walkable in out and c. `x @ s` treats leading axes as `linear` with s.mT does. out_dtype: f16, bf16,
    f32, e4m3, e5m2, s8 (8-bit ones saturate, s8 is rounded to nearest even and NaN becomes 0), for integers also s32; default
    `out`'s, else the dense operand's for 16-bit types and f32, bf16 for 8-bit floats, s32 for integers, or f16 with an epilogue.
    accumulate: "auto": "f32", or "s32" for integers, which wraps. Of 8-bit floats the hardware keeps about 14 bits of an f32
    sum ("fast" is another name for that); "promoted" adds the sums of 256 columns of K each to f32 sums, exact to about 14 bits
    of Σ|a||b| for any K, and slower. "f16", for f16 and 8-bit floats: faster, with 11 bits, and infinite beyond 65,504 on the way.

    bias, scale: go with the sparse operand: [M] of s [M, K], [N] of s [K, N]; so bias is added along the last axis of x @ s, as
    in `x @ w + bias`. dense_bias, dense_scale: go with the dense one: [N] of b, the same for all of a batch; [M] of x, or as
    x's leading axes. c: like the output, with contiguous rows. bias, dense_bias and c: f16, bf16 or f32; without any other
    option integer products take a bias of s32 instead, added exactly. scale, dense_scale: what the values of the operand stand
    for: a number, one f32 on the device, or a vector of f32. out_scale: a number or one f32 on the device. alpha, beta (1 by
    default): numbers. Numbers are passed by value: a new one compiles nothing. activation: "relu"; "gelu" by
    the error function; "gelu_tanh", its approximation; "silu": x / (1 + exp(-x)); but for relu within 2^-20 of |x|, x being
    the argument. All this is computed in f32; sums of integers are rounded to f32 first. NaN stays NaN.
    A gated pair (`louver.gated`) gives activation(gate) · up: s has M = 2·F rows, the output F; bias and scale have 2·F
    elements, the gate's first; there is no c.

    batch_invariant: each sum is over all of K in one order, whatever N is. A schedule that `louver tune` measured may cut K into
    ranges otherwise; results are the same from run to run either way.

    On a GPU the work is sent to the caller's current stream and not waited for. Host arrays are copied in and out. The
    first call of its kind compiles and uploads, which a stream's capture forbids: `louver.prepare` does it ahead.
    Without a GPU the reference path computes the same, slowly, and says so once. Without tokens, columns or entries the result is
    empty, and nothing is launched.
    Raises ValueError or TypeError with the rule, before anything is launched or written.
    """
    given = given_of(bias, dense_bias, scale, dense_scale, c, out_scale, alpha, beta)
    if isinstance(b, SparseTensor):
        return _product("linear", b, a, given, activation, out, out_dtype, accumulate, batch_invariant, -2)
    return _product("matmul", a, b, given, activation, out, out_dtype, accumulate, batch_invariant)


def linear(
    x: Any,
    s: SparseTensor,
    bias: Any = None,
    out: Any = None,
    out_dtype: object = None,
    accumulate: Accumulate = "auto",
    *,
    dense_bias: Any = None,
    scale: Any = None,
    dense_scale: Any = None,
    c: Any = None,
    out_scale: Any = None,
    alpha: float | None = None,
    beta: float | None = None,
    activation: Activation | None = None,
    batch_invariant: bool = False,
) -> Any:
    """`x [..., K] @ s [out, K].T (+ bias [out])` -> [..., out], as `torch.nn.functional.linear`.

    The options are those of `matmul`: bias and scale go with the outputs [out], dense_bias and dense_scale with the tokens,
    [tokens] or as x's leading axes with or without a last axis of 1, c has the output's shape. x may have any strides: where
    one stride walks its leading axes they are read in place, where two do, as a batch, else they are copied. The leading axes
    of out and c must be so walkable, by one stride where something goes with the tokens. With a batch of weights
    s [..., out, K], x is [tokens, K] for all of them or [..., tokens, K]: the result is [..., tokens, out].
    """
    given = given_of(bias, dense_bias, scale, dense_scale, c, out_scale, alpha, beta)
    return _product("linear", s, x, given, activation, out, out_dtype, accumulate, batch_invariant)


def _product(
    kind: Kind,
    s: SparseTensor,
    x: Any,
    given: Given,
    activation: Activation | None,
    out: Any,
    out_dtype: object,
    accumulate: Accumulate,
    batch_invariant: bool,
    axis: int = -1,
) -> Any:
    """axis: along which `s` must be sparse: -2 where it stands on the right, and its transpose is multiplied."""
    options = (kind, out_dtype, accumulate, activation, batch_invariant)
    state = state_of(s, axis)
    if state is not None:
        y = state.warm.launch(options, x, given, out)
        if y is not None:
            return y
    if axis == -2:
        check_sparse(s, accumulate, axis)
        s = s.mT
    asked = request(kind, s, x, given, activation, out, out_dtype, accumulate, batch_invariant=batch_invariant)
    if asked.empty:
        return asked.made(out)
    if asked.dense.device is None and usable_device(s) is None:
        return by_reference(asked, out)
    check_kernel(s)
    from louver.library.execute import run

    state = s.derived.of(TensorState)
    made = asked.made(out)
    result = view(made) if asked.out is None else asked.out
    placed = run(state, asked, result)
    if placed is not None:
        state.warm.keep(options, (x, given, out), asked, result, placed)
    return made
