"""Host time of the runtime's parts, in microseconds: `python benchmarks/launch_host.py [--out FILE.json]`.

Protocol: each part is called 500 times in a row, 25 times over; the least mean of a series is given. Launches go to
a stream that is drained between series, so that its queue is never full.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from louver.isa.tensormap import TensorMap
from louver.ptx.assembler import assemble, ptxas_version
from louver.runtime.arrays import view
from louver.runtime.device import require_device
from louver.runtime.driver import call
from louver.runtime.memory import DeviceArray
from louver.runtime.module import ArgumentPack, load
from louver.runtime.tensormap import encode

CALLS = 500
SERIES = 25

EMPTY = """.version 8.0
.target {target}
.address_size 64
.visible .entry empty(.param .align 64 .b8 map[128], .param .u64 pointer, .param .u32 size)
.reqntid 128
{{
    ret;
}}
"""


def least_mean(work: Callable[[], object]) -> float:
    """Microseconds of a call."""
    best = float("inf")
    for _ in range(SERIES):
        call("cuStreamSynchronize", 0)
        start = time.perf_counter()
        for _ in range(CALLS):
            work()
        best = min(best, time.perf_counter() - start)
    return best / CALLS * 1e6


def measure() -> dict[str, float]:
    """Every part's time."""
    import numpy as np

    device = require_device()
    x = DeviceArray.of(np.ones((64, 64), np.float16), ordinal=device.ordinal)
    tensor_map = TensorMap(x.buffer.address, 2, (64, 64), (128,), (64, 64), 128)
    encoded = encode(tensor_map)
    cubin = assemble(EMPTY.format(target=device.target), device.target).cubin
    kernel = load(cubin, "empty", threads=128, dynamic_shared=100 << 10, ordinal=device.ordinal)
    pack = ArgumentPack(["tensormap", "u64", "u32"])

    def bind_and_launch() -> None:
        pack.bind(encoded, x.buffer.address, 64)
        kernel.launch(1, pack)

    parts: dict[str, Callable[[], object]] = {
        "launch": lambda: kernel.launch(1, pack),
        "bind 3 arguments and launch": bind_and_launch,
        "encode a tensor map": lambda: encode(tensor_map),
        "view of a DeviceArray": lambda: view(x),
    }
    try:
        import torch

        t = torch.ones(64, 64, device=f"cuda:{device.ordinal}")
        parts["view of a torch tensor"] = lambda: view(t)
    except (ImportError, RuntimeError, AssertionError):
        pass
    return {name: round(least_mean(work), 3) for name, work in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the record as JSON")
    args = parser.parse_args()
    device = require_device()
    record: dict[str, Any] = {
        "device": device.name,
        "driver": device.driver,
        "ptxas": ptxas_version(),
        "protocol": " ".join(str(__doc__).split()),
        "microseconds": measure(),
    }
    for name, value in record["microseconds"].items():
        print(f"{name:30} {value:7.2f} µs")
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
