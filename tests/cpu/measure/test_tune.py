from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, get_origin, get_type_hints

import numpy as np
import pytest

import louver
from louver.choose.choose_tiles import costs
from louver.choose.configure import choose, deepest
from louver.choose.reasons import Why
from louver.choose.tuned import decide, size_class
from louver.compile.plan.schedule import Schedule
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A, TARGETS
from louver.library import compiled
from louver.library.execute import schedule_for
from louver.measure import machine, tune, tune_run
from louver.measure.machine import CannotMeasureError
from louver.measure.tune import (
    APART,
    GAIN,
    NUMBERS,
    TILES,
    Tuned,
    classes_between,
    entry_of,
    neighbours,
    search,
    tune_and_keep,
)
from louver.measure.tune_run import Task, set_up
from louver.runtime.cache import KernelCache, KernelRecord
from louver.runtime.device import Device, NoDevice

PLACE = Device(0, "Some GPU", (9, 0), 132, 232448, 60 << 20, 141 << 30, (13, 0))
PROBLEM = Problem("linear")
TASK = Task(PROBLEM, 4096, 1024, 4096)
MODEL = choose(PROBLEM, 4096, 1024, SM_90A, 132, aligned_output=True)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("LOUVER_CACHE_DIR", str(tmp_path))
    schedule_for.cache_clear()
    yield tmp_path
    schedule_for.cache_clear()


def around(schedule: Schedule) -> Iterator[Schedule]:
    return neighbours(PROBLEM, schedule, 1024, SM_90A, aligned=True)


@dataclass
class Clock:
    """Times by a rule; schedules that are `broken` do not run. drift: by how much each measurement is slower than the last."""

    rule: Any
    drift: float = 1.0
    broken: Callable[[Schedule], bool] = lambda schedule: False
    asked: list[list[Schedule]] = field(default_factory=list)

    def __call__(self, schedules: Sequence[Schedule]) -> Mapping[Schedule, float]:
        self.asked.append(list(schedules))
        slower = self.drift ** len(self.asked)
        return {s: self.rule(s) * slower for s in schedules if not self.broken(s)}


def cost(schedule: Schedule) -> float:
    """Fastest at 192×192 with raster 8 and one stage less than fits: three steps from the model's choice."""
    wide = schedule.tile.m != 192
    return 1.0 + 0.3 * wide + 0.1 * (schedule.order.raster != 8) + 0.05 * abs(schedule.ring.stages - 4)


@pytest.mark.parametrize("drift", [1.0, 1.2])
def test_the_search_goes_on_from_what_is_faster(drift: float) -> None:
    clock = Clock(cost, drift)
    found = search(MODEL, around, clock)
    assert (found.best.tile.m, found.best.tile.n, found.best.order.raster, found.best.ring.stages) == (192, 192, 8, 4)
    assert found.base == MODEL
    assert found.times[MODEL] / found.times[found.best] == pytest.approx(cost(MODEL) / cost(found.best))
    assert clock.asked[-1] == [MODEL, found.best], "the gain is measured side by side"
    measured = [s for asked in clock.asked[:-1] for s in asked[1:]]
    assert len(measured) == len(set(measured)), "nothing is tried twice"


def test_noise_moves_nothing() -> None:
    rng = np.random.default_rng(1)
    found = search(MODEL, around, Clock(lambda s: 1 + GAIN * 0.4 * rng.random()))
    assert found.best == MODEL and found.times[MODEL] > 0


def test_what_does_not_run_is_left_out() -> None:
    found = search(MODEL, around, Clock(cost, broken=lambda s: s.tile.m == 192))
    assert found.best.tile.m != 192 and found.best.order.raster == 8
    with pytest.raises(ValueError, match="begins with a schedule that runs, got Schedule"):
        search(MODEL, around, Clock(cost, broken=lambda s: s == MODEL))


def test_a_best_that_does_not_hold_against_the_model_is_dropped() -> None:
    calls = 0

    def fickle(schedules: Sequence[Schedule]) -> Mapping[Schedule, float]:
        nonlocal calls
        calls += 1
        better = 1.0 if len(schedules) > 2 else 5.0
        return {s: 2.0 if s == MODEL else better for s in schedules}

    assert search(MODEL, around, fickle).best == MODEL


def test_neighbours_differ_by_one_thing_and_fit() -> None:
    found = list(around(MODEL))
    assert len(set(found)) == len(found) and MODEL not in found
    for schedule in found:
        full = deepest(PROBLEM, schedule, SM_90A)
        assert schedule.ring.stages <= full.ring.stages
        changed = {name for name, value in schedule.flat().items() if value != MODEL.flat()[name]}
        if changed != {"stages"}:
            changed.discard("stages")
            assert schedule.ring.stages == full.ring.stages
        assert changed <= set(TILES[0]) or len(changed) == 1, schedule
    for name, hint in get_type_hints(Schedule).items():
        if name in APART and name not in TILES[0]:
            assert all(getattr(s, name) == getattr(MODEL, name) for s in found)
        elif get_origin(hint) is Literal or hint is bool or name in NUMBERS or name in TILES[0]:
            assert any(getattr(s, name) != getattr(MODEL, name) for s in found), f"no neighbour changes {name}"


def test_bulk_stores_and_wide_tiles_only_where_they_make_sense() -> None:
    narrow = choose(PROBLEM, 4096, 16, SM_90A, 132)
    found = list(neighbours(PROBLEM, narrow, 16, SM_90A, aligned=False))
    assert found and all(s.store.way == "direct" and s.tile.n <= 64 for s in found)


@pytest.mark.parametrize(("low", "high"), [(1, 8192), (3, 3), (100, 700), (8192, 8193)])
def test_a_range_of_n_is_met_once_a_class(low: int, high: int) -> None:
    found = list(classes_between(low, high))
    assert [size_class(n) for n in found] == sorted({size_class(n) for n in range(low, high + 1)})
    assert all(low <= n <= high for n in found)


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="N is at least 1, a range from least to greatest, got 5 to 4"):
        list(classes_between(5, 4))
    with pytest.raises(ValueError, match="sizes are at least 1, got 0x1x1"):
        Task(PROBLEM, 0, 1, 1)
    with pytest.raises(ValueError, match="products with a bias at most, got Epilogue"):
        Task(Problem("linear", epilogue=Epilogue(activation="gelu")), 1, 1, 1)


def fake_torch(*, stream: int = 0) -> Any:
    cuda = SimpleNamespace(
        current_stream=lambda: SimpleNamespace(cuda_stream=stream), empty_cache=lambda: None, current_device=lambda: 0
    )
    return SimpleNamespace(cuda=cuda)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """No GPU is needed: times follow `cost`."""
    tuned: list[Task] = []

    def fake(torch: Any, task: Task, place: Device, protocol: Any) -> Any:
        tuned.append(task)
        return SimpleNamespace(measure=Clock(cost), refused={Schedule(): "does not compile"})

    monkeypatch.setattr(tune, "set_up", fake)
    return tuned


def test_what_is_found_is_kept_and_used(timed: list[Task]) -> None:
    assert schedule_for(PROBLEM, 4096, 1024, 4096, PLACE, aligned_output=True) == MODEL
    (tuned,) = tune_and_keep(fake_torch(), [TASK], PLACE)
    assert timed == [TASK]
    best = schedule_for(PROBLEM, 4096, 1024, 4096, PLACE, aligned_output=True)
    assert best == tuned.found.best and best.tile.m == 192
    assert decide(PROBLEM, 4096, 1024, 4096, PLACE, aligned_output=True).origin == "tuned"
    entry = entry_of(tuned, PLACE)
    assert entry.model == pytest.approx(cost(MODEL) * 1e6) and entry.microseconds == pytest.approx(cost(best) * 1e6)
    assert entry.shape == (4096, 1024, 4096)
    assert tuned.gain == pytest.approx(cost(MODEL) / cost(best))
    assert isinstance(tuned, Tuned) and tuned.refused


def test_sizes_of_one_class_are_tuned_together_and_outputs_that_are_not_aligned_apart(timed: list[Task]) -> None:
    list(tune_and_keep(fake_torch(), [Task(PROBLEM, 4095, 1024, 4096)], PLACE))
    assert decide(PROBLEM, 4095, 1000, 4090, PLACE, aligned_output=False).origin == "tuned"
    assert decide(PROBLEM, 4096, 1024, 4096, PLACE, aligned_output=True).origin == "model"


def test_nothing_is_timed_while_a_stream_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_run, "is_capturing", lambda stream: stream == 7)
    with pytest.raises(RuntimeError, match=r"louver.prepare\(s, n=…, tune=True\) before it"):
        set_up(fake_torch(stream=7), TASK, PLACE, tune.PROTOCOL)


def weight(rng: np.random.Generator) -> Any:
    return louver.compress(louver.prune(rng.standard_normal((96, 64)).astype(np.float16), "2:4"), "2:4")


def test_ranges_of_k_are_tried_beside_whole_tiles() -> None:
    chosen = choose(PROBLEM, 4096, 16, SM_90A, 132, aligned_output=True)
    around = neighbours(PROBLEM, chosen, 16, SM_90A, aligned=True)
    assert chosen.changed(work="ranges") in list(around)


def test_prepare_tunes_each_size_class_first(
    timed: list[Task], monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    from louver.library import prepare as ahead

    made: list[Any] = []
    monkeypatch.setattr(ahead, "require_device", lambda: PLACE)
    monkeypatch.setattr(ahead, "make_ready", lambda s, sizes, solved, place, batch, **_: made.append(tuple(sizes)))
    monkeypatch.setattr(ahead, "load_copies", lambda ordinal, nbytes: None)
    monkeypatch.setattr(machine, "require_torch", lambda targets: fake_torch())
    louver.prepare(weight(rng), n=(1, 40), kind="matmul")
    # Both layouts: some operands [K, N] are copied to rows along K.
    assert not timed and len(made) == 2
    louver.prepare(weight(rng), n=(1, 40), kind="matmul", tune=True)
    assert [task.n for task in timed] == [8, 16, 32, 40]
    assert {(task.m, task.k, task.problem.kind) for task in timed} == {(96, 64, "matmul")}
    assert len(made) == 4
    monkeypatch.setattr(ahead, "require_device", lambda: replace(PLACE, ordinal=1))
    with pytest.raises(ValueError, match="PyTorch's current device, 0, got 1"):
        louver.prepare(weight(rng), n=8, tune=True)


def test_tuning_needs_a_gpu(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    from louver.library import prepare as ahead

    monkeypatch.setattr(ahead, "require_device", lambda: PLACE)
    monkeypatch.setattr(machine, "current_device", lambda: NoDevice("no driver here"))
    with pytest.raises(CannotMeasureError, match="need a GPU, got none: no driver here"):
        louver.prepare(weight(rng), n=8, tune=True)


def test_a_new_shape_with_the_same_best_schedule_compiles_nothing_new(
    timed: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes are the kernel's arguments, no part of its key: the problem and the schedule alone are."""
    kernels, built = KernelCache(tmp_path / "kernels"), list[Schedule]()

    def build(problem: Problem, schedule: Schedule, name: str, why: Why | None) -> KernelRecord:
        built.append(schedule)
        return KernelRecord("kernel", b"cubin", f"{len(built):064x}")

    monkeypatch.setattr(compiled, "kernel_cache", lambda: kernels)
    monkeypatch.setattr(compiled, "build_record", build)

    def run(shape: tuple[int, int, int]) -> None:
        schedule = schedule_for(PROBLEM, *shape, PLACE, aligned_output=True)
        compiled.record_of(PROBLEM, schedule, PLACE.target)

    shapes = [(4096, 1024, 4096), (8192, 4096, 4096), (4096, 2048, 14336), (6144, 8192, 4096), (8192, 4096, 96)]
    for shape in shapes:
        run(shape)
    tall = MODEL.changed(tile_m=256, tile_n=192, staging=96)
    assert built == [MODEL, tall], "the model chooses one of two tiles for all of them"
    # Another M, N or K with the same best schedule: tuned apart, compiled once.
    for shape in shapes[1:]:
        list(tune_and_keep(fake_torch(), [Task(PROBLEM, *shape)], PLACE))
        run(shape)
    assert len(built) == 3 and built[2].tile.m == 192
    run(shapes[0])
    assert len(built) == 3


def test_of_register_tiles_all_that_the_model_compares_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    place, task = replace(PLACE, capability=(8, 6), sm_count=28), Task(Problem("linear"), 512, 256, 1000)
    seen: list[Any] = []

    class Bench:
        refused: ClassVar[dict[Any, str]] = {}

        def measure(self, schedules: Any) -> dict[Any, float]:
            seen.extend(schedules)
            return {each: 1.0 if each.tile_m == 32 else 2.0 for each in schedules}

    monkeypatch.setattr(tune, "set_up", lambda *_: Bench())
    tuned = tune.tune(None, task, place)
    assert tuned.found.best.tile_m == 32 and tuned.gain == 2.0
    assert len(set(seen)) == len(costs(task.problem, (512, 256, 1008, 1), TARGETS["sm_86"], 28, aligned_output=True))
    entry = entry_of(tuned, place)
    assert entry.schedule["target"] == "sm_86" and entry.usable(task.problem, TARGETS["sm_86"]) == tuned.found.best
