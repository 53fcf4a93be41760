"""Batches of several dimensions: the matrix of each step is found without a division of 64 bits, and comes by bulk copies."""

from __future__ import annotations

import importlib.util

import pytest

import louver
from louver.measure.forms import Sizes, bind
from louver.ptx.assembler import assemble
from support.triton.forms.find import forms

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

BATCHES = forms("batches")

DIVISIONS = {"taps of a convolution": 2, "experts of a layer": 0, "heads of a batch": 0}
"""Divisions of a step: the kernel's own by the number of steps and by three, each with a remainder."""


@pytest.mark.parametrize("name", DIVISIONS)
def test_steps_divide_no_strides(name: str) -> None:
    form = BATCHES[name]
    m = 36 * 8 if name.startswith("taps") else 256
    known, _ = bind(form.call(0, Sizes(m, 256, 256, 128, 128, 64)), sparse=True)
    explained = louver.jit(form.kernel).explain(**known)
    ptx = explained.ptx
    # Values of one matrix, and metadata.
    assert "cp.async.bulk.tensor.3d" in ptx and "cp.async.bulk.tensor.2d" in ptx
    step = ptx.split("mbarrier.try_wait")[-1]
    assert "wgmma.mma_async.sp" in step
    assert step.count("div.") == DIVISIONS[name] and "rem." not in step
    assert "div.s64" not in step
    assembly = assemble(ptx, "sm_90a")
    assert assembly.clean and assembly.kernels[0].registers <= 128
