"""A product's tile is chosen by the call's sizes, whatever the kernel's own is."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import louver
from louver.measure.forms import bind

pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")

from support.triton.forms.find import forms
from support.triton.results import check


def explained(name: str, *, m: int, n: int, k: int = 64, **hints: Any) -> Any:
    form = forms("plain")[name]
    sizes = dataclasses.replace(form.small, m=m, n=n, k=k, BM=64, BN=64)
    known, _ = bind(form.call(0, sizes), sparse=True)
    return louver.jit(form.kernel, **hints).explain(**known)


@pytest.mark.parametrize(("m", "n", "tile"), [(4096, 4096, (128, 256)), (2048, 16, (64, 64)), (1024, 2048, (128, 128))])
def test_the_tile_goes_by_the_sizes(m: int, n: int, tile: tuple[int, int]) -> None:
    schedule = explained("masked product", m=m, n=n).schedule
    assert (schedule.tile.m, schedule.tile.n) == tile


def test_a_user_s_fields_keep_the_user_s_tile() -> None:
    schedule = explained("masked product", m=4096, n=4096, raster=4).schedule
    assert (schedule.tile.m, schedule.tile.n, schedule.order.raster) == (64, 64, 4)


def test_one_kernel_serves_calls_of_several_sizes(rng: np.random.Generator) -> None:
    form = forms("plain")["masked product"]
    kernel = louver.jit(form.kernel)
    for m, n in ((150, 104), (300, 16), (150, 520)):
        call = form.call(1, dataclasses.replace(form.small, m=m, n=n))
        known, outs = bind(call, sparse=True)
        kernel.emulate[call.grid](**known)
        check(call, outs)
