"""Sparse tiles of fewer columns than a word of metadata, by register tiles."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.jit import KeptSource

TEXT = """tt.func public @k(%d: !tt.ptr<f32>, %a: !tt.ptr<T> {{louver.sparse.{mark} = 1 : i32}}, %b: !tt.ptr<T>, %M: i32, %N: i32, %K: i32) {{
  %zero = arith.constant 0 : i32
  %first = arith.constant {first} : i32
  %step = arith.constant {by} : i32
  %rows = arith.constant 16 : i32
  %one = arith.constant 1 : i64
  %program = tt.get_program_id x : i32
  %m = arith.muli %program, %rows : i32
  %N64 = arith.extsi %N : i32 to i64
  %K64 = arith.extsi %K : i32 to i64
  %as = tt.make_tensor_descriptor %a, [%M, %K], [%K64, %one] : <T>, <tensor<16x{by}xT>>
  %bs = tt.make_tensor_descriptor %b, [%N, %K], [%K64, %one] : <T>, <tensor<8x{by}xT>>
  %ds = tt.make_tensor_descriptor %d, [%M, %N], [%N64, %one] : <f32>, <tensor<16x8xf32>>
  %zeros = arith.constant dense<0.0> : tensor<16x8xf32>
  %total = scf.for %k = %first to %K step %step iter_args(%partial = %zeros) -> (tensor<16x8xf32>) : i32 {{
    %x = tt.descriptor_load %as[%m, %k] : !tt.tensordesc<tensor<16x{by}xT>> -> tensor<16x{by}xT>
    %y = tt.descriptor_load %bs[%zero, %k] : !tt.tensordesc<tensor<8x{by}xT>> -> tensor<8x{by}xT>
    %t = tt.trans %y {{order = array<i32: 1, 0>}} : tensor<8x{by}xT> -> tensor<{by}x8xT>
    %next = tt.dot %x, %t, %partial, inputPrecision = tf32 : tensor<16x{by}xT> * tensor<{by}x8xT> -> tensor<16x8xf32>
    scf.yield %next : tensor<16x8xf32>
  }}
  tt.descriptor_store %ds[%m, %zero], %total : !tt.tensordesc<tensor<16x8xf32>>, tensor<16x8xf32>
  tt.return
}}"""

CASES = [("f16", 16), ("f16", 32), ("bf16", 16), ("bf16", 32), ("f32", 8), ("f32", 16)]


@pytest.mark.parametrize(("element", "by"), CASES)
@pytest.mark.parametrize("skipped", [0, 1, 3])
def test_parts_of_a_word(element: str, by: int, skipped: int, rng: np.random.Generator) -> None:
    """From any such part of a word on: K is no whole number of words."""
    pattern, mark = ("1:2", "NV12") if element == "f32" else ("2:4", "NV24")
    m, n, k, first = 40, 7, 152, skipped * by
    numpy = element_type(element).numpy
    w = louver.prune(rng.standard_normal((m, k), np.float32).astype(numpy), pattern)
    b = rng.standard_normal((n, k), np.float32).astype(numpy)
    text = TEXT.format(by=by, first=first, mark=mark).replace("xT>", f"x{element}>").replace("<T>", f"<{element}>")
    out = np.full((m, n), np.nan, np.float32)
    kernel = JitKernel(KeptSource("k", text, ("d", "a", "b", "M", "N", "K")), Hints(family="register tiles"))
    kernel.emulate[(3,)](d=out, a=louver.compress(w, pattern), b=b, M=m, N=n, K=k)
    expected = w[:, first:].astype(np.float64) @ b[:, first:].astype(np.float64).T
    np.testing.assert_allclose(out, expected, atol=0.1 if element == "f32" else 1e-3)
    assert f"k{by}.row.col" in kernel.explain(d=out, a=louver.compress(w, pattern), b=b, M=m, N=n, K=k).ptx
