"""Kernels that return early: blocks and branches between them become structured branches."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from louver.frontend.ttir import read_ttir
from louver.ir.refusal import UnsupportedKernelError
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.jit import KeptSource

TEXT = """module {
  tt.func public @k(%d: !tt.ptr<f32>, %a: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}, %b: !tt.ptr<f16>, %use: !tt.ptr<i32>, %M: i32, %K: i32) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32
    %c64 = arith.constant 64 : i32
    %c16 = arith.constant 16 : i32
    %one = arith.constant 1 : i64
    %eight = arith.constant 8 : i32
    %zeros = arith.constant dense<0.0> : tensor<16x8xf32>
    %ones = arith.constant dense<1.0> : tensor<16x8xf32>
    %program = tt.get_program_id x : i32
    %m = arith.muli %program, %c16 : i32
    %K64 = arith.extsi %K : i32 to i64
    %eights = arith.extsi %eight : i32 to i64
    %ds = tt.make_tensor_descriptor %d, [%M, %eight], [%eights, %one] : <f32>, <tensor<16x8xf32>>
    %at = tt.addptr %use, %program : !tt.ptr<i32>, i32
    %kind = tt.load %at : !tt.ptr<i32>
    %skips = arith.cmpi slt, %kind, %c0 : i32
    cf.cond_br %skips, ^bb1, ^bb2
  ^bb1:  // pred: ^bb0
    tt.return
  ^bb2:  // pred: ^bb0
    %plain = arith.cmpi eq, %kind, %c0 : i32
    cf.cond_br %plain, ^bb3, ^bb4
  ^bb3:  // pred: ^bb2
    tt.descriptor_store %ds[%m, %c0], %ones : !tt.tensordesc<tensor<16x8xf32>>, tensor<16x8xf32>
    tt.return
  ^bb4:  // pred: ^bb2
    %as = tt.make_tensor_descriptor %a, [%M, %K], [%K64, %one] : <f16>, <tensor<16x64xf16>>
    %bs = tt.make_tensor_descriptor %b, [%eight, %K], [%K64, %one] : <f16>, <tensor<8x64xf16>>
    %total = scf.for %k = %c0 to %K step %c64 iter_args(%partial = %zeros) -> (tensor<16x8xf32>) : i32 {
      %x = tt.descriptor_load %as[%m, %k] : !tt.tensordesc<tensor<16x64xf16>> -> tensor<16x64xf16>
      %y = tt.descriptor_load %bs[%c0, %k] : !tt.tensordesc<tensor<8x64xf16>> -> tensor<8x64xf16>
      %t = tt.trans %y {order = array<i32: 1, 0>} : tensor<8x64xf16> -> tensor<64x8xf16>
      %next = tt.dot %x, %t, %partial : tensor<16x64xf16> * tensor<64x8xf16> -> tensor<16x8xf32>
      scf.yield %next : tensor<16x8xf32>
    }
    tt.descriptor_store %ds[%m, %c0], %total : !tt.tensordesc<tensor<16x8xf32>>, tensor<16x8xf32>
    tt.return
  }
}"""


@pytest.mark.parametrize("emulated", [True, False])
def test_programs_that_return_early(emulated: bool, rng: np.random.Generator) -> None:
    m, k = 72, 136
    w = louver.prune(rng.standard_normal((m, k)).astype(np.float16), "2:4")
    b = rng.standard_normal((8, k)).astype(np.float16)
    use = np.array([1, -1, 0, 2, 1], np.int32)
    out = np.full((m, 8), np.nan, np.float32)
    kernel = JitKernel(KeptSource("k", TEXT, ("d", "a", "b", "use", "M", "K")), Hints())
    run = (kernel.emulate if emulated else kernel)[(5,)]
    run(d=out, a=louver.compress(w, "2:4"), b=b, use=use, M=m, K=k)
    expected = w.astype(np.float64) @ b.astype(np.float64).T
    expected[16:32], expected[32:48] = np.nan, 1
    np.testing.assert_allclose(out, expected, atol=1e-2)


@pytest.mark.parametrize(
    ("before", "after"),
    [("%plain, ^bb3, ^bb4", "%plain, ^bb1, ^bb4"), ("cf.cond_br %plain, ^bb3, ^bb4", "cf.br ^bb4")],
)
def test_blocks_from_several_places_are_refused(before: str, after: str) -> None:
    with pytest.raises(UnsupportedKernelError, match="the code after an early return must be reached from one place"):
        read_ttir(TEXT.replace(before, after))
