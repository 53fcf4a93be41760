"""Kernels with random address expressions, on the emulator: bit for bit the interpreter's sums, between NaN."""

from __future__ import annotations

from typing import Any

import pytest

from louver.compile.compiled import CompiledTiles
from louver.emulator import Seeded
from support.emulate_tiles import emulate_tiles
from support.random_access import Launch
from support.read_boxes import check_whole

KERNELS = 10
"""Kernels of a test."""


@pytest.mark.sampled(7, every=5)
@pytest.mark.parametrize("block", range(30))
def test_whole_kernels(block: int) -> None:
    def run(compiled: CompiledTiles, launch: Launch, given: dict[str, Any]) -> None:
        emulate_tiles(compiled, launch.grid, given, order=Seeded(block), uninitialised=["d"])

    found = [check_whole(seed, run) for seed in range(block * KERNELS, (block + 1) * KERNELS)]
    assert sum(each is not None for each in found) >= 0.6 * KERNELS
