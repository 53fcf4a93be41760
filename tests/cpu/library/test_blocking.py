"""NM-SpMM's equations: its own figures, and what it concludes from them."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from louver.formats.pattern import Pattern
from louver.isa.targets import SM_80, SM_90A
from louver.library.blocking import TABLE_I, Blocking, Step

LARGE = TABLE_I["large"]
A100 = replace(SM_80, max_shared_bytes=192 * 1024)
"""With the shared memory of the paper's Table III."""

FOUR = ("16:32@32", "12:32@32", "8:32@32", "4:32@32")
"""The paper's levels, 50 to 87.5%."""

patterns = st.integers(1, 128).flatmap(
    lambda m: st.builds(Pattern, st.integers(1, m), st.just(m), st.sampled_from((1, 4, 32, 128, 1000)))
)
blockings = st.sampled_from(list(TABLE_I.values()))


def steps(texts: tuple[str, ...] = FOUR) -> list[Step]:
    return [Step(LARGE, p, LARGE.depth(p, 4096, A100)) for p in map(Pattern.parse, texts)]


def test_table_i_is_legal_and_its_figures_are_those_by_hand() -> None:
    assert [TABLE_I[name].registers for name in ("small", "medium", "large")] == [24, 44, 80]
    assert [blocking.cmar() for blocking in TABLE_I.values()] == [2, pytest.approx(8 / 3), 4]
    assert LARGE.cmar(4) == 1 and Blocking(64, 128, 32, 128, 8, 16).cmar() == pytest.approx(16 / 3)
    # 192 KiB / 8 / (64 + 128 / 2) = 192; half of the shared memory is full.
    half = steps()[0]
    assert (half.ks, half.ws, half.qs) == (192, 96, 4)
    assert half.shared_bytes == 96 * 1024 + 96 * 4 * 5 // 8 + 96 * 4 * 3 // 8
    assert half.intensity() == 2 * 64 * 128 * 96 / (64 * 192 + 96 * 128 + 2 * 64 * 128)


def test_four_windows_keep_41_and_94_percent() -> None:
    kept = [Step(LARGE, Pattern.parse(text), 64).kept for text in ("1:8@32", "4:8@32", "1:8@128", "1:8@1000")]
    assert kept == [pytest.approx(1 - (7 / 8) ** 4), pytest.approx(15 / 16), 1 / 8, 1 / 8]


@settings(deadline=None, max_examples=40)
@given(pattern=patterns, blocking=blockings, k=st.integers(1, 10_000))
def test_a_step_fits_and_no_longer_one_does(pattern: Pattern, blocking: Blocking, k: int) -> None:
    ks = blocking.depth(pattern, k, SM_90A)
    step = Step(blocking, pattern, ks)
    assert ks % pattern.m == 0 and step.ws * pattern.m == ks * pattern.n

    def fits(depth: int) -> bool:
        return 8 * depth * (blocking.ms + pattern.n * blocking.ns / pattern.m) <= SM_90A.max_shared_bytes

    assert fits(ks)
    assert ks == pattern.groups(k) * pattern.m or not fits(ks + pattern.m)
    assert pattern.n / pattern.m - 1e-9 <= step.kept <= min(1, step.qs * pattern.n / pattern.m) + 1e-9


@settings(deadline=None, max_examples=20)
@given(blocking=blockings, m=st.integers(2, 256), ks=st.integers(1, 4))
def test_intensity_falls_with_sparsity_and_rises_by_packing(blocking: Blocking, m: int, ks: int) -> None:
    found = [Step(blocking, Pattern(n, m, 32), ks * m) for n in range(1, m + 1)]
    rising = [step.intensity() for step in found]
    assert rising == sorted(rising)
    assert all(step.intensity(step.kept) >= step.intensity() for step in found)
    assert all(step.intensity(steps=2) > step.intensity() for step in found)


def test_packing_pays_where_few_columns_are_kept() -> None:
    assert [step.packing_saves for step in steps((*FOUR, "2:4@1"))] == [True, True, True, True, False]


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [
        ((64, 128, 32, 64, 8, 16), r"a warp's tile has 32 threads' tiles, got 4×4"),
        ((48, 128, 16, 64, 8, 4), "ms and ns are multiples of 32, got 48 and 128"),
        ((64, 128, 48, 64, 8, 8), "a CTA has whole warps, and a warp whole threads"),
        ((64, 128, 0, 64, 8, 8), "sizes of a blocking are at least 1"),
    ],
)
def test_sizes_that_do_not_nest(sizes: tuple[int, ...], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Blocking(*sizes)


def test_what_no_thread_or_sm_holds() -> None:
    with pytest.raises(ValueError, match="a thread has 255 registers, got 288 of Blocking"):
        Blocking(64, 128, 64, 128, 16, 16).depth(Pattern(2, 4), 64, SM_90A)
    with pytest.raises(
        ValueError, match=r"a group of 256:256 takes 2,097,152 bytes .*, of 232,448: take smaller blocks"
    ):
        Blocking(512, 512, 32, 64, 8, 8).depth(Pattern(256, 256), 64, SM_90A)
    with pytest.raises(ValueError, match="is of vectors N:M@L, which CUDA cores multiply, got 2:8@V64: write"):
        Blocking(64, 128, 64, 32, 8, 8).depth(Pattern.parse("2:8@V64"), 64, SM_90A)


def test_random_windows_keep_what_the_share_says() -> None:
    """Of every choice of two windows of 2:4: a column is kept by one of them, or both."""
    choices = [{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}]
    assert len(choices) == comb(4, 2)
    mean = sum(len(a | b) for a in choices for b in choices) / 36 / 4
    assert Step(LARGE, Pattern(2, 4, 64), 4).kept == pytest.approx(mean)
