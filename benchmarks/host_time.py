"""Host time of a warm call, in microseconds: `python benchmarks/host_time.py --out FILE.json`.

Protocol: 16 tokens, a 4096 × 4096 weight, f16, PyTorch tensors on the default stream. Each call is made 64 times in a row; the
device is idle before each such batch, so that a full launch queue is never waited for. A batch's time per call is taken, and
the median, the least and the 90th percentile over all batches are given. Every product is compared with torch.mm first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import louver
from louver.ptx.assembler import assemble, ptxas_version
from louver.runtime.device import Device, require_device
from louver.runtime.module import ArgumentPack, load

TOKENS, ROWS, COLUMNS = 16, 4096, 4096
CALLS = 64
BATCHES = 300

EMPTY = """.version 8.0
.target {target}
.address_size 64
.visible .entry empty(.param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u64 d, .param .u32 n)
.reqntid 384
{{
    ret;
}}
"""


def measure(torch: Any, work: Callable[[], object]) -> dict[str, float]:
    """Microseconds of a call."""
    for _ in range(CALLS):
        work()
    batches: list[float] = []
    for _ in range(BATCHES):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            work()
        batches.append((time.perf_counter() - start) / CALLS * 1e6)
    torch.cuda.synchronize()
    tenths = statistics.quantiles(batches, n=10)
    found = {"median": statistics.median(batches), "least": min(batches), "90th percentile": tenths[-1]}
    return {name: round(value, 2) for name, value in found.items()}


def contenders(torch: Any, device: Device) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """Calls by name, each checked once, and what cannot be called here, with the reason."""
    place = f"cuda:{device.ordinal}"
    weight = louver.prune(
        np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32).astype(np.float16), "2:4"
    )
    s = louver.compress(weight, "2:4")
    w = torch.from_numpy(weight).to(place)
    x = torch.randn(TOKENS, COLUMNS, device=place, dtype=torch.float16)
    turned = x.t()
    y = torch.empty(TOKENS, ROWS, device=place, dtype=torch.float16)
    bias = torch.randn(ROWS, device=place, dtype=torch.float16)
    columns = torch.empty(ROWS, TOKENS, device=place, dtype=torch.float16)
    plan = louver.plan("linear", s, n=TOKENS, like=x)
    with_bias = louver.plan("linear", s, n=TOKENS, like=x, bias=bias)
    wanted = torch.mm(x, w.t())
    calls: dict[str, tuple[Callable[[], Any], Any]] = {
        "plan(x, out=y)": (lambda: plan(x, out=y), wanted),
        "plan with bias (x, out=y)": (lambda: with_bias(x, out=y), wanted + bias),
        "plan(x)": (lambda: plan(x), wanted),
        "louver.linear(x, s)": (lambda: louver.linear(x, s), wanted),
        "louver.linear(x, s, bias)": (lambda: louver.linear(x, s, bias), wanted + bias),
        "louver.linear(x, s, out=y)": (lambda: louver.linear(x, s, out=y), wanted),
        "louver.matmul(s, b)": (lambda: louver.matmul(s, turned), wanted.t()),
        "louver.matmul(s, b, out=c)": (lambda: louver.matmul(s, turned, out=columns), wanted.t()),
        "torch.mm(x, w.t())": (lambda: torch.mm(x, w.t()), wanted),
        "torch.mm(x, w.t(), out=y)": (lambda: torch.mm(x, w.t(), out=y), wanted),
        "torch.nn.functional.linear(x, w, bias)": (lambda: torch.nn.functional.linear(x, w, bias), wanted + bias),
        "torch.empty": (lambda: torch.empty(TOKENS, ROWS, device=place, dtype=torch.float16), None),
    }
    missing: dict[str, str] = {}
    try:
        packed = torch._cslt_compress(w)
        calls["torch._cslt_sparse_mm"] = (lambda: torch._cslt_sparse_mm(packed, turned), wanted.t())
        torch._cslt_sparse_mm(packed, turned)
    except (AttributeError, RuntimeError) as error:
        calls.pop("torch._cslt_sparse_mm", None)
        missing["torch._cslt_sparse_mm"] = str(error).splitlines()[0]
    for name, (work, expected) in calls.items():
        if expected is not None:
            torch.testing.assert_close(
                work().float(), expected.float(), rtol=0.02, atol=0.5, msg=lambda m, n=name: f"{n}: {m}"
            )
    return {"empty launch": empty_launch(device), **{name: work for name, (work, _) in calls.items()}}, missing


def empty_launch(device: Device) -> Callable[[], None]:
    """A launch of a kernel that does nothing, its arguments bound: what every product's call costs at least."""
    cubin = assemble(EMPTY.format(target=device.target), device.target).cubin
    kernel = load(cubin, "empty", threads=384, dynamic_shared=100 << 10, ordinal=device.ordinal)
    pack = ArgumentPack(["tensormap", "tensormap", "u64", "u32"])
    return lambda: kernel.launch(32, pack)


def processor() -> str:
    """The CPU's name, as Linux has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the record is written, as JSON")
    args = parser.parse_args()
    device = require_device()
    import torch

    works, missing = contenders(torch, device)
    found = {name: measure(torch, work) for name, work in works.items()}
    record = {
        "device": device.name,
        "driver": ".".join(map(str, device.driver)),
        "cpu": f"{processor()}, {os.cpu_count()} cores",
        "versions": {
            "louver": louver.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "ptxas": ptxas_version(),
        },
        "protocol": " ".join(str(__doc__).split()),
        "microseconds": found,
        "not measured": missing,
    }
    for name, value in found.items():
        print(f"{name:42} {value['median']:8.2f} µs (least {value['least']:.2f}, 90% {value['90th percentile']:.2f})")
    for name, reason in missing.items():
        print(f"{name:42} not measured: {reason}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
