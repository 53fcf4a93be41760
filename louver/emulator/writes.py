"""Writers of each byte of global memory. Unordered writes of a byte, or an unordered write and read, are errors.

Between clusters, only atomics with fences give order. Inside a cluster, its clocks do. Atomics are exempt.

Order between clusters through atomics: one thread fences and changes memory, another one reads that and fences.

A fence takes what its warp has seen. An atomic that changes memory leaves this at the address. A later atomic there
takes it up. The next fence of that warp lets its cluster see it. Inside a cluster, its own clocks decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.emulator.clocks import Row
from louver.emulator.errors import EmulationError, OverwriteInUseError, UseBeforeArrivalError
from louver.emulator.masks import all_zero, every
from louver.emulator.memory import Allocation
from louver.emulator.tiles import Tensor

Seen: TypeAlias = dict[int, Row]
"""The last epoch seen of each agent, for each cluster by its first CTA."""


def join(to: Seen, more: Seen) -> None:
    """See all of `more` too."""
    for cluster, row in more.items():
        known = to.get(cluster)
        if known is None:
            to[cluster] = row
        else:
            width = max(len(known), len(row))
            to[cluster] = np.maximum(*(np.pad(each, (0, width - len(each))) for each in (known, row)))


class Handovers:
    """The handovers of one run. A warp is named by its cluster and its agent."""

    def __init__(self) -> None:
        self._clusters: dict[int, Seen] = {}
        self._fenced: dict[tuple[int, int], Seen] = {}
        self._left: dict[int, Seen] = {}
        self._taken: dict[tuple[int, int], Seen] = {}

    def fence(self, warp: tuple[int, int], row: Row) -> None:
        """A warp fences. row: the epochs that its threads have seen in their cluster."""
        seen = self._clusters.setdefault(warp[0], {})
        join(seen, self._taken.pop(warp, {}))
        self._fenced[warp] = {**seen, warp[0]: row}

    def atomic(self, warp: tuple[int, int], address: int, *, changed: bool) -> None:
        """An atomic of a warp reads memory, and changes it if `changed`."""
        left = self._left.setdefault(address, {})
        join(self._taken.setdefault(warp, {}), left)
        if changed:
            join(left, self._fenced.get(warp, {}))

    def has_seen(self, reader: int, writer: int, agent: int, epoch: int) -> bool:
        """Whether a cluster has seen that epoch of another cluster's agent."""
        row = self._clusters.get(reader, {}).get(writer)
        return row is not None and agent < len(row) and bool(row[agent] >= epoch)


@dataclass(frozen=True, slots=True)
class Writer:
    """Maker of a write. cluster: index of its first CTA. agent, epoch: in that cluster's clocks. name: for errors."""

    cluster: int
    agent: int
    epoch: int
    name: str


class Writes:
    """The writes of one run: for each written allocation, the index of each byte's writer, 0 for none.

    changes: number of stores, and of atomics that changed memory.
    """

    def __init__(self) -> None:
        self.handovers = Handovers()
        self.changes = 0
        self._writers: list[Writer] = []
        self._numbers: dict[Writer, int] = {}
        self._planes: dict[int, NDArray[np.int32]] = {}

    def store(
        self, allocation: Allocation, index: NDArray[np.int64], data: NDArray[np.uint8], writer: Writer, rows: Row
    ) -> None:
        """A warp's stores of uint8 [lanes, size], before memory changes. index: byte offsets [lanes, size]. rows: epochs
        seen by those lanes [lanes, agents].

        A byte that already holds the value stays as its first writer left it: rows that wrap (`% M`) are stored twice.
        """
        self.changes += 1
        plane = self._plane(allocation)
        before = plane[index]
        again = (before != 0) & (allocation.data[index] == data)
        self._check(allocation, np.where(again, 0, before), writer, rows, OverwriteInUseError)
        plane[index] = np.where(again, before, self._number(writer))

    def load(self, allocation: Allocation, index: NDArray[np.int64], reader: Writer, rows: Row) -> None:
        """A warp's loads. Arguments: see `store`."""
        if id(allocation) in self._planes:
            self._check(allocation, self._plane(allocation)[index], reader, rows, UseBeforeArrivalError)

    def store_box(self, tensor: Tensor, coordinates: tuple[int, ...], writer: Writer, row: Row) -> None:
        """A bulk store by a thread that has seen `row`."""
        part = tensor.part(self._plane(tensor.allocation), coordinates)
        if part is not None:
            self._check(tensor.allocation, part, writer, row, OverwriteInUseError)
            part[...] = self._number(writer)

    def load_box(self, tensor: Tensor, coordinates: tuple[int, ...], reader: Writer, row: Row) -> None:
        """A bulk load by a thread that has seen `row`."""
        if id(tensor.allocation) in self._planes:
            part = tensor.part(self._plane(tensor.allocation), coordinates)
            if part is not None:
                self._check(tensor.allocation, part, reader, row, UseBeforeArrivalError)

    def _check(
        self, allocation: Allocation, numbers: NDArray[np.int32], user: Writer, rows: Row, error: type[EmulationError]
    ) -> None:
        if all_zero(numbers):
            return
        found: list[int] = np.unique(numbers).tolist()
        for number in found:
            if number and not self._ordered(number, numbers, user, rows):
                verb = "written again" if error is OverwriteInUseError else "read"
                raise error(
                    f"{int((numbers == number).sum())} bytes of {allocation.name} are {verb} by {user.name}, "
                    f"but {self._writers[number - 1].name} wrote them, and nothing orders that write first"
                )

    def _ordered(self, number: int, numbers: NDArray[np.int32], user: Writer, rows: Row) -> bool:
        writer = self._writers[number - 1]
        if writer.cluster != user.cluster:
            return self.handovers.has_seen(user.cluster, writer.cluster, writer.agent, writer.epoch)
        if rows.ndim == 1:
            return bool(rows[writer.agent] >= writer.epoch)
        lanes = (numbers == number).any(axis=1)
        return every(rows[lanes, writer.agent] >= writer.epoch)

    def _plane(self, allocation: Allocation) -> NDArray[np.int32]:
        if id(allocation) not in self._planes:
            self._planes[id(allocation)] = np.zeros(allocation.size, np.int32)
        return self._planes[id(allocation)]

    def _number(self, writer: Writer) -> int:
        if writer not in self._numbers:
            self._writers.append(writer)
            self._numbers[writer] = len(self._writers)
        return self._numbers[writer]
