"""Fits the rates of `louver advise`: `python benchmarks/fit_advice.py` writes `louver/advice/data/`.

The records are those of `RECORDS`. Each kind of product in each element type has rates of its own: those of
`louver/choose/times.py` times factors. Of two types of as many bits, the one with fewer rows starts from the rates of the other. A
kind and type of which fewer than `ENOUGH` rows of a GPU are recorded has the factors of `COMMON`, fitted to all rows of that GPU
together; those of an H100 start from the H200's rates.

A fit takes the logarithm of predicted over measured time, outliers linearly, and is pulled to where it starts by `PULL`: with less of
it, fits to many tokens say too much for few. Each interval is the 5th and 95th percentile of measured over predicted time in a fit
that saw no row of the same weight (`FOLDS`); the table of recorded products keeps what that fit predicts. Prints the errors of these
predictions. It also copies the losses of `results/accuracy/h200.json`, and what pruning and compressing takes.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from fit_times import Vector, least_squares, tempered

from louver.advice.formats import Format
from louver.advice.rates import FEW, kernel_of
from louver.choose.times import H200, Rates
from louver.formats.dtypes import element_type

RESULTS = Path(__file__).parent / "results"
DATA = Path(__file__).parent.parent / "louver" / "advice" / "data"

RECORDS: Mapping[str, tuple[str, ...]] = {
    "h200": ("gemm-models", "gemm-tokens", "gemm-uneven", "nm-bf16", "advise-fit"),
    "h100": ("gemm-tokens", "gemm-256", "nm-bf16", "advise-fit"),
}
"""Records whose rows are fitted, by folder of `results/`. `benchmarks/advise.py --fit` makes advise-fit.json."""

FACTORS = ("begin", "memory", "product", "column", "power", "base", "step", "l2", "output", "latency", "gather", "norm")
COMMON = ("begin", "memory", "power", "product", "gather")
PULL = 0.1
ENOUGH = 20
FOLDS = 5
LEAST = 10
"""Least rows of a group for percentiles of its own. Else they are of all groups of the GPU."""

Group = tuple[str, str]
"""Kind and element type."""


@dataclass(frozen=True, slots=True)
class Row:
    """A recorded product. sizes: M, N, K. spread: of the bursts, as a share of the median."""

    format: Format
    sizes: tuple[int, int, int]
    us: float
    spread: float

    @property
    def group(self) -> Group:
        return self.format.kind, self.format.element

    @property
    def weight(self) -> tuple[int, int]:
        return self.sizes[0], self.sizes[2]

    def error(self, rates: Rates) -> float:
        """The logarithm of predicted over measured time."""
        return math.log(kernel_of(self.format, *self.sizes).us(rates) / self.us)


def rows_of(record: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of a record of `louver bench gemm`, `louver bench nm` or `benchmarks/advise.py`."""
    for row in record["rows"]:
        sizes = tuple(row["shape"])
        if record["kind"] == "advise":
            yield from (Row(Format.parse(name), sizes, *taken) for name, taken in row["times"].items())
        elif record["kind"] == "nm":
            yield Row(Format(record["dtype"], row["pattern"]), sizes, row["us"]["linear"], 0.0)
        else:
            yield from _gemm(row, sizes)


def _gemm(row: Mapping[str, Any], sizes: tuple[int, int, int]) -> Iterator[Row]:
    """Both sides of a row, where their output has the type that advice compares."""
    for name, pattern in (("ours", "2:4"), ("cublas", None)):
        format = Format(row["dtype"], pattern)
        if row.get(f"{name}_us") and row["out"] == format.problem.out:
            yield Row(format, sizes, row[f"{name}_us"], row["notes"][name]["spread"])


def fit(rows: Sequence[Row], start: Mapping[Group, Rates], names: Sequence[str]) -> dict[Group, Rates]:
    """The rates of each group: those it starts with, times factors that all groups have in common."""

    def rates_at(logs: Vector) -> dict[Group, Rates]:
        factors = dict(zip(names, np.exp(logs).tolist(), strict=True))
        return {g: replace(r, **{n: getattr(r, n) * f for n, f in factors.items()}) for g, r in start.items()}

    def errors(logs: Vector) -> Vector:
        rates = rates_at(logs)
        return np.concatenate(
            [tempered(np.array([row.error(rates[row.group]) for row in rows])), PULL * math.sqrt(len(rows)) / 3 * logs]
        )

    return rates_at(least_squares(errors, np.zeros(len(names))))


def fitted(rows: Sequence[Row], base: Mapping[Group, Rates]) -> dict[Group, Rates]:
    """The rates of each group of a GPU. base: those of the GPU to start from; may be empty."""
    counts = {group: sum(row.group == group for row in rows) for group in sorted({row.group for row in rows})}
    rates: dict[Group, Rates] = {}
    first: dict[tuple[str, int], Rates] = {}
    for group in sorted(counts, key=lambda group: -counts[group]):
        if counts[group] < ENOUGH:
            continue
        alike = group[0], element_type(group[1]).bits
        names = [name for name in FACTORS if name != "gather" or group[0] == "vectors"]
        start = {group: base.get(group) or first.get(alike, H200)}
        rates |= fit([row for row in rows if row.group == group], start, names)
        first.setdefault(alike, rates[group])
    every = {group: base.get(group, H200) for group in (*base, *counts)}
    return rates if every.keys() == rates.keys() else fit(rows, every, COMMON) | rates


def unseen(rows: Sequence[Row], base: Mapping[Group, Rates]) -> list[tuple[Row, float]]:
    """Measured over predicted time of each row, by a fit to rows of other weights."""
    weights = sorted({row.weight for row in rows})
    parts = [set(weights[part::FOLDS]) for part in range(min(FOLDS, len(weights)))]
    found: list[tuple[Row, float]] = []
    for part in parts:
        rates = fitted([row for row in rows if row.weight not in part], base)
        found += [(row, math.exp(-row.error(rates[row.group]))) for row in rows if row.weight in part]
    return found


def report(name: str, residuals: Sequence[tuple[Row, float]]) -> None:
    """Print the errors of rows that the fit did not see."""
    for label, few in ((f"up to {FEW}", True), (f"above {FEW}", False)):
        errors = sorted(abs(1 / ratio - 1) for row, ratio in residuals if (row.sizes[1] <= FEW) == few)
        if errors:
            middle, tenth = statistics.median(errors), errors[int(0.9 * len(errors))]
            print(f"{name}, {label} tokens: {len(errors)} rows, error median {middle:.1%}, 90th percentile {tenth:.1%}")


def interval(residuals: Sequence[tuple[Row, float]], group: Group, few: bool) -> list[float]:
    """The 5th and 95th percentile of measured over predicted time, and the number of rows of the group."""
    alike = [(row, ratio) for row, ratio in residuals if (row.sizes[1] <= FEW) == few]
    own = [ratio for row, ratio in alike if row.group == group]
    taken = own if len(own) >= LEAST else [ratio for _, ratio in alike]
    low, high = np.quantile(taken, (0.05, 0.95)).tolist()
    return [round(low, 4), round(high, 4), len(own)]


def conversion(folder: str) -> dict[str, float]:
    """µs of pruning and compressing a byte of a dense weight, by kind, of the recorded kernels."""
    found: dict[str, list[float]] = {}
    for name in ("compress", "compress-vectors"):
        path = RESULTS / folder / f"{name}.json"
        for row in json.loads(path.read_text())["rows"] if path.exists() else ():
            format = Format(row["dtype"], row.get("pattern", "2:4"))
            taken = sum(row["kernels"][step]["kernel"] for step in ("prune", "compress"))
            found.setdefault(format.kind, []).append(taken / Format(row["dtype"]).nbytes(*row["shape"]))
    return {kind: float(f"{statistics.median(each):.3g}") for kind, each in found.items()}


def losses() -> dict[str, Any]:
    """The perplexity over the dense model's, the worst of the texts, of each pattern and method in the record."""
    record = json.loads((RESULTS / "accuracy" / "h200.json").read_text())
    rows = [[row["pattern"], row["method"], round(max(row["ratio"].values()), 4)] for row in record["rows"]]
    return {"model": record["model"], "date": record["date"], "rows": rows}


def recorded(folder: str) -> tuple[dict[str, dict[str, Any]], list[Row]]:
    """The records of a GPU by file, and their rows, each product once."""
    paths = [RESULTS / folder / f"{name}.json" for name in RECORDS[folder]]
    records = {f"{folder}/{path.name}": json.loads(path.read_text()) for path in paths if path.exists()}
    rows = {(row.format, row.sizes): row for record in records.values() for row in rows_of(record)}
    return records, list(rows.values())


def known(folder: str, base: Mapping[Group, Rates]) -> tuple[dict[str, Any], dict[Group, Rates]]:
    """What `louver.advice.rates` reads of a GPU, and its rates."""
    records, rows = recorded(folder)
    rates, residuals = fitted(rows, base), unseen(rows, base)
    for group in sorted({row.group for row in rows}):
        report(f"{folder} {' '.join(group)}", [each for each in residuals if each[0].group == group])
    report(f"{folder} all", residuals)
    groups = [
        {
            "kind": group[0],
            "element": group[1],
            "rates": {n: float(f"{getattr(each, n):.5g}") for n in FACTORS},
            "few": interval(residuals, group, True),
            "many": interval(residuals, group, False),
        }
        for group, each in rates.items()
    ]
    data = {
        "device": next(iter(records.values()))["device"],
        "made_by": "python benchmarks/fit_advice.py",
        "records": {name: record["date"] for name, record in records.items()},
        "conversion": conversion(folder),
        "fitted": groups,
        "table": [
            [str(r.format), *r.sizes, round(r.us, 2), round(r.spread, 4), round(r.us / ratio, 2)]
            for r, ratio in residuals
        ],
    }
    return data, rates


def text_of(data: Mapping[str, Any]) -> str:
    """JSON with a line for each entry of a list."""
    parts: list[str] = []
    for key, value in data.items():
        if isinstance(value, list):
            value_text = "[\n  " + ",\n  ".join(json.dumps(each, ensure_ascii=False) for each in value) + "\n ]"
        else:
            value_text = json.dumps(value, ensure_ascii=False)
        parts.append(f" {json.dumps(key)}: {value_text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DATA, help="folder of the files")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    base: dict[Group, Rates] = {}
    for folder in RECORDS:
        data, rates = known(folder, base)
        (given.out / f"rates-{folder}.json").write_text(text_of(data), encoding="utf-8")
        base = base or rates
    (given.out / "losses.json").write_text(text_of(losses()), encoding="utf-8")


if __name__ == "__main__":
    main()
