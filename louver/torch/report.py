"""What a call did with each layer of a model, and why: a table as text, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """One layer. done: "sparse", "dense", "pruned" or "quantized"; reason: why.

    shape: [out, in], of stacks [experts, out, in]. pattern: that the weight keeps, "" if none was found. bytes: of the weight, before and after.
    negative_zeros_dropped: -0.0 of the weight that became +0.0.
    dense_us, sparse_us: measured µs of a product, by tokens; empty if nothing was measured.
    """

    name: str
    done: str
    reason: str
    shape: tuple[int, ...]
    pattern: str = ""
    bytes: tuple[int, int] = (0, 0)
    negative_zeros_dropped: int = 0
    dense_us: Mapping[int, float] = field(default_factory=dict[int, float])
    sparse_us: Mapping[int, float] = field(default_factory=dict[int, float])

    def __post_init__(self) -> None:
        if self.done not in ("sparse", "dense", "pruned", "quantized"):
            raise ValueError(f'done is "sparse", "dense", "pruned" or "quantized", got {self.done!r}')
        if self.dense_us.keys() != self.sparse_us.keys():
            raise ValueError(f"{self.name}: both sides have times for the same tokens, got {self}")


@dataclass(frozen=True, slots=True)
class Report:
    """The rows of all linear layers of a model, in its order. `str` gives a table, `json` everything."""

    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> Row:
        """The row of a layer. Raises KeyError for a name that is no layer."""
        return next((row for row in self.rows if row.name == name), None) or self._missing(name)

    def _missing(self, name: str) -> Row:
        raise KeyError(f"{name!r} is no linear layer; the layers are {', '.join(row.name for row in self.rows)}")

    @property
    def changed(self) -> tuple[Row, ...]:
        """The rows of the layers that the call changed."""
        return tuple(row for row in self.rows if row.bytes[0] != row.bytes[1] or row.done == "pruned")

    @property
    def peak_bytes(self) -> int:
        """The most bytes of these weights that were alive at once: each is made anew before its old form ends. Without what
        a GPU derives at the first product, which is as large as the indices.
        """
        now = most = sum(row.bytes[0] for row in self.rows)
        for row in self.changed:
            before, after = row.bytes
            most = max(most, now + (after if before != after else 0))
            now += after - before
        return most

    def json(self) -> str:
        """All fields of all rows."""
        return json.dumps([asdict(row) for row in self.rows], indent=1)

    def __str__(self) -> str:
        head = ("layer", "shape", "weight", "MB", "reason")
        table = [head, *(_cells(row) for row in self.rows)]
        widths = [max(len(cells[column]) for cells in table) for column in range(len(head) - 1)]
        lines = ["  ".join([*(c.ljust(w) for c, w in zip(cells, widths, strict=False)), cells[-1]]) for cells in table]
        before, after = (sum(row.bytes[side] for row in self.rows) / 1e6 for side in (0, 1))
        count = len(self.changed)
        return "\n".join(
            [
                *lines,
                f"{count} of {len(self.rows)} layers changed, {before:,.1f} MB before, {after:,.1f} MB after, "
                f"{self.peak_bytes / 1e6:,.1f} MB at once",
            ]
        )


def _cells(row: Row) -> tuple[str, ...]:
    weight = f"{row.done} {row.pattern}".strip()
    return row.name, " × ".join(map(str, row.shape)), weight, f"{row.bytes[1] / 1e6:.1f}", row.reason
