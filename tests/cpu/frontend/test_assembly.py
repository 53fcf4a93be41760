"""The assembler's output for users' kernels: no lost performance and no spill."""

from __future__ import annotations

import pytest

from louver.ptx.assembler import assemble
from support.triton.cases import CASES
from support.triton.products import compiled


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", CASES)
def test_kernels_assemble_cleanly(name: str) -> None:
    assembly = assemble(compiled(name).ptx, "sm_90a")
    assert assembly.clean, assembly.warnings
