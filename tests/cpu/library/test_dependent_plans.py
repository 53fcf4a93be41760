"""Plans whose launches may begin while the kernels before them end: schedules, launches, entries, and what a plan says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.choose.configure import candidates_for, choose, deepest
from louver.choose.demand import Demand
from louver.choose.ranges import Cutting
from louver.choose.tuned import Entry, decide, keep, place_of
from louver.compile.pipeline import compile_product
from louver.compile.plan.schedule import Schedule, register_split
from louver.formats.tensor import SparseTensor
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.ptx.assembler import assemble
from louver.runtime.device import device
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.fused import FULL
from support.products import operands

SMS = 132
M, K = 512, 4096
PROBLEMS = {
    "f16": Problem("linear", bias="row"),
    "bf16": Problem("linear", "bf16", "bf16", "bf16"),
    "e4m3": Problem("linear", "e4m3", "e4m3", "f16"),
    "promoted": Problem("linear", "e4m3", "e5m2", "bf16", accumulate="promoted"),
    "int8": Problem("linear", "s8", "s8", "s32"),
    "n-major": Problem("matmul", b_layout="n_major"),
    "fused": Problem("linear", epilogue=FULL, bias="row"),
}


def chosen(problem: Problem, n: int, *, aligned: bool = True, dependent: bool = True) -> Schedule:
    return choose(problem, 4096, n, SM_90A, SMS, aligned_output=aligned, dependent=dependent)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("n", [1, 8, 16, 33, 64, 128, 256, 4096])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_dependent_launch_of_other_products_has_the_schedule_of_a_plain_one(name: str, n: int, aligned: bool) -> None:
    problem = PROBLEMS[name]
    schedule, plain = chosen(problem, n, aligned=aligned), chosen(problem, n, aligned=aligned, dependent=False)
    assert not plain.occupancy.dependent and schedule == plain.changed(dependent=True)


@pytest.mark.parametrize("n", [1, 16, 64])
def test_few_tokens_of_16_bits_take_tiles_of_64_rows(n: int) -> None:
    sizes = {"m": 28672, "n": n, "target": SM_90A, "sm_count": SMS, "aligned_output": True, "cuts": True}
    plain, schedule = (choose(PROBLEMS["bf16"], dependent=dependent, **sizes) for dependent in (False, True))
    assert (plain.tile.m, schedule.tile.m) == (256, 64)


@pytest.mark.parametrize("name", ["f16", "promoted", "fused"])
def test_kernels_fit_an_sm_and_assemble_without_spills(name: str) -> None:
    problem = PROBLEMS[name]
    demand = replace(Demand.of_problem(problem), dependent=True)
    schedules = {each for each, _ in candidates_for(demand, SM_90A, 64, bulk=True)}
    assert schedules
    for schedule in (*schedules, *(deepest(problem, each.changed(resident=2), SM_90A) for each in schedules)):
        made, resident = compile_product(problem, schedule), schedule.occupancy.resident
        assert resident * (made.signature.shared_bytes + 1024) <= 228 * 1024
        producer, consumer = register_split(schedule, SM_90A)
        assert resident * 128 * (producer + schedule.roles.consumers * consumer) <= SM_90A.registers_per_sm
        assembly = assemble(made.ptx, "sm_90a")
        assert assembly.clean, assembly.faults


def test_room_for_other_ctas_is_refused_where_there_is_none() -> None:
    problem = PROBLEMS["f16"]
    with pytest.raises(
        ValueError, match=r"consumer warpgroups, with 2 CTAs on an SM, has 104 registers, got a tile of 128×256"
    ):
        deepest(problem, Schedule.of(resident=2), SM_90A)
    with pytest.raises(
        ValueError,
        match=r"begins with 80 registers a thread, got 128 columns, whose instruction needs 91: use a narrower",
    ):
        deepest(problem, Schedule.of(tile_n=128, resident=2), SM_90A)
    with pytest.raises(
        ValueError, match="two stages of 17408 bytes do not fit the 57344 bytes of shared memory of sm_90a"
    ):
        staged = Schedule.of(tile_n=64, consumers=1, resident=4, store="bulk", staging=64, metadata="stage")
        deepest(Problem("linear", out="f32"), staged, SM_90A)
    with pytest.raises(
        ValueError,
        match="each of 2 CTAs on an SM of sm_90a has 115712 bytes of shared memory, got a schedule that needs",
    ):
        compile_product(problem, Schedule.of(tile_n=64, stages=8, resident=2))


def test_ranges_count_the_ctas_of_a_launch() -> None:
    demand = Demand.of_problem(PROBLEMS["f16"])
    narrow = Schedule.of(tile_n=16, stages=4, work="ranges", metadata="stage")

    def items(**changed: Any) -> int:
        cut = Cutting.of(demand, narrow.changed(**changed)).best(4096, 16, 14336, 1, SMS)
        return cut.items

    assert items() == items(resident=2, dependent=True)
    assert items(resident=2) > SMS and items(resident=4, dependent=True) > SMS


def test_k_is_cut_of_dependent_launches_too() -> None:
    found = choose(PROBLEMS["f16"], 512, 16, SM_90A, SMS, aligned_output=False, k=32768, cuts=True, dependent=True)
    assert found.cuts and found.occupancy == chosen(PROBLEMS["f16"], 16).occupancy


def weight() -> SparseTensor:
    rng = np.random.default_rng(3)
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")


def test_each_launch_of_a_plan_may_begin_early_and_no_other_does(gpu: FakeGpu, torch: FakeTorch) -> None:
    s, x, y = weight(), Tensor((16, K)), Tensor((16, M))
    p = louver.plan("linear", s, n=16, like=x, dependent=True)
    for n, stream in ((16, 0), (3, 7), (100, 7)):
        torch.stream = stream
        gpu.calls.clear()
        for _ in range(3):
            p(Tensor((n, K)), out=Tensor((n, M)))
        assert {name for name, _ in gpu.calls} >= {"cuLaunchKernelEx"} and not gpu.called("cuLaunchKernel")
        for launch, (config, *_) in zip(gpu.launches, gpu.called("cuLaunchKernelEx"), strict=True):
            (attribute,) = config.attrs
            assert config.numAttrs == 1 and attribute.id == "programmatic"
            assert attribute.value.programmaticStreamSerializationAllowed == 1
            assert launch.stream == stream and launch.kernel.launch.schedule.occupancy.dependent
        gpu.launches.clear()
    louver.linear(x, s, out=y)
    assert gpu.called("cuLaunchKernel") and not gpu.only_launch().kernel.launch.schedule.occupancy.dependent
    other = louver.plan("linear", s, n=16, like=x)
    other(x, out=y)
    assert not gpu.only_launch().kernel.launch.schedule.occupancy.dependent


def test_a_warm_call_only_launches_and_may_be_captured(gpu: FakeGpu, torch: FakeTorch) -> None:
    s, x, y = weight(), Tensor((16, K)), Tensor((16, M))
    p = louver.plan("linear", s, n=16, like=x, dependent=True, batch_invariant=True)
    torch.stream = 5
    gpu.captures[5] = 1
    p(x, out=y)
    gpu.calls.clear()
    for _ in range(3):
        p(x, out=y)
    assert [name for name, _ in gpu.calls] == ["cuLaunchKernelEx"] * 3


def test_dependent_is_true_or_false() -> None:
    with pytest.raises(TypeError, match="dependent is True or False, got an object of type int"):
        louver.plan("linear", weight(), n=16, dependent=1)  # type: ignore[arg-type]


def test_on_the_host_it_changes_nothing(rng: np.random.Generator) -> None:
    given = operands(rng, 64, 8, 128, data="normal")
    x = np.ascontiguousarray(given.b.T)
    found = [louver.plan("linear", given.s, n=8, dependent=each)(x) for each in (False, True)]
    np.testing.assert_array_equal(*found)
    assert louver.plan("linear", given.s, n=8, dependent=True).dependent


def entry(schedule: Schedule, *, dependent: bool) -> Entry:
    place = place_of(Problem("linear"), M, 16, K, device(0).name, aligned_output=True, dependent=dependent)
    return Entry(place, schedule.flat())


def test_entries_are_for_launches_of_one_kind(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("LOUVER_CACHE_DIR", str(tmp_path))
    schedules = {each: Schedule.of(tile_n=16, stages=3, raster=5 + each, dependent=each) for each in (False, True)}

    def decided(*, dependent: bool) -> Any:
        return decide(Problem("linear"), M, 16, K, device(0), aligned_output=True, dependent=dependent)

    for kind, schedule in schedules.items():
        keep(entry(schedule, dependent=kind))
    for kind, schedule in schedules.items():
        assert (decided(dependent=kind).schedule, decided(dependent=kind).origin) == (schedule, "tuned")
    keep(entry(schedules[False], dependent=True))
    refused = decided(dependent=True)
    assert refused.origin == "model" and "its schedule is not a dependent one" in refused.reason
    keep(entry(schedules[True], dependent=False))
    assert "its schedule is a dependent one" in decided(dependent=False).reason
