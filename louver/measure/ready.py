"""`louver.prepare`: compiles and uploads ahead, and times schedules first if asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from louver.formats.tensor import SparseTensor
from louver.library import prepare as ahead


def prepare(s: SparseTensor, n: int | tuple[int, int] = (1, 8192), *, tune: bool = False, **options: Any) -> None:
    """Compile, load and upload ahead all that products of `s` with N in a range will use, so that their calls may be captured.

    n: one N, or the least and the greatest. options: as in `louver.library.prepare.preparation`: kind ("linear" or "matmul"),
        bias (whether there will be one), out_dtype, layout (of the dense operand), device (ordinal, by default that of `s`, else the current one's).
    Kernels come from the cache on disk where they have been compiled before.
    tune: time schedules first, on random data, for each size class of N, and keep the best for this and later processes, as
    `louver tune` does: minutes, with PyTorch, on its current device.
    Raises ValueError or TypeError for arguments that no product has, NoDeviceError without a GPU, CannotMeasureError where
    tuning cannot run, RuntimeError when the stream that it would time on is being captured.
    """
    wanted = ahead.preparation(s, n, **options)
    if tune:
        _tune(wanted)
    ahead.prepare(wanted)


def _tune(wanted: ahead.Preparation) -> None:
    from louver.measure.machine import require_torch
    from louver.measure.tune import classes_between, tune_and_keep
    from louver.measure.tune_run import Task

    torch = require_torch()
    current, ordinal = torch.cuda.current_device(), wanted.place.ordinal
    if ordinal != current:
        raise ValueError(f"tuning runs on PyTorch's current device, {current}, got {ordinal}: make it current first")
    m, k = wanted.s.shape[-2:]
    # Each product of a batch runs as one alone does, see `decide`.
    alone = replace(wanted.problem, batch=None)
    tasks = [Task(alone, m, each, k) for each in classes_between(wanted.low, wanted.high)]
    for _ in tune_and_keep(torch, tasks, wanted.place):
        pass
