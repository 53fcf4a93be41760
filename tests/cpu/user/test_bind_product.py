"""Calls whose sizes, arrays and grid do not fit together: the rule, what was got, before anything is launched."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import louver
from louver.ir.polynomial import with_grid
from louver.ir.product import (
    Accumulator,
    Apply,
    Cast,
    Constant,
    LoadMatrix,
    LoadScalar,
    LoadVector,
    Number,
    ProductNest,
    walk,
)
from louver.library.compiled import from_json, to_json
from louver.runtime.arrays import view
from louver.user.arguments import classify
from louver.user.bind_product import Matrix, bind_product, check_output
from louver.user.checked_call import CheckedCall
from louver.user.descriptor import TensorDescriptor
from louver.user.source import Parameter
from support.jit import arguments, grid_of, kept_kernel, output
from support.sizes import size
from support.triton.cases import CASES
from support.triton.products import Given, compiled, given

M, N, K = 200, 96, 256


@pytest.fixture
def case(rng: np.random.Generator) -> Given:
    return given(rng, "made_descriptors", compiled("made_descriptors"), M, N, K)


def sparse(m: int, k: int) -> Any:
    return louver.compress(louver.prune(np.ones((m, k), np.float16), "2:4"), "2:4")


def read_only(array: np.ndarray) -> np.ndarray:
    found = array.copy()
    found.flags.writeable = False
    return found


Change = Callable[[dict[str, Any]], dict[str, Any]]

REFUSED: list[tuple[Change, str]] = [
    (lambda _: {"M": M + 1}, r"sizes of the dense tensor for 'a', \[200, 256\], got \[201, 256\]"),
    (
        lambda _: {"a": sparse(M, K // 2)},
        r"sizes of the dense tensor for 'a', \[200, 128\], got \[200, 256\]: rows end at K; to sum part",
    ),
    (lambda _: {"stride_a": K // 2}, "strides of the dense tensor.* rows are 256 elements apart, got a stride of 128"),
    (lambda _: {"N": N + 1, "stride_d": N + 1}, "reaches 24832 elements of 'b', got an array of 24576"),
    (lambda _: {"stride_b": K + 8}, "reaches .* elements of 'b', got an array of 24576"),
    (lambda _: {"stride_d": N - 8}, "rows of 96 elements to 'd', got strides by which they overlap: 88 between rows"),
    (lambda _: {"stride_d": N + 8}, "reaches .* elements of 'd', got an array of 19200"),
    (lambda _: {"stride_b": -K}, "walks 'b' upwards, got a stride of -256"),
    (lambda given: {"d": read_only(given["d"])}, "stores to 'd', got an array that is read only"),
    (lambda given: {"d": given["d"][:, ::-1]}, "needs arrays without negative strides, got strides"),
    (lambda _: {"N": 0}, "size N must be at least 1, got 0"),
    (lambda given: {"a": given["b"]}, "reads 'a' as a sparse tensor, got an array: compress it"),
]


@pytest.mark.parametrize(("change", "message"), [pytest.param(*each, id=each[1][:40]) for each in REFUSED])
def test_a_call_that_does_not_fit(case: Given, change: Change, message: str) -> None:
    known = arguments(case, output(case))
    known |= change(known)
    tiles = -(-known["M"] // 128), max(1, -(-known["N"] // 64))
    with pytest.raises(ValueError, match=message):
        kept_kernel("made_descriptors").emulate[tiles](**known)


@pytest.mark.parametrize("grid", [(2,), (2, 3), (4, 2), (2, 2, 2)])
def test_a_grid_has_a_program_for_each_tile(case: Given, grid: tuple[int, ...]) -> None:
    with pytest.raises(
        ValueError, match=r"a program for each of its tiles of 128×64, 4 for M 200 and N 96, got a grid of"
    ):
        kept_kernel("made_descriptors").emulate[grid](**arguments(case, output(case)))


@pytest.mark.parametrize("grid", [(), (-1,), (2, -1), (1, 2, 3, 4), 5, "many"])
def test_a_grid_is_up_to_three_sizes(case: Given, grid: Any) -> None:
    with pytest.raises(ValueError, match="a grid has 1 to 3 axes of 0 or more programs|invalid literal"):
        kept_kernel("made_descriptors").emulate[grid](**arguments(case, output(case)))


def test_sizes_that_descriptors_bring_must_agree(rng: np.random.Generator) -> None:
    case = given(rng, "given_descriptors", compiled("given_descriptors"), M, N, K)
    known = arguments(case, output(case))
    known["b_tiles"] = TensorDescriptor(case.dense, (K - 8, N), (N, 1), [64, 64])
    with pytest.raises(ValueError, match=r"given_descriptors runs as a product only if .* are equal, got .*24[08]"):
        kept_kernel("given_descriptors").emulate[grid_of(case)](**known)


def test_overlapping_output_and_operand(case: Given) -> None:
    memory = np.zeros(N * K + M * N, np.float16)
    known = arguments(case, output(case))
    known["b"], known["d"] = memory[: N * K].reshape(N, K), memory[N * K - 8 : N * K - 8 + M * N].reshape(M, N)
    with pytest.raises(ValueError, match="stores to 'd' while other programs read 'b', got arrays that overlap"):
        kept_kernel("made_descriptors").emulate[grid_of(case)](**known)


@pytest.mark.parametrize(
    ("first", "pitch", "fits"), [(0, N, True), (N, N, False), (0, 2 * N, False), (1, N, False), (M * N, N, True)]
)
def test_the_epilogue_reads_the_output_where_it_is_stored(case: Given, first: int, pitch: int, fits: bool) -> None:
    memory = np.zeros(2 * M * N + N, np.float16)
    known = arguments(case, memory[: M * N].reshape(M, N)) | {"c": memory[first:], "stride_c": pitch}
    call = classify([Parameter(name) for name in known], known)
    read = LoadMatrix("c", "f16", size("stride_c"), transposed=False)
    nest = replace(case.product.nest, epilogue=Apply.of("add", case.product.nest.epilogue, read))
    if fits:
        assert bind_product("k", nest, call, grid_of(case)).out.argument == "d"
        return
    with pytest.raises(ValueError, match="stores to 'd' while other programs read 'c', got arrays that overlap"):
        bind_product("k", nest, call, grid_of(case))


def test_short_vectors_of_the_epilogue(rng: np.random.Generator) -> None:
    case = given(rng, "indexed_pointers", compiled("indexed_pointers"), M, N, K)
    known = arguments(case, output(case))
    with pytest.raises(ValueError, match="reaches 96 elements of 'bias', got an array of 95"):
        kept_kernel("indexed_pointers").emulate[grid_of(case)](**known | {"bias": known["bias"][:-1]})


def test_bulk_stores_that_are_asked_for_take_an_aligned_output(case: Given) -> None:
    out = output(case, padding=3)
    with pytest.raises(ValueError, match='store="bulk" takes an output whose .* 16 bytes; .* leave the store open'):
        kept_kernel("made_descriptors", store="bulk").emulate[grid_of(case)](**arguments(case, out))


def test_arrays_in_two_places(case: Given, torch: Any) -> None:
    from support.fake_gpu import Tensor

    known = arguments(case, output(case)) | {"b": Tensor((N, K))}
    with pytest.raises(ValueError, match="arrays must be in one place, got 'b' on device 0 and 'd' in host memory"):
        kept_kernel("made_descriptors")[grid_of(case)](**known)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", CASES)
def test_nests_survive_the_cache(name: str) -> None:
    nest = compiled(name).nest
    assert from_json(ProductNest, json.loads(json.dumps(to_json(nest)))) == nest


def test_every_node_of_an_epilogue_survives_the_cache() -> None:
    from louver.compile.plan.nest import read_nest
    from louver.frontend.builder import build_tile_ir
    from louver.frontend.epilogue import Epilogue
    from louver.frontend.problem import Problem, Tile

    epilogue = Epilogue(c="f16", alpha=True, scale="tensor", dense_scale="column", activation="relu")
    nest = read_nest(build_tile_ir(Problem(epilogue=epilogue), Tile(64, 64, 64)))
    kinds = {type(each) for each in walk(nest.epilogue)}
    assert kinds == {Accumulator, Apply, Cast, Constant, LoadMatrix, LoadScalar, LoadVector, Number}
    zeros = replace(nest, epilogue=Constant(-0.0, "f32"))
    for each in (nest, zeros, replace(nest, epilogue=Constant(float("-inf"), "f32"))):
        assert from_json(ProductNest, json.loads(json.dumps(to_json(each)))) == each


def product(name: str, rng: np.random.Generator, **changes: Any) -> None:
    """The case's call with other arguments, on the emulator."""
    case = given(rng, name, compiled(name), M, N, K)
    known = arguments(case, output(case))
    kept_kernel(name).emulate[changes.pop("grid", grid_of(case))](**known | changes)


def test_what_a_kernel_takes_for_granted_is_checked(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="reads 204 rows of '(gate|up)', which has 200"):
        product("gated_pointers", rng, M=204)
    with pytest.raises(
        ValueError,
        match="whole_k reads at most 64 of K, got 128: let a loop or the grid go to K, or pass a part",
    ):
        product("whole_k", rng, K=128)
    with pytest.raises(
        ValueError,
        match="strides of the dense tensor, contiguous, for 'up': rows are 256 elements apart, got a stride of 264",
    ):
        product("gated_pointers", rng, stride_up=264)
    with pytest.raises(ValueError, match="sizes of the dense tensor for 'up'"):
        product("gated_pointers", rng, up=sparse(8, 256))


def test_persistent_kernels_take_any_grid(rng: np.random.Generator) -> None:
    for grid in ((1,), (3,), (100,)):
        product("persistent_groups", rng, grid=grid)


@pytest.mark.parametrize("stride", [0, 7, 64 * 40])
def test_a_batch_of_one_has_any_stride(stride: int) -> None:
    """PyTorch gives a dimension of one entry the stride that it likes; tensor maps want a legal one."""
    rows = Matrix("x", rows=64, inner=40, pitch=40, entries=1, entry_pitch=stride).at(256, 2)
    assert rows.aligned and rows.batch_pitch == 64 * 80


@pytest.mark.parametrize(
    ("text", "value"),
    [("M", 10), ("64", 64), ("M/4", 2), ("10/4/2", 1), ("a.shape.0", 7), ("2*M", 20), ("6*programs y/2", 9)],
)
def test_sizes_have_texts(text: str, value: int) -> None:
    assert size(text).value(with_grid({"M": 10, "a.shape.0": 7}, (2, 3))) == value


@pytest.mark.parametrize(
    ("entries", "pitch", "entry_pitch"), [(1, 32, 0), (3, 40, 20), (3, 40, 64 * 40 - 8), (2, 40, 0)]
)
def test_matrices_of_an_output_do_not_overlap(entries: int, pitch: int, entry_pitch: int) -> None:
    out = Matrix("x", rows=64, inner=40, pitch=pitch, entries=entries, entry_pitch=entry_pitch)
    call: Any = SimpleNamespace(arrays={"x": view(np.zeros(8000, np.float16))})
    with pytest.raises(
        ValueError, match=f"rows of 40 elements to 'x', .* overlap: {pitch} between rows, {entry_pitch} between"
    ):
        check_output(CheckedCall("kernel", call, (1,), {}), out, [], [])
