"""The epilogue graph of a store, on one element of the output at a time.

The graph's other inputs are loaded as rarely as possible: scalars once a tile, vectors once a row or column, arrays once an element
(`addends`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, FloatAttr
from xdsl.ir import Attribute, Operation, SSAValue

from louver.compile.lower.products.convert import half, load_element, stored_bits
from louver.compile.lower.products.lanes import first_row
from louver.compile.lower.products.state import Lowering
from louver.compile.plan.layout import BLOCK_ROWS
from louver.formats.dtypes import element_type
from louver.ir.arith import FPToSIOp, SIToFPOp
from louver.ir.comparisons import CmpfOp, SelectOp
from louver.ir.elementwise import choice_of, step_of
from louver.ir.refusal import source_location
from louver.ir.sched import ops
from louver.ir.sched.epilogue import MatrixOp, ScalarOp
from louver.ir.sched.types import PointerType
from louver.isa.convert import F32ToInteger
from louver.isa.elementwise import CHOICES, ELEMENTWISE_STEPS
from louver.isa.instruction import Instruction
from louver.isa.special import FULL_MASK
from louver.isa.sync import WarpSync
from louver.ptx.module import Address, Imm, Reg

Epilogue: TypeAlias = ops.StoreOp | ops.BulkStoreOp
"""Operations that hold an epilogue region."""

LONG_STEPS = ("erf",)
"""Elementwise steps of so many instructions that those of a few columns hide each other's latency."""

ROOMY = 128
"""Registers of sums a thread that leave room for several groups of columns beside them: those of 128×256, by two warpgroups."""

Axis: TypeAlias = Literal["m", "n"]

Cursors: TypeAlias = dict[SSAValue, Reg]
"""Addresses of what the epilogue reads, by the values that it becomes."""

Known: TypeAlias = dict[SSAValue, "Reg | Imm"]
"""Values of an epilogue that are known where it is evaluated."""


def is_gated(op: Epilogue) -> bool:
    """Whether two sums make one element of the output, in half as many rows."""
    return len(op.body.block.args) == 2


def output_block(op: Epilogue) -> int:
    """Rows of the output that a block of 64 rows of sums makes."""
    return BLOCK_ROWS // (2 if is_gated(op) else 1)


def output_rows(low: Lowering, op: Epilogue) -> Reg:
    """Rows of the output: M, or half of it for a gated product."""
    rows = low.sizes["M"]
    return low.k.shr(rows, 1) if is_gated(op) else rows


def first_output_row(low: Lowering, op: Epilogue) -> Reg:
    """The first row of the output that this thread holds, of the warpgroup's first block of 64 rows of sums.

    Of a gated product, whose output has 32 rows a block, rows r and r + 8 of the sums are row r.
    """
    k = low.k
    rows = BLOCK_ROWS * len(low.consumer.accumulators)
    warp = k.and_(low.named["warp"], 3)
    first = k.add(low.number(op.row), k.mul_lo(low.warpgroup, rows))
    first = k.add(first, k.mul_lo(warp, low.row_steps[0]))
    if is_gated(op):
        first = k.shr(first, 1)
    return k.add(first, first_row(low))


def keep_apart(low: Lowering, op: Epilogue) -> None:
    """Before arrays are read: hold the assembler from beginning those loads earlier.

    They would not fit the registers beside the accumulators.
    """
    if reads_arrays(op):
        low.k.emit(WarpSync(), FULL_MASK)


def one_by_one(low: Lowering, op: Epilogue) -> bool:
    """Whether groups of columns are to be computed one after the other, each behind a branch.

    The assembler would begin many of them at once, across barriers too, and what they read and compute would not fit the registers
    beside the accumulators.
    """
    long = any(step_of(each) in LONG_STEPS for each in op.body.block.ops)
    if crowded(low):
        return long or reads_arrays(op) or reads_columns(op)
    return long and not reads_arrays(op)


def crowded(low: Lowering) -> bool:
    """Whether a thread holds so many sums that what the epilogue reads for one group of columns is all that fits beside them."""
    return sum(len(block) for block in low.consumer.accumulators) > ROOMY


def scalars(low: Lowering, op: Epilogue) -> Known:
    """The epilogue's numbers, those in memory loaded."""
    loaded: Known = {}
    for each in op.body.block.ops:
        for operand in each.operands:
            if operand in low.values and isinstance(operand.type, Float32Type):
                loaded[operand] = low.values[operand]
        if isinstance(each, ScalarOp):
            # Read where all threads read it: no bound to check.
            with low.k.at(source_location(each.location)):
                address = Address(low.register(each.pointer))
                loaded[each.result] = load_element(low, address, pointee(each.pointer), None)
    return loaded


def vector_cursors(low: Lowering, op: Epilogue, axis: Axis, index: Reg) -> Cursors:
    """The addresses of that row's or column's element in the epilogue's vectors along `axis`."""
    return {
        each.result: low.k.mad_wide(index, _bytes(each.vector), low.register(each.vector))
        for each in op.body.block.ops
        if isinstance(each, ops.VectorOp) and each.axis.data == axis
    }


def array_cursors(low: Lowering, op: Epilogue, axis: Axis, index: Reg, other: Reg) -> Cursors:
    """The addresses of one element in the epilogue's arrays with rows along `axis`: `index` there and `other` along a row."""
    k = low.k
    found: Cursors = {}
    for each in op.body.block.ops:
        if isinstance(each, MatrixOp) and ("m" if each.transposed is None else "n") == axis:
            place = k.mad_lo(k.widen_u64(index), low.register(each.pitch), k.widen_u64(other))
            found[each.result] = k.mad_lo(place, _bytes(each.matrix), low.register(each.matrix))
    return found


def vectors(low: Lowering, op: Epilogue, at: Cursors, inside: Reg, offset: int = 0) -> Known:
    """The epilogue's vectors at these cursors, `offset` elements on; 0 outside."""
    found: Known = {}
    for each in op.body.block.ops:
        if isinstance(each, ops.VectorOp) and each.result in at:
            address = Address(at[each.result], offset * _bytes(each.vector))
            with low.k.at(source_location(each.location)):
                found[each.result] = load_element(low, address, pointee(each.vector), inside)
    return found


def reads_arrays(op: Epilogue) -> bool:
    """Whether the epilogue reads arrays of the output's sizes."""
    return any(isinstance(each, MatrixOp) for each in op.body.block.ops)


def reads_columns(op: Epilogue) -> bool:
    """Whether the epilogue reads vectors along the columns."""
    return any(isinstance(each, ops.VectorOp) and each.axis.data == "n" for each in op.body.block.ops)


def _bytes(pointer: SSAValue) -> int:
    return element_type(pointee(pointer)).bytes


def pointee(pointer: SSAValue) -> str:
    """The element type that an epilogue's pointer points to."""
    if not isinstance(pointer.type, PointerType):
        raise TypeError(f"an epilogue reads through pointers, got {pointer.type}")
    return pointer.type.element.data


def evaluate(low: Lowering, op: Epilogue, sums: Reg | Sequence[Reg], known: Known) -> Reg:
    """Run the region on one accumulator, or on both of a gated product.

    Floating-point values are held as f32, rounded to their type after every operation; integers in 32 bits.
    """
    block = op.body.block
    given = [sums] if isinstance(sums, Reg) else sums
    values: Known = {**dict(zip(block.args, given, strict=True)), **known}
    for each in block.ops:
        with low.k.at(source_location(each.location)):
            if isinstance(each, ops.YieldOp):
                return _register(low, values[each.value])
            _evaluate(low, each, values)
    raise ValueError("an epilogue region ends with sched.yield")


def _evaluate(low: Lowering, op: Operation, values: Known) -> None:
    match op:
        case ops.VectorOp() | ScalarOp() | MatrixOp():
            pass
        case arith.ConstantOp(value=FloatAttr() as number):
            values[op.result] = Imm(float(number.value.data))
        case arith.AddiOp():
            values[op.result] = low.k.add(values[op.lhs], values[op.rhs])
        case arith.TruncFOp() | SIToFPOp():
            values[op.result] = _converted(low, _register(low, values[op.input]), op)
        case FPToSIOp():
            values[op.result] = _emit(low, F32ToInteger("s32", "rzi"), values[op.input])
        case CmpfOp():
            # Its choice emits it.
            pass
        case SelectOp():
            values[op.result] = _chosen(low, op, values)
        case arith.ExtFOp():
            values[op.result] = values[op.input]
        case _:
            values[op.results[0]] = _step(low, op, values)


def _step(low: Lowering, op: Operation, values: Known) -> Reg:
    name = step_of(op)
    if name is None:
        raise ValueError(f"an epilogue applies elementwise steps and casts, got {op.name}: it has no lowering")
    result = ELEMENTWISE_STEPS[name].lower(partial(_emit, low), *(values[operand] for operand in op.operands))
    return _rounded(low, result, op.results[0].type)


def _chosen(low: Lowering, op: SelectOp, values: Known) -> Reg:
    """One of two values, both in the result's type already."""
    found = choice_of(op.cond.owner, op) if isinstance(op.cond.owner, CmpfOp) else None
    if found is None:
        raise ValueError(f"an epilogue chooses by an ordered comparison of floating-point numbers, got {op.cond.owner}")
    name, operands = found
    return CHOICES[name].lower(partial(_emit, low), *(values[operand] for operand in operands))


def _emit(low: Lowering, instruction: Instruction, *args: Any) -> Reg:
    result = low.k.reg(instruction.operands[0].type)
    low.k.emit(instruction, result, *args)
    return result


def _register(low: Lowering, value: Reg | Imm) -> Reg:
    return value if isinstance(value, Reg) else low.k.mov(value, kind="f32")


def _converted(low: Lowering, value: Reg, op: arith.TruncFOp | SIToFPOp) -> Reg:
    """The last cast is the store's own rounding; any other one rounds and widens again."""
    if all(isinstance(use.operation, ops.YieldOp) for use in op.result.uses):
        return value
    return _rounded(low, value, op.result.type)


def _rounded(low: Lowering, value: Reg, to: Attribute) -> Reg:
    if isinstance(to, Float32Type):
        return stored_bits(low, value, "f32")
    name = half(str(to))
    return low.k.to_f32(name, stored_bits(low, value, name))
