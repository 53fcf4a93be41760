"""What a call did with each layer of a model, and why: a table as text, and JSON."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Row:
    """One layer. done: "sparse", "dense", "pruned" or "quantized"; reason: why.

    shape: [out, in], of stacks [experts, out, in]. pattern: that the weight keeps, "" if none was found. bytes: of the weight, before and after.
    negative_zeros_dropped: -0.0 of the weight that became +0.0.
    dense_us, sparse_us: measured µs of a product, by tokens; empty if nothing was measured.

    Of a weight that was pruned: method; zeros, the part of its elements that is pruned; seconds. Of one pruned by
    calibration: error, ‖W₀d − Wx‖² / ‖W₀d‖², x its inputs, d those in the dense model if it was corrected, else x;
    held_out, the same by text that was not calibrated on; damping of the inputs' Gram matrix, and how much of it had to
    be added (raised); tokens that reached the weight; warnings.
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
    method: str = ""
    zeros: float | None = None
    error: float | None = None
    held_out: Mapping[str, float] = field(default_factory=dict[str, float])
    damping: float | None = None
    raised: float = 0.0
    tokens: int | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()

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
    def warnings(self) -> tuple[str, ...]:
        """What to look at: layers with too little text, and held-out texts whose errors differ."""
        own = [f"{row.name}: {warning}" for row in self.rows for warning in row.warnings]
        means = self.held_out
        if len(means) > 1 and (worst := max(means, key=means.__getitem__)) and means[worst] > 2 * min(means.values()):
            best = min(means, key=means.__getitem__)
            own.append(
                f"the layers' error on {worst!r} is {means[worst] / means[best]:.1f} times that on {best!r}: "
                f"calibrate with more text like {worst!r}"
            )
        return tuple(own)

    @property
    def held_out(self) -> Mapping[str, float]:
        """The geometric mean over layers of the error on each held-out text, by its name."""
        texts = dict.fromkeys(text for row in self.rows for text in row.held_out)
        logs = {
            text: [math.log(max(row.held_out[text], 1e-12)) for row in self.rows if text in row.held_out]
            for text in texts
        }
        return {text: math.exp(sum(values) / len(values)) for text, values in logs.items()}

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw the error of each calibrated layer, on each held-out text. Needs matplotlib.

        Raises ValueError if no layer has an error.
        """
        rows = [row for row in self.rows if row.error is not None]
        if not rows:
            raise ValueError("a plot shows errors, got none: prune with calibration=")
        figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(9, 4.5), layout="constrained")
        axes = figure.subplots()
        for text in self.held_out:
            points = [(at, row.held_out[text]) for at, row in enumerate(rows) if text in row.held_out]
            axes.plot(*zip(*points, strict=True), ".-", label=text)
        if not self.held_out:
            axes.plot([row.error for row in rows], ".-", label="calibration")
        axes.set_yscale("log")
        axes.set_ylabel("error of the outputs, relative")
        every = max(1, len(rows) // 24)
        axes.set_xticks(range(0, len(rows), every), [row.name for row in rows[::every]], rotation=90, fontsize=6)
        axes.legend()
        figure.savefig(path)

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
        calibrated = any(row.error is not None for row in self.rows)
        head = ("layer", "shape", "weight", "MB", *(_CALIBRATED if calibrated else ()), "reason")
        table = [head, *(_cells(row, calibrated) for row in self.rows)]
        widths = [max(len(cells[column]) for cells in table) for column in range(len(head) - 1)]
        lines = ["  ".join([*(c.ljust(w) for c, w in zip(cells, widths, strict=False)), cells[-1]]) for cells in table]
        before, after = (sum(row.bytes[side] for row in self.rows) / 1e6 for side in (0, 1))
        count = len(self.changed)
        return "\n".join(
            [
                *lines,
                f"{count} of {len(self.rows)} layers changed, {before:,.1f} MB before, {after:,.1f} MB after, "
                f"{self.peak_bytes / 1e6:,.1f} MB at once",
                *(f"warning: {warning}" for warning in self.warnings),
            ]
        )


_CALIBRATED: Final = ("zeros", "error", "damping", "tokens", "s")


def _cells(row: Row, calibrated: bool) -> tuple[str, ...]:
    weight = f"{row.done} {row.pattern}".strip()
    more: tuple[str, ...] = ()
    if calibrated:
        numbers = ((row.zeros, ".1%"), (row.error, ".4f"), (row.damping, ".1e"), (row.tokens, ","))
        more = (*("" if value is None else f"{value:{form}}" for value, form in numbers), f"{row.seconds:.1f}")
    return row.name, " × ".join(map(str, row.shape)), weight, f"{row.bytes[1] / 1e6:.1f}", *more, row.reason
