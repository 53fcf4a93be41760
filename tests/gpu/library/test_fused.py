"""Fused epilogues on the device: every option, into poisoned outputs with guards around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.choose.configure import choose
from louver.formats.dtypes import element_type
from louver.frontend.epilogue import ACTIVATIONS, Epilogue
from louver.frontend.problem import PRODUCTS, Problem
from louver.isa.targets import SM_90A
from support.device_products import Guarded, filled, guarded, to_numpy, to_torch
from support.fused import EPILOGUES, FULL, FusedOperands, fused_operands

pytestmark = pytest.mark.sampled(3)

SIZES = [(16, 1, 4), (160, 70, 257), (400, 300, 515)]


def on_device(given: FusedOperands) -> dict[str, Any]:
    """The options as torch tensors, vectors and arrays where no bulk copy could read them."""
    options: dict[str, Any] = {}
    for name, value in given.options.items():
        if not isinstance(value, np.ndarray):
            options[name] = value
        elif name == "c":
            options[name] = filled(value, offset=1, gap=3)
        else:
            options[name] = filled(value, offset=1) if value.ndim else to_torch(value)
    return options


def call(given: FusedOperands, **changed: Any) -> Any:
    """The library's result, [M, N] or, of linear, [N, M], on the device."""
    options = {"out_dtype": given.problem.out, **on_device(given), **changed}
    if given.problem.kind == "linear":
        return louver.linear(to_torch(given.b.T), given.s, **options)
    return louver.matmul(given.s, to_torch(given.b), **options)


def check(given: FusedOperands) -> None:
    """Within the bound, nothing written around it, the same from call to call; rows of odd pitch, and rows for bulk copies."""
    problem = given.problem
    shape = (given.s.shape[0] // problem.rows_per_output, given.b.shape[1])
    shape = shape[::-1] if problem.kind == "linear" else shape
    for offset, gap in ((1, 3), (0, 16 - shape[1] % 16)):
        target = poisoned(shape, problem.out, offset=offset, gap=gap)
        y = call(given, out=target.view)
        host = to_numpy(y)
        given.assert_close(host.T if problem.kind == "linear" else host)
        again = to_numpy(call(given, out=target.view))
        np.testing.assert_array_equal(again.view(np.uint8), host.view(np.uint8))
        if element_type(problem.out).bits >= 16:
            target.assert_untouched()


def poisoned(shape: tuple[int, int], out: str, *, offset: int, gap: int) -> Guarded:
    """An output of NaN; types without guards of NaN get plain memory of the same layout."""
    import torch

    if element_type(out).bits >= 16 and out != "s32":
        return guarded(shape, out, offset=offset, gap=gap)
    rows, columns = shape
    bits = torch.full((offset + rows * (columns + gap),), 0x55, dtype=torch.uint8, device="cuda")
    name = element_type(out).numpy.name
    view = bits.view(getattr(torch, name)).as_strided(shape, (columns + gap, 1), offset)
    return Guarded(bits, view)


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_every_option(rng: np.random.Generator, kind: str, name: str, m: int, n: int, k: int) -> None:
    for a, out in (("f16", "f16"), ("bf16", "f32"), ("e4m3", "bf16"), ("s8", "f16")):
        check(fused_operands(rng, Problem(kind, a, a, out, bias="row", epilogue=EPILOGUES[name]), m, n, k))


TALL = (2816, 2304)
"""M and N of which tiles of 256×192 make one wave of an H200's SMs, and those of 128×256 one and a half."""


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_every_option_beside_the_most_sums(rng: np.random.Generator, kind: str, name: str) -> None:
    for a, out in (("f16", "f16"), ("bf16", "f32"), ("e4m3", "bf16")):
        problem = Problem(kind, a, a, out, bias="row", epilogue=EPILOGUES[name])
        chosen = choose(problem, *TALL, SM_90A, 132, aligned_output=True)
        tall = (chosen.tile.m, chosen.tile.n) == (256, 192)
        assert tall is (name not in ("full", "gated-scaled", "c-f16", "c-f32"))
        check(fused_operands(rng, problem, *TALL, 130))


@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_a_lone_column_of_tall_tiles(rng: np.random.Generator, kind: str) -> None:
    for a, out in (("f16", "f16"), ("s8", "f32")):
        problem = Problem(kind, a, a, out, bias="row", epilogue=EPILOGUES["dense-bias"])
        assert choose(problem, 28672, 192, SM_90A, 132, aligned_output=True).tile.n == 192
        check(fused_operands(rng, problem, 28672, 192, 130))


@pytest.mark.parametrize("out", ["e4m3", "e5m2", "s8"])
@pytest.mark.parametrize("a", ["f16", "bf16", "e4m3", "s8"])
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_8_bit_outputs(rng: np.random.Generator, kind: str, a: str, out: str) -> None:
    assert out in PRODUCTS[a, a]
    for epilogue in (
        Epilogue(scale="row", out_scale="number"),
        Epilogue(alpha=True, activation="relu", out_scale="tensor"),
    ):
        given = fused_operands(rng, Problem(kind, a, a, out, bias="row", epilogue=epilogue), 333, 70, 130)
        check(given)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_of_arguments_of_every_size(rng: np.random.Generator, activation: str) -> None:
    problem = Problem("matmul", "bf16", "bf16", "f32", epilogue=Epilogue(alpha=True, activation=activation))
    given = fused_operands(rng, problem, 512, 256, 16)
    for alpha in (1e-30, 1e-3, 0.3, 3.0, 30.0, 1e4, 1e15):
        given.reads["alpha"] = float(np.float32(alpha))
        y = to_numpy(call(given))
        assert np.isfinite(y).all()
        given.assert_close(y)


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_nan_scales_give_nan(rng: np.random.Generator, activation: str | None) -> None:
    epilogue = Epilogue(scale="row", dense_scale="column", activation=activation, out_scale="tensor")
    given = fused_operands(rng, Problem("linear", out="f32", epilogue=epilogue), 200, 70, 64)
    scale, tokens = np.array(given.reads["scale"]), np.array(given.reads["dense_scale"])
    scale[5], tokens[3] = np.nan, np.nan
    given.reads.update(scale=scale, dense_scale=tokens)
    expected = np.zeros((70, 200), bool)
    expected[3], expected[:, 5] = True, True
    np.testing.assert_array_equal(np.isnan(to_numpy(call(given))), expected)
    assert np.isnan(to_numpy(call(given, out_scale=float("nan")))).all()


@pytest.mark.parametrize("out", ["e4m3", "s8"])
def test_nan_scales_of_8_bit_outputs(rng: np.random.Generator, out: str) -> None:
    given = fused_operands(rng, Problem("linear", out=out, epilogue=Epilogue(scale="row")), 200, 70, 64)
    scale = np.array(given.reads["scale"])
    scale[5] = np.nan
    given.reads["scale"] = scale
    y = to_numpy(call(given)).astype(np.float32)
    if out == "e4m3":
        assert np.isnan(y[:, 5]).all() and np.isfinite(np.delete(y, 5, 1)).all()
    else:
        assert not y[:, 5].any() and np.delete(y, 5, 1).any(), "s8 has no NaN: it becomes 0"


@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_c_may_be_the_output(rng: np.random.Generator, kind: str, gap: int) -> None:
    given = fused_operands(rng, Problem(kind, out="f16", epilogue=Epilogue(c="f16")), 264, 136, 200)
    options = given.options
    first = to_numpy(call(given))
    target = guarded(options["c"].shape, "f16", gap=gap)
    target.view.copy_(to_torch(options["c"]))
    for _ in range(2):
        target.view.copy_(to_torch(options["c"]))
        y = call(given, c=target.view, out=target.view)
        np.testing.assert_array_equal(to_numpy(y), first)
    target.assert_untouched()


@pytest.mark.parametrize(("offset", "gap"), [(0, 0), (0, 2), (0, 1), (1, 0), (2, 2), (1, 3)])
@pytest.mark.parametrize("c", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_c_at_every_alignment(rng: np.random.Generator, kind: str, c: str, offset: int, gap: int) -> None:
    """Read in pairs or one by one, by address, pitch and N: the same bits, within the bound."""
    for m, n in ((400, 304), (200, 70), (136, 77)):
        given = fused_operands(rng, Problem(kind, "f16", "f16", "f32", epilogue=Epilogue(c=c)), m, n, 128)
        shape = (n, m) if kind == "linear" else (m, n)
        y, plain = (
            to_numpy(
                call(
                    given,
                    out=poisoned(shape, "f32", offset=0, gap=16 - shape[1] % 16).view,
                    c=filled(given.options["c"], **at),
                )
            )
            for at in ({"offset": offset, "gap": gap}, {"offset": 1, "gap": 3})
        )
        given.assert_close(y.T if kind == "linear" else y)
        np.testing.assert_array_equal(y.view(np.uint8), plain.view(np.uint8))


def test_c_of_wider_elements_than_an_output_at_an_odd_address(rng: np.random.Generator) -> None:
    given = fused_operands(rng, Problem("linear", out="bf16", epilogue=Epilogue(c="f32")), 136, 33, 70)
    whole = to_torch(np.full(136 * 33 + 1, np.nan, np.float32)).bfloat16()
    for _ in range(2):
        given.assert_close(to_numpy(call(given, out=whole[1:].view(33, 136))).T)


def test_new_numbers_and_places_in_warm_calls(rng: np.random.Generator) -> None:
    given = fused_operands(rng, Problem("linear", out="f32", bias="row", epilogue=FULL), 200, 70, 64)
    x = to_torch(given.b.T)
    plan = louver.plan("linear", given.s, 70, out_dtype="f32", like=x, **on_device(given))
    for alpha in (1.0, -2.0, 0.0, 0.5):
        for _ in range(2):
            given.reads["alpha"] = alpha
            given.assert_close(to_numpy(call(given)).T)
            given.assert_close(to_numpy(plan(x, alpha=alpha)).T)


def test_options_in_a_graph(rng: np.random.Generator, torch: Any) -> None:
    given = fused_operands(rng, Problem("linear", out="f32", bias="row", epilogue=FULL), 200, 70, 64)
    x, options = to_torch(given.b.T), on_device(given)
    plan = louver.plan("linear", given.s, 70, out_dtype="f32", like=x, **options)
    y = torch.zeros(70, 200, device="cuda")
    plan(x, out=y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(x, out=y)
    y.fill_(float("nan"))
    graph.replay()
    given.assert_close(to_numpy(y).T)
