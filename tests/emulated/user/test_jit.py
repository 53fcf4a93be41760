"""`louver.jit` without a GPU: the reference path and the emulator, in place, against float64 and against each other."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import louver
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.jit import arguments, grid_of, kept_kernel, kept_source, output, result, tile_source
from support.triton import has_block_pointers, require_block_pointers
from support.triton.cases import CASES
from support.triton.products import Given, compiled, given
from support.triton.texts import ADDEND, changed_text
from support.triton.tile_cases import TILE_CASES
from support.triton.tile_runs import RUNS
from support.triton.tuples import LARGE, SMALL, TUPLES, Sizes, tuple_call, tuple_source


def case_of(rng: np.random.Generator, name: str, m: int, n: int, k: int) -> Given:
    return given(rng, name, compiled(name), m, n, k)


def gap(out: np.ndarray) -> np.ndarray:
    """What lies between the rows of an output, NaN where nothing was written."""
    whole = out if out.base is None else out.base
    return np.asarray(whole)[:, out.shape[1] :].astype(np.float64)


@pytest.mark.parametrize("name", CASES)
def test_every_style_by_reference_and_emulator(rng: np.random.Generator, name: str) -> None:
    case = case_of(rng, name, 200, 88, 272)
    kernel = kept_kernel(name)
    for run in (kernel, kernel.emulate):
        out = output(case)
        run[grid_of(case)](**arguments(case, out))
        case.assert_close(result(case, out))


@pytest.mark.parametrize("padding", [0, 1, 8])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 7, 8), (129, 65, 136), (256, 128, 64)])
def test_tails_and_padded_outputs(rng: np.random.Generator, m: int, n: int, k: int, padding: int) -> None:
    case = case_of(rng, "made_descriptors", m, n, k)
    for run in (kept_kernel("made_descriptors"), kept_kernel("made_descriptors").emulate):
        out = output(case, padding)
        run[grid_of(case)](**arguments(case, out))
        case.assert_close(out)
        assert np.isnan(gap(out)).all() if padding else not gap(out).size


def test_bulk_stores_are_chosen_by_the_output(rng: np.random.Generator) -> None:
    case = case_of(rng, "block_pointers", 140, 72, 64)
    kernel = kept_kernel("block_pointers")
    aligned, odd = output(case, 8), output(case, 3)
    assert kernel.emulate[grid_of(case)](**arguments(case, aligned)).bulk_stores > 0
    assert kernel.emulate[grid_of(case)](**arguments(case, odd)).bulk_stores == 0
    np.testing.assert_array_equal(aligned, odd)


@pytest.mark.parametrize("hints", [{"stages": 2, "consumers": 1}, {"store": "direct"}], ids=str)
def test_hints(rng: np.random.Generator, hints: dict[str, Any]) -> None:
    case = case_of(rng, "grouped_pointers", 300, 88, 200)
    out = output(case)
    kept_kernel("grouped_pointers").emulate[grid_of(case)](**arguments(case, out), **hints)
    case.assert_close(out)


def test_integers_are_exact_and_both_ways_agree(rng: np.random.Generator) -> None:
    case = case_of(rng, "indexed_pointers", 130, 40, 144)
    outs = [output(case), output(case)]
    kernel = kept_kernel("indexed_pointers")
    for run, out in zip((kernel, kernel.emulate), outs, strict=True):
        run[grid_of(case)](**arguments(case, out))
        case.assert_close(result(case, out))


@pytest.mark.parametrize(
    ("function", "names"),
    [
        ("_fused", ("metadata", "pitch")),
        ("d", ("d_map", "K_own")),
        ("bias", ("bias", "_scale")),
        ("smem", ("own_d", "own")),
        ("own_pitch_x", ("batch_pitch", "pitch_x")),
    ],
)
def test_arguments_are_called_as_users_like(rng: np.random.Generator, function: str, names: tuple[str, str]) -> None:
    """Names of the kernel's own parameters, of the prefix that tells them apart, and one that PTX does not have."""
    case = case_of(rng, "indexed_pointers", 130, 40, 144)
    source, renamed = kept_source("indexed_pointers"), dict(zip(("bias", "scale"), names, strict=True))
    text = source.text
    for old, new in renamed.items():
        text = re.sub(rf"%{old}\b", f"%{new}", text.replace(f'loc("{old}"', f'loc("{new}"'))
    text = text.replace("@indexed_pointers(", f"@{function}(")
    source = replace(source, name=function, text=text, order=tuple(renamed.get(name, name) for name in source.order))
    out = output(case)
    known = {renamed.get(name, name): value for name, value in arguments(case, out).items()}
    kernel = JitKernel(source, Hints())
    assert kernel.explain(**known).family == "product"
    kernel.emulate[grid_of(case)](**known)
    case.assert_close(result(case, out))


@pytest.fixture(scope="module")
def kernels() -> Any:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")
    return SimpleNamespace(**{name: case.function() for name, case in CASES.items()})


@pytest.mark.parametrize("name", CASES)
def test_every_style_by_triton(rng: np.random.Generator, name: str, kernels: Any) -> None:
    if CASES[name].oldest:
        require_block_pointers()
    case = case_of(rng, name, 200, 88, 272)
    kernel = louver.jit(getattr(kernels, name))
    for run in (kernel, kernel.emulate):
        out = output(case)
        run[lambda _: grid_of(case)](**arguments(case, out))
        case.assert_close(result(case, out))


@pytest.mark.parametrize(("m", "n", "k"), [(130, 1, 64), (1, 72, 64)])
@pytest.mark.parametrize("name", ["made_descriptors", "grouped_pointers"])
def test_sizes_of_one(rng: np.random.Generator, name: str, m: int, n: int, k: int, kernels: Any) -> None:
    """Triton compiles a 1 in, which may hide a size."""
    if (name, n) == ("made_descriptors", 1) and not has_block_pointers():
        pytest.skip("from 3.9 on Triton refuses descriptors whose rows are one element apart")
    case = case_of(rng, name, m, n, k)
    kernel = louver.jit(getattr(kernels, name))
    out = output(case)
    kernel[grid_of(case)](**arguments(case, out))
    case.assert_close(out)
    out = output(case)
    kernel.emulate[grid_of(case)](**arguments(case, out))
    case.assert_close(out)


def test_operands_that_bulk_copies_cannot_read(rng: np.random.Generator) -> None:
    """Rows of 65 elements of the dense operand: the kernel runs by register tiles."""
    case = case_of(rng, "grouped_pointers", 200, 65, 136)
    out = output(case, 3)
    report = kept_kernel("grouped_pointers").emulate[grid_of(case)](**arguments(case, out))
    assert not report.bulk_loads
    case.assert_close(out)
    assert np.isnan(gap(out)).all()


@pytest.mark.parametrize("name", ["dot_f16", "right_sparse"])
def test_a_product_of_small_tiles_has_tiles_of_its_own(rng: np.random.Generator, name: str) -> None:
    run, kernel = RUNS[name](rng, name, 50, 72, 136), JitKernel(tile_source(name), Hints())
    kernel.emulate[run.grid](**TILE_CASES[name].constexprs | dict(run.arguments))
    run.check()
    explained = kernel.explain[run.grid](**TILE_CASES[name].constexprs | dict(run.arguments))
    assert explained.family == "product" and explained.schedule is not None and explained.schedule.tile.m >= 64


@pytest.mark.parametrize("name", ["softmax_dot", "two_dots", "elementwise", "column_sums"])
def test_what_is_no_product_runs_by_register_tiles(rng: np.random.Generator, name: str) -> None:
    runs = [RUNS[name](rng, name) for _ in range(2)]
    kernel = JitKernel(tile_source(name), Hints())
    for run, way in zip(runs, (kernel, kernel.emulate), strict=True):
        way[run.grid](**TILE_CASES[name].constexprs | dict(run.arguments))
        run.check()
    explained = kernel.explain(**TILE_CASES[name].constexprs | dict(runs[0].arguments))
    assert explained.family == "register tiles" and explained.refusal and explained.schedule is None
    assert str(explained).startswith("register tiles: ") and ".entry" in explained.ptx
    assert "the dense kernel by Triton may be faster too" in str(explained)


def test_hints_of_products_are_refused_where_there_is_none(rng: np.random.Generator) -> None:
    run = RUNS["two_dots"](rng, "two_dots")
    known = TILE_CASES["two_dots"].constexprs | dict(run.arguments)
    with pytest.raises(ValueError) as caught:
        JitKernel(tile_source("two_dots"), Hints.of({"stages": 3})).emulate[run.grid](**known)
    assert any("The hints stages are for products" in note for note in caught.value.__notes__)
    JitKernel(tile_source("two_dots"), Hints.of({"num_warps": 2})).emulate[run.grid](**known)
    run.check()


def test_a_product_is_explained_by_its_schedule(rng: np.random.Generator) -> None:
    case = case_of(rng, "made_descriptors", 200, 88, 272)
    explained = kept_kernel("made_descriptors", stages=3).explain(**arguments(case, output(case)))
    assert explained.family == "product" and explained.schedule.ring.stages == 3 and explained.refusal is None
    assert str(explained).startswith("product: Schedule(tile_m=128")


def test_only_kernels_are_taken() -> None:
    with pytest.raises(ValueError, match="louver.jit takes a function decorated with triton.jit, got builtin_function"):
        louver.jit(len)


def test_what_a_kernel_is_called(kernels: Any) -> None:
    assert repr(louver.jit(kernels.made_descriptors)) == "louver.jit(made_descriptors)"
    with pytest.raises(TypeError, match="made_descriptors is missing d, a, b"):
        louver.jit(kernels.made_descriptors)[(1,)](BM=128)
    with pytest.raises(ValueError, match="hints are .* got 'warps'"):
        louver.jit(kernels.made_descriptors, warps=4)


def test_an_output_that_is_added_to(rng: np.random.Generator) -> None:
    """The epilogue reads the array that it stores to, which is the kernel's parameter `d`, of which there is one already."""
    case = case_of(rng, "grouped_pointers", 200, 88, 136)
    kernel = JitKernel(
        replace(kept_source("grouped_pointers"), text=changed_text("grouped_pointers", *ADDEND)), Hints()
    )
    start = rng.standard_normal((200, 88), np.float32).astype(np.float16)
    # Pairs are aligned; rows are not whole chunks, so that stores are direct; pairs are not aligned, by address and by pitch.
    for padding, first in ((0, 0), (4, 0), (8, 1), (3, 0)):
        plain = output(case)
        memory = np.zeros(200 * (88 + padding) + first, np.float16)
        out = memory[first : first + 200 * (88 + padding)].reshape(200, 88 + padding)[:, :88]
        out[:] = start
        known = arguments(case, out)
        assert kernel.explain(**known).family == "product"
        kernel.emulate[grid_of(case)](**known)
        kept_kernel("grouped_pointers").emulate[grid_of(case)](**arguments(case, plain))
        exact = plain.astype(np.float64) + start
        # The sum was rounded before it was added, in `plain`.
        assert np.abs(out - exact).max() <= 2.0**-10 * np.abs(plain).max() + 2.0**-11 * np.abs(exact).max()


def test_tuples_of_arrays_sizes_and_strides(rng: np.random.Generator) -> None:
    for run in ("__call__", "emulate"):
        call = tuple_call(rng, 200, 88, 272)
        kernel = JitKernel(tuple_source(), Hints())
        found = (kernel if run == "__call__" else kernel.emulate)[call.grid](**call.arguments)
        assert found is None or found.bulk_loads
        call.check(call.out)


@pytest.mark.parametrize("tile", [LARGE, SMALL], ids=["product", "tiles"])
def test_tuples_by_triton(rng: np.random.Generator, tile: dict[str, int]) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")
    call = tuple_call(rng, 150, 72, 136, tile)
    louver.jit(TUPLES.function()).emulate[call.grid](**call.arguments)
    call.check(call.out)


def test_sizes_in_a_tuple_that_do_not_fit_are_refused(rng: np.random.Generator) -> None:
    call = tuple_call(rng, 200, 88, 272)
    call.arguments["sizes"] = Sizes(208, 88, 272)
    with pytest.raises(ValueError, match=re.escape("for 'operands.0', [200, 272], got [208, 272]")):
        JitKernel(tuple_source(), Hints()).emulate[call.grid](**call.arguments)
