"""Lowers asynchronous copies from global to shared memory: `cp.async` of 4 to 16 bytes.

Where neighbours are known, but not how their addresses are aligned, each thread tests its addresses. If one is not aligned, the thread
copies narrow pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import cast, get_args

from louver.compile.lower.tiles.memory import each_of
from louver.compile.lower.tiles.neighbours import base_of
from louver.compile.lower.tiles.shared import place_of
from louver.compile.lower.tiles.staging import Place
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.ir.tile import AsyncCommitOp, AsyncCopyOp, AsyncWaitOp
from louver.ir.tile.layout import Layout, Vector
from louver.ir.tile.staging import tile_of
from louver.isa.async_copy import AsyncCommit, AsyncCopy, AsyncWait, CopyBytes
from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.convert import ConvertInteger
from louver.isa.memory import Load, Store
from louver.isa.scalar import Binary
from louver.ptx.module import Address, Reg


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk that a thread copies. first: the place of its first element. base, offset: its address. masks: one, or those of its parts."""

    first: Vector
    base: Reg
    offset: int
    masks: tuple[Reg | None, ...]


def begin_copy(low: Lowering, op: AsyncCopyOp) -> Registers:
    """Begin the copies of a tile to the memory of its slot."""
    layout = low.layout(op.ptr)
    low.begin_load()
    low.copied.add(op.slot)
    if op.free is None:
        low.begin_copy()
    low.values[op.result] = low.values[op.slot]
    place = place_of(low, op.result, op, layout.thread)
    owner, size, sure = low.owner(layout), op.chunk.value.data, op.sure.value.data
    if sure >= size:
        for chunk in _chunks(low, op, layout):
            _copy(low, place, chunk, size, size, owner)
        return low.values[op.result]
    chunks = list(_chunks(low, op, layout))
    for chunk in chunks:
        # Both branches use the addresses.
        place.address(chunk.first)
    _test(low, place, chunks, size, sure, owner)
    return low.values[op.result]


def _test(low: Lowering, place: Place, chunks: Sequence[_Chunk], size: int, sure: int, owner: Reg | None) -> None:
    """Copy chunks at once if all addresses are multiples of their bytes. Else each is tested alone, so that the narrow pieces of one take
    registers at a time.
    """
    with low.k.if_(_is_uneven(low, chunks, size)) as branch:
        for chunk in chunks:
            if len(chunks) > 1:
                _test(low, place, [chunk], size, sure, owner)
            else:
                _copy(low, place, chunk, size, sure, owner)
    with branch.otherwise():
        for chunk in chunks:
            _copy(low, place, chunk, size, size, owner)


def _chunks(low: Lowering, op: AsyncCopyOp, layout: Layout) -> Iterator[_Chunk]:
    """The chunks that a thread copies."""
    tile, size, sure, pointers = tile_of(op.result), op.chunk.value.data, op.sure.value.data, low.values[op.ptr]
    assert all(step[tile.fast] * tile.size % size == 0 for step in layout.thread)
    masks = dict(zip(layout.registers, each_of(low, op.mask, len(pointers)), strict=True))
    for first, pointer in zip(layout.registers, pointers, strict=True):
        if first[tile.fast] * tile.size % size:
            # The element is part of an earlier chunk.
            continue
        base, offset = base_of(low, pointer)
        if op.mask is not None and op.elsewhere is not None and (mask := masks[first]) is not None:
            yield _Chunk(first, low.k.selp(low.k.add(base, offset), low.scalar(op.elsewhere), mask), 0, (None,))
            continue
        # Elements that no asynchronous copy moves alone have one mask.
        parts = range(0, size // tile.size, (sure if sure in get_args(CopyBytes) else size) // tile.size)
        places = [tuple(at + by * (axis == tile.fast) for axis, at in enumerate(first)) for by in parts]
        yield _Chunk(first, base, offset, tuple(masks[each] for each in places))


def _is_uneven(low: Lowering, chunks: Sequence[_Chunk], size: int) -> Reg:
    """Whether the address of any chunk is no multiple of its bytes, or its masks differ."""
    k, words = low.k, list[Reg]()
    for base, offset in dict.fromkeys((each.base, each.offset % size) for each in chunks):
        word = low.emit(ConvertInteger("u32", "u64"), base)
        words.append(k.add(word, offset) if offset else word)
    uneven = k.setp("ne", "u32", k.and_(reduce(k.or_, words), size - 1), 0)
    for chunk in chunks:
        masks = list(dict.fromkeys(each for each in chunk.masks if each is not None))
        for each in masks[1:]:
            uneven = low.emit(Binary("or", "pred"), uneven, low.emit(Binary("xor", "pred"), masks[0], each))
    return uneven


def _copy(low: Lowering, place: Place, chunk: _Chunk, size: int, at_once: int, owner: Reg | None) -> None:
    """Copy a chunk of `size` bytes, so many bytes at once."""
    if at_once not in get_args(CopyBytes):
        _copy_elements(low, place, chunk, size, at_once, owner)
        return
    copy, target = AsyncCopy(cast("CopyBytes", at_once)), place.address(chunk.first)
    for each in range(0, size, at_once):
        mask = chunk.masks[each * len(chunk.masks) // size]
        absent = low.constant(0, "pred") if mask is None else low.inverted(mask)
        source = Address(chunk.base, chunk.offset + each)
        low.k.emit(copy, Address(target.base, target.offset + each), source, absent, guard=owner)


def _copy_elements(low: Lowering, place: Place, chunk: _Chunk, size: int, at_once: int, owner: Reg | None) -> None:
    """Copy a chunk of elements of 8 or 16 bits, for which no asynchronous copy is narrow enough. All loads go first."""
    k, target, shown = low.k, place.address(chunk.first), low.both(chunk.masks[0], owner)
    found = [k.reg("b16") if shown is None else k.mov(0, kind="b16") for _ in range(size // at_once)]
    load, store = (LoadByte(), StoreByte("shared")) if at_once == 1 else (Load("global", "b16"), Store("shared", "b16"))
    for number, register in enumerate(found):
        k.emit(load, register, Address(chunk.base, chunk.offset + number * at_once), guard=shown)
    for number, register in enumerate(found):
        k.emit(store, Address(target.base, target.offset + number * at_once), register, guard=owner)


def commit_copies(low: Lowering, op: AsyncCommitOp) -> None:
    """Commit the copies that each thread has begun as a group."""
    low.k.emit(AsyncCommit())


def wait_for_copies(low: Lowering, op: AsyncWaitOp) -> None:
    """Wait until each thread's copies are complete. Threads must synchronize before one reads copies of another."""
    low.k.emit(AsyncWait(op.num.value.data))
    low.have_put(*low.copied)
