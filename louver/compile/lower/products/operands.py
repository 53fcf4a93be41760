"""Opens a consumer's registers (accumulators and metadata sets), and loads metadata."""

from __future__ import annotations

from collections.abc import Sequence

from louver.compile.generate.generation import SETS
from louver.compile.lower.products.multiply import has_entries
from louver.compile.lower.products.state import ConsumerState, Lowering, Origin, entry_of_metadata
from louver.ir.sched import ops
from louver.isa.prepack import LOAD_BYTES, WORD_BYTES, WORDS, columns_per_load
from louver.ptx.module import Address, Imm, Reg

PADDING = 0x44444444
"""A metadata word of legal codes."""


def open_consumer(low: Lowering, role: ops.RoleOp, blocks: int) -> None:
    """Open the registers that live during the role. Accumulators and metadata get initial values."""
    k = low.k
    unit = low.kernel.unit
    kind, count = "f32" if unit.d == "f32" else "b32", unit.d_fragment.registers
    low.consumer = ConsumerState(
        accumulators=[k.regs(kind, count) for _ in range(blocks)],
    )
    if unit.sparse:
        low.consumer.metadata = [[k.regs("b32", WORDS) for _ in range(blocks)] for _ in range(SETS)]
        low.consumer.metadata_addresses = k.regs("b64", blocks)
    if any(isinstance(op, ops.PromoteOp) for op in role.walk()):
        low.consumer.promoted = [k.regs(kind, count) for _ in range(blocks)]
    for block in low.consumer.accumulators:
        _fill(low, block, Imm(0.0 if kind == "f32" else 0))
    for register_set in low.consumer.metadata:
        for block in register_set:
            _fill(low, block, Imm(PADDING))


def _fill(low: Lowering, registers: Sequence[Reg], value: Imm) -> None:
    for register in registers:
        low.k.mov(value, into=register)


def open_tile(low: Lowering, tiles: ops.TilesOp, at: Origin) -> None:
    """Compute the addresses of a tile's metadata, one for each block of 64 rows.

    A block past the last row reads the words of the last block. Its values are zeros, so any legal codes are correct.
    Entries of a batch follow each other in whole blocks.
    """
    k, consumer = low.k, low.consumer
    blocks = len(consumer.accumulators)
    columns = columns_per_load(low.kernel.unit.a)
    groups = k.shr(k.add(low.depth, columns - 1), columns.bit_length() - 1)
    last = k.shr(k.sub(low.sizes["M"], 1), 6)
    first = k.mad_lo(low.warpgroup, blocks, k.shr(at.m, 6))
    metadata = next(op.metadata for op in tiles.walk() if isinstance(op, ops.LoadMetadataOp))
    thread = k.mad_wide(k.and_(low.named["tid"], 127), 4, low.register(metadata))
    for block, address in enumerate(consumer.metadata_addresses):
        index = k.min(k.add(first, block), last)
        if at.entry is not None and has_entries(low, "a"):
            index = k.mad_lo(entry_of_metadata(low, at.entry), k.add(last, 1), index)
        k.add(thread, k.shl(k.mul_wide(index, groups), LOAD_BYTES.bit_length() - 1), into=address)


def load_metadata(low: Lowering, op: ops.LoadMetadataOp) -> None:
    """Fill one register set, for every block of the warpgroup. Past the last step the set does not change.

    The load is an ordinary one, which stays between the barrier operations around it. ptxas moves loads of read-only
    data (`.nc`) down to their first use, which exposes their latency.
    """
    k = low.k
    ahead = op.ahead.value.data
    covers = columns_per_load(low.kernel.unit.a) // low.tile[2]
    step = low.number(op.step)
    # If the step is a register, the protocol check has tested its alignment.
    begin = ahead if isinstance(step, Reg) else ahead + int(step.value)
    if begin % covers:
        raise ValueError(
            f"a load of metadata begins at a multiple of the {covers} steps that it covers, got {begin}: {op}"
        )
    loop, words = op.parent_op(), WORDS
    if isinstance(loop, ops.LoopOp) and loop.partial is not None:
        # Steps behind the body of a partial loop do not come, and need no words.
        words = min(WORDS, (loop.unroll.value.data - ahead) * WORDS // covers)
    # Every tile has a first step, also a tile that is begun ahead.
    inside = isinstance(step, Reg) and isinstance(loop, ops.LoopOp)
    guard = k.setp("lt", "u32", k.add(step, ahead), low.tile_state.last) if inside else None
    for base, registers in zip(low.consumer.metadata_addresses, low.consumer.metadata[op.set.value.data], strict=True):
        address = base
        if isinstance(step, Reg):
            address = k.add(base, k.mul_wide(k.shr(step, covers.bit_length() - 1), LOAD_BYTES))
        for word, register in enumerate(registers[:words]):
            k.load_global([register], Address(address, begin // covers * LOAD_BYTES + word * WORD_BYTES), guard=guard)
