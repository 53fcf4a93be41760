"""The data of `louver advise` are those that `benchmarks/fit_advice.py` makes of the records here."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fit_advice import DATA, RECORDS, Row, conversion, fit, interval, losses, recorded, rows_of, text_of

from louver.advice.formats import Format
from louver.advice.rates import kernel_of
from louver.choose.times import H200

STALE = "run python benchmarks/fit_advice.py"


def data(folder: str) -> dict[str, Any]:
    return json.loads((DATA / f"rates-{folder}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", RECORDS)
def test_tables_and_dates_are_those_of_the_records(folder: str) -> None:
    found, (records, rows) = data(folder), recorded(folder)
    assert found["records"] == {name: record["date"] for name, record in records.items()}, STALE
    expected = sorted([str(r.format), *r.sizes, round(r.us, 2), round(r.spread, 4)] for r in rows)
    assert sorted(row[:-1] for row in found["table"]) == expected, STALE
    assert found["conversion"] == conversion(folder), STALE
    assert {record["device"] for record in records.values()} == {found["device"]}


def test_losses_are_those_of_the_record() -> None:
    assert (DATA / "losses.json").read_text(encoding="utf-8") == text_of(losses()), STALE


def test_a_fit_finds_the_rates_that_made_the_times() -> None:
    """Of products with many and few tokens, made with half of the bandwidth and twice the power."""
    format, group = Format("f16", "2:4"), ("2:4", "f16")
    made = replace(H200, memory=H200.memory / 2, power=2 * H200.power)
    sizes = [(m, n, k) for m, k in ((28672, 4096), (4096, 14336), (8192, 8192)) for n in (1, 64, 1000, 4000)]
    rows = [Row(format, each, kernel_of(format, *each).us(made), 0.0) for each in sizes]
    found = fit(rows, {group: H200}, ("memory", "power"))[group]
    assert math.isclose(found.memory, made.memory, rel_tol=0.03) and math.isclose(found.power, made.power, rel_tol=0.03)


def test_intervals_are_of_the_group_if_it_has_rows_enough() -> None:
    def rows(element: str, ratios: list[float]) -> list[tuple[Row, float]]:
        return [(Row(Format(element), (8, 16, 8), 1.0, 0.0), ratio) for ratio in ratios]

    residuals = rows("f16", [0.9, 1.1] * 10) + rows("bf16", [0.5])
    assert interval(residuals, ("dense", "f16"), True) == [0.9, 1.1, 20]
    low, high, count = interval(residuals, ("dense", "bf16"), True)
    assert (low, high, count) == (0.9, 1.1, 1)


def test_rows_of_each_kind_of_record() -> None:
    spread = {"spread": 0.1}
    gemm = {"kind": "gemm", "rows": [
        {"shape": [1, 2, 3], "dtype": "s8", "out": out, "ours_us": 1.0, "cublas_us": 2.0, "notes": {"ours": spread, "cublas": spread}}
        for out in ("f16", "s32")
    ]}  # fmt: skip
    assert [(str(r.format), r.us) for r in rows_of(gemm)] == [("s8 2:4", 1.0), ("s8", 2.0)]
    nm = {"kind": "nm", "dtype": "bf16", "rows": [{"shape": [1, 2, 3], "pattern": "4:8@64", "us": {"linear": 3.0}}]}
    assert [(str(r.format), r.us, r.sizes) for r in rows_of(nm)] == [("bf16 4:8@64", 3.0, (1, 2, 3))]
    own = {"kind": "advise", "rows": [{"shape": [1, 2, 3], "times": {"e4m3": [4.0, 0.2]}}]}
    assert [(r.us, r.spread) for r in rows_of(own)] == [(4.0, 0.2)]


def test_data_are_in_the_wheel() -> None:
    assert {path.name for path in Path(DATA).iterdir()} == {
        "losses.json",
        *(f"rates-{folder}.json" for folder in RECORDS),
    }
