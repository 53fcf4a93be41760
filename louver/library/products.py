"""`matmul` and `linear`: sparse products on a GPU, or by the reference path on the host."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from louver.formats.dynamo import opaque
from louver.formats.tensor import SparseTensor
from louver.frontend.epilogue import Activation
from louver.frontend.problem import Kind
from louver.library.fused import NOTHING, Given, given_of
from louver.library.host import by_reference, usable_device
from louver.library.request import Accumulate, check_kernel, check_sparse, request
from louver.library.state import TensorState, state_of
from louver.runtime.arrays import view

if TYPE_CHECKING:
    from louver.formats.kinds import Array


@opaque
def matmul(
    a: Array | SparseTensor,
    b: Array | SparseTensor,
    out: Array | None = None,
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
) -> Array:
    """`s [M, K] @ b [..., K, N]` or `x [..., M, K] @ s [K, N]` -> [..., M, N], with s sparse.

    An optional epilogue is part of the same kernel:

        out_scale · activation(alpha · scale · dense_scale · (a @ b) + bias + dense_bias + beta · c)

    s: sparse along K; f16, bf16, e4m3, e5m2, e2m3, e3m2, e2m1, s8, u8, f32, or pairs of 4-bit integers; on the host or on
        the GPU of the dense operand. The host multiplies every pattern of every type. A GPU multiplies 2:4 and V:N:M of 16
        and 8 bits, 1:2 of f32, and all other patterns of these types; GPUs of sm_80 to sm_89 multiply 2:4 of pairs
        (`louver.pack_pairs`), those of sm_120a and sm_121a 2:4 of e2m3, e3m2 and e2m1. For V:N:M and the other patterns,
        the kernel gathers rows of the dense operand.
    dense operand (b or x): the element type of s (floats of up to 8 bits mix, and so do 8-bit integers, and pairs); beside
        pairs, an array of s8 or u8 holds pairs of that sign; beside e2m3, e3m2 or e2m1, one of u8 holds the type of s. On a
        GPU or on the host; any strides. The kernel can read it in place if K or N has unit stride and the other axis a pitch of 16-byte
        multiples. For gathered rows this must be N; for 2:4 of 8 bits and 1:2 of f32, K. Other arrays are copied first.
        Arrays whose rows do not begin with lines of 128 bytes are copied where that takes less time.
    out: the array to write, with contiguous rows. It must not overlap an input, but it may be `c` itself. By default a
        new array of the dense operand's kind.
    out_dtype: f16, bf16, f32, e4m3, e5m2 or s8; for integers also s32. 8-bit types saturate. s8 is rounded to nearest
        even, and NaN becomes 0. By default the type of `out`. Without `out`: the dense operand's type for 16-bit types
        and f32; bf16 for 8-bit floats; s32 for integers, or f16 with an epilogue.
    accumulate: "auto" is "f32", or "s32" for integers, which wraps. For 8-bit floats, the hardware keeps about 14 bits
        of an f32 sum; "fast" is another name for this mode. "promoted", for 8-bit floats: adds the sum of each 256
        columns of K to an f32 sum. It keeps about 14 bits of Σ|a||b| for any K, and is slower. "f16", for f16 and 8-bit
        floats: faster, with 11 bits; partial sums beyond 65,504 become infinite.
    bias, scale: belong to the sparse operand: [M] for s [M, K], [N] for s [K, N]. So bias is added along the last axis
        of x @ s, as in `x @ w + bias`.
    dense_bias, dense_scale: belong to the dense operand: [N] for b, the same for all entries of a batch; for x [M], or
        the shape of x's leading axes.
    c: has the shape of the output, and contiguous rows.
    scale, dense_scale: factors of the operands' values: a number, one f32 on the device, or a vector of f32. Or both are
        powers of two for blocks of 64 columns of K, for 2:4 of floats of up to 8 bits on sm_120a and sm_121a: bytes (u8) x
        for 2^(x - 127), [..., M, K/64] and [..., N, K/64] rounded up, with the leading axes of their operand, or with all
        its rows as one axis.
    out_scale: a number, or one f32 on the device.
    alpha, beta: numbers, 1 by default. Numbers are passed by value, so a new number compiles nothing.
    activation: "relu"; "gelu", by the error function; "gelu_tanh", its approximation; "silu", x / (1 + exp(-x)). The
        error is at most 2^-20 · |x| for an argument x; relu is exact.
    batch_invariant: each sum over K has one order, independent of N. Without it, a schedule may cut K into ranges, in a
        way that depends on N. In both cases, results are the same from run to run.

    bias, dense_bias and c are f16, bf16 or f32. Without any other option, integer products take a bias of s32 instead,
    and add it exactly. The epilogue is computed in f32; sums of integers are rounded to f32 first. NaN stays NaN.

    Leading axes of b are a batch, which one launch computes. s [..., M, K] is a batch of sparse matrices. They share b
    [K, N], or b is [..., K, N] with the same leading axes. A batch is read in place if its entries are one constant
    multiple of 16 bytes apart. In out and c the entries must be one constant distance apart. `x @ s` treats leading
    axes as `linear` with s.mT does.

    A gated pair (`louver.gated`) gives activation(gate) · up. s has M = 2·F rows, and the output has F. bias and scale
    have 2·F elements or rows, those of the gate first. c is not allowed.

    On a GPU, the call sends its work to the caller's current stream and does not wait. Host arrays are copied to the
    GPU and back. The first call of its kind compiles and uploads. This is not possible while a stream is captured: call
    `louver.prepare` before. Without a GPU, the slow reference path computes the same product, and warns once: by
    `louver.NoKernelWarning` if GPUs refuse the product. Without tokens, columns or entries the result is empty, and
    nothing is launched.

    Raises ValueError or TypeError with the rule, before anything is launched or written.
    """
    given = given_of(bias, dense_bias, scale, dense_scale, c, out_scale, alpha, beta)
    if isinstance(b, SparseTensor):
        return _product("linear", b, a, given, activation, out, out_dtype, accumulate, batch_invariant, -2)
    # Checks refuse an operand of another type.
    sparse: Any = a
    return _product("matmul", sparse, b, given, activation, out, out_dtype, accumulate, batch_invariant)


@opaque
def linear(
    x: Array,
    s: SparseTensor,
    bias: Any = None,
    out: Array | None = None,
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
) -> Array:
    """`x [..., K] @ s [out, K].T (+ bias [out])` -> [..., out], like `torch.nn.functional.linear`.

    The options are those of `matmul`. bias and scale are [out], one element for each output. dense_bias and dense_scale
    have one element for each token: shape [tokens], or that of x's leading axes, with or without a last axis of 1. c
    has the shape of the output.

    x may have any strides. It can be read in place if its leading axes join into one axis of constant stride, or into two,
    one of which becomes a batch. Otherwise x is copied. The leading axes of out and c must join in the same way, into
    one axis if dense_bias or a vector dense_scale is given.

    With a batch of weights s [..., out, K], x is [..., tokens, K], or [tokens, K] for all weights. The result is
    [..., tokens, out].
    """
    given = given_of(bias, dense_bias, scale, dense_scale, c, out_scale, alpha, beta)
    return _product("linear", s, x, given, activation, out, out_dtype, accumulate, batch_invariant)


def linear_options(activation: Activation | None) -> Hashable:
    """The options of a call of `linear` by which its warm launch is known, see `WarmCalls.launch`."""
    return ("linear", None, "auto", activation, False)


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
    """The product. axis: the axis along which `s` must be sparse; -2 if `s` is the right operand, which is then
    transposed.
    """
    options = (kind, out_dtype, accumulate, activation, batch_invariant)
    state = state_of(s, axis)
    if state is not None:
        y = state.warm.launch(options, x, given, out)
        if y is not None:
            return y
    if axis == -2:
        check_sparse(s, accumulate, axis)
        s = s.mT
    if kind == "linear":
        y = _recorded(s, x, given, activation, out, out_dtype, accumulate, batch_invariant)
        if y is not None:
            return y
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


def _recorded(
    s: object,
    x: Any,
    given: Given,
    activation: Activation | None,
    out: Any,
    out_dtype: object,
    accumulate: Accumulate,
    batch_invariant: bool,
) -> Any:
    """The product with its gradient, if PyTorch records the call and `louver.torch`, a later room, is imported. None if
    not, and for options whose gradients it does not have.
    """
    room: Any = sys.modules.get("louver.torch")
    trained = any(getattr(each, "requires_grad", False) for each in (x, given.bias, given.scale, given.dense_scale))
    if room is None or not trained or not isinstance(s, SparseTensor):
        return None
    known = given._replace(bias=None, scale=None, dense_scale=None) == NOTHING
    if not known or out is not None or accumulate != "auto" or batch_invariant:
        return None
    return room.recorded_linear(x, s, given.bias, given.scale, given.dense_scale, activation, out_dtype)
