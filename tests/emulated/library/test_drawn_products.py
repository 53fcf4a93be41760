"""Vectors N:M@L and V:N:M that the sweep draws, on the emulator: the kernels that calls of the library would launch."""

from __future__ import annotations

import numpy as np
import pytest

from louver.choose.configure import choose
from louver.formats.pattern import Pattern
from louver.ir.product import selection_of, unit_of
from louver.isa.targets import SM_90A
from louver.library.emulate import emulate
from louver.library.fused import Given
from louver.library.request import broken_rule, request
from random_products.cases import Case, cases
from support.compiled import compiled_product
from support.drawn_products import drawn, runs_on_numpy

EACH = 2
"""Groups of each product and element type."""

MOST = {"wgmma": 400_000, "fma": 60_000}
"""M·N·K of a case, by unit: multiply-adds of CUDA cores take the emulator longer."""


def small() -> list[Case]:
    """A case of each group, with several windows and groups of K."""
    found: dict[tuple[str, str, int], list[Case]] = {}
    for case in cases(3000, 7, vectors=1.0):
        setting = case.group.setting
        pattern, size = Pattern.parse(setting.pattern), case.m * case.n * case.k
        chosen = found.setdefault((setting.kind, setting.a, len(pattern.levels)), [])
        fits = case.m > pattern.length and case.k > pattern.m and size < MOST[unit_of(setting.pattern, setting.a)]
        # 2:4 and 1:2 have products of their own.
        fits = fits and selection_of(setting.pattern).indexed
        if fits and runs_on_numpy(case) and len(chosen) < EACH and all(case.group != each.group for each in chosen):
            chosen.append(case)
    return [case for chosen in found.values() for case in chosen]


def described(case: Case) -> str:
    setting = case.group.setting
    return f"{setting.kind}-{setting.a}-{setting.pattern}-{case.windows}-{case.m}x{case.n}x{case.k}"


@pytest.mark.parametrize("case", small(), ids=described)
def test_drawn_vectors_are_right(case: Case) -> None:
    given = drawn(case)
    assert broken_rule(given.s) is None
    options = dict(given.draft.arguments)
    activation, accumulate = options.pop("activation", None), options.pop("accumulate", "auto")
    setting = case.group.setting
    asked = request(setting.kind, given.s, given.dense, Given(**options), activation, None, setting.out, accumulate)
    problem = asked.problem("n_major", None)
    schedule = choose(problem, case.m, case.n, SM_90A, 132, k=case.k, cuts=True)
    arrays = {name: array.to_numpy() for name, array in asked.fused.arrays.items()}
    reads = arrays | asked.fused.bind(asked.fused.places).numbers
    b = given.dense.T if setting.kind == "linear" else given.dense
    y, report = emulate(compiled_product(problem, schedule), given.s, np.ascontiguousarray(b), reads=reads)
    assert (report.products > 0) == (unit_of(setting.pattern, setting.a) == "wgmma")
    assert given.faults(y) == 0
