"""Correctness of many random products: `python benchmarks/sweep.py --cases 500 --seed 0 --out FILE.json`.

Protocol: random sizes (log-uniform up to 4,096, edges of tiles, a few large ones), f16 and bf16, both products, every
layout and output type, bias, unaligned views. Each dense operand and each output is a view into a buffer of NaN. The
reference is torch's float64 product on the GPU. Half of the cases hold integers whose sums are exact: the result equals
the reference, rounded once, in every element. The others are normally distributed and held elementwise to the bound
of louver.kernels.numerics. After each case the buffer around the output must still be NaN. Exit status 1 if any is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sweep_cases import Case, HostData, cases, host_data

import louver
from louver.formats.dtypes import element_type
from louver.isa.targets import target
from louver.kernels.compiled import record_of
from louver.kernels.configure import choose
from louver.kernels.numerics import coefficients
from louver.ptx.assembler import ptxas_version
from louver.runtime.device import Device, require_device

PLACE = "cuda"
MARGIN = 1024
AHEAD = 32


@dataclass(frozen=True)
class Outcome:
    """worst: greatest error over its bound, 0 or infinite for exact data. wrong: what is wrong, or ""."""

    case: Case
    worst: float
    wrong: str


def torch_dtype(name: str) -> torch.dtype:
    return getattr(torch, element_type(name).numpy.name)


def to_device(array: np.ndarray) -> torch.Tensor:
    bits = np.ascontiguousarray(array).view(np.int16)
    return torch.from_numpy(bits).to(PLACE).view(torch_dtype(element_type(array.dtype).name))


def poisoned(shape: tuple[int, int], dtype: torch.dtype, offset: int, gap: int, *, order: str, step: int = 1):
    """A buffer of NaN and a view into it, its `order` "C" or "F"; `step` elements between neighbours."""
    rows, columns = shape if order == "C" else shape[::-1]
    pitch = columns * step + gap
    whole = torch.full((2 * MARGIN + offset + rows * pitch,), math.nan, dtype=dtype, device=PLACE)
    strides = (pitch, step) if order == "C" else (step, pitch)
    return whole, whole.as_strided(shape, strides, MARGIN + offset)


def dense_operand(case: Case, b: torch.Tensor) -> torch.Tensor:
    """`b` [K, N] in the case's layout, x [N, K] for linear."""
    order = "F" if case.layout == "k_major" else "C"
    step = 2 if case.layout == "strided" else 1
    _, made = poisoned(tuple(b.shape), b.dtype, case.dense_offset, case.dense_gap, order=order, step=step)
    made.copy_(b)
    return made.T if case.kind == "linear" else made


def check(case: Case, data: HostData) -> Outcome:
    """Run one case and compare."""
    b = to_device(data.b)
    dense, bias = dense_operand(case, b), to_device(data.bias) if case.bias else None
    shape = (case.n, case.m) if case.kind == "linear" else (case.m, case.n)
    whole, out = poisoned(shape, torch_dtype(case.out), case.out_offset, case.out_gap, order="C")
    if case.kind == "linear":
        louver.linear(dense, data.s, bias, out=out)
    else:
        louver.matmul(data.s, dense, out=out)
    y = out.T if case.kind == "linear" else out
    a, wide_b = to_device(data.a).double(), b.double()
    reference = a @ wide_b
    if bias is not None:
        reference += bias.double()[:, None]
    if case.data == "integers":
        wrong = int((y != reference.to(y.dtype)).sum())
        worst, problem = (math.inf, f"{wrong} elements differ") if wrong else (0.0, "")
    else:
        magnitude = a.abs() @ wide_b.abs()
        if bias is not None:
            magnitude += bias.double().abs()[:, None]
        relative, absolute, summed = coefficients(case.k, case.out)
        ratio = (y.double() - reference).abs() / (relative * reference.abs() + absolute + summed * magnitude)
        ratio = torch.nan_to_num(ratio, nan=math.inf)
        worst, wrong = float(ratio.max()), int((ratio > 1).sum())
        problem = f"{wrong} elements beyond the bound, worst {worst:.3g} times" if wrong else ""
    out.fill_(math.nan)
    outside = int((~whole.isnan()).sum())
    if outside:
        problem = f"{problem}; {outside} elements written outside the output".removeprefix("; ")
    return Outcome(case, worst, problem)


def checked(case: Case, data: HostData) -> Outcome:
    """`check`; an exception is an outcome too."""
    try:
        return check(case, data)
    except (RuntimeError, ValueError, TypeError) as error:
        return Outcome(case, math.inf, f"{type(error).__name__}: {str(error)[:300]}")


def compile_ahead(wanted: list[Case], device: Device) -> int:
    """Compile every kernel of the cases, all cores together; how many there are."""
    machine = target(device.target)
    kernels = {
        (case.problem, choose(case.problem, case.m, case.n, machine, device.sm_count, aligned_output=aligned))
        for case in wanted
        for aligned in (False, True)
    }
    workers = min(16, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for job in [pool.submit(record_name, *kernel, device.target) for kernel in kernels]:
            job.result()
    return len(kernels)


def record_name(*product: Any) -> str:
    """The name of a kernel that is now in the cache on disk."""
    return record_of(*product).kernel


def sweep(wanted: list[Case]) -> list[Outcome]:
    """All outcomes; operands are made some cases ahead by other threads."""
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(min(12, os.cpu_count() or 1)) as pool:
        pending = [pool.submit(host_data, case) for case in wanted[:AHEAD]]
        for index, case in enumerate(wanted):
            data = pending[index].result()
            pending[index] = None  # type: ignore[call-overload]
            if index + AHEAD < len(wanted):
                pending.append(pool.submit(host_data, wanted[index + AHEAD]))
            outcomes.append(checked(case, data))
            if outcomes[-1].wrong:
                print(f"wrong: case {index}: {outcomes[-1].wrong}: {case}", flush=True)
    return outcomes


def driver() -> str:
    """The NVIDIA driver's version, or "" where nvidia-smi is missing."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    command = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.split("\n")[0]


def facts(device: Device) -> dict[str, Any]:
    """Where and with what it ran."""
    return {
        "device": device.name,
        "driver": driver(),
        "cuda": ".".join(map(str, device.driver)),
        "versions": {
            "louver": louver.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "ptxas": ptxas_version(),
        "protocol": " ".join(str(__doc__).split()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the record as JSON")
    args = parser.parse_args()
    device = require_device()
    wanted = list(cases(args.cases, args.seed))
    start = time.perf_counter()
    kernels = compile_ahead(wanted, device)
    compiled = time.perf_counter()
    outcomes = sweep(wanted)
    end = time.perf_counter()
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    worst = max((outcome.worst for outcome in outcomes), default=0.0)
    record = {
        **facts(device),
        "seed": args.seed,
        "cases": len(outcomes),
        "exact_cases": sum(case.data == "integers" for case in wanted),
        "wrong": len(wrong),
        "worst_ratio_to_bound": worst if math.isfinite(worst) else "infinite",
        "kernels": kernels,
        "seconds": {"compile": round(compiled - start, 1), "run": round(end - compiled, 1)},
        "failures": [{**asdict(outcome.case), "wrong": outcome.wrong} for outcome in wrong],
    }
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(record, indent=1) + "\n")
    print(
        f"{len(outcomes)} products, {len(wrong)} wrong, worst error {record['worst_ratio_to_bound']} of its bound; "
        f"{kernels} kernels, {end - start:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
