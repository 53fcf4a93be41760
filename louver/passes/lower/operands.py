"""What a consumer keeps in registers: accumulators, metadata sets and value slots; their addresses and loads.

The loads are ordinary ones, which stay between the barrier operations around them: ptxas moves loads of read-only data (`.nc`)
down to their first use, and the latency that they were to hide shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from louver.ir.sched import ops
from louver.isa.prepack import (
    LOAD_BYTES,
    VALUE_LOAD_BYTES,
    VALUE_REGISTERS,
    WORDS,
    columns_per_load,
    products_per_load,
)
from louver.passes.lower.state import ConsumerState, Lowering
from louver.ptx.module import Address, Imm, Reg

SETS = 2
"""Sets of metadata registers: one is refilled while products still read the other."""

PADDING = 0x44444444
"""A metadata word of legal codes."""

LANE_BYTES = 16
"""Bytes of every load of a lane."""


def open_consumer(low: Lowering, role: ops.RoleOp, blocks: int) -> None:
    """Registers that live through the role. Accumulators, metadata and values start defined."""
    k = low.k
    mma = low.kernel.mma.instruction()
    d = mma.operands[0]
    slots = 1 + max((op.slot.value.data for op in role.walk() if isinstance(op, ops.LoadValuesOp)), default=-1)
    products = low.tile[2] // mma.k
    low.consumer = ConsumerState(
        accumulators=[k.regs(d.type, d.count) for _ in range(blocks)],
        metadata=[[k.regs("b32", WORDS) for _ in range(blocks)] for _ in range(SETS)],
        values=[
            [[k.regs("b32", VALUE_REGISTERS) for _ in range(products)] for _ in range(blocks)] for _ in range(slots)
        ],
        metadata_addresses=k.regs("b64", blocks),
        value_addresses=k.regs("b64", blocks if slots else 0),
    )
    for block in low.consumer.accumulators:
        _fill(low, block, Imm(0.0 if d.type == "f32" else 0))
    for register_set in low.consumer.metadata:
        for block in register_set:
            _fill(low, block, Imm(PADDING))
    for slot in low.consumer.values:
        for block in slot:
            for product in block:
                _fill(low, product, Imm(0))


def _fill(low: Lowering, registers: Sequence[Reg], value: Imm) -> None:
    for register in registers:
        low.k.mov(value, into=register)


def open_tile(low: Lowering, tiles: ops.TilesOp, m: Reg) -> None:
    """Addresses of a tile's metadata and values, one for each block of 64 rows.

    A block past the last row reads the last block's instead: its results are stored nowhere.
    """
    k, consumer = low.k, low.consumer
    blocks = len(consumer.accumulators)
    element = low.kernel.mma.a.data
    columns = columns_per_load(element)
    groups = k.shr(k.add(low.sizes["K"], columns - 1), columns.bit_length() - 1)
    last = k.shr(k.sub(low.sizes["M"], 1), 6)
    first = k.mad_lo(low.warpgroup, blocks, k.shr(m, 6))
    lane = k.mul_wide(k.and_(low.named["tid"], 127), LANE_BYTES)
    for block in range(blocks):
        index = k.min(k.add(first, block), last)
        rows = k.mul_wide(index, groups)
        for base, bytes_, register in _bases(low, tiles, block, products_per_load(element)):
            offset = k.shl(rows, bytes_.bit_length() - 1)
            k.add(k.add(low.register(base), lane), offset, into=register)


def _bases(low: Lowering, tiles: ops.TilesOp, block: int, products: int) -> list[tuple[SSAValue, int, Reg]]:
    """What is loaded for a block: its pointer, bytes for one metadata load's columns of 64 rows, and the address register."""
    consumer = low.consumer
    metadata = next(op.metadata for op in tiles.walk() if isinstance(op, ops.LoadMetadataOp))
    bases = [(metadata, LOAD_BYTES, consumer.metadata_addresses[block])]
    if consumer.values:
        values = next(op.values for op in tiles.walk() if isinstance(op, ops.LoadValuesOp))
        bases.append((values, products * VALUE_LOAD_BYTES, consumer.value_addresses[block]))
    return bases


def load_metadata(low: Lowering, op: ops.LoadMetadataOp) -> None:
    """Fill one register set, for every block of the warpgroup; past the last step the set keeps what it has."""
    k = low.k
    ahead = op.ahead.value.data
    steps = columns_per_load(low.kernel.mma.a.data) // low.tile[2]
    step, guard = low.number(op.step), _guard(low, op.step, ahead)
    for base, registers in zip(low.consumer.metadata_addresses, low.consumer.metadata[op.set.value.data], strict=True):
        address = base
        if isinstance(step, Reg):
            address = k.add(base, k.mul_wide(k.shr(step, steps.bit_length() - 1), LOAD_BYTES))
        place = Address(address, ahead // steps * LOAD_BYTES)
        k.load_global(registers, place, guard=guard)


def load_values(low: Lowering, op: ops.LoadValuesOp) -> None:
    """Fill one slot, for every block of the warpgroup; past the last step it keeps what it has."""
    k = low.k
    ahead = op.ahead.value.data
    step, guard = low.number(op.step), _guard(low, op.step, ahead)
    slot = low.consumer.values[op.slot.value.data]
    for base, products in zip(low.consumer.value_addresses, slot, strict=True):
        step_bytes = len(products) * VALUE_LOAD_BYTES
        address = k.add(base, k.mul_wide(step, step_bytes)) if isinstance(step, Reg) else base
        for index, registers in enumerate(products):
            place = Address(address, ahead * step_bytes + index * VALUE_LOAD_BYTES)
            k.load_global(registers, place, guard=guard)


def _guard(low: Lowering, step: SSAValue, ahead: int) -> Reg | None:
    """Whether the step that lies `ahead` exists; None where it always does, a tile's first."""
    number = low.number(step)
    if not isinstance(number, Reg):
        return None if ahead == 0 else low.k.setp("gt", "u32", low.named["steps"], ahead)
    return low.k.setp("lt", "u32", low.k.add(number, ahead), low.named["steps"])
