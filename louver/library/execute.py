"""Runs a checked request on a device: copies operands if needed, chooses a kernel, and launches it once."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.library.batch import placed
from louver.library.request import Request
from louver.library.rows import copied_rows, output_rows
from louver.library.state import TensorState
from louver.library.tuned import decide
from louver.library.warm import Placed
from louver.runtime.arrays import ArrayView, view
from louver.runtime.device import Device, device, require_device
from louver.runtime.driver import device_context
from louver.runtime.memory import DeviceArray


def run(
    state: TensorState,
    request: Request,
    out: ArrayView,
    *,
    n: int | None = None,
    batch: int | None = None,
    dependent: bool = False,
) -> Placed | None:
    """Compute into `out`, [..., M, N] for "matmul", [..., M] for "linear", in the order of its stream.

    Host arrays are copied through device memory, and the call waits for the result.

    n, batch: N and the number of products for which the kernel is chosen; by default those of the request.
    dependent: see `louver.plan`.

    Returns the launch if it can be repeated; None if an array was copied first.
    """
    if out.device is None:
        _run_host(state, request, out)
        return None
    # A thread that has not used the GPU yet has no context. The context is set once here, not by each driver call.
    with device_context(out.device):
        return _run_device(state, request, out, n, batch, dependent=dependent)


def _run_device(
    state: TensorState, request: Request, out: ArrayView, n: int | None, batch: int | None, *, dependent: bool
) -> Placed | None:
    at = placed(request, out)
    layout = at.layout
    result = output_rows(at.out)
    place, stream = device(out.device or 0), out.stream or 0
    problem = request.problem(layout, at.kind)
    m, k = request.s.shape[-2:]
    planned = n or at.n, batch or at.batch
    invariant = request.batch_invariant
    schedule = schedule_for(
        problem,
        m,
        planned[0],
        k,
        place,
        aligned_output=result.bulk_writable,
        batch=planned[1],
        batch_invariant=invariant,
        dependent=dependent,
    )
    launcher = state.launcher(request.s, problem, schedule, place.ordinal, stream, batch_invariant=invariant)
    in_place = at.in_place
    rows = at.regrouped(copied_rows(at.dense, layout, place.ordinal, stream)) if in_place is None else in_place
    fused = request.fused.placed(at.c)
    sized = launcher.sized(at.n, rows, result, planned)
    launcher.bound(sized, rows, result, fused.bind(fused.places), stream)()
    if in_place is None:
        return None
    # The record for the next call must not keep the caller's arrays alive.
    return Placed(launcher, sized, rows.moved(rows.address), result.moved(result.address), fused)


@functools.lru_cache(maxsize=1024)
def schedule_for(
    problem: Problem,
    m: int,
    n: int,
    k: int,
    place: Device,
    *,
    aligned_output: bool,
    batch: int = 1,
    batch_invariant: bool = False,
    dependent: bool = False,
) -> Schedule:
    """The schedule of a product `a [m, k] @ b [k, n]`, or of a batch of them, on a device. A schedule that was measured
    before has precedence over the choice of the time model.
    """
    return decide(
        problem,
        m,
        n,
        k,
        place,
        aligned_output=aligned_output,
        batch=batch,
        batch_invariant=batch_invariant,
        dependent=dependent,
    ).schedule


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
