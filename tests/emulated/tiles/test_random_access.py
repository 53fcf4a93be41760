"""Kernels with random address expressions, on the emulator: bit for bit the interpreter's sums, between NaN."""

from __future__ import annotations

from typing import Any

import pytest

from louver.compile.tiles import CompiledTiles
from louver.emulator import Seeded
from support.emulate_tiles import emulate_tiles
from support.random_access import Launch
from support.read_boxes import check_whole


@pytest.mark.sampled(50)
@pytest.mark.parametrize("seed", range(300))
def test_whole_kernels(seed: int) -> None:
    def run(compiled: CompiledTiles, launch: Launch, given: dict[str, Any]) -> None:
        emulate_tiles(compiled, launch.grid, given, order=Seeded(seed), uninitialised=["d"])

    check_whole(seed, run)
