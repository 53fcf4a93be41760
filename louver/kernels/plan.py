"""Plans: a product fixed for one sparse tensor, called with little host time; and making everything ready ahead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

from louver.formats.dtypes import ElementType
from louver.formats.gated import GatedTensor
from louver.formats.tensor import SparseTensor
from louver.frontend.epilogue import NO_EPILOGUE, Activation, Epilogue
from louver.frontend.problem import Batch, BLayout, Kind, Problem
from louver.kernels.batch import placed
from louver.kernels.configure import TILE_N
from louver.kernels.dense import matrices
from louver.kernels.execute import layout_of, run, schedule_for
from louver.kernels.fused import NOTHING, Given, Target, fuse, place_name
from louver.kernels.request import (
    Accumulate,
    Request,
    check_operands,
    check_sparse,
    default_layout,
    output_element,
    output_rows_of,
    problem,
    request,
)
from louver.kernels.state import states
from louver.kernels.warm import WarmCalls
from louver.runtime.arrays import ArrayView, empty_like_kind, view
from louver.runtime.copy2d import load_copies
from louver.runtime.device import Device, require_device
from louver.runtime.device import device as device_of

TILES = 64
"""Columns in whose multiples schedules see an N beyond the narrow tiles: they count tiles, of widths that are multiples."""

_CHANGING = ("dense_bias", "dense_scale", "c", "alpha", "beta")
"""Options that a plan's calls may give anew."""


class Plan:
    """A product of one sparse tensor on one device, made by `louver.plan`. It keeps tensor, operand and options.

    kind, n, batch, activation, accumulate: as planned. entries: which operands of a batch have an entry for each product.
    dense, layout: element type and layout of the dense operand. element: of the output. epilogue, bias: the steps between sum
    and output, and the bias's element type. Threads may share a plan. A CUDA graph that captured a call reads the operand,
    and the options' arrays, on each replay: keep the plan, or the sparse tensor and the arrays, as long as the graph; numbers
    are those of the captured call.
    """

    def __init__(
        self,
        kind: Kind,
        s: SparseTensor,
        n: int,
        given: Given,
        activation: Activation | None,
        epilogue: Epilogue,
        bias: str | None,
        dense: ElementType,
        element: ElementType,
        layout: BLayout,
        place: Device,
        batch: int,
        entries: Batch | None,
        accumulate: str = "auto",
    ) -> None:
        self.kind: Kind = kind
        self.n = n
        self.batch = batch
        self.entries: Batch | None = entries
        self.dense = dense
        self.element = element
        self.layout: BLayout = layout
        self.accumulate = accumulate
        self.device = place
        self._s = s
        self.activation: Activation | None = activation
        self.epilogue = epilogue
        self.bias = bias
        self._given = given
        self._state = states().of(s)
        self._warm = WarmCalls()

    def __call__(
        self,
        x: Any,
        out: Any = None,
        *,
        dense_bias: Any = None,
        dense_scale: Any = None,
        c: Any = None,
        alpha: float | None = None,
        beta: float | None = None,
    ) -> Any:
        """Compute into `out` and return it; without one, into a new array of x's kind.

        x: [..., K] in a linear plan, [K, N] in a matmul plan, in a batch [..., K, N], on the plan's device, of any N; a plan
        for a batch takes any size of it above 1. It is read in place: rows of unit stride in the plan's layout, address, row pitch and what lies between
        entries of a batch multiples of 16 bytes. With `out` nothing is allocated; the
        work goes to the caller's current stream, nothing is waited for, and the call may be captured into a CUDA graph.
        The options take the place of those that the plan was made with, and must ask for the same epilogue: they are what
        changes with x. Raises ValueError or TypeError with the rule, before anything is launched.
        """
        given = self._given
        if not (dense_bias is None and dense_scale is None and c is None and alpha is None and beta is None):
            changed = zip(_CHANGING, (dense_bias, dense_scale, c, alpha, beta), strict=True)
            given = given._replace(**{name: value for name, value in changed if value is not None})
        y = self._warm.launch(None, x, given, out)
        return self._checked(x, given, out) if y is None else y

    def _checked(self, x: Any, given: Given, out: Any) -> Any:
        asked = request(
            self.kind, self._s, x, given, self.activation, out, self.element, self.accumulate, like=self.epilogue
        )
        self._check_kind(asked)
        made = empty_like_kind(asked.dense, asked.shape, asked.element) if out is None else out
        result = view(made) if asked.out is None else asked.out
        self._check_place(asked, result)
        launched = run(self._state, asked, result, n=self.n, batch=self.batch)
        if launched is not None:
            self._warm.keep(None, (x, given, out), asked, result, launched)
        return made

    def _check_kind(self, asked: Request) -> None:
        if asked.dense.device != self.device.ordinal:
            raise ValueError(
                f"the plan is for arrays on {place_name(self.device.ordinal)}, got one on "
                f"{place_name(asked.dense.device)}: make another plan"
            )
        if asked.dense.element != self.dense:
            raise ValueError(
                f"the plan is for dense operands of {self.dense}, got {asked.dense.element}: make another plan, with like=x"
            )
        if asked.fused.epilogue != self.epilogue or asked.fused.bias != self.bias:
            raise ValueError(
                f"the plan is for {self.epilogue} and a bias of {self.bias}, got options for {asked.fused.epilogue} and a bias "
                f"of {asked.fused.bias}: make another plan"
            )

    def _check_place(self, asked: Request, out: ArrayView) -> None:
        at = placed(asked, out)
        if at.kind != self.entries:
            raise ValueError(
                f"the plan is for {_entries_text(self.entries)}, got {_entries_text(at.kind)}: make another plan, with batch=…"
            )
        if at.in_place(self.layout) is None or layout_of(asked, at.dense) != self.layout:
            raise ValueError(
                f"a plan reads its dense operand in place, {self.layout} with address and row pitch multiples of 16 bytes, "
                f"got shape {list(asked.dense.shape)}, strides {list(asked.dense.strides)} and address "
                f"{asked.dense.address:#x}: pad the rows, or call louver.{self.kind}, which copies"
            )

    def __repr__(self) -> str:
        m, k = self._s.shape[-2:]
        return (
            f"Plan({self.kind} {m}×{k} {self._s.dtype}, n={self.n}, {self.layout}, to {self.element}, on {self.device})"
        )


def plan(
    kind: Kind,
    s: SparseTensor,
    n: int,
    *,
    bias: Any = None,
    out_dtype: object = None,
    like: Any = None,
    layout: BLayout | None = None,
    dense_bias: Any = None,
    scale: Any = None,
    dense_scale: Any = None,
    c: Any = None,
    out_scale: Any = None,
    alpha: float | None = None,
    beta: float | None = None,
    activation: Activation | None = None,
    accumulate: Accumulate = "auto",
    batch: int | None = None,
) -> Plan:
    """Fix operand, problem and kernel of a product, for calls with little host time.

    `p = louver.plan("linear", s, n=256, like=x)`, then `p(x, out=y)`.

    kind: "linear" or "matmul". n: N (tokens or columns) that the kernel is chosen for; calls may have any N. out_dtype: as in
    `louver.matmul`. like: an array as calls will have it, which gives the device, the element type and, for "matmul", the
    layout; by default the current device and s's element type. layout: of a matmul's b, "n_major" (row-major [K, N], the
    default for 16-bit types) or "k_major" (its transpose). batch: how many dense operands there are, as in `prepare`; by default
    as many as `like` or s has; of a linear plan with one weight, whose tokens are one axis otherwise, a batch's entries are what
    a second stride walks. bias, dense_bias, scale, dense_scale, c, out_scale, alpha, beta, activation, accumulate: as in
    `louver.matmul`, arrays on the device, for N = n (c [n, out] or [out, n]); the calls read the arrays anew, and may give others.
    Compiles and uploads what calls with aligned and other outputs need. Raises ValueError or TypeError for arguments that no
    product has, NoDeviceError without a GPU, RuntimeError while the stream of `like` is being captured.
    """
    _check_kind(kind, layout)
    check_sparse(s, accumulate)
    _check_range(n, n)
    example = None if like is None else view(like)
    place = require_device() if example is None else _place_of(example)
    dense = s.dtype if example is None else example.element
    check_operands(kind, s, dense)
    chosen = _layout(kind, dense, example, layout)
    if batch is None and example is not None and kind == "matmul":
        batch = prod(example.shape[:-2])
    count, entries = _batch(s, batch)
    given = Given(bias, dense_bias, scale, dense_scale, c, out_scale, alpha, beta)
    if all(value is None for value in given):
        given = NOTHING
    outputs = output_rows_of(s)
    leading = s.shape[:-2] or ((count,) if entries else ())
    shape = (*leading, n, outputs) if kind == "linear" else (*leading, outputs, n)
    fused = fuse(Target(kind, s, shape, n, place.ordinal, isinstance(s, GatedTensor)), given, activation)
    element = output_element(out_dtype, s.dtype, dense, fused.epilogue)
    stream = 0 if example is None else example.stream or 0
    solved = problem(kind, s, dense, chosen, element, fused.bias, fused.epilogue, accumulate, entries)
    _make_ready(s, (n,), solved, place, stream, count)
    return Plan(
        kind,
        s,
        n,
        given,
        activation,
        fused.epilogue,
        fused.bias,
        dense,
        element,
        chosen,
        place,
        count,
        entries,
        accumulate,
    )


def prepare(
    s: SparseTensor,
    n: int | tuple[int, int] = (1, 8192),
    *,
    kind: Kind = "linear",
    bias: bool = False,
    out_dtype: object = None,
    layout: BLayout | None = None,
    device: int | None = None,
    epilogue: Epilogue = NO_EPILOGUE,
    accumulate: Accumulate = "auto",
    batch: int | None = None,
) -> None:
    """Compile, load and upload ahead all that products of `s` with N in a range will use, so that their calls may be captured.

    n: one N, or the least and the greatest. kind, bias (whether there will be one), out_dtype, layout, accumulate: as in `plan`.
    device: ordinal, by default the current one's. epilogue: which other options there will be; that a weight is gated need not
    be said. batch: how many dense operands there are, each with its product: by default as many as s [..., M, K] has matrices,
    else 1; with a batch of matrices 1 stands for one operand that they share. Kernels come from the cache on disk where they have been compiled before.
    Raises ValueError or TypeError for arguments that no product has, NoDeviceError without a GPU.
    """
    low, high, solved, place = wanted(
        s,
        n,
        kind=kind,
        bias=bias,
        out_dtype=out_dtype,
        layout=layout,
        device=device,
        epilogue=epilogue,
        accumulate=accumulate,
        batch=batch,
    )
    _make_ready(s, tuple(_classes(low, high)), solved, place, 0, _batch(s, batch)[0])
    load_copies(place.ordinal, s.dtype.bytes)


def wanted(
    s: SparseTensor,
    n: int | tuple[int, int],
    *,
    kind: Kind = "linear",
    bias: bool = False,
    out_dtype: object = None,
    layout: BLayout | None = None,
    device: int | None = None,
    epilogue: Epilogue = NO_EPILOGUE,
    accumulate: Accumulate = "auto",
    batch: int | None = None,
) -> tuple[int, int, Problem, Device]:
    """What `prepare` is asked for, checked: the least and the greatest N, the problem, the device."""
    _check_kind(kind, layout)
    check_sparse(s, accumulate)
    low, high = (n, n) if isinstance(n, int) else n
    _check_range(low, high)
    place = require_device() if device is None else device_of(device)
    chosen = _layout(kind, s.dtype, None, layout)
    steps = replace(epilogue, gated=isinstance(s, GatedTensor))
    element = output_element(out_dtype, s.dtype, s.dtype, steps)
    addend = "auto" if bias else None
    _, entries = _batch(s, batch)
    return low, high, problem(kind, s, s.dtype, chosen, element, addend, steps, accumulate, entries), place


def _batch(s: SparseTensor, batch: int | None) -> tuple[int, Batch | None]:
    """How many products there are, and which operands have an entry for each, for so many dense operands."""
    weights = prod(s.shape[:-2])
    given = weights if batch is None else batch
    if given < 1 or (weights > 1 and given not in (1, weights)):
        allowed = f"1 or {weights}, as many as s has matrices" if weights > 1 else "at least 1"
        raise ValueError(f"batch is {allowed}, got {given}")
    if weights == 1:
        return given, "dense" if given > 1 else None
    return weights, "both" if given > 1 else "sparse"


def _entries_text(entries: Batch | None) -> str:
    own = {"dense": "dense operands", "sparse": "sparse operands", "both": "operands of both kinds"}
    return "single products" if entries is None else f"a batch of {own[entries]}"


def _make_ready(s: SparseTensor, sizes: Iterable[int], solved: Problem, place: Device, stream: int, batch: int) -> None:
    state = states().of(s)
    m, k = s.shape[-2:]
    schedules = {
        # In order, so that kernels are compiled from the narrowest tile to the widest.
        schedule_for(solved, m, n, k, place, aligned_output=aligned, batch=batch): None
        for n in sizes
        for aligned in (True, False)
    }
    for schedule in schedules:
        state.launcher(s, solved, schedule, place.ordinal, stream)


def _classes(low: int, high: int) -> Iterator[int]:
    """One N for each class of a range whose members all get one schedule."""
    n = low
    while n <= high:
        last = next((width for width in TILE_N if n <= width < TILES), -(-n // TILES) * TILES)
        yield min(last, high)
        n = last + 1


def _check_kind(kind: str, layout: str | None) -> None:
    if kind not in ("linear", "matmul"):
        raise ValueError(f"kind is 'linear' or 'matmul', got {kind!r}")
    if layout not in (None, "k_major", "n_major"):
        raise ValueError(f"layout is 'k_major' or 'n_major', got {layout!r}")
    if kind == "linear" and layout == "n_major":
        raise ValueError("linear takes tokens as [N, K] with K contiguous, got layout 'n_major': use matmul")


def _check_range(low: int, high: int) -> None:
    if not 1 <= low <= high:
        raise ValueError(f"n is at least 1, a range from least to greatest, got {low} to {high}")


def _place_of(example: ArrayView) -> Device:
    if example.device is None:
        raise ValueError("plans are for arrays on a device, got an array on the host as the example: move it there")
    return device_of(example.device)


def _layout(kind: Kind, dense: ElementType, example: ArrayView | None, layout: BLayout | None) -> BLayout:
    if kind == "linear":
        return "k_major"
    if layout is not None or example is None:
        return layout or default_layout(kind, dense)
    if len(example.shape) < 2:
        raise ValueError(f"b must be [..., K, N], got an example of shape {list(example.shape)}")
    found = matrices(example, k_axis=-2).layout
    if found == "copy":
        raise ValueError(f"a plan reads b in place, got an example without unit stride: {list(example.strides)}")
    return found
