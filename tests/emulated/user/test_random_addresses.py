"""Random expressions for rows and columns of a sparse operand, on the emulator: right, or NaN with an error, or refused; never wrong."""

from __future__ import annotations

import importlib.util

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.gathered import Gathered

KERNELS = 4
"""Kernels of a test."""


@pytest.mark.sampled(7, every=3)
@pytest.mark.parametrize("block", range(30))
def test_every_address_runs_or_names_its_rule(block: int) -> None:
    for seed in range(block * KERNELS, (block + 1) * KERNELS):
        assert Gathered.of(seed).fate() in ("right", "violation")
