"""Reads hardware counters of kernels by Nsight Compute."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")
SECONDS = 150
"""Longest run of the tool."""

METRICS: Mapping[str, tuple[str, ...]] = {
    "nanoseconds": ("gpu__time_duration.sum",),
    "cycles": ("sm__cycles_elapsed.max",),
    "clock_hz": ("sm__cycles_elapsed.avg.per_second",),
    "tensor_active_percent": (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_tensor_op_gmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    ),
    "sm_throughput_percent": ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
    "bank_reads_percent": ("l1tex__data_bank_reads.avg.pct_of_peak_sustained_elapsed",),
    "bank_writes_percent": ("l1tex__data_bank_writes.avg.pct_of_peak_sustained_elapsed",),
    "l2_sectors": ("lts__t_sectors.sum",),
    "memory_bytes_read": ("dram__bytes_read.sum",),
    "memory_bytes_written": ("dram__bytes_write.sum",),
    "instructions": ("smsp__inst_executed.sum", "sm__inst_executed.sum"),
    "registers": ("launch__registers_per_thread",),
    "shared_bytes": ("launch__shared_mem_per_block",),
    "threads": ("launch__block_size",),
    "ctas": ("launch__grid_size",),
}
"""Wanted counters, with the tool's names. The first name that the chip has is used."""

ALWAYS = "launch__"
"""Prefix of names that belong to the launch. The tool does not list them with the chip's counters."""

REFUSED = re.compile(r"(ERR_NVGPUCTRPERM|==ERROR==|No kernels were profiled|driver resource was unavailable)")


class NoCountersError(OSError):
    """No counters on this machine: the tool is missing or may not read them."""


@dataclass(frozen=True, slots=True)
class KernelCounters:
    """A kernel and its counters, by the names of `METRICS`. Missing counters are left out."""

    kernel: str
    values: Mapping[str, float]


def find_ncu() -> Path:
    """Nsight Compute's command line, from the PATH or NVIDIA's folders. Raises NoCountersError without it."""
    found = find_tool("ncu", PLACES)
    if found is None:
        raise NoCountersError(f"no ncu on the PATH or in {', '.join(PLACES)}: install Nsight Compute")
    return found


def find_tool(name: str, places: Sequence[str]) -> Path | None:
    """A program from the PATH or below these folders."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    paths = (path for place in places if Path(place).is_dir() for path in sorted(Path(place).rglob(name)))
    return next((path for path in paths if path.is_file() and os.access(path, os.X_OK)), None)


def choose_metrics(known: Iterable[str]) -> dict[str, str]:
    """The tool's name of each wanted counter. known: the chip's counters without suffixes; may be empty."""
    chip = set(known)
    chosen: dict[str, str] = {}
    for name, candidates in METRICS.items():
        for candidate in candidates:
            if not chip or candidate.startswith(ALWAYS) or candidate.partition(".")[0] in chip:
                chosen[name] = candidate
                break
    return chosen


def known_metrics(ncu: Path) -> list[str]:
    """The tool's list of the chip's counters, perhaps empty."""
    try:
        done = subprocess.run([str(ncu), "--query-metrics"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    words = (line.split() for line in done.stdout.splitlines())
    return [line[0] for line in words if line and "__" in line[0]]


def profile(ncu: Path, metrics: Mapping[str, str], command: Sequence[str], log: Path) -> list[KernelCounters]:
    """Run a command under the tool. Returns the counters of the kernels between profiler start and stop, in order.

    log: a file for the tool's output. Raises NoCountersError with the reason if there are no counters.
    """
    options = ["--clock-control", "none", "--profile-from-start", "off", "--csv", "--page", "raw"]
    options += ["--print-units", "base", "--log-file", str(log), "--metrics", ",".join(metrics.values())]
    try:
        done = subprocess.run(
            [str(ncu), *options, *command], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise NoCountersError(f"ncu took more than {SECONDS} s") from late
    said = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    found = parse_counters(said, metrics)
    if not found:
        raise NoCountersError(_reason(said, done.stdout + done.stderr))
    return found


def parse_counters(text: str, metrics: Mapping[str, str]) -> list[KernelCounters]:
    """The kernels of ncu's raw page as CSV. Other lines are ignored."""
    lines = text.splitlines()
    first = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        return []
    # The line below the names has units.
    rows = [row for row in csv.DictReader(lines[first:]) if (row.get("ID") or "").isdecimal()]
    return [KernelCounters(row["Kernel Name"], _values(row, metrics)) for row in rows]


def _values(row: Mapping[str, str], metrics: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, metric in metrics.items():
        try:
            found[name] = float((row.get(metric) or "").replace(",", ""))
        except ValueError:
            continue
    return found


def _reason(said: str, printed: str) -> str:
    """Why there are no counters: the tool's errors, else the end of the output."""
    lines = [line.strip() for line in f"{said}\n{printed}".splitlines() if line.strip()]
    refused = [line for line in lines if REFUSED.search(line)]
    return "; ".join(refused[:2]) or "; ".join(lines[-3:]) or "ncu said nothing"


def by_contender(
    kernels: Iterable[KernelCounters], order: Sequence[str], separator: str
) -> dict[str, list[KernelCounters]]:
    """The kernels of each contender in `order`. A kernel with `separator` in its name precedes each contender."""
    found: dict[str, list[KernelCounters]] = {name: [] for name in order}
    current = -1
    for kernel in kernels:
        if separator in kernel.kernel:
            current += 1
        elif 0 <= current < len(order):
            found[order[current]].append(kernel)
    return found
