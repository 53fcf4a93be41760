"""Experts whose tokens are gathered: their weights come by bulk copies, and what the results are scaled by takes no registers of the loop."""

from __future__ import annotations

import importlib.util
import re

import pytest

import louver
from louver.measure.forms import Sizes, bind
from louver.ptx.assembler import assemble
from support.triton.forms.find import forms

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

VLLM = forms("vllm")

BATCHES = (
    "fused experts",
    "batched experts",
    "sorted experts, first",
    "gated experts",
    "fused experts, 8-bit, block scales",
)


@pytest.mark.parametrize("name", BATCHES)
def test_weights_come_by_bulk_copies(name: str) -> None:
    known, _ = bind(VLLM[name].call(0, VLLM[name].small), sparse=True)
    ptx = louver.jit(VLLM[name].kernel).explain(**known).ptx
    # Values of one expert, and metadata.
    assert "cp.async.bulk.tensor.3d" in ptx and "cp.async.bulk.tensor.2d" in ptx
    # Gathered tokens come 16 bytes at a time.
    assert name == "batched experts" or re.search(r"\bcp\.async\.cg\.shared\.global \[[^]]+\], \[[^]]+\], 16", ptx)


@pytest.mark.parametrize(
    "name", ["fused experts, weighted", "fused experts, bias", "fused experts, 8-bit, channel scales"]
)
def test_scales_leave_room_for_two_programs(name: str) -> None:
    form = VLLM[name]
    known, _ = bind(form.call(0, Sizes(256, 256, 256, 128, 128, 128)), sparse=True)
    explained = louver.jit(form.kernel).explain(**known)
    assembly = assemble(explained.ptx, "sm_90a")
    assert assembly.clean and assembly.kernels[0].registers <= 128
