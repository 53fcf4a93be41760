"""Kernels that add to memory, and share K among programs: by the reference path and the emulator, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.jit import emulate_dependent
from support.triton.cases import kept
from support.triton.splits import SPLITS, split_call, split_kernel

WHOLE = {"split_whole_rounds": 256}
"""K of kernels whose loads are not masked."""


@pytest.mark.parametrize("name", SPLITS)
def test_every_split_by_reference_and_emulator(rng: np.random.Generator, name: str) -> None:
    kernel = split_kernel(name)
    for emulated in (False, True):
        call = split_call(rng, name, 136, 72, WHOLE.get(name, 400))
        report = (kernel.emulate if emulated else kernel)[call.grid](**call.arguments)
        call.check(call.out)
        # A product computes each tile once: blocks of 64 rows by K in steps of an instruction.
        assert not emulated or report.bulk_loads > 0


@pytest.mark.parametrize("padding", [0, 1, 2, 3])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 8), (65, 63, 136), (129, 66, 48)])
@pytest.mark.parametrize("name", ["split_rounds", "split_chunks", "split_shares", "added_tiles", "split_counted_steps"])
def test_pairs_at_odd_addresses_and_tails(
    rng: np.random.Generator, name: str, m: int, n: int, k: int, padding: int
) -> None:
    """Rows that begin at odd elements are added element by element, what lies between rows is left alone."""
    if name == "split_counted_steps":
        k = -(-k // 16) * 16
    call = split_call(rng, name, m, n, k, padding)
    whole = call.out if call.out.base is None else call.out.base
    gap = np.array(whole[:, call.out.shape[1] :])
    split_kernel(name).emulate[call.grid](**call.arguments)
    call.check(call.out)
    np.testing.assert_array_equal(np.asarray(whole)[:, call.out.shape[1] :], gap)


def test_integers_are_exact_whoever_shares_k(rng: np.random.Generator) -> None:
    outs = []
    call = split_call(rng, "split_steps", 130, 70, 464)
    for grid in ((2, 2, 1), (2, 2, 3), (2, 2, 8)):
        out = call.out.copy()
        split_kernel("split_steps").emulate[grid](**call.arguments | {"d": out})
        outs.append(out)
        replace(call, out=out).check(out)
    for out in outs[1:]:
        np.testing.assert_array_equal(out, outs[0])


@pytest.mark.parametrize("name", ["split_rounds", "split_chunks", "split_shares", "split_steps", "added_tiles"])
def test_bulk_copies_and_registers_add_alike(rng: np.random.Generator, name: str) -> None:
    call = split_call(rng, name, 200, 136, 208, padding=8)
    outs = []
    for store in ("bulk", "direct"):
        whole = np.array(call.out.base)
        out = whole[:, : call.out.shape[1]]
        report = split_kernel(name, store=store).emulate[call.grid](**call.arguments | {"d": out})
        assert (report.bulk_stores > 0) == (store == "bulk")
        replace(call, out=out).check(out)
        outs.append(whole)
    np.testing.assert_array_equal(*outs)


@pytest.mark.parametrize("store", ["bulk", "direct"])
def test_sums_are_added_to_after_the_grids_before(rng: np.random.Generator, store: str) -> None:
    call = split_call(rng, "split_rounds", 200, 136, 208, padding=8)
    report = emulate_dependent(split_kernel("split_rounds", store=store), call.grid, call.arguments)
    assert (report.bulk_stores > 0) == (store == "bulk")
    call.check(call.out)


def test_descriptors_add_by_register_tiles(rng: np.random.Generator) -> None:
    """The greater of a sum and itself is that sum, but no epilogue of parts that a product may join."""
    text = kept("split_shares")
    (line,) = (each for each in text.splitlines() if "arith.truncf %total_9" in each)
    same = "    %same = arith.maximumf %total_9, %total_9 : tensor<128x64xf32>\n"
    text = text.replace(line, same + line.replace("%total_9", "%same"))
    call = split_call(rng, "split_shares", 17, 9, 136)
    kernel = split_kernel("split_shares", text=text)
    kernel.emulate[call.grid](**call.arguments)
    assert kernel.explain(**call.arguments).family == "register tiles"
    call.check(call.out)
