"""Advice as tables, as JSON values and as a picture."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from louver.advice.formats import Format, losses
from louver.advice.product import Advice, Row
from louver.advice.rates import Time
from louver.formats.pattern import Pattern
from louver.measure.report.canvas import INK, clean, figure, foot, head, write
from louver.measure.report.layers import size_text
from louver.measure.report.table import NONE, Column, Result, Table, folded, grouped, number, right
from louver.models.advising import Layer, ModelAdvice

LEGEND = (
    "interval: measured and table: the spread of the bursts; model: 90% of the recorded products that the fit did not see.",
    "limit: the resource with which the time changes most. conversion: from a dense weight of 16 bits; µs: to prune and compress.",
)


def product_result(advice: Advice) -> Result:
    """The advice for one product."""
    times = (*right("µs", "interval"), Column("origin"), *right("bytes"), Column("limit"))
    columns = (Column("format"), *times, Column("conversion"), *right("µs"), *folded("perplexity"))
    title = f"{advice.m}×{advice.k} weight, {advice.n} tokens, {advice.device}"
    data = {
        "device": advice.device,
        "sizes": [advice.m, advice.n, advice.k],
        "rows": [_row_json(row) for row in advice.rows],
        "close": [str(row.format) for row in advice.close],
        "notes": list(advice.notes),
    }
    table = Table(title, columns, [_row_cells(row) for row in advice.rows])
    return Result("advise", data, [table, *_verdict(advice), *LEGEND, losses_note(), *advice.notes])


def _verdict(advice: Advice) -> list[str]:
    best = advice.best
    if best is None:
        return []
    close = ", ".join(str(row.format) for row in advice.close)
    return [
        f"fastest: {best.format}" + (f"; its interval overlaps those of {close}: --measure decides" if close else "")
    ]


def losses_note() -> str:
    """Where losses come from."""
    found = losses()
    return f"perplexity: the dense model's times, at best, for {found.model.partition(',')[0]} ({found.date[:10]}); docs/accuracy.md has all methods"


def interval(time: Time | None) -> str:
    """The interval of a time."""
    return NONE if time is None else f"{time.low:.1f}–{time.high:.1f}"


def _row_cells(row: Row) -> Sequence[str]:
    time = row.time
    return (
        str(row.format),
        number(None if time is None else time.us, ".1f"),
        interval(time),
        row.refusal if time is None else time.origin,
        size_text(row.nbytes),
        row.limit or NONE,
        row.conversion,
        number(row.conversion_us, ".0f"),
        NONE if row.loss is None else str(row.loss),
    )


def time_json(time: Time | None) -> dict[str, Any] | None:
    """A time as JSON values."""
    if time is None:
        return None
    return {"us": time.us, "low": time.low, "high": time.high, "origin": time.origin, "note": time.note}


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "format": str(row.format),
        "time": time_json(row.time),
        "refusal": row.refusal or None,
        "bytes": row.nbytes,
        "limit": row.limit or None,
        "conversion": row.conversion,
        "conversion_us": row.conversion_us,
        "loss": None if row.loss is None else {"ratio": row.loss.ratio, "method": row.loss.method},
    }


def model_result(advice: ModelAdvice, source: str) -> Result:
    """The advice for a model: in total, and by layer."""
    count = len(advice.layers)
    data = {
        "source": source,
        "device": advice.device,
        "tokens": list(advice.tokens),
        "formats": [_total_json(advice, each) for each in advice.formats],
        "layers": [_layer_json(advice, layer) for layer in advice.layers],
        "lines": {"tokens": list(advice.drawn), "us": {str(each): _line(advice, each) for each in advice.formats}},
        "fastest": [{"tokens": n, "format": str(each)} for n, each in advice.leaders],
        "crossings": [
            {"tokens": each.tokens, "ahead": str(each.ahead), "behind": str(each.behind)} for each in advice.crossings
        ],
        "notes": list(advice.notes),
    }
    numbers = right("bytes", "held by", "of |w|", *(f"µs, {n:,} tokens" for n in advice.tokens))
    columns = (Column("format"), *numbers, *folded("perplexity"))
    totals = Table(f"{source}: {count} weights, {advice.device}", columns, [_total(advice, f) for f in advice.formats])
    told = (*_leaders(advice), LEGEND[0], losses_note(), *_unlike(advice), *advice.notes)
    return Result("advise", data, [totals, _layers(advice), *told])


def _unlike(advice: ModelAdvice) -> list[str]:
    """The formats with products that no record is like, whose intervals are wider."""
    found: dict[str, list[str]] = {}
    for each in advice.formats:
        notes = {time.note: None for n in advice.tokens if (time := advice.total(each, n)) is not None and time.note}
        for note in notes:
            found.setdefault(note, []).append(str(each))
    return [f"{note}: {', '.join(formats)}" for note, formats in found.items()]


def _leaders(advice: ModelAdvice) -> list[Table]:
    """The fastest format by tokens, with its gain over the one before where it begins to be the fastest."""
    leaders, rows = advice.leaders, list[Sequence[str]]()
    for place, (n, best) in enumerate(leaders):
        last = advice.drawn[-1] if place + 1 == len(leaders) else leaders[place + 1][0] - 1
        time, before = advice.total(best, n), None if not place else advice.total(leaders[place - 1][1], n)
        assert time is not None
        gain = NONE if before is None else f"{before.us / time.us:.2f} × {leaders[place - 1][1]}"
        rows.append((f"{n:,}" if n == last else f"{n:,}–{last:,}", str(best), f"{time.us:,.1f}", gain))
    columns = (*right("tokens"), Column("fastest"), *right("µs at the first"), Column("there"))
    return [Table("fastest format by tokens", columns, rows)] if rows else []


def _line(advice: ModelAdvice, format: Format) -> list[float | None]:
    found = [advice.total(format, n) for n in advice.drawn]
    return [None if each is None else each.us for each in found]


def _total(advice: ModelAdvice, format: Format) -> Sequence[str]:
    kept, loss = advice.kept(format), advice.loss(format)
    return (
        str(format),
        size_text(advice.nbytes(format)),
        NONE if kept is None else f"{kept[0]} of {len(advice.layers)}",
        NONE if kept is None else f"{kept[1]:.1%}",
        *(_cell(advice.total(format, n)) for n in advice.tokens),
        NONE if loss is None else str(loss),
    )


def _cell(time: Time | None) -> str:
    return NONE if time is None else f"{time.us:,.1f} ({time.low:,.1f}–{time.high:,.1f}, {time.origin})"


def _total_json(advice: ModelAdvice, format: Format) -> dict[str, Any]:
    kept, loss = advice.kept(format), advice.loss(format)
    return {
        "format": str(format),
        "bytes": advice.nbytes(format),
        "held_by": None if kept is None else kept[0],
        "kept": None if kept is None else kept[1],
        "times": {str(n): time_json(advice.total(format, n)) for n in advice.tokens},
        "loss": None if loss is None else {"ratio": loss.ratio, "method": loss.method},
    }


def _layers(advice: ModelAdvice) -> Table:
    """The fastest format of each kind of layer: those whose names differ in numbers only, of one shape."""
    kinds = grouped(advice.layers, lambda each: (re.sub(r"\d+", "*", each.name), each.m, each.k, each.count))
    fastest = (Column(f"fastest, {n:,} tokens") for n in advice.tokens)
    columns = (*folded("weights"), *right("shape", "number"), *folded("hold"), *fastest)
    return Table("by layer", columns, [_kind(advice, name, alike) for (name, *_), alike in kinds.items()])


def _kind(advice: ModelAdvice, name: str, layers: Sequence[Layer]) -> Sequence[str]:
    layer = layers[0]
    held: dict[Pattern, int] = {}
    for each in layers:
        for pattern, kept in each.kept.items():
            held[pattern] = held.get(pattern, 0) + kept.holds
    told = ", ".join(f"{pattern}: {count}" for pattern, count in held.items() if count)
    shape = f"{layer.m}×{layer.k}" if layer.count == 1 else f"{layer.count}×{layer.m}×{layer.k}"
    return name, shape, str(len(layers)), told or "none", *(_fastest(advice, layer, n) for n in advice.tokens)


def _fastest(advice: ModelAdvice, layer: Layer, n: int) -> str:
    times: Mapping[Format, Time] = {f: t for f in advice.formats if (t := advice.time(layer, f, n)) is not None}
    if not times:
        return NONE
    best = min(times, key=lambda each: times[each].us)
    return f"{best}, {times[best].us:.1f} µs"


def _layer_json(advice: ModelAdvice, layer: Layer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "shape": [layer.m, layer.k],
        "count": layer.count,
        "share": layer.share,
        "kept": {
            str(pattern): {"holds": kept.holds, "share": kept.share, "elements": kept.elements}
            for pattern, kept in layer.kept.items()
        },
        "times": {
            str(each): {str(n): time_json(advice.time(layer, each, n)) for n in advice.tokens}
            for each in advice.formats
        },
    }


WIDTH, HEIGHT = 9.0, 5.4
HUES: Final = ("#0f766e", "#b45309", "#6b8fb5", "#9d4edd")
"""Of the element types, in the order of their first formats."""

DASHES: Final = ("-", "--", ":", "-.")
"""Of the patterns, in the order of their first formats."""


def plot_advice(record: Path, picture: Path) -> Path:
    """Draw the JSON document of `louver advise --model`. Returns `picture`.

    Raises ValueError for advice for one product, or without times, and ModuleNotFoundError without Matplotlib.
    """
    data = cast("dict[str, Any]", json.loads(record.read_text(encoding="utf-8")))
    lines: Mapping[str, Any] | None = data.get("lines")
    if not lines or not lines["tokens"]:
        raise ValueError(f"advice for a model, with times, is drawn over tokens: got {record.name} without lines")
    made = figure(WIDTH, HEIGHT)
    axes = made.add_axes((0.09, 0.17, 0.66, 0.7))
    elements, patterns = (list(dict.fromkeys(part)) for part in zip(*map(_parts, lines["us"]), strict=True))
    for name, times in lines["us"].items():
        points = [(n, us) for n, us in zip(lines["tokens"], times, strict=True) if us is not None]
        if points:
            element, pattern = _parts(name)
            color, dash = HUES[elements.index(element) % len(HUES)], DASHES[patterns.index(pattern) % len(DASHES)]
            axes.plot(*zip(*points, strict=True), color=color, linestyle=dash, linewidth=1.3, label=name)
    at = {n: index for index, n in enumerate(lines["tokens"])}
    for each in data["crossings"]:
        height = lines["us"][each["ahead"]][at[each["tokens"]]]
        axes.plot(each["tokens"], height, "o", color=INK, markersize=3, zorder=3)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_formatter("{x:,.0f}")
    axes.tick_params(axis="y", which="minor", labelsize=6)
    axes.set_xlabel("tokens", fontsize=8, color=INK)
    axes.set_ylabel("µs of all weights", fontsize=8, color=INK)
    clean(axes, grid="both")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
    head(made, f"Formats of {Path(data['source']).name}, {data['device']}", 0.965, 11)
    foot(
        made,
        "Dots: from here on the lower line is clearly faster than one that was clearly faster before. "
        + "; ".join(data["notes"]),
        170,
        0.08,
    )
    return write(made, picture)


def _parts(name: str) -> tuple[str, str]:
    """Element type and pattern of a format's text."""
    element, _, pattern = name.partition(" ")
    return element, pattern
