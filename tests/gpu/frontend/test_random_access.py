"""Kernels with random address expressions on a GPU: bit for bit the interpreter's sums, between NaN and guards."""

from __future__ import annotations

from typing import Any

import pytest

from louver.compile.compiled import CompiledTiles
from louver.runtime.device import Device, current_device
from support.device_tiles import launch_tiles
from support.random_access import Launch
from support.read_boxes import check_whole

KERNELS = 20
"""Kernels of a test."""


@pytest.fixture(autouse=True)
def target() -> None:
    found = current_device()
    if not isinstance(found, Device) or found.target != "sm_90a":
        pytest.skip(f"these kernels are assembled for sm_90a, got {found}")


def run(compiled: CompiledTiles, launch: Launch, given: dict[str, Any]) -> None:
    launch_tiles(compiled, launch.grid, given, ("d",))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("block", range(100))
def test_whole_kernels(block: int) -> None:
    found = [check_whole(seed, run) for seed in range(block * KERNELS, (block + 1) * KERNELS)]
    assert sum(each is not None for each in found) >= 0.6 * KERNELS
