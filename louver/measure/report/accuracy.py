"""The record of accuracy: a language model's perplexities by pattern and method, and the speeds of patterns.

The file is JSON:
`{"schema": 1, "kind": "accuracy", "device": …, "versions": {…}, "protocol": …, "rows": [{"pattern": "2:4", "method":
"SparseGPT", "perplexity": {"articles": 1.0, …}, "ratio": {"articles": 1.0, …}, "kl": 0.1, "top1": 0.9, "zeros": 0.5,
"seconds": 1.0, "shares": {"q_proj": {"2:4": 1.0}, …}}, …], "layers": [{"layer": "q_proj", "pattern": "2:4",
"dense_us": {"16": 1.0}, "sparse_us": {"16": 1.0}}, …]}`.
ratio: perplexity over the dense model's. shares: of the layers of a kind, those that keep a pattern. layers: times of
the kinds' shapes in another model. seconds, shares and layers may be missing.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from louver.measure.report.canvas import COLORS, INK, MUTED, clean, figure, foot, head, titles, write
from louver.measure.report.header import Header, header_of, read_record
from louver.measure.report.table import Table, folded, number, right

Times = Mapping[tuple[str, str], tuple[float, float]]
"""µs dense and sparse by kind of layer and pattern."""


@dataclass(frozen=True, slots=True)
class AccuracyRow:
    """A model. ratio: perplexity over the dense model's, by text. kl: nats. top1, zeros: 0 to 1.

    shares: by kind of layer and pattern, the share of layers that keep it. seconds: of pruning, None if unknown;
    minutes: of distillation.
    """

    pattern: str
    method: str
    perplexity: Mapping[str, float]
    ratio: Mapping[str, float]
    kl: float
    top1: float
    zeros: float
    seconds: float | None = None
    minutes: float = 0
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])

    def __post_init__(self) -> None:
        for name, each in (*self.perplexity.items(), *self.ratio.items()):
            if not each > 0:
                raise ValueError(f"perplexities and ratios are positive, got {each} for {name} of {self.name}")
        if self.perplexity.keys() != self.ratio.keys() or not self.ratio:
            raise ValueError(
                f"a row has a perplexity and a ratio of each text, got {sorted(self.ratio)} of {self.name}"
            )

    @property
    def name(self) -> str:
        return f"{self.pattern} {self.method}"

    @property
    def worst(self) -> float:
        """The greatest ratio of any text."""
        return max(self.ratio.values())

    def speed(self, times: Times) -> float:
        """Of the linear layers over the dense ones' in all kinds of layers of `times`; 1 where no pattern has a kernel."""
        dense = {kind: pair[0] for (kind, _), pair in times.items()}
        if not dense:
            return 1.0
        taken = 0.0
        for kind, whole in dense.items():
            shares = {p: share for p, share in self.shares.get(kind, {}).items() if (kind, p) in times}
            taken += whole * (1 - sum(shares.values())) + sum(s * times[kind, p][1] for p, s in shares.items())
        return sum(dense.values()) / taken


@dataclass(frozen=True, slots=True)
class AccuracyRecord(Header):
    """A whole file. times: by tokens."""

    model: str
    rows: tuple[AccuracyRow, ...]
    times: Mapping[int, Times]

    @property
    def texts(self) -> list[str]:
        return list(dict.fromkeys(text for row in self.rows for text in row.ratio))

    @property
    def first(self) -> str:
        """The text that KL is of, and by which rows are drawn."""
        return self.texts[0]


def row_of(found: Mapping[str, Any]) -> AccuracyRow:
    """A row from its JSON values."""
    numbers = {name: float(found[name]) for name in ("kl", "top1", "zeros")}
    seconds = found.get("seconds")
    return AccuracyRow(
        str(found["pattern"]),
        str(found["method"]),
        {str(text): float(each) for text, each in found["perplexity"].items()},
        {str(text): float(each) for text, each in found["ratio"].items()},
        **numbers,
        seconds=None if seconds is None else float(seconds),
        minutes=float(found.get("minutes", 0)),
        shares=found.get("shares", {}),
    )


def times_of(layers: Sequence[Mapping[str, Any]]) -> Mapping[int, Times]:
    """The times of layers by tokens."""
    found: dict[int, dict[tuple[str, str], tuple[float, float]]] = {}
    for each in layers:
        for tokens, dense in each["dense_us"].items():
            pair = (float(dense), float(each["sparse_us"][tokens]))
            if not all(math.isfinite(us) and us > 0 for us in pair):
                raise ValueError(f"times are positive numbers of microseconds, got {pair} for {each['layer']}")
            found.setdefault(int(tokens), {})[str(each["layer"]), str(each["pattern"])] = pair
    return found


def read_accuracy(path: Path) -> AccuracyRecord:
    """Read and check a record. Raises ValueError with the file's name and the broken rule."""

    def made(data: Mapping[str, Any]) -> AccuracyRecord:
        rows = tuple(map(row_of, data["rows"]))
        return AccuracyRecord(
            *header_of(data, "accuracy"), model=str(data["model"]), rows=rows, times=times_of(data.get("layers", ()))
        )

    return read_record(path, "accuracy", made)


def accuracy_table(record: AccuracyRecord) -> Table:
    """A line for each row: perplexity of each text with its ratio, and the speeds of its patterns."""
    numbers = ("zeros", *record.texts, "× dense", "worst × dense", "KL", "top-1", "seconds")
    speeds = (f"speed, {tokens} tokens" for tokens in record.times)
    columns = (*folded("pattern", "method"), *right(*numbers, *speeds))
    return Table(f"{record.model}, {record.device}", columns, [_cells(record, row) for row in record.rows])


def _cells(record: AccuracyRecord, row: AccuracyRow) -> list[str]:
    perplexities = [number(row.perplexity.get(text), ",.1f") for text in record.texts]
    speeds = [number(row.speed(times) if row.shares else None, ".2f") for times in record.times.values()]
    ratio = number(row.ratio.get(record.first), ".2f")
    rest = [ratio, f"{row.worst:.2f}", f"{row.kl:.3f}", f"{row.top1:.1%}", number(row.seconds, ",.0f")]
    return [row.pattern, row.method, f"{row.zeros:.0%}", *perplexities, *rest, *speeds]


WIDTH, HEAD, PANEL = 12.0, 0.7, 4.2
FOOT_COLUMNS: Final = 230
FOOT_LINE: Final = 0.13
"""Inches of a line below the panels."""

MOST: Final = 6.0
"""Greatest ratio that is drawn: worse models are of no use."""

MARKERS: Final = "osD^vP*X<>"
SHADES: Final = (MUTED, COLORS["cusparselt"], "#b45309", COLORS["ours"])
"""By the way in which weights were found: without calibration, by a method alone, refined, distilled."""

WAYS: Final = ("magnitude", "one-shot", "tuned by parts", "distilled")


def plot_accuracy(record: AccuracyRecord, path: Path) -> Path:
    """A panel for each number of tokens: perplexity over dense's by speed over dense's, and the frontier as a line.

    Rows without a fast pattern, and those that lose more than `MOST`, are left out. Returns `path`. Raises ValueError
    without times or rows to draw, and ModuleNotFoundError without Matplotlib.
    """
    drawn = [row for row in record.rows if row.shares and row.ratio[record.first] <= MOST]
    if not drawn or not record.times:
        raise ValueError("a frontier needs rows with fast patterns, and times of layers: run the stages with speed")
    heights = [HEAD, PANEL, FOOT_LINE * (2 + len(textwrap.wrap(record.foot, FOOT_COLUMNS)))]
    made = figure(WIDTH, sum(heights))
    bands = made.subfigures(3, 1, height_ratios=heights)
    head(bands[0], f"Pruned {record.model.split(',')[0]}")
    panels = bands[1].subplots(1, len(record.times), squeeze=False, sharey=True)[0]
    bands[1].subplots_adjust(left=0.06, right=0.99, top=0.92, bottom=0.12, wspace=0.06)
    markers = dict(zip(dict.fromkeys(row.pattern for row in drawn), MARKERS, strict=False))
    for axes, (tokens, times) in zip(panels, record.times.items(), strict=True):
        _panel(axes, record, drawn, times, markers)
        titles(axes, f"{tokens:,} tokens", "speed: shapes of Llama 3 8B")
        axes.set_xlabel("speed of the linear layers over dense", fontsize=8, color=INK)
    panels[0].set_ylabel(f"perplexity over dense ({record.first})", fontsize=8, color=INK)
    handles, labels = panels[0].get_legend_handles_labels()
    place = {"loc": "center right", "bbox_to_anchor": (0.99, 0.5), "ncols": 6}
    bands[0].legend(handles, labels, frameon=False, fontsize=8, **place)
    foot(bands[2], record.foot, FOOT_COLUMNS)
    return write(made, path)


def way(row: AccuracyRow) -> int:
    """Of `WAYS`."""
    if row.minutes:
        return 3
    return 2 if "tuned" in row.method else 0 if row.method.startswith("magnitude") else 1


def _panel(axes: Any, record: AccuracyRecord, rows: list[AccuracyRow], times: Times, markers: dict[str, str]) -> None:
    points = [(row.speed(times), row.ratio[record.first], row) for row in rows]
    for pattern, marker in markers.items():
        axes.plot([], [], marker, color=INK, markersize=5, label=pattern)
    for index, name in enumerate(WAYS):
        mine = [point for point in points if way(point[2]) == index]
        if mine:
            axes.plot([], [], "s", color=SHADES[index], markersize=6, label=name)
        for speed, ratio, row in mine:
            axes.plot(speed, ratio, markers[row.pattern], color=SHADES[index], markersize=6)
    best = frontier([(1.0, 1.0), *((speed, ratio) for speed, ratio, _ in points)])
    axes.plot(*zip(*best, strict=True), color=INK, linewidth=0.9, linestyle=":", zorder=0)
    axes.set_yscale("log")
    axes.set_yticks([1, 1.2, 1.5, 2, 3, 4, 6], labels=["1", "1.2", "1.5", "2", "3", "4", "6"])
    axes.minorticks_off()
    clean(axes, grid="both")


def frontier(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points (speed, loss) that no other beats in both, from the slowest."""
    return sorted(p for p in points if not any(q != p and q[0] >= p[0] and q[1] <= p[1] for q in points))
