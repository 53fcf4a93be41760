"""Kernels as people write them, on the emulator: right in every element of poisoned outputs, and run as the family that is meant."""

from __future__ import annotations

from typing import Any

import pytest

import louver
from louver.measure.forms import bind
from support.triton import require_block_pointers
from support.triton.results import check
from support.triton.written_cases import SMALL
from support.triton.written_runs import EVERY, KEPT_CALLS, SIZES, call_of, hints_of, kept_call, with_triton


@pytest.fixture(scope="module")
def tl() -> Any:
    return pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'").language


def skip_old(name: str) -> None:
    if EVERY[name].blocks:
        require_block_pointers()


@pytest.mark.parametrize(("name", "version"), KEPT_CALLS)
def test_from_its_text(name: str, version: str) -> None:
    call = call_of(name, SMALL)
    known, outs = bind(call, sparse=True)
    kernel = kept_call(name, version)
    kernel.emulate[call.grid](**known)
    check(call, outs)
    assert kernel.explain(**known).family == EVERY[name].families[1]


def run(name: str, size: str, tl: Any) -> None:
    case, call = EVERY[name], call_of(name, SIZES[size])
    skip_old(name)
    known, outs = bind(call, sparse=True)
    kernel, known = louver.jit(case.function(), **hints_of(case, size)), with_triton(known)
    kernel.emulate[call.grid](**known)
    check(call, outs)
    assert kernel.explain(**known).family == case.families[list(SIZES).index(size)]


@pytest.mark.parametrize("name", EVERY)
def test_small_tiles(name: str, tl: Any) -> None:
    run(name, "small", tl)


@pytest.mark.parametrize("name", EVERY)
def test_large_tiles(name: str, tl: Any) -> None:
    run(name, "large", tl)


@pytest.mark.parametrize("name", EVERY)
def test_dense_arrays_by_reference(name: str, tl: Any) -> None:
    """What the cases expect is what the kernels compute of dense arrays."""
    skip_old(name)
    call = call_of(name, SMALL)
    known, outs = bind(call, sparse=False)
    louver.jit(EVERY[name].function())[call.grid](**with_triton(known))
    check(call, outs)
