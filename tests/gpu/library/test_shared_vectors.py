"""Products of V:N:M on the GPU: exact, of any layout and size, bitwise the same each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.choose.demand import Demand
from louver.choose.ranges import Cutting
from louver.compile.plan.schedule import Schedule
from louver.formats.dtypes import element_type
from louver.frontend.problem import Problem
from louver.library.compiled import loaded
from louver.library.forms import forms_of
from louver.library.launch import Launcher
from louver.library.numerics import accumulation, compare
from louver.library.reference import exact_product
from louver.library.state import TensorState
from louver.measure.launches import rows_of
from support.device_products import filled, to_numpy, to_torch
from support.gathered import shared

SIZES = {"whole": (512, 512, 1024), "odd": (300, 333, 1001), "narrow": (1024, 8, 2048), "one": (65, 1, 40)}
PATTERNS = ("2:8@V128", "2:8@V64", "2:5@V256", "2:16@V32", "2:9@V33")

SCHEDULES = {
    "wide": Schedule.of(tile_n=256, stages=2),
    "staged": Schedule.of(tile_n=128, stages=3, metadata="stage"),
    "on-barriers": Schedule.of(tile_n=128, stages=3, metadata="barrier"),
    "bulk": Schedule.of(tile_n=128, stages=3, store="bulk"),
    "half": Schedule.of(tile_m=64, tile_n=256, consumers=1, stages=3, store="bulk", metadata="stage"),
    "tall": Schedule.of(tile_m=256, tile_n=128, stages=2),
    "step": Schedule.of(tile_n=64, tile_k=128, stages=3, metadata="stage"),
    "ranges": Schedule.of(tile_n=128, stages=3, work="ranges"),
    "staged-ranges": Schedule.of(tile_n=128, stages=3, work="ranges", metadata="stage"),
    "pairs": Schedule.of(tile_n=128, stages=3, work="pairs"),
    "staged-pairs": Schedule.of(tile_n=128, stages=3, work="pairs", metadata="stage", store="bulk"),
    "dependent": Schedule.of(tile_n=64, stages=2, dependent=True, metadata="stage"),
}


@pytest.mark.parametrize("dtype", ["f16", "bf16", "s8"])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("size", SIZES)
def test_products_are_exact(rng: np.random.Generator, torch: Any, size: str, pattern: str, dtype: str) -> None:
    """NaN lies around the dense operand, and between its rows."""
    m, n, k = SIZES[size]
    s, a = shared(rng, (m, k), pattern, dtype)
    b, out = rng.integers(-4, 5, (k, n)).astype(s.dtype.numpy), "s32" if dtype == "s8" else "f32"
    expected, _ = exact_product(a, b)
    for gap, order in ((0, (0, 1)), (-n % 16 + 16, (0, 1)), (3, (1, 0))):
        y = to_numpy(louver.matmul(s, filled(b, gap=gap, order=order), out_dtype=out))
        np.testing.assert_array_equal(y, expected)
    y = to_numpy(louver.linear(to_torch(np.ascontiguousarray(b.T)), s.to(0), out_dtype=out)).T
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("size", SIZES)
def test_the_bound_is_kept_and_the_bits_repeat(rng: np.random.Generator, torch: Any, size: str) -> None:
    m, n, k = SIZES[size]
    w = louver.prune(rng.standard_normal((m, k)).astype(element_type("bf16").numpy), "2:8@V64")
    s, dense = louver.compress(w, "2:8@V64"), rng.standard_normal((k, n)).astype(w.dtype)
    b = to_torch(dense)
    first = louver.matmul(s, b, activation="relu", bias=to_torch(np.zeros(m, w.dtype)))
    expected, magnitude = exact_product(w, dense)
    agreement = compare(to_numpy(first), np.maximum(expected, 0), magnitude, k, "bf16", accumulation("bf16"))
    assert agreement.ok, agreement
    for _ in range(100):
        assert torch.equal(louver.matmul(s, b, activation="relu", bias=to_torch(np.zeros(m, w.dtype))), first)


def test_a_captured_product_follows_new_values(rng: np.random.Generator, torch: Any) -> None:
    s, _ = shared(rng, (256, 512), "2:8@V128")
    b = to_torch(rng.integers(-4, 5, (512, 128)).astype(np.float16))
    y = louver.matmul(s, b, out_dtype="f32")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        louver.matmul(s, b, out=y)
    s.update_(np.negative(s.values))
    graph.replay()
    expected, _ = exact_product(s.dense(), to_numpy(b))
    np.testing.assert_array_equal(to_numpy(y), expected)


def test_random_products(rng: np.random.Generator, torch: Any) -> None:
    for _ in range(200):
        m, n, k = (int(size) for size in rng.integers(1, 500, 3))
        pattern = f"2:{int(rng.integers(5, 33))}@V{int(rng.choice((2, 7, 32, 64, 128, 300)))}"
        s, a = shared(rng, (m, k), pattern)
        b = rng.integers(-4, 5, (k, n)).astype(np.float16)
        y = to_numpy(louver.matmul(s, to_torch(b), out_dtype="f32"))
        np.testing.assert_array_equal(y, exact_product(a, b)[0], err_msg=f"{pattern} {m}x{n}x{k}")


def test_batches(rng: np.random.Generator, torch: Any) -> None:
    s, a = shared(rng, (3, 200, 300), "2:8@V64")
    b = rng.integers(-4, 5, (3, 300, 136)).astype(np.float16)
    y = to_numpy(louver.matmul(s, to_torch(b), out_dtype="f32"))
    for entry in range(3):
        np.testing.assert_array_equal(y[entry], exact_product(a[entry], b[entry])[0])


def test_arrays_on_the_gpu_go_through_the_host(rng: np.random.Generator, torch: Any) -> None:
    w = rng.standard_normal((200, 300)).astype(np.float16)
    pruned = louver.prune(to_torch(w), "2:8@V64")
    np.testing.assert_array_equal(to_numpy(pruned), louver.prune(w, "2:8@V64"))
    assert louver.check(pruned, "2:8@V64").ok
    s = louver.compress(pruned, "2:8@V64")
    assert s.device == 0
    np.testing.assert_array_equal(to_numpy(s.dense()), to_numpy(pruned))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("pattern", ["2:8@V128", "2:5@V64", "2:9@V33", "2:16@V256"])
def test_every_structure(rng: np.random.Generator, torch: Any, pattern: str, name: str) -> None:
    """By the launcher. Columns that bulk stores can write; the other sizes have tails."""
    m, n, k = 600, 520, 1003
    schedule, problem = (
        SCHEDULES[name],
        Problem("matmul", "bf16", "bf16", pattern=pattern, out="bf16", b_layout="n_major"),
    )
    s, a = shared(rng, (m, k), pattern, "bf16")
    operand = TensorState().operand(s, 0, forms_of(schedule, s))
    cutting = Cutting.of(Demand.of_problem(problem), schedule) if schedule.cuts else None
    launcher = Launcher(loaded(problem, schedule, 0), operand, (m, k), cutting)
    b = rng.integers(-4, 5, (k, n)).astype(a.dtype)
    dense = to_torch(b)
    y = torch.full((m, n), float("nan"), dtype=dense.dtype, device="cuda")
    launcher.bound(launcher.sized(n, rows_of(dense), rows_of(y)), rows_of(dense), rows_of(y))()
    expected, _ = exact_product(a, b)
    np.testing.assert_array_equal(to_numpy(y).astype(np.float64), expected.astype(a.dtype).astype(np.float64))
