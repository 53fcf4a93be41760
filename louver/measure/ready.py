"""`louver.prepare`: compiles and uploads in advance. Tunes schedules first if asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from louver.formats.dtypes import check_switch
from louver.formats.dynamo import opaque
from louver.formats.tensor import SparseTensor
from louver.library import prepare as ahead


@opaque
def prepare(s: SparseTensor, n: int | tuple[int, int] = (1, 8192), *, tune: bool = False, **options: Any) -> None:
    """Compile, load and upload everything that products of `s` use for a range of N, so that calls can be captured.

    n: one N, or the least and the greatest. options: as in `louver.library.prepare.preparation`: kind ("linear" or
    "matmul"), bias (whether there is one), out_dtype, layout (of the dense operand), device (ordinal; default: of `s`,
    else the current one).
    tune: first time schedules on random data for each size class of N, and keep the best for later, like `louver tune`.
    This takes minutes and PyTorch, on its current device. Kernels compiled before come from the cache on disk.
    Raises ValueError or TypeError for arguments without a product, NoDeviceError without a GPU, CannotMeasureError if
    tuning cannot run, RuntimeError while the stream for the timings is being captured.
    """
    check_switch("tune", tune)
    wanted = ahead.preparation(s, n, **options)
    if tune:
        _tune(wanted)
    ahead.prepare(wanted)


def _tune(wanted: ahead.Preparation) -> None:
    from louver.isa.targets import TARGETS
    from louver.measure.machine import require_torch
    from louver.measure.tune import classes_between, tune_and_keep
    from louver.measure.tune_run import Task

    torch = require_torch(TARGETS)
    current, ordinal = torch.cuda.current_device(), wanted.place.ordinal
    if ordinal != current:
        raise ValueError(f"tuning runs on PyTorch's current device, {current}, got {ordinal}: make it current first")
    m, k = wanted.s.shape[-2:]
    # Each product of a batch runs like a single product, see `decide`.
    alone = replace(wanted.problem, batch=None)
    tasks = [Task(alone, m, each, k) for each in classes_between(wanted.low, wanted.high)]
    for _ in tune_and_keep(torch, tasks, wanted.place):
        pass
