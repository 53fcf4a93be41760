"""Prepares all calls with N in a range: compiles and loads kernels, uploads operands."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Unpack, cast

from louver.choose.reasons import Why, reasons_for
from louver.choose.tile_shapes import column_class
from louver.choose.tuned import Terms
from louver.compile.plan.register_tiles import AnySchedule
from louver.formats.dtypes import check_switch, integer
from louver.formats.gated import GatedTensor
from louver.formats.tensor import SparseTensor
from louver.frontend.epilogue import NO_EPILOGUE, Epilogue
from louver.frontend.problem import MAX_SIZE, Batch, BLayout, Kind, Problem
from louver.isa.targets import target as target_named
from louver.library.compiled import record_of
from louver.library.execute import schedule_for
from louver.library.request import (
    Accumulate,
    check_kernel,
    check_place,
    check_sparse,
    default_layout,
    gathers,
    output_element,
    problem,
    turned,
)
from louver.library.state import TensorState
from louver.runtime.copy2d import load_copies
from louver.runtime.device import Device, require_device
from louver.runtime.device import device as device_of


@dataclass(frozen=True, slots=True)
class Preparation:
    """The products to prepare: those of a problem on a device, with N from `low` to `high`.

    s: the sparse operand of the problem, [..., M, K].
    batch: the number of products in a batch.
    batch_invariant: see `louver.matmul`.
    """

    s: SparseTensor
    low: int
    high: int
    problem: Problem
    place: Device
    batch: int
    batch_invariant: bool = False

    @property
    def parts(self) -> list[tuple[Problem, int, int]]:
        """The problems of the calls, each with the least and the greatest N: calls with one N may have their own."""
        one = _as_called(self.problem, self.s.shape[-2], 1)
        if one == self.problem or not self.low <= 1 < self.high:
            return [(self.problem, self.low, self.high)]
        return [(one, self.low, 1), (self.problem, 2, self.high)]


def preparation(
    s: SparseTensor,
    n: int | tuple[int, int] = (1, 8192),
    *,
    kind: Kind | None = None,
    bias: bool = False,
    out_dtype: object = None,
    layout: BLayout | None = None,
    device: int | None = None,
    epilogue: object = NO_EPILOGUE,
    accumulate: Accumulate = "auto",
    batch: int | None = None,
    batch_invariant: bool = False,
) -> Preparation:
    """The products of `s` that calls with N in a range will use.

    n: one N, or the least and the greatest N; 0 is allowed.
    kind: see `louver.plan`. By default "linear", or "matmul" for a weight [..., K, N] that is sparse along K.
    bias: whether the calls have a bias.
    out_dtype, layout, accumulate, batch_invariant: see `louver.plan`.
    device: ordinal; by default the device of `s`, else the current device.
    epilogue: the other options of the calls. Whether a weight is gated is known from `s`.
    batch: the number of dense operands, each with its own product; by default the number of matrices of s [..., M, K].
        For a batch of matrices, 1 means one operand that all of them share.

    Raises ValueError or TypeError for invalid arguments, NoDeviceError without a GPU.
    """
    check_kind("linear" if kind is None else kind, layout)
    kind, s = turned(kind, s)
    check_sparse(s, accumulate)
    check_kernel(s)
    check_switch("bias", bias)
    check_switch("batch_invariant", batch_invariant)
    low, high = size_range(n)
    if not isinstance(epilogue, Epilogue):
        raise TypeError(f"epilogue is a louver.Epilogue, got {type(epilogue).__name__}")
    chosen = layout or default_layout(kind, s, s.dtype)
    steps = replace(epilogue, gated=isinstance(s, GatedTensor))
    element = output_element(out_dtype, s.dtype, s.dtype, steps)
    count, entries = batch_of(s, batch)
    addend = "auto" if bias else None
    wanted = problem(kind, s, s.dtype, chosen, element, addend, steps, accumulate, entries)
    place = _place_of(s, device)
    return Preparation(s, low, high, _as_called(wanted, s.shape[-2], high), place, count, batch_invariant)


def _as_called(solved: Problem, rows: int, n: int) -> Problem:
    """The problem of calls with this N: they read a vector with one element as the scale of the whole operand."""
    steps = solved.epilogue
    # The tokens of all entries of such a batch have one vector.
    single = n == 1 and (solved.kind, solved.batch) != ("linear", "dense")
    scale = "tensor" if steps.scale == "row" and rows == 1 else steps.scale
    dense_scale = "tensor" if steps.dense_scale == "column" and single else steps.dense_scale
    return replace(solved, epilogue=replace(steps, scale=scale, dense_scale=dense_scale))


def _place_of(s: SparseTensor, device: int | None) -> Device:
    if device is None:
        return require_device() if s.device is None else device_of(s.device)
    ordinal = integer(device, "device is an ordinal, 0 for the first GPU")
    check_place(s, ordinal, "the product")
    return device_of(ordinal)


def prepare(wanted: Preparation) -> None:
    """Compile, load and upload in advance, so that calls can be captured. Kernels that were compiled before come from
    the cache on disk.
    """
    for solved, low, high in wanted.parts:
        # Calls copy some operands [K, N] to rows along K.
        copied = solved if gathers(wanted.s) else replace(solved, b_layout="k_major")
        for each in dict.fromkeys((solved, copied)):
            terms = Terms(batch=wanted.batch, batch_invariant=wanted.batch_invariant)
            make_ready(wanted.s, _classes(low, high), each, wanted.place, **terms)
    load_copies(wanted.place.ordinal, wanted.s.dtype.bytes)


def compile_together(wanted: Iterable[Preparation]) -> int:
    """Compile the kernels of calls with aligned outputs into the cache, side by side, and return their number. Most of the
    time is that of the assembler, a process of its own for each kernel.
    """
    kernels: dict[tuple[Problem, AnySchedule, str], Why] = {}
    for each in wanted:
        for solved, low, high in each.parts:
            for n in _classes(low, high):
                asked = solved, each.s.shape[-2], n, each.s.shape[-1], each.place
                key = solved, schedule_for(*asked, aligned_output=True, batch=each.batch), each.place.target
                kernels.setdefault(key, partial(reasons_for, *asked, aligned_output=True, batch=each.batch))
    with ThreadPoolExecutor(max(1, min(len(kernels), os.cpu_count() or 1))) as pool:
        for made in [pool.submit(record_of, *key, why) for key, why in kernels.items()]:
            made.result()
    return len(kernels)


def make_ready(
    s: SparseTensor,
    sizes: Iterable[int],
    solved: Problem,
    place: Device,
    stream: int = 0,
    **terms: Unpack[Terms],
) -> None:
    """Make the launchers that calls of a problem with these N will use, for aligned and for other outputs."""
    state = s.derived.of(TensorState)
    m, k = s.shape[-2:]
    # A dict keeps the order, so kernels are compiled from the narrowest tile to the widest.
    schedules: dict[AnySchedule, Why] = {}
    for n in sizes:
        for aligned in (True, False):
            asked = partial(schedule_for, solved, m, n, k, place, aligned_output=aligned, **terms)
            schedules.setdefault(asked(), partial(reasons_for, *asked.args, **asked.keywords))
    for schedule, why in schedules.items():
        state.launcher(s, solved, schedule, place.ordinal, stream, why=why)


def batch_of(s: SparseTensor, batch: int | None) -> tuple[int, Batch | None]:
    """The number of products for which kernels are chosen, and the operands that are batches.

    batch: the number of dense operands; None for the number of matrices of `s`.
    """
    weights = prod(s.shape[:-2])
    given = weights if batch is None else _count("batch", batch)
    if weights > 1 and given not in (1, weights):
        raise ValueError(f"batch is 1 or {weights}, as many as s has matrices, got {given}")
    if weights == 1:
        return max(given, 1), None if given == 1 else "dense"
    return weights, "both" if given > 1 else "sparse"


def check_kind(kind: object, layout: object) -> None:
    """Raises TypeError or ValueError for an invalid kind of product or layout of the dense operand."""
    for name, value in (("kind", kind), ("layout", layout)):
        if not isinstance(value, str | None):
            raise TypeError(f"{name} is a text, got {type(value).__name__}")
    if kind not in ("linear", "matmul"):
        raise ValueError(f"kind is 'linear' or 'matmul', got {kind!r}")
    if layout not in (None, "k_major", "n_major"):
        raise ValueError(f"layout is 'k_major' or 'n_major', got {layout!r}")


def check_target(target: object) -> None:
    """Raises TypeError or ValueError for a value that is neither None nor the name of a target."""
    if not isinstance(target, str | None):
        raise TypeError(f"target is a text such as 'sm_80', got {type(target).__name__}")
    if target is not None:
        target_named(target)


def size_range(n: object) -> tuple[int, int]:
    """The least and the greatest N, from one N or a pair. Raises TypeError or ValueError for an invalid N."""
    pair = cast("tuple[object, ...]", n) if isinstance(n, tuple | list) else (n, n)
    if len(pair) != 2:
        raise ValueError(f"n is one number or a pair, from least to greatest, got {len(pair)} numbers")
    low, high = (_count("n", each) for each in pair)
    if low > high:
        raise ValueError(f"n is one number or a pair, from least to greatest, got {low} to {high}")
    return low, high


def _count(name: str, value: object) -> int:
    rule = f"{name} is an integer from 0 to {MAX_SIZE:,}"
    number = integer(value, rule)
    if not 0 <= number <= MAX_SIZE:
        raise ValueError(f"{rule}, got {number}")
    return number


def _classes(low: int, high: int) -> Iterator[int]:
    """The classes of the N in the range. N = 0 needs no kernel."""
    n = max(low, 1)
    while n <= high:
        n = column_class(n)
        yield n
        n += 1
