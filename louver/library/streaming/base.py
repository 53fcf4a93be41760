"""What the frames of all streaming kernels have: parameters, the walk over tiles, the numbers that are left."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

from louver.isa.memory import AtomicAdd, AtomicUpdate
from louver.library.streaming.derived.record import Derived
from louver.library.streaming.groups import Found
from louver.library.streaming.place import Corner
from louver.library.streaming.record import COUNTERS, KEY_BITS, NO_GROUP, Streaming
from louver.library.streaming.squares.record import Squared
from louver.library.streaming.windows.record import Windowed
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Param, Reg

Record: TypeAlias = Streaming | Windowed | Squared | Derived
"""A kernel on groups that threads hold, on windows, on squares, or on single elements."""


def parameters(record: Record) -> tuple[Param, ...]:
    """The parameters of a kernel.

    rows, size: of an entry. row_tiles: tiles of an entry, below each other; tiles: those of all entries. NAME, NAME_row,
    NAME_column, NAME_entry: address of a dense array, and bytes between its rows, the elements of a row, and entries.
    """
    if isinstance(record, Derived):
        return (*(Param(name, "u32") for name in record.numbers), *(Param(name, "u64") for name in record.addresses))
    names: list[str] = []
    for name, access in (("source", record.source), ("out", record.out)):
        names += [name, f"{name}_row", f"{name}_column", f"{name}_entry"] if access else []
    if record.kind in ("compress", "dense"):
        names += ["values", "pitch"]
    if record.kind in ("compress", "dense", "prepack"):
        names.append("indices")
    if isinstance(record, Squared) and record.kind == "compress":
        names += ["turned_values", "turned_pitch", "turned_indices"]
    if isinstance(record, Streaming) and record.words is not None:
        names.append("words")
    if record.counts:
        names.append("counters")
    if record.kind == "check":
        names.append("listed_from")
    numbers = ("rows", "size", "row_tiles", "tiles")
    return (*(Param(name, "u32") for name in numbers), *(Param(name, "u64") for name in names))


class Base:
    """A kernel under construction. column_tile: number of its tiles' columns. listed: the key of the least group that this thread has listed.

    shared: bytes of shared memory.
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
        """The CTA's tiles: those below each other that are `gridDim.y` apart, over all entries."""
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

    # --- counts ----------------------------------------------------------------------------------------------------
    def counter(self, name: str) -> Address:
        """The address of a number that the kernel leaves."""
        return Address(self.args["counters"], 8 * COUNTERS.index(name))

    def list_group(self, number: Reg, count: Reg, offends: Reg) -> None:
        """List a group that `offends`, unless the thread has listed one before it. number: of 64 bits, over all entries. count: its
        non-zeros.
        """
        k = self.k
        key = k.sub(NO_GROUP, k.add(k.shl(number, KEY_BITS), k.widen_u64(count)))
        listed = k.and_pred(offends, k.setp("ge", "u64", number, self.args["listed_from"]))
        listed = k.and_pred(listed, k.setp("gt", "u64", key, self.listed))
        k.selp(key, self.listed, listed, into=self.listed)
        k.emit(AtomicUpdate("max", "u64"), self.counter("listed"), key, guard=listed)

    def leave_found(self) -> None:
        """Leave what the thread has found, if it has found anything."""
        k = self.k
        if not self._record.counts:
            return
        broken = k.setp("ne", "u32", self.found.violated, 0)
        k.emit(AtomicAdd("u64"), self.counter("broken"), 1, guard=broken)
        lost = k.setp("ne", "u32", self.found.lost, 0)
        k.emit(AtomicAdd("u64"), self.counter("lost"), k.widen_u64(self.found.lost), guard=lost)

    def leave_count(self, nonzeros: Reg, count: Reg) -> None:
        """Add to the number of groups that have one more than so many non-zeros."""
        k = self.k
        counter = k.mad_wide(nonzeros, 8, self.args["counters"])
        k.emit(AtomicAdd("u64"), Address(counter, 8 * len(COUNTERS)), k.widen_u64(count))


_NAME = str.maketrans(":@", "__")
