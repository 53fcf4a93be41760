"""What users try in their first hour with a kernel: any names, branches around stores, sizes that do not fit, infinity."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

import louver
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.jit import KeptSource

M, N, K = 128, 64, 192
TILE = {"BN": 32, "BK": 64}

TEXT = """tt.func public @k(%d: !tt.ptr<f32>, %a: !tt.ptr<f16> {{louver.sparse.NV24 = 1 : i32}}, %b: !tt.ptr<f16>, %{p}: f32, %{q}: f32, %M: i32, %N: i32, %K: i32, %{s}: i64) {{
  %zero = arith.constant 0 : i32
  %step = arith.constant 64 : i32
  %rows = arith.constant {rows} : i32
  %one64 = arith.constant 1 : i64
  %row = tt.get_program_id x : i32
  %m = arith.muli %row, %rows : i32
  %column = tt.get_program_id y : i32
  %n = arith.muli %column, %step : i32
  %N64 = arith.extsi %N : i32 to i64
  %as = tt.make_tensor_descriptor %a, [%M, %K], [%{s}, %one64] : <f16>, <tensor<{rows}x64xf16>>
  %bs = tt.make_tensor_descriptor %b, [%N, %K], [%{s}, %one64] : <f16>, <tensor<64x64xf16>>
  %ds = tt.make_tensor_descriptor %d, [%M, %N], [%N64, %one64] : <f32>, <tensor<{rows}x64xf32>>
  %zeros = arith.constant dense<0.0> : tensor<{rows}x64xf32>
  %total = scf.for %i = %zero to %K step %step iter_args(%partial = %zeros) -> (tensor<{rows}x64xf32>) : i32 {{
    %tile = tt.descriptor_load %as[%m, %i] : !tt.tensordesc<tensor<{rows}x64xf16>> -> tensor<{rows}x64xf16>
    %y = tt.descriptor_load %bs[%n, %i] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
    %t = tt.trans %y {{order = array<i32: 1, 0>}} : tensor<64x64xf16> -> tensor<64x64xf16>
    %next = tt.dot %tile, %t, %partial : tensor<{rows}x64xf16> * tensor<64x64xf16> -> tensor<{rows}x64xf32>
    scf.yield %next : tensor<{rows}x64xf32>
  }}
  %ps = tt.splat %{p} : f32 -> tensor<{rows}x64xf32>
  %qs = tt.splat %{q} : f32 -> tensor<{rows}x64xf32>
  %scaled = arith.mulf %total, %ps : tensor<{rows}x64xf32>
  %out = arith.addf %scaled, %qs : tensor<{rows}x64xf32>
  tt.descriptor_store %ds[%m, %n], %out : !tt.tensordesc<tensor<{rows}x64xf32>>, tensor<{rows}x64xf32>
  tt.return
}}"""

NAMES = [
    ("alpha", "alpha_1", "stride"),
    ("alpha_1", "alpha", "stride_a_0"),
    ("x_0_1", "x_0", "x"),
    ("_1", "_1_2", "__"),
    ("a_metadata", "metadata", "own_metadata"),
    ("WARP_SZ", "arg0", "arg1"),
    ("p" * 2000, "p" * 2000 + "_1", "tid"),
]


def operands(rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """A sparse [M, K], a dense [N, K] and their product."""
    a = louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4")
    b = rng.standard_normal((N, K)).astype(np.float16)
    return louver.compress(a, "2:4"), b, a.astype(np.float64) @ b.astype(np.float64).T


@pytest.fixture(scope="module")
def kernels() -> Any:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")
    from support.triton import first_hour

    return first_hour


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("rows", [64, 32], ids=["product", "tiles"])
@pytest.mark.parametrize(("p", "q", "s"), NAMES, ids=[name[0][:12] for name in NAMES])
def test_each_argument_has_its_own_value(
    p: str, q: str, s: str, rows: int, emulated: bool, rng: np.random.Generator
) -> None:
    order = ("d", "a", "b", p, q, "M", "N", "K", s)
    kernel = JitKernel(KeptSource("k", TEXT.format(p=p, q=q, s=s, rows=rows), order), Hints())
    sparse, b, expected = operands(rng)
    d = np.full((M, N), np.nan, np.float32)
    run = kernel.emulate if emulated else kernel
    run[(M // rows, 1)](d, sparse, b, 3.0, -50.0, M, N, K, K)
    np.testing.assert_allclose(d, 3 * expected - 50, atol=2e-2)


@pytest.mark.parametrize("rows", [64, 32], ids=["product", "tiles"])
def test_names_that_neither_xdsl_nor_ptx_has(rows: int, kernels: Any, rng: np.random.Generator) -> None:
    from louver.compile.compiled import CompiledKernel
    from louver.ptx.assembler import assemble

    kernel = louver.jit(kernels.foreign_names)
    sparse, b, expected = operands(rng)
    for run in (kernel, kernel.emulate):
        d = np.full((M, N), np.nan, np.float32)
        run[(M // rows, N // 32)](d, sparse, b, 3.0, 5.0, 7.0, 11.0, 13.0, M, N, K, BM=rows, **TILE)
        np.testing.assert_allclose(d, 3 * expected + 35 - 143, atol=2e-2)
    (compiled,) = kernel._compiled.values()
    assert isinstance(compiled, CompiledKernel)
    assemble(compiled.made.ptx, "sm_90a")


BRANCHES = (
    "guarded_store",
    "guarded_twice",
    "guarded_program",
    "guarded_in_loops",
    "guarded_while",
)


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("flag", [0, 2])
@pytest.mark.parametrize("rows", [64, 32])
@pytest.mark.parametrize("name", BRANCHES)
def test_branches_without_an_else(
    name: str, rows: int, flag: int, emulated: bool, kernels: Any, rng: np.random.Generator
) -> None:
    kernel = louver.jit(getattr(kernels, name))
    sparse, b, expected = operands(rng)
    d = np.zeros((M, N), np.float32)
    (kernel.emulate if emulated else kernel)[(M // rows, N // 32)](d, sparse, b, flag, M, N, K, BM=rows, **TILE)
    np.testing.assert_allclose(d, expected if flag else 0 * expected, atol=2e-2)


TOO_LARGE = [
    ("pointer_product", {"M": 160}, "reads 160 rows of 'a', which has 128"),
    ("right_pointers", {"M": 160}, "reads 160 rows of 'a', which has 128"),
    ("unmasked_rows", {"M": 160}, "reads 160 rows of 'a', which has 128"),
    ("guarded_store", {"M": 160}, "reads 160 rows of 'a', which has 128"),
    ("guarded_store", {"N": 96}, "reaches 18432 elements of 'b', got an array of 12288"),
    ("pointer_product", {"N": 96}, "reaches 18432 elements of 'b', got an array of 12288"),
    ("right_pointers", {"N": 96}, "reaches 18432 elements of 'b', got an array of 12288"),
    ("pointer_product", {"K": 256}, "rows are 192 elements apart, got a stride of 256"),
    ("guarded_store", {"K": 256}, "rows are 192 elements apart, got a stride of 256"),
    ("right_pointers", {"K": 128}, "rows are 192 elements apart, got a stride of 128"),
]


@pytest.mark.parametrize(("name", "sizes", "message"), TOO_LARGE)
def test_sizes_beyond_the_tensors_are_refused(
    name: str, sizes: dict[str, int], message: str, kernels: Any, rng: np.random.Generator
) -> None:
    sparse, b, _ = operands(rng)
    given = {"M": M, "N": N, "K": K, **sizes}
    call: dict[str, Any] = {"d": np.zeros((256, 256), np.float32), "a": sparse, "b": b, **given, "BM": 32, **TILE}
    call |= {"flag": 1} if name == "guarded_store" else {"FILL": True} if name == "pointer_product" else {}
    with pytest.raises(ValueError, match=message):
        louver.jit(getattr(kernels, name), family="register tiles").emulate[(given["M"] // 32, given["N"] // 32)](
            **call
        )


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"E": 3}, "reads 3 matrices of 'a', which has 2"),
        # Register tiles follow any address, here beyond the last matrix.
        ({"M": 160}, "read a sparse tensor at a computed address against this rule"),
        ({"N": 96}, "reaches 18432 elements of 'b', got an array of 12288"),
    ],
)
def test_sizes_beyond_a_batch_are_refused(
    sizes: dict[str, int], message: str, kernels: Any, rng: np.random.Generator
) -> None:
    a = louver.prune(rng.standard_normal((2, M, K)).astype(np.float16), "2:4")
    _, b, _ = operands(rng)
    given = {"E": 2, "M": M, "N": N, "K": K, **sizes}
    d = np.zeros((4, 256, 256), np.float32)
    with pytest.raises(ValueError, match=message):
        louver.jit(kernels.batch_of, family="register tiles").emulate[(4, 2, given["E"])](
            d, louver.compress(a, "2:4"), b, **given, BM=32, **TILE
        )


@pytest.mark.parametrize("rows", [64, 32], ids=["product", "tiles"])
def test_infinity_meets_what_is_stored(rows: int, kernels: Any, rng: np.random.Generator) -> None:
    """Both ways give the same: NaN for stored zeros, and nothing for what is not stored."""
    a = louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4")
    a[5, 8:12], a[9, :4], a[64] = (0, 0, 1, 0), (0, np.inf, 0, 0), 0
    b = rng.standard_normal((N, K)).astype(np.float16)
    b[3, 9], b[7, 10], b[11, 40] = np.inf, np.nan, -np.inf
    kernel, found = louver.jit(kernels.guarded_store), []
    for run in (kernel, kernel.emulate):
        d = np.full((M, N), 5, np.float32)
        run[(M // rows, N // 32)](d, louver.compress(a, "2:4"), b, 1, M, N, K, BM=rows, **TILE)
        found.append(d)
    kinds = [np.where(np.isnan(d), 2, np.where(np.isinf(d), np.sign(d), 0)) for d in found]
    np.testing.assert_array_equal(kinds[0], kinds[1])
    for column in (3, 7, 11):
        assert 0 < np.isfinite(found[0][:, column]).sum() < M
    np.testing.assert_allclose(found[0][np.isfinite(found[0])], found[1][np.isfinite(found[1])], atol=2e-2)


@pytest.mark.parametrize("k", [192, 136])
def test_what_masks_leave_out_is_zero_and_said_where_it_shows(k: int, kernels: Any, rng: np.random.Generator) -> None:
    """Rows and columns that the store leaves out are nobody's concern; what is left of K is everybody's."""
    m, n = 100, 40
    a = louver.prune(rng.standard_normal((m, k)).astype(np.float16), "2:4")
    b = rng.standard_normal((n, k)).astype(np.float16)
    kernel = louver.jit(kernels.pointer_product)
    for run, fill in ((kernel, False), (kernel.emulate, False), (kernel, True)):
        d = np.full((m, n), np.nan, np.float32)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run[(4, 2)](d, louver.compress(a, "2:4"), b, m, n, k, BM=32, **TILE, FILL=fill)
        said = [str(each.message) for each in caught if "undefined in Triton" in str(each.message)]
        assert len(said) == (2 if run is kernel and not fill and k % 64 else 0)
        for each in said:
            assert re.search(
                r"in pointer_product, tt.store depends on .*, got at .*first_hour.py:\d+:\d+: .*: give the load other=0",
                each,
            )
        np.testing.assert_allclose(d, a.astype(np.float64) @ b.astype(np.float64).T, atol=2e-2)
