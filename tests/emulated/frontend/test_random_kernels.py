"""Random kernels, compiled and run on the emulator: bit for bit what the interpreter of tile IR makes of their text.

Operands are small integers, whose sums are exact in any order, and every step of an epilogue is rounded by itself.
"""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.pipeline import compile_tile_ir
from louver.compile.plan.schedule import Schedule
from louver.emulator import Seeded
from louver.frontend.ttir import read_ttir
from louver.library.emulate import emulate
from support.random_kernels import TILE_K, TILE_M, TILE_N, interpreted, numbers, random_kernel

SCHEDULE = Schedule.of(tile_m=TILE_M, tile_n=TILE_N, tile_k=TILE_K, consumers=1, stages=3)


@pytest.mark.sampled(7, every=2)
@pytest.mark.parametrize("seed", range(1000, 1120))
def test_what_the_interpreter_says(seed: int) -> None:
    kernel = random_kernel(seed)
    module = read_ttir(kernel.text)
    product = compile_tile_ir(module, SCHEDULE)
    y, report = emulate(product, kernel.operand, kernel.dense, None, kernel.reads, sm_count=3, order=Seeded(seed))
    assert report.products > 0
    # Which zero is the greater one is left open by the interpreter.
    expected = kernel.output(interpreted(module, kernel, kernel.grid))
    np.testing.assert_array_equal(numbers(y)[0], numbers(expected)[0])
