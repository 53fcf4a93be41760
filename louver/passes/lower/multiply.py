"""Metadata loads and warpgroup products."""

from __future__ import annotations

from louver.ir.sched import ops
from louver.ir.sched.types import MapType
from louver.isa.descriptor import describe
from louver.isa.prepack import LOAD_BYTES, WORDS, columns_per_load
from louver.isa.swizzle import Swizzle, Tile
from louver.isa.wgmma import Wgmma, WgmmaCommit, WgmmaFence, WgmmaWait
from louver.passes.lower.state import ConsumerState, Lowering
from louver.ptx.module import Address, Imm, Reg

SETS = 2
"""Sets of metadata registers: one is refilled while products still read the other."""

PADDING = 0x44444444
"""A metadata word of legal codes."""


def open_consumer(low: Lowering, blocks: int) -> None:
    """Registers that live through the role: accumulators and the metadata sets. All start defined."""
    k = low.k
    d = low.kernel.mma.instruction().operands[0]
    low.consumer = ConsumerState(
        accumulators=[k.regs(d.type, d.count) for _ in range(blocks)],
        metadata=[[k.regs("b32", WORDS) for _ in range(blocks)] for _ in range(SETS)],
    )
    for block in low.consumer.accumulators:
        for register in block:
            k.mov(Imm(0.0 if d.type == "f32" else 0), into=register)
    for register in (r for each in low.consumer.metadata for block in each for r in block):
        k.mov(PADDING, into=register)


def open_tile(low: Lowering, metadata: Reg, m: Reg) -> None:
    """Addresses of this tile's metadata, one for each block of 64 rows.

    A block past the last row reads the last block's words instead: its values are zeros, and any legal codes will do.
    """
    k, consumer = low.k, low.consumer
    blocks = len(consumer.accumulators)
    columns = columns_per_load(low.kernel.mma.a.data)
    groups = k.shr(k.add(low.sizes["K"], columns - 1), columns.bit_length() - 1)
    last = k.shr(k.sub(low.sizes["M"], 1), 6)
    first = k.mad_lo(low.warpgroup, blocks, k.shr(m, 6))
    thread = k.mad_wide(k.and_(low.named["tid"], 127), 16, metadata)
    consumer.metadata_addresses = []
    for block in range(blocks):
        index = k.min(k.add(first, block), last)
        offset = k.shl(k.mul_wide(index, groups), LOAD_BYTES.bit_length() - 1)
        consumer.metadata_addresses.append(k.add(thread, offset))


def load_metadata(low: Lowering, op: ops.LoadMetadataOp) -> None:
    """Fill one register set, for every block of the warpgroup; past the last step the set keeps what it has."""
    k = low.k
    ahead, words = op.ahead.value.data, op.words.value.data
    per_group = columns_per_load(low.kernel.mma.a.data) // low.tile[2]
    step = low.number(op.step)
    guard = None
    if isinstance(step, Reg) and ahead:
        guard = k.setp("lt", "u32", k.add(step, ahead), low.named["steps"])
    registers = low.consumer.metadata[op.set.value.data]
    for base, block in zip(low.consumer.metadata_addresses, registers, strict=True):
        address = base
        if isinstance(step, Reg):
            address = k.add(base, _step_offset(low, step, per_group, words))
        place = Address(address, ahead // per_group * LOAD_BYTES)
        k.load_global(block[:words], place, guard=guard, read_only=True)


def _step_offset(low: Lowering, step: Reg, per_group: int, words: int) -> Reg:
    """Bytes from a row block's first group to the words of `step`; whole groups where a load takes all four words."""
    k = low.k
    offset = k.mul_wide(k.shr(step, per_group.bit_length() - 1), LOAD_BYTES)
    if words == WORDS:
        return offset
    return k.add(offset, k.mul_wide(k.and_(step, per_group - 1), words * 4))


def mma(low: Lowering, op: ops.MmaOp) -> None:
    """One warpgroup product. The tile's first product of each block ignores what the accumulators held."""
    k = low.k
    block = op.block.value.data
    instruction = low.kernel.mma.instruction(op.selector.value.data)
    k.emit(
        instruction,
        tuple(low.consumer.accumulators[block]),
        _descriptor(low, op.a.data, _values_tile(low), op.a_offset.value.data, per_warpgroup=True),
        _descriptor(low, op.b.data, _dense_tile(low, instruction), op.b_offset.value.data, per_warpgroup=False),
        low.consumer.metadata[op.set.value.data][block][op.word.value.data],
        _accumulate(low, op),
    )


def _accumulate(low: Lowering, op: ops.MmaOp) -> Reg:
    """scale-d: false for the first product of a block in a tile."""
    tile = low.tile_state
    if tile.advanced == 0 and op.b_offset.value.data == 0:
        return low.k.setp("ne", "u32", tile.step, 0)
    return low.named["always"]


def _map(low: Lowering, operand: str) -> MapType:
    """The tensor map of an operand."""
    for argument in low.kernel.body.block.args:
        if isinstance(argument.type, MapType) and argument.type.operand.data == operand:
            return argument.type
    raise ValueError(f"the kernel has no tensor map for operand {operand}")


def _values_tile(low: Lowering) -> Tile:
    """The stored values of a stage: K-major rows of one swizzle span."""
    kind = _map(low, "a")
    return Tile("k", low.tile[0], kind.box.data[0].data * kind.element_bytes.data, Swizzle(kind.span))


def _dense_tile(low: Lowering, instruction: Wgmma) -> Tile:
    """The dense operand of a stage: boxes of one swizzle span."""
    kind = _map(low, "b")
    _, tile_n, tile_k = low.tile
    if instruction.transpose_b:
        return Tile("mn", tile_k, tile_n * kind.element_bytes.data, Swizzle(kind.span))
    return Tile("k", tile_n, tile_k * kind.element_bytes.data, Swizzle(kind.span))


def _descriptor(low: Lowering, ring_name: str, tile: Tile, offset: int, *, per_warpgroup: bool) -> Reg:
    """A matrix descriptor: the constant fields, and the start moved to the stage in hand (its unit is 16 bytes)."""
    k = low.k
    ring = low.rings[ring_name]
    constant = describe(tile, 0).encode()
    start = k.shr(low.named["smem"], 4)
    start = k.mad_lo(low.position.stage, ring.stage_bytes >> 4, start)
    if per_warpgroup:
        rows = 64 * len(low.consumer.accumulators)
        start = k.mad_lo(low.warpgroup, rows * tile.line_bytes >> 4, start)
    start = k.add(start, (constant & 0xFFFFFFFF) + (ring.offset + offset >> 4))
    return k.pack_b64(start, k.mov(constant >> 32))


def fence(low: Lowering) -> None:
    """`wgmma.fence`."""
    low.k.emit(WgmmaFence())


def commit(low: Lowering) -> None:
    """`wgmma.commit_group`."""
    low.k.emit(WgmmaCommit())


def wait_products(low: Lowering, op: ops.MmaWaitOp) -> None:
    """`wgmma.wait_group`."""
    low.k.emit(WgmmaWait(op.pending.value.data))
