"""Fused epilogues on the emulator: every option, some together, on tails of every size, stored both ways."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.formats.dtypes import element_type, raw_bits
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import PRODUCTS, Problem
from louver.library import reference
from louver.library.emulate import emulate
from support.compiled import compiled_product
from support.fused import EPILOGUES, FULL, FusedOperands, fused_operands

pytestmark = pytest.mark.sampled(7, every=2)


def run(given: FusedOperands, order: Order = Latest(), *, sm_count: int = 132, **schedule: object) -> np.ndarray:  # noqa: B008
    """The emulated result, [M, N]."""
    problem = given.problem
    tile_k = 64 if element_type(problem.a).bits == 16 else 128
    chosen = Schedule.of(tile_n=32, tile_k=tile_k, stages=2).changed(**schedule)
    dense = given.b.T if problem.b_layout == "k_major" else given.b
    compiled = compiled_product(problem, chosen)
    y, report = emulate(compiled, given.s, dense, given.bias, given.for_kernel, sm_count=sm_count, order=order)
    assert report.products > 0
    return y.T if problem.kind == "linear" else y


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_every_option(rng: np.random.Generator, kind: str, name: str) -> None:
    for a, out in (("f16", "f32"), ("s8", "f16")):
        problem = Problem(kind, a, a, out, bias="row", epilogue=EPILOGUES[name])
        given = fused_operands(rng, problem, 80 if problem.epilogue.gated else 70, 19, 100)
        y = run(given, Seeded(3))
        assert 0.01 < np.abs(y.astype(np.float64)).max() < 1e7
        given.assert_close(y)


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_every_option_with_bulk_stores(rng: np.random.Generator, kind: str, name: str) -> None:
    problem = Problem(kind, "bf16", "bf16", "f16", bias="row", epilogue=EPILOGUES[name])
    given = fused_operands(rng, problem, 208, 72, 70)
    given.assert_close(run(given, Earliest(), tile_n=64, store="bulk", sm_count=2))


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_every_option_beside_the_most_sums(rng: np.random.Generator, kind: str, name: str) -> None:
    """The epilogue reads a group of columns at a time, in branches; rows of a warp that the output does not have."""
    problem = Problem(kind, "bf16", "bf16", "f16", bias="row", epilogue=EPILOGUES[name])
    given = fused_operands(rng, problem, 288, 208, 70)
    tall: dict[str, object] = {"tile_m": 256, "tile_n": 192, "staging": 96}
    given.assert_close(run(given, Seeded(5), store="bulk", sm_count=2, **tall))


GATED_OUTPUTS = [
    (kind, a, out)
    for kind in ("linear", "matmul")
    for a, out in (("f16", "f32"), ("bf16", "bf16"), ("f16", "e4m3"), ("s8", "s8"))
    if kind == "matmul" or element_type(out).bits > 8
]


@pytest.mark.parametrize(("kind", "a", "out"), GATED_OUTPUTS)
@pytest.mark.parametrize(
    "schedule",
    [
        {"tile_n": 128},
        {"tile_n": 64, "staging": 64},
        {"tile_n": 192, "staging": 128},
        {"tile_m": 256, "tile_n": 192, "staging": 64},
        {"tile_m": 64, "consumers": 1, "tile_n": 64},
    ],
    ids=str,
)
def test_gated_products_staged(
    rng: np.random.Generator, kind: str, a: str, out: str, schedule: dict[str, object]
) -> None:
    """Staged stores send the same as direct ones, bit for bit; rows of whole chunks, several tiles, tails."""
    problem = Problem(kind, a, a, out, bias="row", epilogue=EPILOGUES["gated-scaled"])
    given = fused_operands(rng, problem, 416, 208, 130)
    staged = run(given, Seeded(2), sm_count=2, store="bulk", **schedule)
    given.assert_close(staged)
    np.testing.assert_array_equal(raw_bits(run(given, sm_count=2, store="direct")), raw_bits(staged))


@pytest.mark.parametrize(("m", "n"), [(16, 1), (112, 33), (128, 31), (144, 65), (400, 40)])
@pytest.mark.parametrize("name", ["full", "gated-scaled"])
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_tails(rng: np.random.Generator, kind: str, name: str, m: int, n: int) -> None:
    problem = Problem(kind, "e4m3", "e5m2", "f32", bias="row", epilogue=EPILOGUES[name])
    given = fused_operands(rng, problem, m if problem.epilogue.gated else m - 3, n, 30)
    given.assert_close(run(given, sm_count=3))


@pytest.mark.parametrize(
    "schedule",
    [
        {"tile_m": 256, "consumers": 2},
        {"tile_m": 192, "consumers": 3, "tile_n": 48},
        {"cluster": 2},
        {"tile_m": 64, "consumers": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["full", "gated-scaled"])
def test_schedules(rng: np.random.Generator, name: str, schedule: dict[str, object]) -> None:
    problem = Problem("linear", "f16", "f16", "bf16", bias="row", epilogue=EPILOGUES[name])
    given = fused_operands(rng, problem, 400, 50, 130)
    given.assert_close(run(given, Seeded(1), sm_count=2, **schedule))


EIGHT_BITS = [(a, out) for a in ("f16", "bf16", "e4m3", "s8") for out in PRODUCTS[a, a] if element_type(out).bits == 8]


@pytest.mark.parametrize(("a", "out"), EIGHT_BITS)
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_8_bit_outputs_saturate_and_round_to_even(rng: np.random.Generator, kind: str, a: str, out: str) -> None:
    for epilogue in (Epilogue(), Epilogue(alpha=True, scale="row", activation="relu", out_scale="number")):
        problem = Problem(kind, a, a, out, bias="row", epilogue=epilogue)
        given = fused_operands(rng, problem, 70, 19, 100)
        if epilogue.floating:
            given.reads["out_scale"] = 300.0 if out == "s8" else 20000.0
        y = run(given).astype(np.float64)
        given.assert_close(y.astype(element_type(out).numpy))
        if epilogue.floating:
            assert y.max() == {"s8": 127, "e4m3": 448, "e5m2": 57344}[out] and (y == 0).any()
        expected = reference.product(given.a, given.b, given.bias, element_type(out).numpy, epilogue, given.reads)
        if element_type(a).name == "s8":
            np.testing.assert_array_equal(y, expected.astype(np.float64))


def test_s8_rounds_ties_to_even(rng: np.random.Generator) -> None:
    problem = Problem("matmul", "f16", "f16", "s8", epilogue=Epilogue(out_scale="number"))
    given = fused_operands(rng, problem, 64, 8, 4)
    whole = rng.integers(-300, 300, (64, 8)).astype(np.float16)
    given = replace(given, a=given.a * 0, b=given.b)
    # One product by 1 a column: the sums are the weights themselves.
    a = np.zeros((64, 4), np.float16)
    a[:, 0] = whole[:, 0]
    b = np.zeros((4, 8), np.float16)
    b[0] = 1
    import louver

    given = replace(given, a=a, s=louver.compress(a, "2:4"), b=b, reads={"out_scale": 0.5})
    np.testing.assert_array_equal(run(given), np.clip(np.rint(a[:, :1] * 0.5), -128, 127).repeat(8, 1).astype(np.int8))


@pytest.mark.parametrize(("a", "out"), [("f16", "f32"), ("s8", "bf16"), ("e4m3", "e4m3")])
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
def test_nan_scales_give_nan(rng: np.random.Generator, activation: str | None, a: str, out: str) -> None:
    for name in ("scale", "dense_scale", "out_scale", "alpha"):
        epilogue = replace(FULL, c=None, activation=activation)
        problem = Problem("linear", a, a, out, epilogue=epilogue)
        given = fused_operands(rng, problem, 66, 9, 40)
        expected = np.ones((66, 9), bool)
        if name in ("scale", "dense_scale"):
            row = 5 if name == "scale" else 3
            values = np.array(given.reads[name])
            values[row] = np.nan
            given.reads[name] = values
            expected[...] = False
            expected[(row,) if name == "scale" else (slice(None), row)] = True
        else:
            given.reads[name] = np.float32(np.nan) if name == "out_scale" else np.nan
        y = run(given).astype(np.float32)
        np.testing.assert_array_equal(np.isnan(y), expected)


def test_nan_is_0_in_s8(rng: np.random.Generator) -> None:
    problem = Problem("matmul", "s8", "s8", "s8", epilogue=Epilogue(alpha=True))
    given = fused_operands(rng, problem, 66, 9, 40)
    given.reads["alpha"] = np.nan
    assert not run(given).any()


def test_large_arguments_of_activations(rng: np.random.Generator) -> None:
    for activation in ("gelu", "gelu_tanh", "silu", "relu"):
        problem = Problem("matmul", "bf16", "bf16", "f32", epilogue=Epilogue(alpha=True, activation=activation))
        given = fused_operands(rng, problem, 64, 16, 16)
        for alpha in (1e-30, 1e-3, 30.0, 1e4, 1e15, -1e15):
            given.reads["alpha"] = float(np.float32(alpha))
            y = run(given)
            assert np.isfinite(y).all()
            given.assert_close(y)
