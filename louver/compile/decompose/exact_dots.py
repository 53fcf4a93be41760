"""exact-dots: a dot of f32 in tf32x3 or ieee becomes several dots in tf32.

Each operand is a sum of parts of 11 bits: high + low for `tf32x3`, and high + middle + low for `ieee`. Products of parts are exact. The
omitted products are below 2^-21 of the whole (`tf32x3`) or 2^-32 (`ieee`). Each dot has a sum of its own, which is added to the others.
A sparse operand's values have parts at the same places.

Valid tile IR in, after expand-blocks; valid tile IR out, in which every dot of f32 multiplies in tf32.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, Float32Type, ModuleOp, StringAttr, i32
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from louver.compile.rewrite.insert import insert_before
from louver.ir.comparisons import CmpfOp, SelectOp
from louver.ir.tile import DotOp
from louver.ir.tile.types import tensor_like, tensor_of

PARTS = {"tf32x3": 2, "ieee": 3}
"""Parts of an operand by the precision that a dot asks for."""

TF32_BITS = 0xFFFFE000 - (1 << 32)
"""The bits of f32 that tf32 has, as a signed integer."""


def exact_dots(module: ModuleOp) -> None:
    """Take apart each dot of f32 that asks for it, in place."""
    for op in [op for op in module.walk() if isinstance(op, DotOp)]:
        precision = None if op.input_precision is None else op.input_precision.data
        if isinstance(tensor_of(op.a).element_type, Float32Type) and precision in PARTS:
            _take_apart(op, PARTS[precision])


def _take_apart(op: DotOp, count: int) -> None:
    """The least products first; those of two parts further on than the last part are left out."""
    (a_whole, *a), (b_whole, *b) = (_parts(op, value, count) for value in (op.a, op.b))
    pairs = [(a[i], b[both - i]) for both in range(count - 1, 0, -1) for i in range(both + 1)]
    sums = tensor_of(op.c)
    zeros = arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(sums, [0.0]))  # type: ignore[arg-type]
    total = insert_before(op, zeros)
    for left, right in [*pairs, (a_whole, b_whole)]:
        properties = {**op.properties, "inputPrecision": StringAttr("tf32")}
        metadata = [] if op.metadata is None else [op.metadata]
        dot = DotOp.build(operands=[left, right, metadata, total], properties=properties, result_types=[op.d.type])
        total = insert_before(op, dot)
    # Tensor cores cut what they add to a sum. An addition of f32 rounds.
    Rewriter.replace_op(op, [], [insert_before(op, arith.AddfOp(op.c, total))])


def _parts(op: DotOp, value: SSAValue, count: int) -> Sequence[SSAValue]:
    """A tile with the bits of tf32 alone, and what adds up to it where it is finite, the greatest part first, each with such bits."""
    tile = tensor_of(value)
    whole = tensor_like(tile, i32)
    mask = insert_before(op, arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(whole, [TF32_BITS])))  # type: ignore[arg-type]
    none = insert_before(op, arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(tile, [0.0])))  # type: ignore[arg-type]
    found: list[SSAValue] = []
    for _ in range(count):
        bits = insert_before(op, arith.BitcastOp(value, whole))
        part = insert_before(op, arith.BitcastOp(insert_before(op, arith.AndIOp(bits, mask)), tile))
        rest = insert_before(op, arith.SubfOp(value, part))
        if not found:
            found.append(part)
            finite = insert_before(op, CmpfOp(rest, rest, "oeq"))
            part, rest = (insert_before(op, SelectOp(finite, each, none)) for each in (part, rest))
        found.append(part)
        value = rest
    return found
