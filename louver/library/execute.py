"""Runs a checked request on a device: copies operands if needed, chooses a kernel, and launches it once."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np

from louver.choose.demand import Demand
from louver.choose.ranges import Cutting
from louver.choose.reasons import Why, reasons_for
from louver.choose.tile_shapes import column_class
from louver.choose.times import copy_clocks
from louver.choose.tuned import Terms, decide
from louver.compile.plan.register_tiles import AnySchedule, RegisterTiles
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import BLayout, Problem
from louver.library.batch import placed
from louver.library.copied import RowCopy
from louver.library.request import Request
from louver.library.rows import Rows, output_rows
from louver.library.state import TensorState
from louver.library.warm import Placed
from louver.runtime.arrays import ArrayView, view
from louver.runtime.copy2d import check_copies, has_copies
from louver.runtime.device import Device, device, require_device
from louver.runtime.dlpack import row_major
from louver.runtime.driver import device_context, is_capturing
from louver.runtime.memory import DeviceArray, DeviceBuffer
from louver.runtime.violations import check_violations

COPY_GAIN = 0.95
"""Most time of copy and product, as a share of the product's time in place. The copy also takes time on the host."""


def run(
    state: TensorState,
    request: Request,
    out: ArrayView,
    *,
    n: int | None = None,
    batch: int | None = None,
    dependent: bool = False,
    in_place: bool = False,
    form: str | None = None,
) -> Placed | None:
    """Compute into `out`, [..., M, N] for "matmul", [..., M] for "linear", in the order of its stream.

    Host arrays are copied through device memory, and the call waits for the result.

    n, batch: N and the number of products for which the kernel is chosen; by default those of the request.
    dependent: see `louver.plan`.
    in_place: whether the dense operand is read in place even if a copy takes less time.
    form: see `tuned.decide`.

    Returns the launch if it can be repeated; None for host arrays, and for tokens that are copied twice. Raises AddressError
    for what a kernel with computed addresses has reported.
    """
    check_violations()
    if out.device is None:
        _run_host(state, request, out)
        return None
    # A thread that has not used the GPU yet has no context. The context is set once here, not by each driver call.
    with device_context(out.device):
        return _run_device(state, request, out, (n, batch), dependent=dependent, in_place=in_place, form=form)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A way to read the dense operand.

    rows: the operand as the kernel reads it.
    why: makes the reasons for the schedule.
    copy: the copy that writes these rows; None if they are in place.
    """

    problem: Problem
    schedule: AnySchedule
    rows: Rows
    why: Why
    copy: RowCopy | None = None

    def clocks(self, sizes: tuple[int, int, int, int], place: Device) -> float:
        """Predicted clocks of the copy and the product. sizes: M, N, K and the number of products."""
        assert isinstance(self.schedule, Schedule), "register tiles read operands in place if they can"
        product = _product_clocks(self.problem, self.schedule, self.rows.row_clocks, sizes, place.sm_count)
        return product + (copy_clocks(self.copy.nbytes) if self.copy else 0)


@functools.lru_cache(maxsize=1024)
def _product_clocks(
    problem: Problem, schedule: Schedule, row: float, sizes: tuple[int, int, int, int], sm_count: int
) -> float:
    demand = Demand.of_problem(problem)
    m, n, whole, batch = sizes
    cutting, k = Cutting.of(demand, schedule, row=row), demand.depth(whole, schedule.ring.metadata)
    cut = cutting.best(m, n, k, batch, sm_count) if schedule.cuts else cutting.whole(m, n, k, batch)
    return cutting.cycles(cut, m, n, k, batch, sm_count)


def _run_device(
    state: TensorState,
    request: Request,
    out: ArrayView,
    planned: tuple[int | None, int | None],
    *,
    dependent: bool,
    in_place: bool,
    form: str | None,
) -> Placed | None:
    at = placed(request, out)
    result = output_rows(at.out)
    place, stream = device(out.device or 0), out.stream or 0
    if at.gathers and at.dense.n != at.n:
        # A copy along N cannot join axes of tokens.
        joined, _memory = _joined(request, RowCopy.of(at.dense, "k_major"), place.ordinal, stream)
        _run_device(state, joined, out, planned, dependent=dependent, in_place=in_place, form=form)
        return None
    n, batch = planned[0] or at.n, planned[1] or at.batch
    m, k = request.s.shape[-2:]

    def reading(layout: BLayout, rows: Rows, copy: RowCopy | None = None) -> _Reading:
        problem = request.problem(layout, at.kind)
        asked = problem, m, column_class(n), k, place
        terms = Terms(batch=batch, batch_invariant=request.batch_invariant, dependent=dependent, form=form)
        schedule = schedule_for(*asked, aligned_output=result.bulk_writable, **terms)
        why = functools.partial(reasons_for, *asked, aligned_output=result.bulk_writable, **terms)
        return _Reading(problem, schedule, rows, why, copy)

    chosen = None if at.in_place is None else reading(at.layout, at.in_place)
    tiles = chosen is not None and isinstance(chosen.schedule, RegisterTiles)
    if chosen is None or (chosen.rows.row_clocks and not in_place and not tiles):
        copy = RowCopy.of(at.dense, at.copied_layout)
        copied = reading(at.copied_layout, at.regrouped(copy.rows), copy)
        sizes = m, n, k, batch
        if chosen is None:
            chosen = copied
        elif copied.clocks(sizes, place) < COPY_GAIN * chosen.clocks(sizes, place):
            ready = state.has_launcher(copied.problem, copied.schedule, place.ordinal)
            ready = ready and has_copies(place.ordinal, copy.rows.element_bytes, copy.strides)
            # A capture loads nothing.
            chosen = copied if ready or not is_capturing(stream) else chosen
    launcher = state.launcher(
        request.s,
        chosen.problem,
        chosen.schedule,
        place.ordinal,
        stream,
        batch_invariant=request.batch_invariant,
        why=chosen.why,
    )
    fused = request.fused.placed(at.c)
    sized = launcher.sized(at.n, chosen.rows, result, (n, batch))
    # The record for the next call must not keep the caller's arrays alive.
    rows, written = chosen.rows.moved(chosen.rows.address), result.moved(result.address)
    launch = Placed(launcher, sized, rows, chosen.copy, out.kind, written, fused)
    launch.at(request.dense.address, result.address, stream, *fused.places)()
    return launch


def _joined(request: Request, copy: RowCopy, ordinal: int, stream: int) -> tuple[Request, DeviceBuffer]:
    """A linear product of tokens [..., K] with a copy of them, whose leading axes join; and the memory of the copy."""
    check_copies(ordinal, copy.rows.element_bytes, copy.strides, stream)
    memory, dense = DeviceBuffer(copy.nbytes, ordinal=ordinal, stream=stream), request.dense
    for launch in copy.bound(dense.address, memory.address, ordinal, stream):
        launch()
    pitch = copy.rows.pitch // copy.rows.element_bytes
    strides = (*(pitch * step for step in row_major(dense.shape[:-1])), 1)
    return replace(request, dense=replace(dense, address=memory.address, strides=strides, owner=memory)), memory


@functools.lru_cache(maxsize=1024)
def schedule_for(
    problem: Problem,
    m: int,
    n: int,
    k: int,
    place: Device,
    *,
    aligned_output: bool,
    **terms: Unpack[Terms],
) -> AnySchedule:
    """The schedule of a product `a [m, k] @ b [k, n]`, or of a batch of them, on a device. A schedule that was measured
    before has precedence over the choice of the time model. terms: see `tuned.decide`.
    """
    return decide(problem, m, n, k, place, aligned_output=aligned_output, **terms).schedule


def _run_host(state: TensorState, request: Request, out: ArrayView) -> None:
    if out.host is None:
        raise ValueError("a host output has a NumPy view")
    ordinal = require_device().ordinal if request.s.device is None else request.s.device

    def uploaded(array: ArrayView) -> ArrayView:
        return view(DeviceArray.of(array.to_numpy(), ordinal=ordinal))

    result = DeviceArray.empty(out.shape, out.element, ordinal=ordinal)
    run(
        state,
        replace(request, dense=uploaded(request.dense), fused=request.fused.moved(uploaded), out=None),
        view(result),
    )
    np.copyto(out.host, result.numpy())
