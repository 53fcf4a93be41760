"""Lowers the direct store: accumulators go through the epilogue graph to global memory, element by element.

The fragment of the sums (`Lowering.places`) says which rows of each block of 64 a thread holds, and which pairs of columns.

Results that are added to memory: one instruction adds two neighbours of a row, if they are aligned. The output may have any
address and any pitch, as arrays of an epilogue may. The kernel tests the address of each row for aligned pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from louver.compile.lower.products.addends import Addends, Row, Strip, aligned_pairs
from louver.compile.lower.products.epilogue import (
    Known,
    array_cursors,
    evaluate,
    first_column,
    first_output_row,
    half,
    is_gated,
    output_rows,
    scalars,
    store_element,
    stored_bits,
    stored_pair,
    vector_cursors,
    vectors,
)
from louver.compile.lower.products.state import Lowering
from louver.formats.dtypes import element_type
from louver.ir.sched import ops
from louver.ir.sched.epilogue import MatrixOp
from louver.ir.sched.types import PointerType
from louver.isa.machine import AtomicKind
from louver.isa.memory import AddVector, AtomicAdd
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Reg

KINDS: dict[str, AtomicKind] = {"f32": "f32", "f16": "f16", "bf16": "bf16", "s32": "s32"}
"""The instruction that adds to an element in memory."""


@dataclass(frozen=True, slots=True)
class Adder:
    """Adds results to one row of the output.

    paired: columns below this number are added in pairs. A pair of a thread begins at an even column. None if the
    columns of a pair are not neighbours in memory, or no instruction adds both.
    """

    low: Lowering
    element: str
    paired: Reg | None

    @classmethod
    def of_row(cls, low: Lowering, address: Reg, element: str, *, transposed: bool) -> Adder:
        """The adder of a row. address: the address of the thread's first column."""
        if transposed or element == "s32":
            return cls(low, element, None)
        k = low.k
        aligned = k.setp("eq", "u64", k.and_(address, 2 * element_type(element).bytes - 1), 0)
        return cls(low, element, k.selp(k.and_(low.sizes["N"], ~1 & 0xFFFFFFFF), 0, aligned))

    def one(self, address: Address, value: Reg, inside: Reg) -> None:
        """Add one element if it is inside the output."""
        self.low.k.emit(
            AtomicAdd(KINDS[self.element]), address, stored_bits(self.low, value, self.element), guard=inside
        )

    def pair(self, base: Reg, offset: int, values: tuple[Reg, Reg], column: Reg, inside: tuple[Reg, Reg]) -> None:
        """Add the elements of `column` and the next column at `base + offset` bytes, if they are inside the output."""
        k, size = self.low.k, element_type(self.element).bytes
        if self.paired is None:
            raise ValueError(f"{self.element} here is added element by element")
        both, alone = k.setp("lt", "u32", column, self.paired), k.setp("ge", "u32", column, self.paired)
        if self.element == "f32":
            held = tuple(stored_bits(self.low, value, "f32") for value in values)
            k.emit(AddVector(), Address(base, offset), held, guard=both)
        else:
            kind = half(self.element)
            packed = stored_pair(self.low, *values, kind)
            k.emit(AtomicAdd("f16x2" if kind == "f16" else "bf16x2"), Address(base, offset), packed, guard=both)
        for index, (value, here) in enumerate(zip(values, inside, strict=True)):
            self.one(Address(base, offset + index * size), value, k.and_pred(here, alone))


def store(low: Lowering, op: ops.StoreOp) -> None:
    """Store the warpgroup's rows of the tile. Elements outside M × N are not stored."""
    k = low.k
    gated = is_gated(op)
    first_row = first_output_row(low, op)
    column = k.add(low.number(op.column), first_column(low))
    numbers, aligned = scalars(low, op), aligned_pairs(low, op)
    held, (_, step) = sorted({row for row, _ in low.places}), low.row_steps
    for block in range(len(low.consumer.accumulators)):
        if gated:
            # The thread has both sums of an element, see `Accumulator.part`.
            for offset in held[: len(held) // 2]:
                row = k.add(first_row, step // 2 * block + offset)
                _store_row(low, op, block, [offset, offset + 8], row, column, numbers, aligned)
            continue
        for offset in held:
            row = k.add(first_row, step * block + offset)
            _store_row(low, op, block, [offset], row, column, numbers, aligned)


def _store_row(
    low: Lowering,
    op: ops.StoreOp,
    block: int,
    sums_of: Sequence[int],
    row: Reg,
    first_column: Reg,
    numbers: Known,
    aligned: dict[MatrixOp, Reg],
) -> None:
    """Store all columns that this thread holds of one output row.

    sums_of: the rows of the block whose sums give this row.
    aligned: see `Addends.wide`.
    """
    k = low.k
    size = element_type(_element(op)).bytes
    transposed = op.transposed is not None
    pitch = low.sizes["pitch"]
    base = low.register(op.destination)
    major, minor = (first_column, row) if transposed else (row, first_column)
    element = k.add(k.mul_lo(k.widen_u64(major), pitch), k.widen_u64(minor))
    address = k.add(base, k.shl(element, size.bit_length() - 1))
    column_step = k.shl(pitch, size.bit_length() - 1) if transposed else None
    row_inside = k.setp("lt", "u32", row, output_rows(low, op))
    known = numbers | vectors(low, op, vector_cursors(low, op, "m", row), row_inside)
    columns = vector_cursors(low, op, "n", first_column)
    here_in_arrays = Row(0, None, array_cursors(low, op, "m", row, first_column))
    addends = Addends(low, op, (here_in_arrays,), row, first_column, aligned)
    strip = Strip(low, {})
    adder = Adder.of_row(low, address, _element(op), transposed=transposed) if op.add is not None else None
    pairs = sorted({column for _, column in low.places})[::2]
    with k.if_(row_inside):
        for number, first in enumerate(pairs):
            if number % addends.groups == 0:
                strip = addends.read(pairs[number : number + addends.groups])
            here = address
            found: list[tuple[Reg, Reg, Reg]] = []
            for pair in (0, 1):
                column = k.add(first_column, first + pair)
                inside = k.setp("lt", "u32", column, low.sizes["N"])
                sums = [low.sum_at(block, each, first + pair) for each in sums_of]
                read = vectors(low, op, columns, inside, first + pair) | strip.at(0, first, pair)
                result = evaluate(low, op, sums, known | read)
                place = Address(here, 0 if transposed else (first + pair) * size)
                if adder is None:
                    store_element(low, place, result, _element(op), inside)
                elif adder.paired is None:
                    adder.one(place, result, inside)
                else:
                    found.append((result, column, inside))
                if column_step is not None and pair == 0:
                    here = k.add(address, column_step)
            if adder is not None and found:
                (one, column, here_inside), (other, _, next_inside) = found
                adder.pair(address, first * size, (one, other), column, (here_inside, next_inside))
            if column_step is not None and number + 1 < len(pairs):
                address = k.add(address, _times(k, column_step, pairs[number + 1] - first))


def _times(k: KernelBuilder, step: Reg, count: int) -> Reg:
    """Multiply, by a shift where possible. A multiplication makes ptxas spill (tensor scale and gelu)."""
    power = count.bit_length() - 1
    return k.shl(step, power) if count == 1 << power else k.mul_lo(step, count)


def _element(op: ops.StoreOp) -> str:
    destination = op.destination.type
    if not isinstance(destination, PointerType):
        raise TypeError(f"a store's destination is a pointer, got {destination}")
    return destination.element.data
