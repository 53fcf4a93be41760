from __future__ import annotations

import json
import math
import multiprocessing
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from louver.choose import tuned
from louver.choose.configure import choose
from louver.choose.tuned import (
    Entry,
    UnusableEntryError,
    decide,
    keep,
    kept,
    place_of,
    read_table,
    size_class,
    status,
    tables,
)
from louver.compile.plan.register_tiles import RegisterTiles
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.library.prepare import _classes
from louver.ptx.assembler import ptxas_version
from louver.runtime import folder
from louver.runtime.cache import source_hash
from louver.runtime.device import Device

PLACE = Device(0, "Some GPU", (9, 0), 132, 232448, 60 << 20, 141 << 30, (13, 0))
PROBLEM = Problem("linear")
SHAPE = (4096, 1000, 4096)
ODD = Schedule.of(tile_n=128, stages=5, raster=4, store="bulk")
"""A legal schedule that the model does not choose for the shape."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOUVER_CACHE_DIR", str(tmp_path))
    return tmp_path / "louver-cache"


def entry(schedule: dict[str, Any] | None = None, problem: Problem = PROBLEM, **changed: Any) -> Entry:
    place = place_of(problem, *SHAPE, PLACE.name, aligned_output=True)
    made = Entry(place, schedule or ODD.flat(), 51.25, 60.5, SHAPE, source_hash(), ptxas_version())
    return replace(made, **changed)


def decision(
    problem: Problem = PROBLEM, shape: tuple[int, int, int] = SHAPE, *, aligned: bool = True
) -> tuned.Decision:
    return decide(problem, *shape, PLACE, aligned_output=aligned)


def test_a_kept_entry_is_used_and_nothing_else_is_touched_by_it() -> None:
    model = choose(PROBLEM, SHAPE[0], SHAPE[1], SM_90A, 132, aligned_output=True)
    before = decision()
    assert (before.schedule, before.origin) == (model, "model")
    assert "no entry (tuned)" in before.reason and "no entry (table)" in before.reason
    keep(entry())
    assert decision() == tuned.Decision(ODD, "tuned", "")
    assert decision(shape=(4000, 1010, 4001)).origin == "tuned", "of the same size class"
    for other in (
        decision(shape=(4096, 3000, 4096)),
        decision(problem=Problem("linear", bias="row")),
        decision(problem=Problem("linear", "bf16", "bf16", "bf16")),
        decision(aligned=False),
        decide(PROBLEM, *SHAPE, replace(PLACE, name="Another GPU"), aligned_output=True),
    ):
        assert other.origin == "model"


def test_an_entry_is_for_sizes_whose_tiles_fill_the_sms_alike() -> None:
    shape, other = (4096, 8192, 8192), (3584, 6500, 8192)
    tiles = {
        size: _tile(choose(PROBLEM, *size[:2], SM_90A, 132, aligned_output=True, k=size[2])) for size in (shape, other)
    }
    assert tiles == {shape: (128, 256), other: (256, 176)}
    place = place_of(PROBLEM, *shape, PLACE.name, aligned_output=True)
    assert place == place_of(PROBLEM, *other, PLACE.name, aligned_output=True)
    keep(entry(place=place, shape=shape))
    assert decision(shape=shape).origin == "tuned"
    found = decision(shape=other)
    assert (found.origin, _tile(found.schedule)) == ("model", (256, 176))
    assert "measured at 4096×8192×8192, where tiles fill the SMs differently" in found.reason
    assert "(the model takes 128×256 there and 256×176 here): tune this size" in found.reason
    keep(entry(place=place, shape=None))
    assert decision(shape=other).origin == "tuned"


def test_a_batch_may_fill_the_sms_otherwise_than_one_of_it() -> None:
    shape, both = (4096, 8192, 8192), Problem("linear", batch="both")
    keep(entry(place=place_of(PROBLEM, *shape, PLACE.name, aligned_output=True), shape=shape))
    origins = {batch: decide(both, *shape, PLACE, aligned_output=True, batch=batch).origin for batch in (1, 2, 3)}
    tiles = {
        batch: _tile(choose(both, 4096, 8192, SM_90A, 132, aligned_output=True, batch=batch, k=8192))
        for batch in origins
    }
    assert {batch: origin == "tuned" for batch, origin in origins.items()} == {
        batch: tile == (128, 256) for batch, tile in tiles.items()
    }
    assert len(set(origins.values())) == 2


def _tile(schedule: Schedule) -> tuple[int, int]:
    return schedule.tile.m, schedule.tile.n


def test_the_last_one_kept_counts() -> None:
    keep(entry())
    keep(entry(ODD.changed(raster=8).flat()))
    assert decision().schedule.order.raster == 8
    assert len(list(kept())) == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"louver": "0" * 64}, "measured with another version of Louver: run louver tune again"),
        ({"ptxas": "1.0"}, "measured with ptxas 1.0, not"),
        ({"schedule": {**ODD.flat(), "colour": 3, "age": 4}}, "names fields that schedules do not have: age, colour"),
        ({"schedule": {**ODD.flat(), "tile_n": 256, "stages": 8}}, "has 8 stages, where"),
        ({"schedule": {**ODD.flat(), "tile_n": 12}}, "is not legal: tile_n is a multiple of 8"),
        ({"schedule": {**ODD.flat(), "stages": "five"}}, "is not legal: stages must be a positive integer"),
    ],
)
def test_what_does_not_fit_is_passed_over_with_the_reason(changed: dict[str, Any], reason: str) -> None:
    bad = entry(**changed)
    keep(bad)
    found = decision()
    assert found.origin == "model"
    assert found.schedule == choose(PROBLEM, SHAPE[0], SHAPE[1], SM_90A, 132, aligned_output=True)
    assert "entry passed over (tuned): it" in found.reason and reason in found.reason
    assert reason in status(bad, SM_90A)


def test_bulk_stores_are_refused_for_outputs_that_they_cannot_write() -> None:
    place = place_of(PROBLEM, *SHAPE, PLACE.name, aligned_output=False)
    keep(entry(place=place))
    found = decision(aligned=False)
    assert found.origin == "model" and "stores in bulk, which the output's alignment forbids" in found.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is damaged"),
        ("{", "it is damaged"),
        ("[1, 2]", "it is damaged"),
        ("{}", "it is damaged (KeyError: 'schema')"),
        ('{"schema": 99}', "its form is of another version"),
        ('{"schema": 2, "place": 3, "shape": null}', "it is damaged"),
    ],
)
def test_damaged_files_are_passed_over_and_shown(cache: Path, text: str, reason: str) -> None:
    path = keep(entry())
    path.write_text(text)
    assert reason in decision().reason
    assert decision().origin == "model"
    ((_, found),) = kept()
    assert isinstance(found, UnusableEntryError) and reason in str(found)
    path.write_bytes(b"\xff\xfe\x00")
    assert "it cannot be read" in decision().reason


def test_an_entry_in_the_wrong_place_is_passed_over(cache: Path) -> None:
    path = keep(entry())
    other = place_of(PROBLEM, 64, 64, 64, PLACE.name, aligned_output=True)
    path.rename(cache / f"{other.key}.json")
    found = decide(PROBLEM, 64, 64, 64, PLACE, aligned_output=True)
    assert found.origin == "model" and "its name does not match its content" in found.reason


def test_files_say_by_name_what_they_hold(cache: Path) -> None:
    facts = json.loads(keep(entry()).read_text())
    assert facts["schedule"] == ODD.flat()
    assert facts["place"]["device"] == "Some GPU"
    assert facts["place"]["problem"]["kind"] == "linear"
    assert facts["place"]["sizes"] == [4096, 1024, 4096]
    assert not list(cache.glob("*.part"))


def test_a_write_that_fails_leaves_the_entry_before(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(entry())

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(folder.os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        keep(entry(ODD.changed(raster=8).flat()))
    assert decision().schedule == ODD
    assert not list(cache.glob("*.part"))


def _keep_many(raster: int) -> None:
    for _ in range(20):
        keep(entry(ODD.changed(raster=raster).flat()))
        assert decision().origin == "tuned"


def test_many_processes_may_keep_the_same_entry() -> None:
    rasters = (2, 4, 8)
    workers = [multiprocessing.get_context("fork").Process(target=_keep_many, args=(raster,)) for raster in rasters]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert decision().schedule.order.raster in rasters


def test_size_classes_hold_their_sizes_and_are_few() -> None:
    classes = [size_class(n) for n in range(1, 20_000)]
    assert all(top >= n for n, top in enumerate(classes, 1))
    assert all(size_class(top) == top for top in set(classes))
    assert classes == sorted(classes)
    assert sorted(set(classes))[:9] == [8, 16, 32, 64, 128, 192, 256, 384, 512]
    assert len(set(classes)) < 24
    with pytest.raises(ValueError, match="sizes are at least 1, got 0"):
        size_class(0)


def test_preparing_a_range_of_n_meets_every_size_class(rng: np.random.Generator) -> None:
    for _ in range(20):
        low, high = sorted(int(n) for n in np.exp(rng.uniform(0, math.log(30_000), 2)))
        made = {size_class(n) for n in _classes(low, high)}
        assert made == {size_class(n) for n in range(low, high + 1)}


def test_the_package_s_tables_are_legal_and_name_existing_fields() -> None:
    assert {entry.place.device for entry in tables()} <= {"NVIDIA H200"}
    assert all(status(entry, SM_90A) == "" for entry in tables())
    assert len({entry.place.key for entry in tables()}) == len(tables())


def test_the_package_s_tables_say_only_what_the_model_does_not() -> None:
    """An entry holds for a whole class of sizes, of which the model counts each one's last wave: (3840, 6720) is none of 4096×8192."""
    folder = files("louver.choose").joinpath("tables")
    rows = [row for each in folder.iterdir() for row in json.loads(each.read_text(encoding="utf-8"))["entries"]]
    for row in rows:
        for m, n, _ in row["sizes"]:
            model = choose(Problem(**row["problem"]), m, n, SM_90A, 132, aligned_output=row["aligned_output"])
            assert model != Schedule.of(**row["schedule"]), (
                "the model chooses it there: leave the others of the class to it"
            )


@pytest.mark.parametrize("dtype", ["f16", "e4m3"])
@pytest.mark.parametrize(
    ("shape", "tall"), [((6144, 8192, 4096), True), ((4736, 7936, 4096), False), ((4096, 4096, 14336), False)]
)
def test_the_last_wave_decides_about_tall_tiles(dtype: str, shape: tuple[int, int, int], tall: bool) -> None:
    problem, place = Problem("linear", dtype, dtype, "f16"), replace(PLACE, name="NVIDIA H200")
    found = decide(problem, *shape, place, aligned_output=True).schedule
    assert (found.tile.m == 256) is tall


def test_the_package_s_table_is_asked_after_the_user_s_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"problem": {"kind": "linear"}, "sizes": [SHAPE], "aligned_output": True, "schedule": {"tile_n": 128}}
    text = json.dumps({"device": PLACE.name, "entries": [row]})
    monkeypatch.setattr(tuned, "tables", lambda: tuple(read_table(text)))
    found = decision()
    assert (found.schedule, found.origin) == (Schedule.of(tile_n=128), "table")
    assert found.reason == "no entry (tuned)"
    keep(entry(louver="0" * 64))
    assert decision().origin == "table" and "another version of Louver" in decision().reason
    keep(entry())
    assert decision().origin == "tuned"


def test_an_unknown_problem_is_shown_as_such() -> None:
    place = replace(entry().place, problem={"kind": "conv"})
    assert "this version of Louver does not know its problem" in status(replace(entry(), place=place), SM_90A)
    assert tuned.problem_of(entry().place) == PROBLEM


AMPERE = replace(PLACE, name="Another GPU", capability=(8, 0), sm_count=108)
"""A GPU whose products are register tiles."""


def test_register_tiles_are_tuned_and_found() -> None:
    found = decide(PROBLEM, *SHAPE, AMPERE, aligned_output=True)
    assert isinstance(found.schedule, RegisterTiles) and (found.schedule.target, found.origin) == ("sm_80", "model")
    measured = replace(found.schedule, warps=16, tile_k=32)
    place = place_of(PROBLEM, *SHAPE, AMPERE.name, aligned_output=True)
    keep(Entry(place, measured.flat(), 51.25, 60.5, SHAPE, source_hash(), ptxas_version()))
    assert decide(PROBLEM, *SHAPE, AMPERE, aligned_output=True) == tuned.Decision(measured, "tuned", "")
    # What a call promises of its sizes is its own: the entry covers a K of 4,100.
    other = decide(PROBLEM, 4096, 1000, 4092, AMPERE, aligned_output=True)
    assert (other.schedule, other.origin) == (replace(measured, k_multiple=4), "tuned")
    # A kernel of this target on another GPU is measured there.
    assert decide(PROBLEM, *SHAPE, PLACE, aligned_output=True, form="sm_80").origin == "model"


def test_entries_that_register_tiles_cannot_use() -> None:
    place = place_of(PROBLEM, *SHAPE, AMPERE.name, aligned_output=True)
    for schedule, why in ((ODD.flat(), "names fields that schedules do not have"), ({"tile_m": 48}, "is not legal")):
        keep(Entry(place, {"target": "sm_80", **schedule} if "tile_k" not in schedule else schedule, shape=SHAPE))
        found = decide(PROBLEM, *SHAPE, AMPERE, aligned_output=True)
        assert found.origin == "model" and why in found.reason


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tile_m": 96}, "tile_m of register tiles is a power of two, got 96"),
        ({"warps": 0}, "warps of register tiles is a power of two, got 0"),
        ({"k_multiple": 32}, "k_multiple is at most 16, got 32"),
        ({"aligned_output": 1}, "aligned_output is True or False, got 1"),
        ({"target": "sm_75"}, "the targets are sm_80"),
    ],
)
def test_register_tiles_that_do_not_exist(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RegisterTiles(**{"target": "sm_80", **fields})
