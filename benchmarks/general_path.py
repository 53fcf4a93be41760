"""Every structure of the general path on a few small tiles, without torch: `python benchmarks/general_path.py`.

The sanitizer runs this program: users' kernels by register tiles (tests/support/triton/drawn/structures.py), each at
three sizes. Results between poison are compared with float64. Exit status 1 for a wrong result, 3 without a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from one_product import verdict

import louver
from louver.runtime.memory import DeviceArray
from louver.user.hints import REGISTER_TILES

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.triton.drawn.launch import draw_launch, load_kernel
from support.triton.drawn.structures import STRUCTURES

LAUNCHES = 3


class Part(DeviceArray):
    """An array on the device that slices [:a, :b, …] cut to its first elements. It keeps its strides."""

    def __getitem__(self, parts: tuple[slice, ...]) -> Part:
        return Part(self.buffer, [part.stop for part in parts], self.element, self.strides)


def place(array: Any) -> Part:
    whole = DeviceArray.of(array)
    return Part(whole.buffer, whole.shape, whole.element)


def count() -> dict[str, int]:
    """Number of wrong outputs by structure."""
    wrong = dict.fromkeys(STRUCTURES, 0)
    for name, choices in STRUCTURES.items():
        kernel = louver.jit(load_kernel(choices), family=REGISTER_TILES)
        for index in range(LAUNCHES):
            launch = draw_launch(choices, index)
            for said in launch.run(kernel[launch.grid], place, DeviceArray.numpy):
                wrong[name] += 1
                print(f"{name}, {dict(launch.sizes)}: {said}")
    return wrong


if __name__ == "__main__":
    raise SystemExit(verdict(count))
