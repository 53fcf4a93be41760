"""Common parts of all streaming kernels: parameters, the loop over tiles, and counters."""

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
