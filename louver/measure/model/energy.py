"""Joules of a GPU over seconds of the same work."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from louver.measure.machine import gpu_uuid
from louver.measure.sustained import Sampler, mean_between

SETTLE_SECONDS = 1.0
SECONDS = 2.0


def joules_of_a_call(torch: Any, call: Callable[[], Any]) -> tuple[float, str]:
    """The joules of a call, mean of about `SECONDS` of calls after `SETTLE_SECONDS` of the same, and how they were
    found: NVML's counter of energy where its Python package is installed, else mean power of nvidia-smi times seconds.

    Raises OSError if neither works.
    """
    call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    once = max(time.perf_counter() - begin, 1e-6)
    _repeat(torch, call, max(1, round(SETTLE_SECONDS / once)))
    count = max(1, round(SECONDS / once))
    counter = _counter(torch)
    if counter is not None:
        before = counter()
        _repeat(torch, call, count)
        return (counter() - before) / count, "NVML's counter of energy"
    with Sampler(gpu_uuid(torch)) as sampler:
        begin = time.monotonic()
        _repeat(torch, call, count)
        end = time.monotonic()
    means = mean_between(sampler.samples, begin, end)
    if means is None:
        raise OSError("joules are read by nvidia-ml-py or nvidia-smi, got neither on this machine")
    return means[1] * (end - begin) / count, "mean power of nvidia-smi times seconds"


def _repeat(torch: Any, call: Callable[[], Any], count: int) -> None:
    for _ in range(count):
        call()
    torch.cuda.synchronize()


def _counter(torch: Any) -> Callable[[], float] | None:
    """Reads the joules of the current GPU since the driver was loaded; None without NVML."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(gpu_uuid(torch))
        nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    # Each version of the package has errors of its own.
    except Exception:
        return None
    return lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000
