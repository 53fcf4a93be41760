"""Steps that a loop skips: operands come ahead for those that it takes, and what is in the others does not count."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.skipped_steps import as_it_writes, attention, by_mask, by_mask_in_turn, by_number, either, in_parts


def blocked(taken: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Whether each element is in a block that is taken."""
    return np.repeat(np.repeat(taken != 0, rows, 0), columns, 1)


@pytest.mark.parametrize("other", [False, True], ids=["taken", "not taken"])
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (16, 32)], ids=["wgmma", "mma"])
@pytest.mark.parametrize("density", [0, 0.3, 0.8, 1])
def test_steps_that_memory_chooses(
    rng: np.random.Generator, density: float, rows: int, columns: int, *, other: bool
) -> None:
    depth, m, n, steps = 32, 2 * rows - 5, 2 * columns, 11
    taken = (rng.random((2, steps)) < density).astype(np.int32)
    x = rng.standard_normal((m, steps * depth)).astype(np.float16)
    used = blocked(taken, rows, depth)[:m]
    x[~used] = np.nan
    w = louver.prune(rng.standard_normal((steps * depth, n)).astype(np.float16), "2:4", axis=0)
    y = np.full((m, n), np.nan, np.float32)
    numbers = (1 - taken) if other else taken
    given = x, louver.compress(w, "2:4", axis=0), y, numbers, m, n, steps * depth, steps, rows, columns, depth, other
    kernel = louver.jit(by_mask)
    ptx = kernel.explain[2, 2](*given).ptx
    assert ptx.count("cp.async.bulk.tensor.2d") > 2, "more than one step of both operands is on its way"
    report = kernel.emulate[2, 2](*given)
    assert report.bulk_loads == 2 * 2 * taken.sum(), "boxes of two operands, for two columns of programs"
    expected = np.where(used, x, 0).astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rows", [64, 16], ids=["wgmma", "mma"])
def test_several_tiles_by_each_program(rng: np.random.Generator, rows: int) -> None:
    """The slots of one tile are filled again for the next one."""
    depth, tiles, steps = 32, 5, 13
    taken = rng.choice(3, (tiles, steps), p=(0.5, 0.4, 0.1)).astype(np.int32)
    taken[1] = 0
    x = rng.standard_normal((tiles * rows, steps * depth)).astype(np.float16)
    w = louver.prune(rng.standard_normal((steps * depth, 64)).astype(np.float16), "2:4", axis=0)
    last = np.array([max(np.flatnonzero(row == 2), default=-1) for row in taken])
    used = blocked((taken == 1) & (np.arange(steps) > last[:, None]), rows, depth)
    x[~blocked(taken, rows, depth)] = np.nan
    y = np.full((tiles * rows, 64), np.nan, np.float32)
    given = x, louver.compress(w, "2:4", axis=0), y, taken, 64, steps * depth, steps, tiles, rows, 64, depth
    report = louver.jit(by_mask_in_turn).emulate[2,](*given)
    assert report.bulk_loads == 2 * np.count_nonzero(taken)
    np.testing.assert_allclose(y, np.where(used, x, 0) @ w.astype(np.float64), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rows", [64, 16], ids=["wgmma", "mma"])
def test_slots_that_one_loop_leaves_to_the_next_one(rng: np.random.Generator, rows: int) -> None:
    """Where the first copies of a loop begin in its steps, what the last step of the loop before read has been read by all threads."""
    depth, parts, steps = 32, 3, 12
    taken = np.zeros((parts, steps), np.int32)
    taken[0], taken[1:, -3:] = 1, 1
    x = rng.standard_normal((rows, parts * steps * depth)).astype(np.float16)
    w = louver.prune(rng.standard_normal((parts * steps * depth, 64)).astype(np.float16), "2:4", axis=0)
    y = np.full((rows, 64), np.nan, np.float32)
    used = blocked(taken.reshape(1, -1), rows, depth)
    given = x, louver.compress(w, "2:4", axis=0), y, taken, 64, parts * steps * depth, parts, steps, rows, 64, depth
    louver.jit(in_parts).emulate[1,](*given)
    np.testing.assert_allclose(y, np.where(used, x, 0) @ w.astype(np.float64), rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("copies", ["bulk", "threads"])
def test_steps_that_numbers_choose(rng: np.random.Generator, copies: str) -> None:
    """Of a scaled operand too. What is behind the length is read by no step."""
    rows, depth, lengths = 64, 32, np.array([0, 160, 352], np.int32)
    k = 352 if copies == "bulk" else 356
    x = rng.standard_normal((3 * rows, k)).astype(np.float16)
    w = louver.prune(rng.standard_normal((rows, k)).astype(np.float16), "2:4")
    y = np.full((3 * rows, rows), np.nan, np.float32)
    given = x, louver.compress(w, "2:4"), y, lengths, 3 * rows, rows, k, 40, 0.5, rows, rows, depth
    louver.jit(by_number).emulate[3, 1](*given)
    step = np.arange(k) // depth
    factor = np.where((step % 2 == 0) & (np.arange(k) < 352), np.where(step < 4, 1, 0.5), 0)
    for program, length in enumerate(lengths):
        part = slice(program * rows, (program + 1) * rows)
        expected = (x[part] * np.where(np.arange(k) < length, factor, 0)) @ w.T.astype(np.float64)
        np.testing.assert_allclose(y[part], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rows", [64, 16], ids=["wgmma", "mma"])
def test_steps_of_two_kinds(rng: np.random.Generator, rows: int) -> None:
    depth, steps = 64, 9
    which = rng.integers(0, 2, steps).astype(np.int32)
    x = rng.standard_normal((rows, steps * depth)).astype(np.float16)
    v, w = (
        louver.prune(rng.standard_normal((k * depth, 64)).astype(np.float16), "2:4", axis=0)
        for k in (steps, steps // 2 + 1)
    )
    y = np.full((rows, 64), np.nan, np.float32)
    sparse = [louver.compress(each, "2:4", axis=0) for each in (v, w)]
    given = x, *sparse, y, which, 64, steps * depth, steps, rows, 64, depth
    kernel = louver.jit(either)
    assert kernel.explain[1,](*given).ptx.count("cp.async.bulk.tensor.2d") > 3
    kernel.emulate[1,](*given)
    expected = np.zeros((rows, 64))
    for step, kind in enumerate(which):
        other = w[step // 2 * depth :][:depth] if kind else v[step * depth :][:depth]
        expected += x[:, step * depth :][:, :depth].astype(np.float64) @ other * (-1 if kind else 1)
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=2e-3)


def test_steps_that_the_loop_chooses_on_its_way(rng: np.random.Generator) -> None:
    rows, depth, steps = 64, 32, 9
    taken = np.full(steps + 1, 7, np.int32)
    taken[0] = 1
    x = rng.standard_normal((rows, steps * depth)).astype(np.float16)
    w = louver.prune(rng.standard_normal((steps * depth, rows)).astype(np.float16), "2:4", axis=0)
    y = np.full((rows, rows), np.nan, np.float32)
    given = x, louver.compress(w, "2:4", axis=0), y, taken, rows, steps * depth, steps, rows, rows, depth
    louver.jit(as_it_writes).emulate[1,](*given)
    chosen = [1]
    for step in range(steps):
        chosen.append((chosen[-1] + step) % 2)
    np.testing.assert_array_equal(taken, chosen)
    used = blocked(np.array([chosen[:-1]]), rows, depth)
    np.testing.assert_allclose(y, np.where(used, x, 0) @ w.astype(np.float64), rtol=1e-3, atol=1e-3)


def test_attention_to_blocks_that_are_not_skipped(rng: np.random.Generator) -> None:
    size, s, rows, lengths = 64, 192, 64, np.array([30, 100, 192], np.int32)
    draw: Any = lambda *shape: rng.standard_normal(shape).astype(np.float16)  # noqa: E731
    q, k, v = draw(s, size), draw(s, size), louver.prune(draw(size, s), "2:4")
    y = np.full((s, size), np.nan, np.float32)
    given = q, k, louver.compress(v, "2:4"), y, lengths, s, 0.125, size, rows, 32
    kernel = louver.jit(attention)
    assert kernel.explain[3,](*given).ptx.count("cp.async.bulk.tensor.2d") > 2
    kernel.emulate[3,](*given)
    scores = q.astype(np.float64) @ k.T.astype(np.float64) * 0.125
    seen = np.tril(np.ones((s, s), bool)) & (np.arange(s) < np.repeat(lengths, rows)[:, None])
    weights = np.exp(scores) * seen
    expected = weights @ v.T.astype(np.float64) / weights.sum(1, keepdims=True)
    np.testing.assert_allclose(y, expected, rtol=2e-2, atol=2e-2)
