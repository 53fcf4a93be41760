"""A thread's place in a matrix, and dense arrays that a thread accesses along rows."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.convert import ConvertInteger
from louver.isa.memory import AtomicAdd, AtomicUpdate, Load, Store
from louver.library.streaming.derived.record import Derived
from louver.library.streaming.groups import Found
from louver.library.streaming.record import COUNTERS, KEY_BITS, NO_GROUP, Access, Streaming
from louver.library.streaming.squares.record import Squared
from louver.library.streaming.windows.record import Windowed
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Param, Reg


@dataclass(frozen=True, slots=True)
class Corner:
    """The first element of a tile. number: the tile's row of tiles in its entry."""

    entry: Reg
    number: Reg
    row: Reg
    column: Reg


class Stream(Protocol):
    """An array that a kernel reads or writes span by span."""

    def begin(self, corner: Corner) -> None:
        """Prepare a tile. All threads of the CTA execute this together."""
        ...

    def open(self, place: Place) -> None:
        """Move to a place in the tile."""
        ...

    def advance(self, steps: int) -> None:
        """Advance by `steps` steps, together with the place."""
        ...

    def end(self, corner: Corner) -> None:
        """Finish a tile. All threads of the CTA execute this together, after a barrier that follows the last span."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """A thread's place: some rows, and the next span in each of them. Further spans of the thread are one step apart,
    see `ahead`.

    entry: number of the entry.
    rows: numbers of the rows.
    span: number of the next span in its row.
    left: elements of each row from the place on; 0 or less outside the matrix.
    """

    entry: Reg
    rows: tuple[Reg, ...]
    span: Reg
    left: tuple[Reg, ...]

    @classmethod
    def at(
        cls, k: KernelBuilder, record: Streaming, entry: Reg, rows: Sequence[Reg], span: Reg, shape: tuple[Reg, Reg]
    ) -> Place:
        """The place of these rows and this span in a matrix. shape: rows, and elements of a row."""
        rest = k.sub(shape[1], k.mul_lo(span, record.span))
        left = tuple(k.selp(rest, 0, k.setp("lt", "u32", row, shape[0])) for row in rows)
        return cls(entry, tuple(rows), span, left)

    def advance(self, k: KernelBuilder, record: Streaming, steps: int) -> None:
        """Advance by `steps` steps of a tile."""
        k.add(self.span, steps * record.spans, into=self.span)
        for left in self.left:
            k.sub(left, ahead(record, steps), into=left)

    def inside(self, k: KernelBuilder, row: int, element: int) -> Reg:
        """Whether the matrix has the element of this row that is `element` elements after the place."""
        return k.setp("gt", "s32", self.left[row], element)


def ahead(record: Streaming, step: int) -> int:
    """Elements from the place to the span that is `step` steps ahead."""
    return step * record.spans * record.span


@dataclass(slots=True)
class Rows:
    """A dense array with accesses along rows. A thread reads or writes its spans without other threads.

    base: address of the array.
    steps: bytes from one row to the next, from one element of a row to the next, and from one entry to the next.
    """

    k: KernelBuilder
    record: Streaming
    access: Access
    base: Reg
    steps: tuple[Reg, Reg, Reg]
    _place: Place | None = None
    _at: tuple[Reg, ...] = ()

    @property
    def apart(self) -> bool:
        """Whether each access is a single element. Elements may then be any distance apart."""
        return self.access.width == self.record.type.bytes

    def begin(self, corner: Corner) -> None: ...

    def end(self, corner: Corner) -> None: ...

    def open(self, place: Place) -> None:
        k = self.k
        row_step, column_step, entry_step = self.steps
        column = k.mul_lo(k.widen_u64(k.mul_lo(place.span, self.record.span)), column_step)
        start = k.add(k.add(self.base, k.mul_lo(k.widen_u64(place.entry), entry_step)), column)
        self._place = place
        self._at = tuple(k.add(start, k.mul_lo(k.widen_u64(row), row_step)) for row in place.rows)

    def advance(self, steps: int) -> None:
        k = self.k
        if self.apart:
            by = k.mul_lo(self.steps[1], ahead(self.record, steps))
        else:
            by = ahead(self.record, steps) * self.record.type.bytes
        for at in self._at:
            k.add(at, by, into=at)

    def load(self, row: int, step: int) -> list[Reg]:
        """The words of a span; zeros outside the matrix."""
        return loaded(self.k, self._accesses(row, step), self.access.width)

    def store(self, row: int, step: int, words: Sequence[Reg]) -> None:
        """Write the words of a span; nothing outside the matrix."""
        put(self.k, self._accesses(row, step), self.access.width, words)

    def _accesses(self, row: int, step: int) -> list[tuple[Address, Reg]]:
        """The accesses of a span: address, and whether it is inside the matrix."""
        k, size, first = self.k, self.record.type.bytes, ahead(self.record, step)
        assert self._place is not None
        at = self._at[row]
        if self.apart and first:
            at = k.add(at, k.mul_lo(self.steps[1], first))
        found: list[tuple[Address, Reg]] = []
        for offset in range(0, self.record.span, self.access.width // size):
            inside = self._place.inside(k, row, first + offset)
            if not self.apart:
                found.append((Address(at, (first + offset) * size), inside))
                continue
            at = k.add(at, self.steps[1]) if offset else at
            found.append((Address(at), inside))
        return found


Accesses = Iterable[tuple[Address, Reg]]
"""Addresses, each with a predicate: whether to access it."""


def loaded(k: KernelBuilder, accesses: Accesses, width: int) -> list[Reg]:
    """The words that consecutive accesses of `width` bytes read. Bytes without an access, and those that fill the last
    word, are zeros.
    """
    words: list[Reg] = []
    pieces: list[Reg] = []
    load = LoadByte() if width == 1 else Load("global", "b16", read_only=True)
    for address, inside in accesses:
        if width >= 4:
            chunk = [k.mov(0) for _ in range(width // 4)]
            k.load_global(chunk, address, guard=inside, read_only=True)
            words += chunk
        else:
            pieces.append(k.mov(0, kind="b16"))
            k.emit(load, pieces[-1], address, guard=inside)
    return words + joined(k, pieces, width)


def put(k: KernelBuilder, accesses: Accesses, width: int, words: Sequence[Reg]) -> None:
    """Write the words by consecutive accesses of `width` bytes. The inverse of `loaded`."""
    for number, (address, inside) in enumerate(accesses):
        at = number * width
        if width >= 4:
            k.store_global(address, words[at // 4 : (at + width) // 4], guard=inside)
        else:
            piece = k.low_half(k.shr(words[at // 4], 8 * (at % 4)) if at % 4 else words[at // 4])
            k.emit(StoreByte() if width == 1 else Store("global", "b16"), address, piece, guard=inside)


def joined(k: KernelBuilder, pieces: Sequence[Reg], width: int) -> list[Reg]:
    """The words from 16-bit registers with 1 or 2 bytes each, in memory order. A single register is extended with
    zeros.
    """
    if len(pieces) == 1:
        word = k.reg("b32")
        k.emit(ConvertInteger("u32", "u16"), word, pieces[0])
        return [word]
    pairs = [k.pack_b32(low, high) for low, high in zip(pieces[::2], pieces[1::2], strict=True)]
    return pairs if width == 2 else [k.permute(a, b, 0x6420) for a, b in zip(pairs[::2], pairs[1::2], strict=True)]


Record: TypeAlias = Streaming | Windowed | Squared | Derived
"""The record of a kernel: on groups in registers, on windows, on squares, or on single elements."""


def parameters(record: Record) -> tuple[Param, ...]:
    """The parameters of a kernel. Those of 32 bits come first.

    | parameter | meaning |
    |---|---|
    | rows, size | rows of an entry, and elements of a row |
    | row_tiles | rows of tiles of an entry |
    | tiles | rows of tiles of all entries |
    | NAME | address of a dense array |
    | scale | a scale as f32: its bits, or an address |
    | NAME_row, NAME_column, NAME_entry | bytes between its rows, between the elements of a row, and between entries |
    """
    if isinstance(record, Derived):
        return (*(Param(name, "u32") for name in record.numbers), *(Param(name, "u64") for name in record.addresses))
    names: list[str] = []
    for name, access in (("source", record.source), ("out", record.out)):
        names += [name, f"{name}_row", f"{name}_column", f"{name}_entry"] if access else []
    if record.kind in ("compress", "dense", "take", "turn"):
        names += ["values", "pitch"]
    if record.kind in ("compress", "dense", "take", "turn", "prepack"):
        names.append("indices")
    if isinstance(record, Squared) and record.turns:
        names += ["turned_values", "turned_pitch"]
        names += ["turned_indices"] if record.kind == "compress" else []
    if isinstance(record, Streaming) and record.words is not None:
        names.append("words")
    if isinstance(record, Streaming) and record.scaling in ("array", "rows"):
        names.append("scale")
    if record.counts:
        names.append("counters")
    if record.kind == "check":
        names.append("listed_from")
    numbers = ["rows", "size", "row_tiles", "tiles"]
    numbers += ["scale"] if isinstance(record, Streaming) and record.scaling == "number" else []
    return (*(Param(name, "u32") for name in numbers), *(Param(name, "u64") for name in names))


class Base:
    """A kernel under construction.

    shared: bytes of shared memory.
    column_tile: register with the column of the CTA's tiles.
    listed: register with the key of the least group that this thread has listed.
    """

    def __init__(self, record: Record, *, shared: int) -> None:
        self._record = record
        name = f"stream_{record.kind}_{record.element}_{str(record.pattern).translate(_NAME)}"
        self.k = k = KernelBuilder(
            name, parameters(record), threads=record.threads, min_ctas=record.min_ctas, dynamic_shared=shared
        )
        self.args = {param.name: k.ld_param(param.name) for param in parameters(record)}
        self.shape = self.args["rows"], self.args["size"]
        self.thread = k.special("%tid.x")
        self.column_tile = k.special("%ctaid.x")
        self.found = Found.none(k)
        self.listed = k.mov(0, kind="b64")

    @contextmanager
    def tiles(self) -> Generator[Corner]:
        """A loop over the CTA's tiles. They are in one column of tiles, `gridDim.y` rows of tiles apart, over all
        entries.
        """
        k, args = self.k, self.args
        rows, columns = self._record.tile
        number = k.special("%ctaid.y")
        apart = k.special("%nctaid.y")
        column = k.mul_lo(self.column_tile, columns)
        with k.loop(uniform=True) as every:
            entry = k.div(number, args["row_tiles"])
            below = k.sub(number, k.mul_lo(entry, args["row_tiles"]))
            yield Corner(entry, below, k.mul_lo(below, rows), column)
            k.add(number, apart, into=number)
            every.repeat_if(k.setp("lt", "u32", number, args["tiles"]))

    def meet(self) -> None:
        """A barrier for all threads of the CTA."""
        self.k.barrier_sync(0, self._record.threads)

    def listed_bits(self, base: Reg, number: Reg, bits: int, end: Reg) -> Reg:
        """The number of `bits` bits at a place of a list; 0 after the list. base: its address. end: its bytes."""
        k = self.k
        bit = k.mul_lo(number, bits)
        byte = k.shr(bit, 3)
        piece, word = k.mov(0, kind="b16"), k.reg("b32")
        there = k.setp("lt", "u32", byte, end)
        k.emit(LoadByte(), piece, Address(k.add(base, k.widen_u64(byte))), guard=there)
        k.emit(ConvertInteger("u32", "u16"), word, piece)
        return k.and_(k.shr(word, k.and_(bit, 7)), (1 << bits) - 1)

    # --- counts ----------------------------------------------------------------------------------------------------
    def counter(self, name: str) -> Address:
        """The address of a counter."""
        return Address(self.args["counters"], 8 * COUNTERS.index(name))

    def list_group(self, number: Reg, count: Reg, offends: Reg) -> None:
        """List a group, unless the thread has listed an earlier group.

        number: number of the group over all entries, 64 bits.
        count: number of its non-zeros.
        offends: predicate: whether to list the group.
        """
        k = self.k
        key = k.sub(NO_GROUP, k.add(k.shl(number, KEY_BITS), k.widen_u64(count)))
        listed = k.and_pred(offends, k.setp("ge", "u64", number, self.args["listed_from"]))
        listed = k.and_pred(listed, k.setp("gt", "u64", key, self.listed))
        k.selp(key, self.listed, listed, into=self.listed)
        k.emit(AtomicUpdate("max", "u64"), self.counter("listed"), key, guard=listed)

    def leave_found(self) -> None:
        """Add the findings of the thread to the counters, if there are any."""
        k = self.k
        if not self._record.counts:
            return
        broken = k.setp("ne", "u32", self.found.violated, 0)
        k.emit(AtomicAdd("u64"), self.counter("broken"), 1, guard=broken)
        lost = k.setp("ne", "u32", self.found.lost, 0)
        k.emit(AtomicAdd("u64"), self.counter("lost"), k.widen_u64(self.found.lost), guard=lost)

    def leave_count(self, nonzeros: Reg, count: Reg) -> None:
        """Add `count` to the counter of groups with `nonzeros` + 1 non-zeros."""
        k = self.k
        counter = k.mad_wide(nonzeros, 8, self.args["counters"])
        k.emit(AtomicAdd("u64"), Address(counter, 8 * len(COUNTERS)), k.widen_u64(count))


_NAME = str.maketrans(":@", "__")
