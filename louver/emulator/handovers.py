"""Order between clusters through atomics: one thread fences and changes memory, another one reads that and fences.

A fence takes what its warp has seen. An atomic that changes memory leaves this at the address. A later atomic there
takes it up. The next fence of that warp lets its cluster see it. Inside a cluster, its own clocks decide.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from louver.emulator.clocks import Row

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
