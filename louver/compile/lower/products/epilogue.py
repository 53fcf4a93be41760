"""Lowers the epilogue graph of a store, for one element of the output at a time.

Other inputs are loaded as rarely as possible: scalars once a tile, vectors once a row or column, arrays once an element
(`addends`). Registers hold floats as f32, and integers in 32 bits. The place of a lane's first element in a block of sums
follows from the fragment of the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue

from louver.compile.lower.products.state import Lowering
from louver.compile.plan.layout import BLOCK_ROWS
from louver.formats.dtypes import element_type
from louver.ir.arith import FPToSIOp, SIToFPOp
from louver.ir.comparisons import CmpfOp, SelectOp
from louver.ir.elementwise import choice_of, step_of
from louver.ir.refusal import source_location
from louver.ir.sched import ops
from louver.ir.sched.epilogue import MatrixOp, ScalarOp, VectorOp
from louver.ir.sched.types import PointerType
from louver.isa.convert import F32ToInteger, Half
from louver.isa.elementwise import CHOICES, ELEMENTWISE_STEPS
from louver.isa.instruction import LANES, Instruction
from louver.isa.move import FULL_MASK
from louver.isa.rule import RuleError
from louver.isa.sync import WarpSync
from louver.ptx.module import Address, Imm, Reg


def load_element(low: Lowering, address: Address, element: str, inside: Reg | None) -> Reg:
    """Load one element; 0 if it is not `inside`. inside: None if it always is."""
    k = low.k
    if element in ("f32", "s32"):
        value = k.mov(0.0, kind="f32") if element == "f32" else k.mov(0)
        k.load_global([value], address, guard=inside)
        return value
    narrow = k.mov(0, kind="b16")
    k.load_global([narrow], address, guard=inside)
    return k.to_f32(half(element), narrow)


def store_element(low: Lowering, address: Address, value: Reg, element: str, inside: Reg) -> None:
    """Round the value to its element type, once, and store it."""
    bits = stored_bits(low, value, element)
    if element_type(element).bytes == 1:
        low.k.store_byte(address, bits, guard=inside)
    else:
        low.k.store_global(address, bits, guard=inside)


def stored_bits(low: Lowering, value: Reg, element: str) -> Reg:
    """The bits to store for a value. An 8-bit element is the low byte of a 16-bit register."""
    k = low.k
    integer = value.type == "b32"
    match element:
        case "s32" if integer:
            return value
        case "f32":
            return k.f32_from_s32(value) if integer else value
        case "f16" | "bf16":
            return k.half_from_s32(element, value) if integer else k.from_f32(element, value)
        case "e4m3" | "e5m2" if not integer:
            return k.fp8_pair_from_f32(element, value, value)
        case "s8" if integer:
            return k.low_half(value)
        case _:
            held = "integers" if integer else "floating-point values"
            raise RuleError(f"{held} are not stored as {element}: store f32, f16 or bf16, or cast to it first")


def stored_pair(low: Lowering, first: Reg, second: Reg, element: Half) -> Reg:
    """Pack two values as 16-bit elements in one register, the first one in the lower half."""
    if first.type == "f32":
        return low.k.pair_from_f32(element, first, second)
    return low.k.pack_b32(stored_bits(low, first, element), stored_bits(low, second, element))


def half(element: str) -> Half:
    """The 16-bit float type with this name."""
    match element:
        case "f16" | "bf16":
            return element
        case _:
            raise RuleError(f"an epilogue reads and writes f32, f16 and bf16, got {element}")


LANE_BITS = LANES.bit_length() - 1


def first_row(low: Lowering) -> Reg:
    """Rows from the first of the warp's 16 rows to the lane's first row."""
    return _offset(low, 0)


def first_column(low: Lowering) -> Reg:
    """Columns from the first column of the tile to the lane's first column."""
    return _offset(low, 1)


def _offset(low: Lowering, axis: int) -> Reg:
    """The offset along an axis.

    The bits of the lane number that move along it are adjacent, and each moves twice as far as the last.
    """
    k = low.k
    steps = [step[axis] for step in low.kernel.unit.d_fragment.thread[:LANE_BITS]]
    begin = next(bit for bit, step in enumerate(steps) if step)
    count = sum(map(bool, steps))
    lane = k.and_(low.named["tid"], (1 << begin + count) - 1)
    index = k.shr(lane, begin) if begin else lane
    scale = steps[begin].bit_length() - 1
    return k.shl(index, scale) if scale else index


Epilogue: TypeAlias = ops.StoreOp | ops.BulkStoreOp
"""Operations that hold an epilogue region."""

LONG_STEPS = ("erf",)
"""Elementwise steps with many instructions. A few columns are enough to hide their latency."""

ROOMY = 128
"""The most registers of sums of a thread with which several groups of columns fit: 128×256 on two warpgroups."""

Axis: TypeAlias = Literal["m", "n"]

Cursors: TypeAlias = dict[SSAValue, Reg]
"""The address of each input of an epilogue, by the SSA value of the loaded element."""

Known: TypeAlias = dict[SSAValue, "Reg | Imm"]
"""The values of an epilogue that have been computed or loaded."""


def is_gated(op: Epilogue) -> bool:
    """Whether two sums give one element of the output, which has half as many rows."""
    return len(op.body.block.args) == 2


def output_block(op: Epilogue) -> int:
    """Rows of the output for a block of 64 rows of sums."""
    return BLOCK_ROWS // (2 if is_gated(op) else 1)


def output_rows(low: Lowering, op: Epilogue) -> Reg:
    """Rows of the output: M, or half of it for a gated product."""
    rows = low.sizes["M"]
    return low.k.shr(rows, 1) if is_gated(op) else rows


def first_output_row(low: Lowering, op: Epilogue) -> Reg:
    """The first row of the output that this thread holds, in the warpgroup's first block of 64 rows of sums.

    In a gated product, the output has 32 rows a block, and rows r and r + 8 of the sums give row r.
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
    """Keep the assembler from moving loads of arrays before this point.

    Their registers would not fit beside the accumulators.
    """
    if reads_arrays(op):
        low.k.emit(WarpSync(), FULL_MASK)


def one_by_one(low: Lowering, op: Epilogue) -> bool:
    """Whether groups of columns are computed one after the other, each in a branch.

    Without branches, the assembler would begin many groups at once, also across barriers. Their values would not fit
    the registers beside the accumulators.
    """
    long = any(step_of(each) in LONG_STEPS for each in op.body.block.ops)
    if crowded(low):
        return long or reads_arrays(op) or reads_columns(op)
    return long and not reads_arrays(op)


def crowded(low: Lowering) -> bool:
    """Whether a thread holds so many sums that only the inputs of one group of columns fit beside them."""
    return sum(len(block) for block in low.consumer.accumulators) > ROOMY


def scalars(low: Lowering, op: Epilogue) -> Known:
    """The scalars of the epilogue. Scalars in memory are loaded, and numbers made of scalars are computed."""
    loaded: Known = {}
    for each in op.body.block.ops:
        for operand in each.operands:
            if operand in low.values and isinstance(operand.type, Float32Type):
                loaded[operand] = low.values[operand]
        if isinstance(each, ScalarOp):
            # All threads read it, so there is no bound to check.
            with low.k.at(source_location(each.location)):
                address = Address(low.register(each.pointer))
                loaded[each.result] = load_element(low, address, pointee(each.pointer), None)
        elif not isinstance(each, ops.YieldOp) and all(operand in loaded for operand in each.operands):
            with low.k.at(source_location(each.location)):
                _evaluate(low, each, loaded)
    return loaded


def vector_cursors(low: Lowering, op: Epilogue, axis: Axis, index: Reg) -> Cursors:
    """The addresses of element `index` in the epilogue's vectors along `axis`."""
    return {
        each.result: low.k.mad_wide(index, pointee_bytes(each.vector), low.register(each.vector))
        for each in op.body.block.ops
        if isinstance(each, VectorOp) and each.axis.data == axis
    }


def array_cursors(low: Lowering, op: Epilogue, axis: Axis, index: Reg, other: Reg) -> Cursors:
    """The addresses of an element in the epilogue's arrays with rows along `axis`.

    index: its row. other: its place in the row.
    """
    k = low.k
    found: Cursors = {}
    for each in op.body.block.ops:
        if isinstance(each, MatrixOp) and ("m" if each.transposed is None else "n") == axis:
            place = k.mad_lo(k.widen_u64(index), low.register(each.pitch), k.widen_u64(other))
            found[each.result] = k.mad_lo(place, pointee_bytes(each.matrix), low.register(each.matrix))
    return found


def vectors(low: Lowering, op: Epilogue, at: Cursors, inside: Reg, offset: int = 0) -> Known:
    """Load the epilogue's vectors `offset` elements after these addresses; 0 if not `inside`."""
    found: Known = {}
    for each in op.body.block.ops:
        if isinstance(each, VectorOp) and each.result in at:
            address = Address(at[each.result], offset * pointee_bytes(each.vector))
            with low.k.at(source_location(each.location)):
                found[each.result] = load_element(low, address, pointee(each.vector), inside)
    return found


def reads_arrays(op: Epilogue) -> bool:
    """Whether the epilogue reads arrays of the output's sizes."""
    return any(isinstance(each, MatrixOp) for each in op.body.block.ops)


def reads_columns(op: Epilogue) -> bool:
    """Whether the epilogue reads vectors with one element for each column."""
    return any(isinstance(each, VectorOp) and each.axis.data == "n" for each in op.body.block.ops)


def pointee_bytes(pointer: SSAValue) -> int:
    """Bytes of an element of an epilogue's array."""
    return element_type(pointee(pointer)).bytes


def pointee(pointer: SSAValue) -> str:
    """The element type of a pointer of an epilogue."""
    if not isinstance(pointer.type, PointerType):
        raise TypeError(f"an epilogue reads through pointers, got {pointer.type}")
    return pointer.type.element.data


def evaluate(low: Lowering, op: Epilogue, sums: Reg | Sequence[Reg], known: Known) -> Reg:
    """Lower the region for one accumulator, or for both of a gated product.

    Floating-point values are in f32 registers, and are rounded to their type after each operation. Integers have 32
    bits.
    """
    block = op.body.block
    given = [sums] if isinstance(sums, Reg) else sums
    values: Known = {**dict(zip(block.args, given, strict=True)), **known}
    for each in block.ops:
        with low.k.at(source_location(each.location)):
            if isinstance(each, ops.YieldOp):
                return _register(low, values[each.value])
            if not all(result in values for result in each.results):
                _evaluate(low, each, values)
    raise ValueError("an epilogue region ends with sched.yield")


def _evaluate(low: Lowering, op: Operation, values: Known) -> None:
    match op:
        case VectorOp() | ScalarOp() | MatrixOp():
            pass
        case arith.ConstantOp(value=FloatAttr() as number):
            values[op.result] = Imm(float(number.value.data))
        case arith.ConstantOp(value=IntegerAttr() as number):
            values[op.result] = Imm(number.value.data)
        case arith.AddiOp():
            values[op.result] = low.k.add(values[op.lhs], values[op.rhs])
        case arith.SubiOp():
            values[op.result] = low.k.sub(values[op.lhs], values[op.rhs])
        case arith.MuliOp():
            values[op.result] = low.k.mul_lo(values[op.lhs], values[op.rhs])
        case arith.TruncFOp() | SIToFPOp():
            values[op.result] = _converted(low, _register(low, values[op.input]), op)
        case FPToSIOp():
            values[op.result] = _emit(low, F32ToInteger("s32", "rzi"), values[op.input])
        case CmpfOp():
            # The select that uses it emits it.
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
    """Choose one of two values. Both have the type of the result already."""
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
    """The store performs the rounding of the last cast. Any other cast rounds and widens again."""
    if all(isinstance(use.operation, ops.YieldOp) for use in op.result.uses):
        return value
    return _rounded(low, value, op.result.type)


def _rounded(low: Lowering, value: Reg, to: Attribute) -> Reg:
    if isinstance(to, Float32Type):
        return stored_bits(low, value, "f32")
    name = half(str(to))
    return low.k.to_f32(name, stored_bits(low, value, name))
