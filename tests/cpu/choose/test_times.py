"""Predicted times beside those measured: the records that the rates are fitted to, and held against."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from louver.choose.demand import Demand
from louver.choose.ranges import Cutting, Ranges
from louver.choose.tile_shapes import TileShape
from louver.choose.times import CLOCK, H200, step_clocks
from louver.compile.plan.schedule import FIELDS, Schedule
from louver.frontend.problem import Problem

RECORDS = Path(__file__).parents[3] / "benchmarks" / "results" / "h200"
LINEAR = Demand.of_problem(Problem("linear"))


@pytest.mark.parametrize(("name", "worst"), [("schedule_times", 0.112), ("schedule_times-order-held", 0.042)])
def test_the_choice_by_predicted_time_costs_little_of_the_best(name: str, worst: float) -> None:
    record = json.loads((RECORDS / f"{name}.json").read_text())
    regrets: list[float] = []
    errors: list[float] = []
    for row in record["rows"]:
        demand = Demand.of_problem(Problem("linear", a=row["dtype"], b=row["dtype"], out="f16"))
        m, n, k = row["shape"]
        found: list[tuple[float, float]] = []
        for each in row["times"]:
            facts = dict(zip(record["columns"], each, strict=True))
            schedule = Schedule.of(**{name: value for name, value in facts.items() if name in FIELDS})
            shape = TileShape.of(schedule.tile.m, schedule.tile.n, schedule.roles.consumers, demand)
            if not shape.takes(demand, schedule.ring.metadata):
                continue
            cutting = Cutting.of(demand, schedule)
            whole = cutting.whole(m, n, k, 1)
            cut = Ranges(whole.tiles, facts["whole"], facts["parts"], facts["part_steps"])
            if schedule.cuts and not (shape.cuts(demand) and cut in cutting.cuts(whole, n, 132)):
                continue
            predicted = cutting.cycles(cut, m, n, k, 1, 132) / CLOCK
            errors.append(abs(predicted / facts["us"] - 1))
            found.append((predicted, facts["us"]))
        regrets.append(min(found)[1] / min(us for _, us in found) - 1)
    assert statistics.median(errors) < 0.05
    assert statistics.median(regrets) < 0.001
    assert statistics.mean(regrets) < 0.007
    assert max(regrets) < worst


@pytest.mark.parametrize("metadata", ["global", "stage"])
@pytest.mark.parametrize("dtype", ["f16", "e4m3"])
def test_clocks_of_a_step(dtype: str, metadata: str) -> None:
    demand = Demand.of_problem(Problem("linear", dtype, dtype))

    def clocks(**fields: int) -> float:
        return step_clocks(demand, Schedule.of(**{"stages": 4, **fields}, metadata=metadata))

    assert clocks(tile_n=8) < clocks(tile_n=16) < clocks(tile_n=128) < clocks(tile_n=256)
    # A column costs less in a wider tile, a row less in a taller one.
    assert clocks(tile_n=256) < 2 * clocks(tile_n=128)
    assert clocks(tile_m=256, tile_n=128) < 2 * clocks(tile_m=128, tile_n=128)
    # Deeper rings hide more of the copies' latency.
    assert clocks(stages=8) < clocks(stages=3) < clocks(stages=2)


def test_what_overlaps_takes_at_least_its_longest_part() -> None:
    assert H200.together(0, 5) == pytest.approx(5)
    assert 5 < H200.together(5, 4) < 9
    assert replace(H200, norm=1).together(5, 4) == pytest.approx(9)


def test_a_tile_more_than_sms_costs_less_than_a_wave_since_idle_sms_draw_no_power() -> None:
    cutting = Cutting.of(LINEAR, Schedule.of(stages=4))

    def clocks(rows: int, columns: int) -> float:
        sizes = 128 * rows, 256 * columns, 4096, 1
        return cutting.cycles(cutting.whole(*sizes), *sizes, 132)

    full, more, twice = clocks(12, 11), clocks(19, 7), clocks(12, 22)
    assert 1.65 * full < more < 1.75 * full
    assert 1.1 * more < twice < 2 * full
