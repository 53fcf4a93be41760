"""The reference path beside the kernel that a GPU would run, on the emulator: random products with special values. Both
give NaN and the infinities in the same places, and other numbers within the bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.choose.configure import choose
from louver.formats.dtypes import element_type
from louver.formats.pattern import KERNELS
from louver.frontend.epilogue import NO_EPILOGUE
from louver.frontend.problem import Problem
from louver.ir.product import selection_of
from louver.isa.targets import SM_90A
from louver.isa.wgmma import TRANSPOSABLE
from louver.library.emulate import emulate
from louver.library.forms import forms_of
from louver.library.numerics import accumulation, bound
from louver.library.reference import exact_product
from support.compiled import compiled_product
from support.fused import EPILOGUES, FusedOperands, fused_operands
from support.products import OF_NUMBERS

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

PATTERNS = {
    "2:4": ("2:4",),
    "1:2": ("1:2",),
    "N:M": ("2:8", "3:5"),
    "N:M@L": ("2:4@64", "1:4@128"),
    "V:N:M": ("2:8@V128",),
}

DRAWS = 120


def drawn_problem(rng: np.random.Generator) -> Problem:
    def one(values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    epilogue = one([NO_EPILOGUE, *EPILOGUES.values()])
    cells = KERNELS["gated products" if epilogue.gated else "products"]
    kind = one(list(cells))
    a, b = one([pair for pair in OF_NUMBERS if pair[0] in cells[kind]])
    pattern = one(PATTERNS[kind])
    outs = [out for out in OF_NUMBERS[a, b] if out != "s32" or not epilogue.floating]
    kinds = one(["linear", "matmul"])
    indexed = selection_of(pattern).indexed
    layout = "n_major" if indexed or (b in TRANSPOSABLE and rng.random() < 0.5) else "k_major"
    return Problem(
        kinds,
        a,
        b,
        one(outs),
        pattern=pattern,
        b_layout=layout,
        bias=one([None, "row"]),
        epilogue=epilogue,  # type: ignore[arg-type]
    )


def sprinkled(rng: np.random.Generator, given: np.ndarray, share: float) -> np.ndarray:
    """A copy with special values in a share of its places, at least one: infinities, NaN, -0.0, subnormal numbers and
    the ends of the type; of integers these ends.
    """
    element, values = element_type(given.dtype), given.copy()
    if element.floating:
        inf = [] if element.name == "e4m3" else [np.inf, -np.inf]
        tiny = np.array([1], element.bits_dtype).view(given.dtype).astype(np.float64)[0]
        pool = np.array([np.nan, *inf, -0.0, 0.0, tiny, -3 * tiny]).astype(given.dtype)
    else:
        limits = np.iinfo(given.dtype)
        pool = np.array([limits.min, limits.max, 0], given.dtype)
    places = rng.random(given.shape) < share
    places.flat[rng.integers(given.size)] = True
    values[places] = pool[rng.integers(len(pool), size=int(places.sum()))]
    return values


def with_specials(rng: np.random.Generator, given: FusedOperands) -> FusedOperands:
    """The operands with special values: always in b, often in the weight, the bias and c."""
    s, reads, bias = given.s, dict(given.reads), given.bias
    if rng.random() < 0.5 and s.size % s.pattern.m == 0:
        s.update_(sprinkled(rng, np.asarray(s.values), 0.002))
    if bias is not None and rng.random() < 0.5:
        bias = sprinkled(rng, bias, 0.1)
    if "c" in reads and rng.random() < 0.5:
        reads["c"] = sprinkled(rng, np.asarray(reads["c"]), 0.02)
    b = sprinkled(rng, given.b, float(rng.choice([0.002, 0.1])))
    return FusedOperands(given.problem, np.asarray(s.dense()), s, b, bias, reads)


def finite(values: Any) -> Any:
    wide = np.asarray(values).astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0.0)


@pytest.mark.sampled(7, every=3)
@pytest.mark.parametrize("seed", range(DRAWS))
def test_they_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = drawn_problem(rng)
    m = 16 * int(rng.integers(1, 10))
    n, k = int(rng.integers(1, 24)), 8 * int(rng.integers(1, 16)) + int(rng.choice([0, 0, 3]))
    given = with_specials(rng, fused_operands(rng, problem, m, n, k))
    schedule = choose(problem, m, n, SM_90A, 132, k=k, cuts=False)
    dense = np.ascontiguousarray(given.b.T) if problem.b_layout == "k_major" else given.b
    y, _ = emulate(compiled_product(problem, schedule), given.s, dense, given.bias, given.for_kernel)
    options = {**given.options, "out_dtype": problem.out}
    if problem.kind == "linear":
        host, y = louver.linear(np.ascontiguousarray(given.b.T), given.s, **options).T, y.T
    else:
        host = louver.matmul(given.s, given.b, **options)
    assert host.shape == y.shape and host.dtype == y.dtype
    if problem.out == "s32":
        np.testing.assert_array_equal(y, host)
        return
    reads = {name: finite(value) for name, value in given.reads.items()}
    bias = None if given.bias is None else finite(given.bias)
    _, magnitude = exact_product(finite(given.a), finite(given.b), bias, problem.epilogue, reads)
    how = accumulation(problem.a, floating=problem.epilogue.floating, unit=problem.unit)
    # Both read the same tf32, so they differ by the rounding of sums only.
    how = "f32" if how == "tf32" else how
    wide, other = y.astype(np.float64), host.astype(np.float64)
    # Each of the two is within the bound.
    allowed = 2 * bound(finite(other), magnitude, k, problem.out, how, "any")
    with np.errstate(invalid="ignore"):
        same = (wide == other) | (np.isnan(wide) & np.isnan(other)) | (np.abs(wide - other) <= allowed)
    lists = forms_of(schedule, given.s).lists
    if lists is not None and given.s.pattern.length % lists.rows:
        # A list of several windows has rows of K that one of them does not keep (docs/selection.md).
        same[:, ~np.isfinite(given.b.astype(np.float64)).all(axis=0)] = True
    wrong = np.argwhere(~same)
    assert not wrong.size, f"{problem}: {len(wrong)} differ, first {wrong[0]}: {wide[~same][0]} and {other[~same][0]}"
