"""Kernels that are compiled ahead are those that a measurement's calls load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.formats.pattern import lifted_pattern
from louver.library import host
from louver.library.compiled import loaded_keys, product_key
from louver.measure import launches
from louver.measure.launches import compile_ahead, kernels_of
from louver.measure.problems import GemmProblem
from louver.runtime import device
from louver.runtime.cache import KernelCache
from support.fake_gpu import FakeGpu, FakeTorch, Tensor, recording

PROBLEMS = [
    GemmProblem(512, 16, 256, "f16"),
    GemmProblem(512, 512, 256, "bf16"),
    GemmProblem(512, 16, 256, "e4m3"),
    GemmProblem(512, 8, 256, "e4m3"),
    GemmProblem(512, 512, 256, "s8", "f16"),
    GemmProblem(512, 16, 256, "f16", accumulate="f16"),
]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, kernels: KernelCache) -> Iterator[FakeGpu]:
    with recording(monkeypatch, kernels) as made:
        monkeypatch.setattr(host, "current_device", device.current_device)
        yield made


def run(problem: GemmProblem, rng: np.random.Generator) -> None:
    """What a measurement has the library do, on tensors that are facts only."""
    element, m, n, k = element_type(problem.dtype), problem.m, problem.n, problem.k
    dense = (rng.standard_normal((m, k)) * 9).astype(element.numpy)
    pattern = lifted_pattern(problem.dtype)
    s = louver.compress(louver.prune(dense, pattern), pattern)
    dtype, out = (element_type(each).numpy.name for each in (problem.dtype, problem.out))
    x, how = Tensor((n, k), dtype), problem.accumulate
    louver.linear(x, s, out=Tensor((n, m), out), accumulate=how)
    if n <= 256:
        louver.plan("linear", s, n, like=x, out_dtype=problem.out, accumulate=how, dependent=True)
    if problem.bits == 8 and n % 16 == 0:
        louver.matmul(s, Tensor((k, n), dtype, strides=(1, k)), out=Tensor((m, n), out))


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_nothing_else_is_loaded(gpu: FakeGpu, torch: FakeTorch, problem: GemmProblem, rng: np.random.Generator) -> None:
    place = device.device(0)
    ahead = {(product_key(*kernel, place.target), 0) for kernel in kernels_of(problem, place)}
    run(problem, rng)
    assert set(loaded_keys()) == ahead


def test_each_kernel_is_compiled_once(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(launches, "compile_all", lambda wanted, name: seen.append((list(wanted), name)) or {})
    place = device.device(0)
    assert compile_ahead([PROBLEMS[0], PROBLEMS[0]], place) == 3
    assert seen == [(list(kernels_of(PROBLEMS[0], place)), "sm_90a")]
