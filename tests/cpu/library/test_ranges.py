"""The tiles that are cut into ranges of K, and the workspaces that their launches are given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.choose.configure import choose
from louver.choose.demand import Demand
from louver.choose.ranges import MOST_PARTS, Cutting, Ranges
from louver.choose.tuned import Entry, decide, place_of
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.runtime.device import device
from support.fake_gpu import FakeGpu, FakeTorch, Launch, Tensor

LINEAR = Problem("linear")
SMS = 132


def cutting(schedule: Schedule, problem: Problem = LINEAR) -> Cutting:
    return Cutting.of(Demand.of_problem(problem), schedule)


WIDE, NARROW = cutting(Schedule.of(stages=4)), cutting(Schedule.of(tile_n=16, stages=8))


@pytest.mark.parametrize(("m", "n", "k"), [(3584, 4096, 18944), (10240, 1024, 8192), (4608, 2048, 3584)])
def test_the_tiles_of_the_last_wave_are_cut_alike_and_done_at_once(m: int, n: int, k: int) -> None:
    cut = WIDE.best(m, n, k, 1, SMS)
    assert cut.cut == cut.tiles % SMS
    assert cut.parts > 1
    assert cut.cut * cut.parts <= SMS
    assert WIDE.cycles(cut, m, n, k, 1, SMS) < WIDE.cycles(WIDE.whole(m, n, k, 1), m, n, k, 1, SMS)


@pytest.mark.parametrize("k", [1, 255, 256, 257, 512, 4096, 14336, 14337])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("n", [1, 16, 40, 3000])
@pytest.mark.parametrize("problem", [LINEAR, Problem("linear", "e4m3", "e4m3"), Problem("linear", accumulate="f16")])
def test_ranges_begin_at_loads_of_metadata_and_none_is_empty(problem: Problem, n: int, batch: int, k: int) -> None:
    model = cutting(Schedule.of(tile_n=16, tile_k=128, stages=4, cluster=1 + batch % 2), problem)
    cut, steps = model.best(1000, n, k, batch, SMS), -(-k // 128)
    assert cut.tiles == model.whole(1000, n, k, batch).tiles
    assert 0 <= cut.whole <= cut.tiles
    if cut.cut:
        assert cut.part_steps * 128 % 256 == 0
        assert (cut.parts - 1) * cut.part_steps < steps <= cut.parts * cut.part_steps
        assert 2 <= cut.parts <= MOST_PARTS


@pytest.mark.parametrize("work", ["ranges", "pairs"])
def test_launches_of_many_waves_are_not_cut(work: str) -> None:
    model = cutting(Schedule.of(stages=4, work=work))
    for tiles, cut in ((15 * SMS + 1, 1), (16 * SMS, 0), (16 * SMS + 1, 0)):
        found = model.best(128 * tiles, 256, 4096, 1, SMS)
        assert (found.tiles, found.cut) == (tiles, cut)
        assert cut or model.workspace(found) == (0, 0)


def test_few_tiles_are_all_cut_and_no_more_than_memory_is_worth() -> None:
    assert NARROW.best(4096, 16, 14336, 1, SMS) == Ranges(32, 0, 4, 56)
    # 128 tiles leave four SMs idle.
    assert choose(LINEAR, 4096, 1024, SM_90A, SMS, k=4096, cuts=True).work.unit == "tiles"
    # K of one load of metadata is not cut.
    assert NARROW.best(128, 16, 256, 1, SMS) == Ranges(1, 1, 1, 4)
    assert choose(LINEAR, 128, 16, SM_90A, SMS, k=256, cuts=True).work.unit == "tiles"


def test_without_k_nothing_is_cut_and_with_it_only_what_pays() -> None:
    for m, n, k in ((4096, 16, 14336), (3584, 4096, 18944), (8192, 8192, 8192), (28672, 16, 4096)):
        whole, chosen = choose(LINEAR, m, n, SM_90A, SMS), choose(LINEAR, m, n, SM_90A, SMS, k=k, cuts=True)
        assert whole.work.unit == "tiles"
        before = cutting(whole)
        if chosen.cuts:
            model = cutting(chosen)
            gained = model.cycles(model.best(m, n, k, 1, SMS), m, n, k, 1, SMS)
            assert gained < before.cycles(before.whole(m, n, k, 1), m, n, k, 1, SMS)
        else:
            assert chosen == whole
    assert choose(LINEAR, 4096, 16, SM_90A, SMS, k=14336, cuts=True).cuts
    assert not choose(LINEAR, 28672, 1, SM_90A, SMS, k=4096, cuts=True).cuts


PAIRS = cutting(Schedule.of(tile_n=16, stages=8, work="pairs"))


@pytest.mark.parametrize("sms", [1, 2, 131, 132])
@pytest.mark.parametrize("m", [64, 128 * 60, 128 * 66, 128 * 67, 128 * 132, 128 * 150, 128 * 400])
@pytest.mark.parametrize("k", [256, 257, 4096])
def test_pairs_of_a_launch_are_clusters_and_the_last_items_of_their_ctas(m: int, k: int, sms: int) -> None:
    cut = PAIRS.best(m, 16, k, 1, sms)
    ctas = 2 * min(-(-cut.items // 2), max(1, sms // 2))
    if k == 256 or (sms == 132 and m == 128 * 67):
        assert cut.cut == 0
    if cut.cut:
        assert cut.parts == 2 and cut.part_steps < -(-k // 64) <= 2 * cut.part_steps
        assert cut.whole % ctas == 0 and 2 * cut.cut <= ctas
    assert PAIRS.workspace(cut) == (0, 0)


def test_pairs_take_a_last_wave_of_half_the_sms_at_most() -> None:
    wide = cutting(Schedule.of(stages=4, work="pairs"))
    assert wide.best(128 * 45, 1024, 4096, 1, SMS) == Ranges(180, 132, 2, 32)
    assert wide.best(128 * 30, 1536, 4096, 1, SMS) == Ranges(180, 132, 2, 32)
    assert wide.best(128 * 10, 1536, 4096, 1, SMS) == Ranges(60, 0, 2, 32)
    assert wide.best(128 * 66, 256, 4096, 1, SMS) == Ranges(66, 0, 2, 32)
    assert wide.best(128 * 67, 256, 4096, 1, SMS).cut == 0


def test_sums_and_counters_have_room_for_each_range() -> None:
    assert WIDE.workspace(Ranges(448, 396, 2, 148)) == (52 * 2 * 128 * 256 * 4, 52 * 2)
    halves = cutting(Schedule.of(tile_m=256, consumers=4, stages=3), Problem("linear", accumulate="f16"))
    assert halves.workspace(Ranges(1, 0, 3, 4)) == (3 * 256 * 256 * 2, 4)
    paired = cutting(Schedule.of(stages=4, cluster=2))
    assert paired.workspace(Ranges(10, 8, 2, 4)) == (2 * 2 * 2 * 128 * 256 * 4, 2 * 2 * 2)
    assert WIDE.workspace(WIDE.whole(4096, 256, 4096, 1)) == (0, 0)


@pytest.mark.parametrize("m", [64, 4096, 28672, 57344, 1 << 20])
@pytest.mark.parametrize("n", [1, 256, 8192])
def test_a_workspace_is_no_larger_than_four_waves_of_tiles(m: int, n: int) -> None:
    for model in (WIDE, NARROW):
        nbytes, _ = model.workspace(model.best(m, n, 16384, 1, SMS))
        assert nbytes <= 4 * SMS * model.sum_bytes


def test_a_plan_s_cut_is_kept_for_fewer_tiles() -> None:
    cut = Ranges(448, 396, 2, 148)
    assert cut.of(400) == Ranges(400, 396, 2, 148)
    assert cut.of(300) == Ranges(300, 300, 2, 148)
    assert cut.of(300).items == 300


# --- products --------------------------------------------------------------------------------------------------------


def weight(m: int = 512, k: int = 4096) -> louver.SparseTensor:
    return louver.compress(louver.prune(np.ones((m, k), np.float16), "2:4"), "2:4")


def test_batch_invariant_products_take_kernels_of_whole_tiles(gpu: FakeGpu) -> None:
    place = device(0)
    cut = decide(LINEAR, 512, 16, 4096, place, aligned_output=True)
    whole = decide(LINEAR, 512, 16, 4096, place, aligned_output=True, batch_invariant=True)
    assert cut.schedule.cuts
    assert not whole.schedule.cuts


@pytest.mark.parametrize(
    ("problem", "change"),
    [
        (LINEAR, {"work": "ranges"}),
        (replace(LINEAR, a="e4m3", b="e4m3", accumulate="promoted"), {"tile_k": 64}),
    ],
    ids=["ranges", "promoted"],
)
def test_entries_that_sum_in_another_order_are_passed_over(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, problem: Problem, change: dict[str, Any]
) -> None:
    from louver.choose import tuned

    place = device(0)
    wanted = place_of(problem, 512, 16, 4096, place.name, aligned_output=True)
    base = choose(problem, 512, 16, SM_90A, SMS, aligned_output=True)
    entry = Entry(wanted, base.changed(**change).flat())
    monkeypatch.setitem(tuned._SOURCES, "tuned", lambda _: entry)
    assert decide(problem, 512, 16, 4096, place, aligned_output=True).origin == "tuned"
    other = decide(problem, 512, 16, 4096, place, aligned_output=True, batch_invariant=True)
    assert other.origin == "model"
    assert "in another order than products of other sizes (batch_invariant)" in other.reason


M, K = 512, 4096


@pytest.fixture
def in_ranges(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> Cutting:
    """Products of few tokens take a kernel that cuts K by way of global memory."""
    from louver.choose import tuned

    wanted = place_of(LINEAR, M, 16, K, device(0).name, aligned_output=True)
    schedule = choose(LINEAR, M, 16, SM_90A, SMS, aligned_output=True).changed(work="ranges")
    monkeypatch.setitem(tuned._SOURCES, "tuned", lambda _: Entry(wanted, schedule.flat()))
    return cutting(schedule)


CHOSEN = cutting(choose(LINEAR, M, 16, SM_90A, SMS, aligned_output=True, k=K, cuts=True))


def cut_of(launch: Launch) -> tuple[Any, ...]:
    return tuple(launch.arguments.get(name) for name in ("whole", "parts", "part_steps"))


def test_a_product_of_few_tokens_is_cut_in_pairs_of_ctas(gpu: FakeGpu, torch: FakeTorch) -> None:
    m = 2048
    chosen = cutting(choose(LINEAR, m, 16, SM_90A, SMS, aligned_output=True, k=K, cuts=True))
    louver.linear(Tensor((16, K)), weight(m), out=Tensor((16, m)))
    launch, best = gpu.only_launch(), chosen.best(m, 16, K, 1, SMS)
    assert chosen.pairs and cut_of(launch) == (0, 2, best.part_steps)
    assert launch.grid == best.items == 2 * best.tiles
    assert not {"workspace", "counters"} & {*launch.arguments}


def test_a_product_of_few_tokens_is_cut_in_the_workspace_of_its_stream(
    gpu: FakeGpu, torch: FakeTorch, in_ranges: Cutting
) -> None:
    s, x, y = weight(), Tensor((16, K)), Tensor((16, M))
    held: dict[int, Any] = {}
    for stream in (0, 7, 0, 7):
        torch.stream = stream
        for _ in range(2):
            louver.linear(x, s, out=y)
            launch = gpu.only_launch()
            best = in_ranges.best(M, 16, K, 1, SMS)
            assert cut_of(launch) == (0, best.parts, best.part_steps)
            assert launch.grid == best.items
            assert launch.arguments["workspace"] == held.setdefault(stream, launch.arguments["workspace"])
    assert len(set(held.values())) == 2


def test_a_product_whose_k_cannot_be_cut_has_no_workspace(
    gpu: FakeGpu, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    from louver.choose import tuned

    place = device(0)
    wanted = place_of(LINEAR, M, 16, 256, place.name, aligned_output=True)
    schedule = choose(LINEAR, M, 16, SM_90A, SMS, aligned_output=True).changed(work="ranges")
    monkeypatch.setitem(tuned._SOURCES, "tuned", lambda _: Entry(wanted, schedule.flat()))
    louver.linear(Tensor((16, 256)), weight(k=256), out=Tensor((16, M)))
    launch = gpu.only_launch()
    assert launch.grid == launch.arguments["whole"]
    assert launch.arguments["workspace"] == launch.arguments["counters"] == 0


def test_each_capture_has_a_workspace_of_its_own_when_it_is_replayed_too(
    gpu: FakeGpu, torch: FakeTorch, in_ranges: Cutting
) -> None:
    s, x, y = weight(), Tensor((16, K)), Tensor((16, M))
    torch.stream = 5
    louver.linear(x, s, out=y)
    eager = gpu.only_launch().arguments["workspace"]
    found = []
    for capture in (3, 4):
        gpu.captures[5] = capture
        louver.linear(x, s, out=y)
        louver.linear(x, s, out=y)
        one, other = gpu.launches
        assert one.arguments["workspace"] == other.arguments["workspace"]
        found.append(one.arguments["workspace"])
        gpu.launches.clear()
        del gpu.captures[5]
        louver.linear(x, s, out=y)
        assert gpu.only_launch().arguments["workspace"] == eager
    assert len({eager, *found}) == 3


def test_a_first_call_may_be_captured_after_prepare(gpu: FakeGpu, torch: FakeTorch, in_ranges: Cutting) -> None:
    s, x, y = weight(), Tensor((16, K)), Tensor((16, M))
    torch.stream = 5
    gpu.captures[5] = 1
    with pytest.raises(RuntimeError, match=r"louver.prepare\(s, n=…, bias=False.*\) before the capture"):
        louver.linear(x, s, out=y)
    with pytest.raises(RuntimeError, match=r", batch_invariant=True\) before the capture"):
        louver.linear(x, s, out=y, batch_invariant=True)
    del gpu.captures[5]
    louver.prepare(s, n=16)
    louver.prepare(s, n=16, batch_invariant=True)
    gpu.captures[5] = 1
    louver.linear(x, s, out=y)
    captured = gpu.only_launch().arguments["workspace"]
    louver.linear(x, s, out=y, batch_invariant=True)
    assert "workspace" not in gpu.only_launch().arguments
    del gpu.captures[5]
    louver.linear(x, s, out=y)
    assert gpu.only_launch().arguments["workspace"] != captured


def test_a_plan_cuts_as_for_its_own_n_and_a_larger_call_for_its_own(gpu: FakeGpu, torch: FakeTorch) -> None:
    s = weight()
    p = louver.plan("linear", s, n=16, like=Tensor((16, K)))
    p(Tensor((16, K)))
    planned = gpu.only_launch()
    for n in (1, 9, 16):
        p(Tensor((n, K)))
        assert cut_of(gpu.only_launch()) == cut_of(planned)
    p(Tensor((1024, K)))
    best = CHOSEN.best(M, 1024, K, 1, SMS)
    assert cut_of(gpu.only_launch()) == (best.whole, best.parts, best.part_steps) != cut_of(planned)


def test_batch_invariant_is_true_or_false() -> None:
    with pytest.raises(TypeError, match="batch_invariant is True or False, got an object of type int"):
        louver.linear(np.ones((2, 64), np.float16), weight(64, 64), batch_invariant=1)  # type: ignore[arg-type]


def test_more_ranges_than_ctas_run_at_once_have_a_predicted_time() -> None:
    cut = Ranges(2, 0, 8, 4)
    assert NARROW.cycles(cut, 128, 32, 2048, 1, 1) > NARROW.cycles(cut, 128, 32, 2048, 1, 132)
