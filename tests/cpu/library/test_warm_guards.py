"""Warm calls are recognized by PyTorch's own guards of tensors where it has them, else by keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from louver.library import warm
from support.fake_gpu import FakeGpu, FakeTorch, Parameter, Tensor, TensorGuards

M, K = 136, 72


@pytest.fixture
def s(rng: np.random.Generator) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> type[TensorGuards]:
    monkeypatch.setattr(TensorGuards, "made", 0)
    monkeypatch.setattr(TensorGuards, "passed", 0)
    return TensorGuards


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The keys that were made."""
    made: list[object] = []
    key = warm._key

    def counting(*arguments: Any) -> Any:
        made.append(arguments)
        return key(*arguments)

    monkeypatch.setattr(warm, "_key", counting)
    return made


@pytest.mark.parametrize("bias", [None, Tensor((M,)), Parameter((M,))])
@pytest.mark.parametrize("makes", [False, True])
def test_calls_of_one_kind_make_one_guard_and_no_keys(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, keys: list[object], bias: Any, makes: bool
) -> None:
    p = louver.plan("linear", s, n=16, bias=bias, like=Tensor((16, K)))
    for call in (lambda x, y: p(x, out=y), lambda x, y: louver.linear(x, s, bias, out=y)):
        keys.clear()
        for _ in range(5):
            x, y = Tensor((16, K)), None if makes else Tensor((16, M))
            made = call(x, y)
            assert made.shape == (16, M) and (makes or made is y)
            assert x.address in {getattr(v, "address", None) for v in gpu.launches[-1].arguments.values()}
        assert len(keys) == 1, "the one that the first call is kept by"
    assert len(gpu.launches) == 10
    assert (TensorGuards.made, TensorGuards.passed) == (2, 8)


def test_without_guards_calls_have_keys(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, keys: list[object], checked: list[str]
) -> None:
    del torch._C._dynamo
    x, y = Tensor((16, K)), Tensor((16, M))
    for _ in range(5):
        louver.linear(x, s, out=y)
    assert len(keys) == 5, "one to keep the first call, one to look for each other"
    assert len(checked) == 1 and len(gpu.launches) == 5


def test_numbers_change_without_a_new_guard(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    x, y = Tensor((16, K)), Tensor((16, M))
    for alpha in (2.0, 0.0, -0.0, 0.5, 2.0):
        louver.linear(x, s, out=y, alpha=alpha)
        read = gpu.launches[-1].arguments["alpha"]
        assert repr(read) == repr(alpha)
    assert (TensorGuards.made, TensorGuards.passed) == (1, 4)


def test_kinds_that_alternate_keep_their_guards(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, checked: list[str]
) -> None:
    p = louver.plan("linear", s, n=16)
    for _ in range(40):
        for n in (1, 16):
            p(Tensor((n, K)), out=Tensor((n, M)))
            assert gpu.launches[-1].arguments["N"] == n
    assert len(checked) == TensorGuards.made == 2


def test_a_guard_that_fits_no_more_is_made_anew_now_and_then(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, checked: list[str]
) -> None:
    """An output that is c too is one tensor given twice, which PyTorch's guards never pass."""
    x, y = Tensor((16, K)), Tensor((16, M))
    for _ in range(1 + 3 * warm.MISSES):
        louver.linear(x, s, out=y, c=y)
        assert gpu.launches[-1].arguments["c"] == y.address
    assert len(checked) == 1
    assert (TensorGuards.made, TensorGuards.passed) == (4, 0)


@pytest.mark.parametrize("option", [np.ones(3), [1], object()])
def test_options_that_cannot_be_compared_reach_the_checks(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, option: Any
) -> None:
    x, y = Tensor((16, K)), Tensor((16, M))
    louver.linear(x, s, out=y)
    for name in ("activation", "accumulate", "out_dtype"):
        with pytest.raises((TypeError, ValueError), match="activation|accumulate|element type|dtype"):
            louver.linear(x, s, out=y, **{name: option})
    assert len(gpu.launches) == 1
