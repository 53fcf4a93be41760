"""Parts of the runtime whose host time is measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from louver.isa.tensormap import TensorMap
from louver.ptx.assembler import assemble
from louver.runtime.arrays import view
from louver.runtime.device import Device
from louver.runtime.memory import DeviceArray
from louver.runtime.module import ArgumentPack, load
from louver.runtime.tensormap import encode

THREADS = 384
SHARED_BYTES = 100 << 10
CTAS = 32
"""Grid size of a small product."""

EMPTY = """.version 8.0
.target {target}
.address_size 64
.visible .entry empty(.param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u64 d, .param .u32 n)
.reqntid {threads}
{{
    ret;
}}
"""


def runtime_parts(torch: Any, device: Device) -> dict[str, Callable[[], object]]:
    """The parts by name. The launch of an empty kernel is the least host time of any product's call."""
    x = DeviceArray.of(np.ones((64, 64), np.float16), ordinal=device.ordinal)
    tensor = torch.ones(64, 64, dtype=torch.float16, device=f"cuda:{device.ordinal}")
    tensor_map = TensorMap(x.buffer.address, 2, (64, 64), (128,), (64, 64), 128)
    encoded = encode(tensor_map)
    cubin = assemble(EMPTY.format(target=device.target, threads=THREADS), device.target).cubin
    kernel = load(cubin, "empty", threads=THREADS, dynamic_shared=SHARED_BYTES, ordinal=device.ordinal)
    pack = ArgumentPack(["tensormap", "tensormap", "u64", "u32"])

    def bind_and_launch() -> None:
        pack.bind(encoded, encoded, x.buffer.address, 64)
        kernel.launch(CTAS, pack)

    return {
        "empty launch": kernel.bound(CTAS, pack),
        "bind 4 arguments, empty launch": bind_and_launch,
        "encode a tensor map": lambda: encode(tensor_map),
        "view of a torch tensor": lambda: view(tensor),
        "view of a DeviceArray": lambda: view(x),
    }
