"""The judge of advice: regret, rules, errors, and records."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from louver.advice.formats import Format
from louver.advice.rates import Time, known, predicted
from louver.measure import advise as measuring
from louver.measure.report.judged import CHOICES, Pair, judged, judged_record, pairs_of, recorded_pairs

SPARSE, BYTES = Format("f16", "2:4"), Format("e4m3")
NAME = "NVIDIA H200"


def test_regret_is_of_the_chosen_format() -> None:
    right = Pair((SPARSE, BYTES), (10.0, 12.0), (9.0, 12.0))
    wrong = Pair((SPARSE, BYTES), (10.0, 12.0), (13.0, 12.0), ((12.0, 11.0), (10.0, 12.5)))
    assert right.predicted_regret == 0 and right.measured_regret is None and not right.close
    assert wrong.predicted_regret == pytest.approx(0.2) and wrong.measured_regret == pytest.approx(0.25)
    assert right.errors == pytest.approx((0.1, 0.0))
    assert Pair((SPARSE, BYTES), (10.0, 11.4), (1.0, 2.0)).close


def test_the_table_has_advice_choices_and_rules() -> None:
    pairs = [
        Pair((SPARSE, BYTES), (10.0, 12.0), (9.0, 12.0)),
        Pair((SPARSE, BYTES), (10.0, 8.0), (9.0, 12.0)),
        Pair((Format("e4m3", "2:4"), Format("s8", "2:4")), (10.0, 10.2), (11.0, 10.0)),
    ]
    found = judged(pairs, "here")
    assert found.title == "here: 3 choices, 33% of them between times within 15%"
    rows = {row[0]: row[1:] for row in found.rows}
    assert rows["advise"] == ("3", "66.7%", "9.0%", "25.0%", "25.0%", "10.0%", "50.0%")
    assert rows["  e4m3 2:4 or s8 2:4"] == ("1", "100.0%", "2.0%", "2.0%", "2.0%", "6.0%", "10.0%")
    assert rows["advise --measure"] == ("0", *"––––––")
    # Both formats of the last choice are 2:4 and have 8 bits: rules do not decide it.
    assert rows["always 2:4, where it decides"] == ("2", "50.0%", "12.5%", "25.0%", "25.0%", "–", "–")
    assert rows["always 8 bits, where it decides"] == ("2", "50.0%", "10.0%", "20.0%", "20.0%", "–", "–")
    with pytest.raises(ValueError, match="advice is judged by a pair of formats or more, got none"):
        judged([], "here")


def test_records_give_the_advice_that_is_asked_of_it() -> None:
    pairs = recorded_pairs(known()[NAME])
    assert len(pairs) > 300 and {pair.formats for pair in pairs} <= set(CHOICES)
    regrets = [pair.predicted_regret for pair in pairs]
    assert statistics.fmean(each <= 0.03 for each in regrets) > 0.9 and statistics.fmean(regrets) < 0.01


def row(**changes: Any) -> dict[str, Any]:
    times = {"f16 2:4": [5.0, 0.1], "e4m3": [6.0, 0.1]}
    bursts = {"f16 2:4": [5.0, 5.0, 7.0, 7.0], "e4m3": [6.0, 6.0, 6.0, 6.0]}
    return {"model": "m", "shape": [4096, 100, 5120], "times": times, "bursts_us": bursts, **changes}


def test_a_record_is_judged(tmp_path: Path) -> None:
    record = {"schema": 1, "kind": "advise", "device": NAME, "versions": {}, "protocol": "p", "rows": [row()]}
    (pair,) = pairs_of(record)
    device = known()[NAME]
    assert pair.predicted == tuple(predicted(each, 4096, 100, 5120, device).us for each in (SPARSE, BYTES))
    assert pair.measured == (5.0, 6.0) and pair.halves == ((5.0, 6.0), (7.0, 6.0))
    path = tmp_path / "advise.json"
    path.write_text(json.dumps(record))
    assert judged_record(path).title.startswith(f"{NAME}: 1 choices")
    with pytest.raises(
        ValueError, match="times are predicted for NVIDIA H100 80GB HBM3, NVIDIA H200, got a record of a GPU"
    ):
        pairs_of({**record, "device": "a GPU"})
    with pytest.raises(ValueError, match="a judged row has two formats, got e4m3"):
        pairs_of({**record, "rows": [row(times={"e4m3": [1.0, 0.0]})]})


def test_measured_times_have_the_spread_of_their_bursts(monkeypatch: Any) -> None:
    monkeypatch.setattr(
        measuring, "bursts", lambda torch, formats, *sizes: ({BYTES: (1e-6, 2e-6, 3e-6)}, {SPARSE: "no"})
    )
    found = measuring.timer(None)([BYTES, SPARSE], 8, 8, 8)
    time = found[BYTES]
    assert found[SPARSE] == "no" and isinstance(time, Time)
    assert (time.us, time.low, time.high) == pytest.approx((2.0, 1.0, 3.0)) and time.origin == "measured"


def test_a_refused_format_does_not_end_the_measurement(monkeypatch: Any) -> None:
    def call(torch: Any, format: Format, *given: Any) -> Any:
        if format == BYTES:
            raise RuntimeError("no kernel image\nmore")
        return format

    monkeypatch.setattr(measuring, "_call", call)
    monkeypatch.setattr(measuring, "prepare", lambda torch, made, *given: made)
    monkeypatch.setattr(measuring, "take_turns", lambda loads, protocol: dict.fromkeys(loads, (1e-6,)))
    taken, refused = measuring.bursts(None, [BYTES, SPARSE, Format("s8")], 64, 1, 64)
    assert taken == {SPARSE: (1e-6,)} and refused == {BYTES: "no kernel image"}
