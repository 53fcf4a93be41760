"""Random kernels before and after each canonicalizing pass: the interpreter gives the same bits, and a product is read at the end."""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.canonical.canonicalize import CANONICAL
from louver.compile.passes import State
from louver.compile.plan.nest import read_nest
from louver.frontend.ttir import read_ttir
from support.random_kernels import GAP, TILE_K, interpreted, numbers, random_kernel


@pytest.mark.sampled(7, every=4)
@pytest.mark.parametrize("seed", range(480))
def test_every_pass_keeps_what_a_kernel_computes(seed: int) -> None:
    kernel = random_kernel(seed)
    module = read_ttir(kernel.text)
    expected = numbers(interpreted(module, kernel, kernel.grid))
    assert np.isnan(expected[0, :, -GAP:]).all()
    text = str(module)
    for each in CANONICAL:
        each.run(State(module))
        module.verify()
        before, text = text, str(module)
        if text != before:
            grid = kernel.numbered if each is CANONICAL[-1] else kernel.grid
            found = numbers(interpreted(module, kernel, grid))
            np.testing.assert_array_equal(found, expected, err_msg=f"{each.name}: {kernel.choices}")
    nest = read_nest(module)
    assert nest.a.gated == (("a", "a2") if kernel.choices["pair"] else None)
    assert (nest.tile_k, nest.gated, nest.b.k_major) == (TILE_K, kernel.choices["pair"], kernel.choices["k_major"])
