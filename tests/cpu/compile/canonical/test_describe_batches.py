"""Descriptors of one matrix of a batch become descriptors of the batch."""

from __future__ import annotations

import pytest

from louver.compile.canonical.canonicalize import canonicalize
from louver.compile.canonical.describe_batches import describe_batches
from louver.compile.plan.nest import read_nest
from louver.ir.context import parse_ir
from louver.ir.product import Batch
from louver.ir.refusal import UnsupportedKernelError
from support.golden import Golden
from support.pass_golden import before, check_pass
from support.sizes import size

TEXT = """tt.func public @f(%d: !tt.ptr<f16>, %a: !tt.ptr<f16> {{louver.sparse.NV24 = 1 : i32}}, %b: !tt.ptr<f16>,
    %M: i32, %N: i32, %K: i32, %of_a: i32, %of_b: i64, %of_d: i32) {{
  %c0 = arith.constant 0 : i32
  %c64 = arith.constant 64 : i32
  %c128 = arith.constant 128 : i32
  %one = arith.constant 1 : i64
  %zeros = arith.constant dense<0.0> : tensor<128x64xf32>
  %x = tt.get_program_id x : i32
  %y = tt.get_program_id y : i32
  %entry = tt.get_program_id z : i32
  %entry64 = arith.extsi %entry : i32 to i64
  %m = arith.muli %x, %c128 : i32
  %n = arith.muli %y, %c64 : i32
  %K64 = arith.extsi %K : i32 to i64
  %N64 = arith.extsi %N : i32 to i64
  {moves}
  %as = tt.make_tensor_descriptor %a_at, [%M, %K], [%K64, %one] : <f16>, <tensor<128x64xf16>>
  %bs = tt.make_tensor_descriptor %b_at, [%N, %K], [%K64, %one] : <f16>, <tensor<64x64xf16>>
  %ds = tt.make_tensor_descriptor %d_at, [%M, %N], [%N64, %one] : <f16>, <tensor<128x64xf16>>
  %sum = scf.for %k = %c0 to %K step %c64 iter_args(%partial = %zeros) -> (tensor<128x64xf32>) : i32 {{
    %left = tt.descriptor_load %as[%m, %k] : !tt.tensordesc<tensor<128x64xf16>> -> tensor<128x64xf16>
    %right = tt.descriptor_load %bs[%n, %k] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
    %turned = tt.trans %right {{order = array<i32: 1, 0>}} : tensor<64x64xf16> -> tensor<64x64xf16>
    %next = tt.dot %left, %turned, %partial, inputPrecision = tf32 : tensor<128x64xf16> * tensor<64x64xf16> -> tensor<128x64xf32>
    scf.yield %next : tensor<128x64xf32>
  }}
  %out = arith.truncf %sum : tensor<128x64xf32> to tensor<128x64xf16>
  tt.descriptor_store %ds[%m, %n], %out : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>
  tt.return
}}"""

MOVED = """%a_by = arith.muli %entry, %of_a : i32
  %a_at = tt.addptr %a, %a_by : !tt.ptr<f16>, i32
  %b_by = arith.muli %of_b, %entry64 : i64
  %b_at = tt.addptr %b, %b_by : !tt.ptr<f16>, i64
  %d_by = arith.muli %entry, %of_d : i32
  %d_at = tt.addptr %d, %d_by : !tt.ptr<f16>, i32"""


def test_moved_descriptors_are_a_batch() -> None:
    nest = read_nest(canonicalize(parse_ir(TEXT.format(moves=MOVED))))
    entries = size("programs z")
    assert (nest.a.batch, nest.b.batch) == (Batch(entries, size("of_a")), Batch(entries, size("of_b")))
    assert nest.store.batch == Batch(entries, size("of_d")) and nest.a.pattern == "2:4"


def test_what_is_described_is_rewritten_and_stays() -> None:
    module = parse_ir(TEXT.format(moves=MOVED))
    describe_batches(module)
    module.verify()
    before = str(module)
    assert before.count("tt.reshape") == 3 and "tt.addptr" not in before
    describe_batches(module)
    assert str(module) == before


@pytest.mark.parametrize(
    ("by", "rule"),
    [
        ("%a_by = arith.addi %c64, %c0 : i32", "offsets count from an argument's first element, or from a matrix of a batch"),
        (
            "%one_by = arith.muli %entry, %of_a : i32\n  %two_by = arith.muli %x, %of_d : i32\n"
            "  %a_by = arith.addi %one_by, %two_by : i32",
            "a matrix of a batch is selected by one index times one stride",
        ),
    ],
)  # fmt: skip
def test_what_is_no_batch_is_refused(by: str, rule: str) -> None:
    moves = MOVED.replace("%a_by = arith.muli %entry, %of_a : i32", by)
    with pytest.raises(UnsupportedKernelError, match=rule):
        describe_batches(parse_ir(TEXT.format(moves=moves)))


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "describe-batches", before("describe-batches", "expert_descriptors"))
