"""Detect, cost and select of each family of kernels: in the record beside the cubin, and as `explain` prints them."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import louver
from louver.choose.reasons import Reasons
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.library import compiled
from louver.library.compiled import Launch, _loaded, build_record, from_json
from louver.runtime.cache import KernelCache, KernelRecord
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.jit import kept_kernel
from support.tile_gpu import TileGpu
from support.triton.cases import CASES

if TYPE_CHECKING:
    from support.command_line import Cli

M, N, K = 200, 96, 256


def weight(rng: np.random.Generator, element: str = "float16") -> louver.SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(element), "2:4"), "2:4")


def kept() -> list[Reasons]:
    """The reasons of the kernels that are loaded."""
    found = [each.launch.reasons for each in _loaded().values()]
    return [each for each in found if each is not None]


@pytest.fixture
def afterwards(monkeypatch: pytest.MonkeyPatch, kernels: KernelCache) -> Any:
    """Makes what follows a later process: nothing is loaded, and records come from the folder alone."""

    def begin() -> None:
        def fails(*_: Any) -> KernelRecord:
            raise AssertionError("the kernel is in the folder")

        _loaded.cache_clear()
        monkeypatch.setattr(compiled, "kernel_cache", lambda: KernelCache(kernels.folder.path))
        monkeypatch.setattr(compiled, "build_record", fails)

    return begin


def test_a_plans_kernel_keeps_its_reasons(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, afterwards: Any
) -> None:
    told = louver.plan("linear", weight(rng), N).explain()
    assert told in kept() and told.sizes == (M, N, K, 1)
    assert told.detect.startswith(f"the weight [{M}, {K}] of f16 holds 2:4, promised by its type")
    assert "µs by" in told.cost[0] and told.cost[-1].endswith(
        f"candidates for {M}×{N}×{K} on 132 SMs; rates fitted to an H200"
    )
    assert told.select.startswith("wgmma.sp on sm_90a; tile ") and "the model's choice" in told.select
    afterwards()
    assert louver.plan("linear", weight(rng), N).explain() == told and told in kept()


def test_sizes_that_share_a_kernel_are_weighed_again(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    first, wide = weight(rng), louver.compress(louver.prune(np.ones((M, 2 * K), np.float16), "2:4"), "2:4")
    one = louver.plan("linear", first, N).explain()
    loaded = len(_loaded())
    other = louver.plan("linear", wide, N).explain()
    assert len(_loaded()) == loaded, "one kernel for both"
    assert other.sizes == (M, N, 2 * K, 1) != one.sizes and other.cost != one.cost and other.select == one.select


def test_register_tiles_of_the_library_keep_theirs(
    gpu: FakeGpu, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    TileGpu(gpu, monkeypatch, (8, 6))
    told = louver.plan("linear", weight(rng), N).explain()
    assert told in kept() and "clocks, limited by" in told.cost[0]
    assert told.select.startswith("mma.sp::ordered_metadata.m16n8k32 of f16, one machine instruction on sm_86")


@pytest.mark.parametrize("capability", [(9, 0), (8, 9)])
def test_a_users_kernel_keeps_its_reasons(
    gpu: FakeGpu,
    torch: FakeTorch,
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    capability: tuple[int, int],
) -> None:
    product = capability == (9, 0)
    if not product:
        TileGpu(gpu, monkeypatch, capability)
    sizes = {"M": M, "N": N, "K": K, "stride_a": K, "stride_b": K, "stride_d": N}
    arrays = {"d": Tensor((M, N)), "a": weight(rng), "b": Tensor((N, K))}
    kernel, constants = kept_kernel("made_descriptors"), CASES["made_descriptors"].constexprs
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel[(2, 2)](**arrays, **sizes, **constants)
    (found,) = kept()
    said = kernel.explain(**arrays, **sizes, **constants)
    assert said.family == ("product" if product else "register tiles") and said.reasons is not None
    assert (
        found.detect
        == said.reasons.detect
        == ("'a' of f16 holds 2:4, promised by its type: a sparse tensor stores no other elements")
    )
    assert found.select.split(";")[0] == said.reasons.select.split(";")[0]
    assert str(said.reasons) in str(said)
    if product:
        assert found == said.reasons and found.sizes == (M, N, K, 1)
    else:
        assert found.sizes is None and "registers of a thread" in found.cost[0] and "mma.sp" in found.select


def test_a_schedule_that_the_caller_names() -> None:
    record = build_record(Problem("matmul"), Schedule.of(tile_n=16, stages=4), "sm_90a")
    launch = from_json(Launch, json.loads(json.dumps(dict(record.launch))))
    assert launch.reasons is not None and launch.reasons.sizes is None
    assert launch.reasons.cost == ("the caller names the schedule: nothing was compared",)
    assert launch.reasons.select == "wgmma.sp on sm_90a; tile 128×16×64, 4 stages (the caller's)"


@pytest.mark.parametrize(
    ("options", "signs"),
    [
        ([], ["of f16 holds 2:4, promised", "µs by", "wgmma.sp on sm_90a; tile"]),
        (
            ["--target", "sm_80", "--dtype", "s8"],
            ["of s8 holds 2:4, promised", "clocks, limited by", "m16n8k64 of s8, one machine instruction on sm_80"],
        ),
    ],
)
def test_the_command_line_prints_the_reasons(cli: Cli, options: list[str], signs: list[str]) -> None:
    result = cli("compile", "--problem", f"{M},{N},{K}", "--emit", "reasons", *options)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("detect: ") and all(sign in result.output for sign in signs)
