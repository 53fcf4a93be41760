"""Checks a caller's request for a product. Every entry point of products uses this module."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

from louver.formats.dtypes import (
    ElementType,
    ElementTypeError,
    check_switch,
    element_type,
    read_beside,
    shown,
)
from louver.formats.gated import GatedTensor
from louver.formats.pattern import Operation, has_kernels, without_kernels
from louver.formats.tensor import SparseTensor
from louver.frontend.epilogue import NO_EPILOGUE, Activation, Epilogue
from louver.frontend.problem import PRODUCTS, Batch, BLayout, Kind, Problem, modes_of
from louver.ir.product import selection_of
from louver.isa.wgmma import TRANSPOSABLE
from louver.library.dense import check_output, named_view
from louver.library.fused import Fused, Given, Target, fuse
from louver.runtime.arrays import ArrayView, empty_like_kind

Accumulate = Literal["auto", "f32", "f16", "fast", "promoted", "s32"]
"""Ways to accumulate, see `louver.frontend.problem.modes_of`."""


@dataclass(frozen=True, slots=True)
class Request:
    """A checked product of `s` with `dense`.

    dense: the caller's array, with any number of leading axes.
    fused: the options of the epilogue.
    element, shape: element type and shape of the output.
    out: the caller's output; None to allocate one.
    accumulate: one of `Accumulate`.
    batch_invariant: see `louver.matmul`.
    """

    kind: Kind
    s: SparseTensor
    dense: ArrayView
    fused: Fused
    element: ElementType
    shape: tuple[int, ...]
    out: ArrayView | None
    accumulate: str = "auto"
    batch_invariant: bool = False

    @property
    def weights(self) -> tuple[int, ...]:
        """The sizes of the leading axes of `s`; empty for a single matrix."""
        return self.s.shape[:-2]

    @property
    def empty(self) -> bool:
        """Whether the output has no elements: no tokens, no columns, or an empty batch."""
        return 0 in self.shape

    def made(self, out: Any) -> Any:
        """The caller's output, or a new array of the dense operand's kind."""
        return empty_like_kind(self.dense, self.shape, self.element) if out is None else out

    def problem(self, layout: BLayout, batch: Batch | None) -> Problem:
        """The problem of the kernel.

        layout: layout of the dense operand.
        batch: the operands that are batches; None for a single product.
        """
        fused = self.fused
        return problem(
            self.kind,
            self.s,
            self.dense.element,
            layout,
            self.element,
            fused.bias,
            fused.epilogue,
            self.accumulate,
            batch,
        )


def request(
    kind: Kind,
    s: SparseTensor,
    x: Any,
    given: Given,
    activation: Activation | None,
    out: Any,
    out_dtype: Hashable,
    accumulate: str = "auto",
    like: Epilogue | None = None,
    *,
    batch_invariant: bool = False,
) -> Request:
    """Check the arguments of `matmul` or `linear`. Raises ValueError or TypeError that names the broken rule.

    like: the expected epilogue, see `Target`.
    """
    check_sparse(s, accumulate)
    check_switch("batch_invariant", batch_invariant)
    dense = operand_view(kind, s, x)
    shape = output_shape(kind, s, dense)
    n = prod(shape[len(s.shape) - 2 : -1]) if kind == "linear" else shape[-1]
    columns = dense.shape[:-1] if kind == "linear" else (*dense.shape[:-2], n)
    gated = isinstance(s, GatedTensor)
    fused = fuse(Target(kind, s, shape, columns, n, dense.device, gated, like), given, activation)
    if fused.epilogue.scaled and accumulate not in ("auto", "f32", "fast"):
        raise ValueError(
            f'products with scales of blocks are summed in f32, got accumulate="{accumulate}": leave it out'
        )
    outputs = PRODUCTS[s.dtype.name, dense.element.name]
    target = None if out is None else named_view("out", out, outputs)
    wanted = target.element if out_dtype is None and target is not None else out_dtype
    element = output_element(wanted, s.dtype, dense.element, fused.epilogue)
    if target is not None:
        read = tuple(array for name, array in fused.arrays.items() if name != "c")
        check_output(target, shape, element, (dense, *read), fused.arrays.get("c"))
    return Request(kind, s, dense, fused, element, shape, target, accumulate, batch_invariant)


def output_rows_of(s: SparseTensor) -> int:
    """Outputs for each dense column: the number of sparse rows, or half of it for a gated pair."""
    return s.shape[-2] // 2 if isinstance(s, GatedTensor) else s.shape[-2]


def turned(kind: Kind | None, s: Any) -> tuple[Kind, Any]:
    """The kind of a product, and its sparse operand as [..., M, K].

    x @ s with s [..., K, N] sparse along K is the linear product with s.mT. So the kind "matmul" or None with such a
    tensor gives ("linear", s.mT). For every other operand, None gives "linear".
    """
    right = kind != "linear" and isinstance(s, SparseTensor) and s.axis == len(s.shape) - 2
    return ("linear", s.mT) if right else (kind or "linear", s)


def check_sparse(s: object, accumulate: object = "auto", axis: int = -1) -> None:
    """Raises TypeError or ValueError unless products take `s`: a sparse matrix, or a batch of them.

    axis: the axis along which `s` must be sparse: -1, or -2 on the right of a dense operand.
    """
    if not isinstance(s, SparseTensor):
        raise TypeError(f"s must be a louver.SparseTensor, got {type(s).__name__}: use louver.compress(w, '2:4')")
    if len(s.shape) < 2 or s.axis != len(s.shape) + axis:
        rule, instead = _SIDES[axis]
        raise ValueError(f"s must be {rule}, got shape {list(s.shape)}, axis {s.axis}: {instead}")
    if 0 in s.shape:
        raise ValueError(f"s must have at least one row and one column, got shape {list(s.shape)}")
    types = tuple(dict.fromkeys(a for a, _ in PRODUCTS))
    if s.dtype.name not in types:
        raise ValueError(
            f"products take {', '.join(types[:-1])} and {types[-1]}, got {s.dtype}: convert the weight before compress"
        )
    modes = modes_of(s.dtype.name)
    if not isinstance(accumulate, str) or accumulate not in ("auto", *modes):
        known = " or ".join(f'"{mode}"' for mode in ("auto", *modes))
        raise ValueError(f"accumulate must be {known} for {s.dtype}, got {shown(accumulate)}")


def check_kernel(s: SparseTensor) -> None:
    """Raises ValueError if no kernel multiplies the pattern and element type of `s`. Only the host computes such
    products.
    """
    rule = broken_rule(s)
    if rule is not None:
        raise ValueError(
            f"{rule}: convert the weight before compress, as w.astype(np.float16) does, or by `louver prune --compressed --dtype f16`, prune "
            "it to another pattern, or give arrays on the host"
        )


def broken_rule(s: SparseTensor) -> str | None:
    """The rule that `s` breaks if no kernel multiplies its pattern and element type on a GPU, else None."""
    products: Operation = "gated products" if isinstance(s, GatedTensor) else "products"
    pattern, element = str(s.pattern), s.dtype.name
    return None if has_kernels(products, pattern, element) else without_kernels(products, pattern, element)


_SIDES = {
    -1: (
        "[..., M, K], sparse along K, its last axis",
        "a weight [K, N] that is sparse along K multiplies from the right, louver.matmul(x, s)",
    ),
    -2: (
        "[..., K, N], sparse along K, its last axis but one, on the right of x",
        "multiply by a weight [out, K] with louver.linear(x, s), and compress one [K, N] with axis=-2",
    ),
}
"""For the axis along which a sparse operand must be sparse: the rule, and the advice for another operand."""


def operand_view(kind: Kind, s: SparseTensor, x: Any) -> ArrayView:
    """The dense operand, see `read_beside`. Raises TypeError if `x` is not an array, ValueError if products do not take its
    element type with that of `s`.
    """
    name = "x" if kind == "linear" else "b"
    dense = named_view(name, x, [b for a, b in PRODUCTS if a == s.dtype.name])
    dense = replace(dense, element=read_beside(dense.element, s.dtype))
    if (s.dtype.name, dense.element.name) not in PRODUCTS:
        raise ValueError(
            f"{name} and s must have one element type, got {dense.element} and {s.dtype}: convert one (floats of up to 8 bits "
            "mix, and so do 8-bit integers)"
        )
    check_place(s, dense.device, name)
    return dense


def check_place(s: SparseTensor, ordinal: int | None, name: str) -> None:
    """Raises ValueError if `s` and the other operand are on different GPUs. Host arrays are allowed: they are sent to
    the GPU of `s`.

    ordinal: device of the other operand; None for the host.
    name: name of the other operand.
    """
    if None not in (s.device, ordinal) and ordinal != s.device:
        raise ValueError(
            f"{name} and s must be on one GPU, got {name} on cuda:{ordinal} and s on cuda:{s.device}: move one, by s.to(…)"
        )


def output_element(
    out_dtype: object, s: ElementType, dense: ElementType, epilogue: Epilogue = NO_EPILOGUE
) -> ElementType:
    """The output's element type: `out_dtype`, or by default the first type that these operands and this epilogue allow.

    Raises ValueError for a type that such products do not write.
    """
    all_outputs = PRODUCTS[s.name, dense.name]
    outputs = [name for name in all_outputs if name != "s32" or not epilogue.floating]
    try:
        return element_type(outputs[0] if out_dtype is None else out_dtype, outputs)
    except ElementTypeError as error:
        steps = " with an epilogue, which computes in f32," if epilogue.floating and "s32" in all_outputs else ""
        raise ValueError(
            f"out_dtype must be {', '.join(outputs)}{steps} for operands of {s} and {dense}, got {error.given}"
        ) from None


def gathers(s: SparseTensor) -> bool:
    """Whether products of `s` gather rows of the dense operand."""
    return selection_of(str(s.pattern)).indexed


def default_layout(kind: Kind, s: SparseTensor, dense: ElementType) -> BLayout:
    """The layout in which a product reads row-major data.

    Gathered rows are N-major. Otherwise tokens are K-major. The operand of a matmul is N-major if tensor cores can
    transpose its element type, else K-major.
    """
    return "n_major" if gathers(s) or (kind == "matmul" and dense.name in TRANSPOSABLE) else "k_major"


def problem(
    kind: Kind,
    s: SparseTensor,
    dense: ElementType,
    layout: BLayout,
    out: ElementType,
    bias: str | None,
    epilogue: Epilogue = NO_EPILOGUE,
    accumulate: str = "auto",
    batch: Batch | None = None,
) -> Problem:
    """The problem of a product of `s`.

    dense: element type of the dense operand.
    layout: layout of the dense operand.
    out: element type of the output.
    bias: element type of the bias, or "auto"; None without a bias.
    batch: the operands that are batches; None for a single product.
    """
    return Problem(
        kind=kind,
        a=s.dtype.name,
        b=dense.name,
        out=out.name,
        accumulate=accumulate,
        pattern=str(s.pattern),
        b_layout=layout,
        bias=None if bias is None else "row",
        bias_element=bias or "auto",
        epilogue=epilogue,
        batch=batch,
    )


def output_shape(kind: Kind, s: SparseTensor, dense: ArrayView) -> tuple[int, ...]:
    """The shape of the output. Raises ValueError if the shape of the dense operand does not fit that of `s`."""
    m, k, weights = output_rows_of(s), s.shape[-1], s.shape[:-2]
    shape = dense.shape
    if not weights and kind == "linear":
        if not shape or shape[-1] != k:
            turn = ": transpose it" if len(shape) > 1 and shape[-2] == k else ""
            raise ValueError(f"x must be [..., K] with K = {k}, got shape {list(shape)}{turn}")
        return (*shape[:-1], m)
    k_axis = -1 if kind == "linear" else -2
    if len(shape) < 2 or shape[k_axis] != k or (weights and shape[:-2] not in ((), weights)):
        name, axes = ("x", "N, K") if kind == "linear" else ("b", "K, N")
        one = f"[{axes}] or [{', '.join(map(str, weights))}, {axes}]" if weights else f"[..., {axes}]"
        raise ValueError(f"{name} must be {one} with K = {k}, got shape {list(shape)}")
    batch = weights or shape[:-2]
    return (*batch, shape[-2], m) if kind == "linear" else (*batch, m, shape[-1])
