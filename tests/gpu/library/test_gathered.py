"""Products whose rows of K are gathered, on the GPU: exact, of any layout and size, bitwise the same each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import louver
from louver.choose.demand import Demand
from louver.choose.ranges import Cutting
from louver.compile.plan.schedule import Schedule
from louver.formats.dtypes import element_type
from louver.formats.lists import PICKERS
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor
from louver.frontend.problem import Problem
from louver.ir.product import unit_of
from louver.library.compiled import loaded
from louver.library.launch import Launcher
from louver.library.numerics import accumulation, compare
from louver.library.reference import exact_product
from louver.measure.launches import rows_of
from louver.measure.operands import NEVER, placed, torch_dtype
from support.device_products import filled, to_numpy, to_torch
from support.gathered import vectors
from support.products import OF_NUMBERS

Array = NDArray[Any]

SIZES = {"whole": (512, 512, 1024), "odd": (300, 333, 1001), "narrow": (1024, 8, 2048), "one": (65, 1, 40)}
PATTERNS = ("2:8", "1:16", "6:8@128", "2:8@64", "3:5@33", "8:32@32")


def weight(rng: np.random.Generator, m: int, k: int, pattern: str, dtype: str, *, normal: bool = False) -> SparseTensor:
    w = rng.standard_normal((m, k)).astype(element_type(dtype).numpy) if normal else integers(rng, dtype, m, k)
    return louver.compress(louver.prune(w, pattern), pattern)


def integers(rng: np.random.Generator, dtype: str, *shape: int) -> Array:
    return rng.integers(0 if dtype == "u8" else -4, 5, shape).astype(element_type(dtype).numpy)


@pytest.mark.parametrize(("a", "b"), [pair for pair in OF_NUMBERS if pair[0] != pair[1]])
def test_mixed_types_are_exact(rng: np.random.Generator, torch: Any, a: str, b: str) -> None:
    s = weight(rng, 300, 1001, "2:8@128", a)
    dense = integers(rng, b, 1001, 333)
    expected, _ = exact_product(s.dense(), dense)
    np.testing.assert_array_equal(to_numpy(louver.matmul(s, to_torch(dense), out_dtype="f32")), expected)


@pytest.mark.parametrize("dtype", ["s8", "u8"])
def test_integers_of_all_values(rng: np.random.Generator, torch: Any, dtype: str) -> None:
    kind = element_type(dtype).numpy
    w, b = (rng.integers(0, 256, shape).astype(np.uint8).view(kind) for shape in ((512, 1000), (1000, 400)))
    s = louver.compress(louver.prune(w, "3:8@128"), "3:8@128")
    expected, _ = exact_product(s.dense(), b)
    np.testing.assert_array_equal(to_numpy(louver.matmul(s, to_torch(b))), expected)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "e4m3", "e5m2", "s8", "u8"])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("size", SIZES)
def test_products_are_exact(rng: np.random.Generator, torch: Any, size: str, pattern: str, dtype: str) -> None:
    """NaN lies around the dense operand, and between its rows."""
    m, n, k = SIZES[size]
    s = weight(rng, m, k, pattern, dtype)
    b = integers(rng, dtype, k, n)
    expected, _ = exact_product(s.dense(), b)
    for gap, order in ((0, (0, 1)), (-n % 16 + 16, (0, 1)), (3, (1, 0))):
        dense = filled(b, gap=gap, order=order)
        y = to_numpy(louver.matmul(s, dense, out_dtype="f32"))
        np.testing.assert_array_equal(y, expected)
    y = to_numpy(louver.linear(to_torch(np.ascontiguousarray(b.T)), s, out_dtype="f32")).T
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("dtype", ["bf16", "f32", "e4m3", "e5m2"])
@pytest.mark.parametrize("size", SIZES)
def test_the_bound_is_kept_and_the_bits_repeat(rng: np.random.Generator, torch: Any, size: str, dtype: str) -> None:
    m, n, k = SIZES[size]
    s = weight(rng, m, k, "2:8", dtype, normal=True)
    b = rng.standard_normal((k, n)).astype(s.dtype.numpy)
    dense = to_torch(b)
    first = louver.matmul(s, dense)
    expected, magnitude = exact_product(s.dense(), b)
    how = accumulation(dtype, unit=unit_of("2:8", dtype))
    out = element_type(to_numpy(first).dtype).name
    agreement = compare(to_numpy(first), expected, magnitude, k, out, how)
    assert agreement.ok, agreement
    y = torch.empty_like(first)
    for _ in range(100):
        y.fill_(float("nan"))
        louver.matmul(s, dense, out=y)
        assert torch.equal(y, first)


def test_tokens_of_axes_that_do_not_join(rng: np.random.Generator, torch: Any) -> None:
    s = louver.compress(louver.prune(rng.standard_normal((72, 64)).astype(np.float16), "4:8"), "4:8")
    x = to_torch(rng.integers(-4, 5, (4, 6, 2, 64)).astype(np.float16))[:, :5, 0]
    y = louver.linear(x, s, out_dtype="f32")
    assert torch.equal(y, louver.linear(x.contiguous(), s, out_dtype="f32"))
    expected = to_numpy(x).astype(np.float64) @ s.dense().astype(np.float64).T
    np.testing.assert_allclose(to_numpy(y), expected, rtol=1e-5, atol=1e-4)


def test_a_captured_product_follows_new_values(rng: np.random.Generator, torch: Any) -> None:
    s = weight(rng, 256, 512, "2:8", "f16")
    b = to_torch(rng.integers(-4, 5, (512, 128)).astype(np.float16))
    y = louver.matmul(s, b, out_dtype="f32")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        louver.matmul(s, b, out=y)
    s.update_(np.negative(s.values))
    graph.replay()
    expected, _ = exact_product(s.dense(), to_numpy(b))
    np.testing.assert_array_equal(to_numpy(y), expected)


@pytest.mark.parametrize("dtype", ["f16", "f32", "e4m3", "s8"])
def test_random_products(rng: np.random.Generator, torch: Any, dtype: str) -> None:
    for _ in range(200):
        m, n, k = (int(size) for size in rng.integers(1, 500, 3))
        group = int(rng.integers(2, 33))
        length = int(rng.choice((2, 7, 32, 64, 128, 300)))
        pattern = f"{int(rng.integers(1, group + 1))}:{group}@{length}"
        s = weight(rng, m, k, pattern, dtype)
        b = integers(rng, dtype, k, n)
        y = to_numpy(louver.matmul(s, to_torch(b), out_dtype="f32"))
        expected, _ = exact_product(s.dense(), b)
        np.testing.assert_array_equal(y, expected, err_msg=f"{pattern} {m}x{n}x{k}")


SCHEDULES = {
    "wide": Schedule.of(tile_n=256, stages=2),
    "bulk": Schedule.of(tile_n=128, stages=3, store="bulk"),
    "half": Schedule.of(tile_m=64, tile_n=256, consumers=1, stages=3, store="bulk"),
    "tall": Schedule.of(tile_m=256, tile_n=128, stages=2),
    "step": Schedule.of(tile_n=64, tile_k=128, stages=3),
    "ranges": Schedule.of(tile_n=128, stages=3, work="ranges"),
    "pairs": Schedule.of(tile_n=128, stages=3, work="pairs"),
}

TURNED = {
    "wide": Schedule.of(tile_n=256, tile_k=128, stages=2),
    "bulk": Schedule.of(tile_n=128, tile_k=128, stages=2, store="bulk"),
    "half": Schedule.of(tile_m=64, tile_n=256, tile_k=128, consumers=1, stages=3, store="bulk"),
    "tall": Schedule.of(tile_m=256, tile_n=128, tile_k=128, stages=2),
    "three-parts": Schedule.of(tile_n=192, tile_k=128, stages=2),
    "short": Schedule.of(tile_n=128, tile_k=64, stages=4),
    "ranges": Schedule.of(tile_n=128, tile_k=128, stages=3, work="ranges"),
    "pairs": Schedule.of(tile_n=128, tile_k=128, stages=3, work="pairs"),
}

LANES = Schedule.of(tile_n=128, tile_k=32, stages=2, in_flight=0)

CUDA_CORES = {
    "narrow": LANES.changed(tile_n=64, stages=3),
    "tall": LANES.changed(tile_m=256),
    "two-ctas": LANES.changed(consumers=1, resident=2),
    "ranges": LANES.changed(work="ranges"),
    "picked": LANES.changed(metadata="stage"),
    "picked-tall": LANES.changed(tile_m=256, metadata="stage"),
    "few": LANES.changed(tile_n=16),
    "picked-few": LANES.changed(tile_n=32, metadata="stage"),
    "picked-short": LANES.changed(tile_m=256, tile_k=16, metadata="stage"),
    "picked-ranges": LANES.changed(metadata="stage", work="ranges", consumers=1, tile_n=64),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("pattern", ["2:8@128", "4:8@64", "3:5@33", "1:8@256", None])
def test_vectors_and_dense_operands_of_every_structure(
    rng: np.random.Generator, torch: Any, pattern: str | None, name: str
) -> None:
    launch(rng, torch, SCHEDULES[name], pattern, "bf16")


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("pattern", ["2:8@128", "4:8@64", "3:5@33", "1:8@256"])
@pytest.mark.parametrize("dtype", ["e4m3", "s8"])
def test_vectors_of_8_bits_of_every_structure(
    rng: np.random.Generator, torch: Any, dtype: str, pattern: str, name: str
) -> None:
    launch(rng, torch, TURNED[name], pattern, dtype)


@pytest.mark.parametrize("name", CUDA_CORES)
@pytest.mark.parametrize("pattern", ["2:8@128", "4:8@64", "3:5@33", "3:8@256", "8:32@32", "3:7@16"])
def test_vectors_of_f32_of_every_structure(rng: np.random.Generator, torch: Any, pattern: str, name: str) -> None:
    if name.startswith("picked") and Pattern.parse(pattern).length % PICKERS:
        pytest.skip("16 rows pick together")
    launch(rng, torch, CUDA_CORES[name], pattern, "f32")


def launch(rng: np.random.Generator, torch: Any, schedule: Schedule, pattern: str | None, dtype: str) -> None:
    """By the launcher. Columns that bulk stores can write; the other sizes have tails."""
    # Rows of the dense operand are whole 16 bytes.
    m, n, k = 600, 528 if element_type(dtype).bits == 8 else 520, 1003
    out = {"e4m3": "bf16", "s8": "s32"}.get(dtype, dtype)
    problem = Problem("matmul", dtype, dtype, out, pattern=pattern, b_layout="n_major")
    given = vectors(rng, m, k, pattern or "7:8@1000", dtype)
    values, positions = given.a, np.zeros(4, np.int32)
    if pattern is not None:
        rows = given.rows(schedule)
        values, positions = rows.values, rows.lists
    cutting = Cutting.of(Demand.of_problem(problem), schedule) if schedule.cuts else None
    launcher = Launcher(loaded(problem, schedule, 0), placed(values, positions, 0), (m, k), cutting)
    b = integers(rng, dtype, k, n)
    dense, kind = to_torch(b), element_type(out)
    y = torch.full((m, n), float("nan") if kind.floating else NEVER, dtype=torch_dtype(torch, out), device="cuda")
    launcher.bound(launcher.sized(n, rows_of(dense), rows_of(y)), rows_of(dense), rows_of(y))()
    expected, _ = exact_product(given.a, b)
    np.testing.assert_array_equal(to_numpy(y).astype(np.float64), expected.astype(kind.numpy).astype(np.float64))
