"""The epilogue: accumulators through the epilogue graph to global memory, element by element.

A thread holds, of each 64-row block, rows r and r + 8 and of every eight columns the pair 2·(lane % 4), + 1.
"""

from __future__ import annotations

from louver.compile.lower.products.add import Adder
from louver.compile.lower.products.addends import Addends, Row, Strip, aligned_pairs
from louver.compile.lower.products.convert import store_element
from louver.compile.lower.products.epilogue import (
    Known,
    array_cursors,
    evaluate,
    first_output_row,
    is_gated,
    output_rows,
    scalars,
    vector_cursors,
    vectors,
)
from louver.compile.lower.products.state import Lowering
from louver.formats.dtypes import element_type
from louver.ir.sched import ops
from louver.ir.sched.epilogue import MatrixOp
from louver.ir.sched.types import PointerType
from louver.ptx.module import Address, Reg

HALVES = (0, 8)
"""Row offsets that a thread holds in a block."""


def store(low: Lowering, op: ops.StoreOp) -> None:
    """Store the warpgroup's rows of the tile; elements outside M × N are dropped."""
    k = low.k
    gated = is_gated(op)
    lane = k.and_(low.named["tid"], 31)
    first_row = first_output_row(low, op)
    first_column = k.add(low.number(op.column), k.shl(k.and_(lane, 3), 1))
    numbers, aligned = scalars(low, op), aligned_pairs(low, op)
    for block in range(len(low.consumer.accumulators)):
        if gated:
            _store_row(low, op, block, (0, 1), k.add(first_row, 32 * block), first_column, numbers, aligned)
            continue
        for half, offset in enumerate(HALVES):
            row = k.add(first_row, 64 * block + offset)
            _store_row(low, op, block, (half,), row, first_column, numbers, aligned)


def _store_row(
    low: Lowering,
    op: ops.StoreOp,
    block: int,
    halves: tuple[int, ...],
    row: Reg,
    first_column: Reg,
    numbers: Known,
    aligned: dict[MatrixOp, Reg],
) -> None:
    """All columns of one row of the output that this thread holds, from the sums in these row halves. aligned: see `Addends`."""
    k = low.k
    _, tile_n, _ = low.tile
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
    with k.if_(row_inside):
        for group in range(tile_n // 8):
            if group % addends.groups == 0:
                strip = addends.read(range(8 * group, min(8 * (group + addends.groups), tile_n), 8))
            here = address
            found: list[tuple[Reg, Reg, Reg]] = []
            for pair in (0, 1):
                column = k.add(first_column, 8 * group + pair)
                inside = k.setp("lt", "u32", column, low.sizes["N"])
                sums = [low.sum_at(block, 4 * group + 2 * half + pair) for half in halves]
                read = vectors(low, op, columns, inside, 8 * group + pair) | strip.at(0, 8 * group, pair)
                result = evaluate(low, op, sums, known | read)
                place = Address(here, 0 if transposed else (8 * group + pair) * size)
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
                adder.pair(address, 8 * group * size, (one, other), column, (here_inside, next_inside))
            if column_step is not None and group + 1 < tile_n // 8:
                address = k.add(address, k.shl(column_step, 3))


def _element(op: ops.StoreOp) -> str:
    destination = op.destination.type
    if not isinstance(destination, PointerType):
        raise TypeError(f"a store's destination is a pointer, got {destination}")
    return destination.element.data
