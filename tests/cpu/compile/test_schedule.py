from __future__ import annotations

import pytest

from louver.compile.plan.schedule import FIELDS, Schedule, register_split
from louver.isa.targets import SM_90A


def test_default_fills_whole_warpgroups() -> None:
    schedule = Schedule()
    assert schedule.roles.threads == 384
    assert schedule.blocks == 1


def test_without_a_producer_one_warpgroup_is_all_there_is() -> None:
    schedule = Schedule.of(tile_m=64, consumers=1, stages=1, specialized=False, in_flight=0)
    assert schedule.roles.threads == 128
    assert schedule.changed(specialized=True).roles.threads == 256


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"tile_m": 96}, "multiple of 64 × consumers = 128, got 96"),
        ({"tile_m": 384, "consumers": 3}, "at most 256"),
        ({"tile_n": 12}, "multiple of 8, at most 256, got 12"),
        ({"tile_n": 264}, "multiple of 8, at most 256, got 264"),
        ({"tile_k": 96}, "64 or 128, got 96"),
        ({"stages": 1}, "a ring needs 2 stages, .* got 1 stage with in_flight 1"),
        ({"specialized": False}, "consumers is 1 and stages 1, got 2 and 5"),
        ({"specialized": False, "consumers": 1, "stages": 2, "in_flight": 0}, "got 1 and 2"),
        ({"specialized": 0}, "specialized is True or False, got 0"),
        ({"metadata": "ring"}, '"global", "stage" or "barrier", got \'ring\''),
        ({"l2": "dense"}, 'l2 is "even" or "values", got \'dense\''),
        ({"in_flight": 2}, "in_flight is 0 or 1 groups of products, got 2"),
        ({"in_flight": True}, "in_flight is 0 or 1 groups of products, got True"),
        ({"stages": 0}, "stages must be a positive integer"),
        ({"cluster": 3}, "cluster is 1 or 2"),
        ({"work": "parts"}, 'work is "tiles", "ranges" or "pairs", got \'parts\''),
        ({"work": "pairs", "cluster": 2}, "work 'pairs' takes cluster 1, got 2"),
        ({"work": "pairs", "tile_n": 8}, "stores whole 8 columns: tile_n is a multiple of 16, got 8"),
        (
            {"work": "pairs", "staging": 256},
            "staging is 1 to half of tile_n, 128, got 256: give columns in this range, or None",
        ),
        ({"consumers": 5, "tile_m": 320}, "at most 256"),
        ({"raster": 0}, "raster must be a positive integer"),
        ({"staging": 272}, "staging is 1 to tile_n, 256, got 272: give columns in this range, or None"),
        ({"staging": 0}, "staging is 1 to tile_n, 256, got 0: give columns in this range, or None"),
        ({"tile_n": 64.0}, "tile_n must be a positive integer"),
    ],
)
def test_illegal_schedules_name_the_rule(change: dict[str, object], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Schedule.of(**change)


@pytest.mark.parametrize(("consumers", "tile_m"), [(1, 64), (2, 128), (3, 192), (4, 256)])
def test_register_split_fits_the_register_file(consumers: int, tile_m: int) -> None:
    producer, consumer = register_split(Schedule.of(tile_m=tile_m, consumers=consumers), SM_90A)
    assert producer % 8 == 0 and consumer % 8 == 0
    assert producer >= 24 and consumer <= 256
    assert 128 * (producer + consumers * consumer) <= SM_90A.registers_per_sm
    # A CTA has what its threads begin with: 96 registers each of 640 threads leave 4,096 of the SM's to nobody.
    entry = SM_90A.registers_per_sm // (128 * (1 + consumers)) // 8 * 8
    assert producer + consumers * consumer <= (1 + consumers) * entry


def test_fields_by_name_and_records_say_the_same() -> None:
    schedule = Schedule.of(tile_n=192, stages=3, staging=96, raster=12, consumers=1, store="bulk", metadata="stage")
    assert (schedule.tile.n, schedule.ring.stages, schedule.store.staging, schedule.order.raster) == (192, 3, 96, 12)
    assert Schedule.of(**schedule.flat()) == schedule
    assert set(schedule.flat()) == set(FIELDS) and str(schedule).startswith("Schedule(tile_m=128, tile_n=192, ")
    records = {name: getattr(schedule, name) for name in Schedule.__dataclass_fields__}
    named = {(record, each) for record, value in records.items() for each in value.__dataclass_fields__}
    assert named == set(FIELDS.values()), "every field of a record has a name"


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(TypeError, match="a schedule has the fields tile_m, .*, got 'depth'"):
        Schedule().changed(stages=3, depth=4)


@pytest.mark.parametrize(
    ("m", "n", "consumers", "single", "batched"),
    [(128, 16, 2, (24, 240), (40, 232)), (256, 64, 2, (24, 240), (40, 232)), (192, 160, 3, (24, 160), (32, 160))],
)
def test_the_producer_of_a_batch_has_more_registers(
    m: int, n: int, consumers: int, single: tuple[int, int], batched: tuple[int, int]
) -> None:
    schedule = Schedule.of(tile_m=m, tile_n=n, consumers=consumers)
    assert register_split(schedule, SM_90A) == single
    assert register_split(schedule, SM_90A, batched=True) == batched
