"""Kernels as people write them, on the device with PyTorch's tensors, against float64: the calls that the emulator runs too."""

from __future__ import annotations

from typing import Any

import pytest

import louver
from louver.measure.forms import Call, bind
from louver.user.jit_kernel import JitKernel
from support.device_products import to_numpy, to_torch
from support.triton import require_block_pointers
from support.triton.results import check
from support.triton.written_cases import SMALL
from support.triton.written_runs import EVERY, KEPT_CALLS, SIZES, call_of, hints_of, kept_call, with_triton

pytestmark = pytest.mark.usefixtures("torch")


def run(kernel: JitKernel, call: Call, known: dict[str, Any], outs: dict[str, Any], times: int = 2) -> None:
    """Launch as often as asked: what is added to is added to each time."""
    for _ in range(times):
        kernel[call.grid](**known)
    check(call, {name: to_numpy(out) / (times if call.zeroed else 1) for name, out in outs.items()})


@pytest.mark.parametrize(("name", "version"), KEPT_CALLS)
def test_from_its_text(name: str, version: str) -> None:
    call = call_of(name, SMALL)
    known, outs = bind(call, sparse=True, place=to_torch)
    run(kept_call(name, version), call, known, outs)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", EVERY)
def test_by_triton(name: str, size: str) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")
    case = EVERY[name]
    if case.blocks:
        require_block_pointers()
    call = call_of(name, SIZES[size])
    known, outs = bind(call, sparse=True, place=to_torch)
    kernel = louver.jit(case.function(), **hints_of(case, size))
    assert isinstance(kernel, JitKernel)
    known = with_triton(known)
    run(kernel, call, known, outs)
    assert kernel.explain(**known).family == case.families[list(SIZES).index(size)]
