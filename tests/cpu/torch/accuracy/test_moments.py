"""Moments of inputs: sums, types, shapes, and what is not finite."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

from louver.torch.accuracy import moments as module  # noqa: E402
from louver.torch.accuracy.moments import Moments  # noqa: E402


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_means_over_tokens(dtype: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOKENS_AT_ONCE", 16)
    x, dense_x = (torch.from_numpy(rng.standard_normal((3, 19, 7))).to(getattr(torch, dtype)) for _ in range(2))
    moments = Moments(7, "cpu", dense=True)
    moments.add(x[:1], dense_x[:1])
    moments.add(x[1:], dense_x[1:])
    flat, other = x.double().view(-1, 7), dense_x.double().view(-1, 7)
    assert moments.count == 57 and moments.features == 7 and moments.dense
    for mean, (a, b) in zip(
        (moments.gram, moments.cross, moments.dense_gram), ((flat, flat), (other, flat), (other, other)), strict=True
    ):
        assert mean.dtype == torch.float32
        assert torch.allclose(mean.double(), a.T @ b / 57, atol=1e-6)


def test_without_dense_inputs_the_model_is_its_own(rng: np.random.Generator) -> None:
    moments = Moments(5, "cpu")
    moments.add(torch.from_numpy(rng.standard_normal((11, 5), np.float32)))
    assert not moments.dense
    assert torch.equal(moments.cross, moments.gram) and torch.equal(moments.dense_gram, moments.gram)


def test_no_tokens_are_zeros() -> None:
    moments = Moments(5, "cpu")
    moments.add(torch.zeros(0, 5))
    moments.check()
    assert moments.count == 0 and not moments.gram.any()


@pytest.mark.parametrize("dense", [False, True])
def test_sums_of_batches_are_added_in_f64(dense: bool, rng: np.random.Generator) -> None:
    parts = [[torch.from_numpy(rng.standard_normal((11, 6), np.float32)) for _ in range(1 + dense)] for _ in range(300)]
    total, names = Moments(6, "cpu", dense=dense).to(torch.float64), ("gram", "cross", "dense_gram")
    singles: list[Moments] = []
    for part in parts:
        one = Moments(6, "cpu", dense=dense)
        one.add(*part)
        total.merge(one)
        singles.append(one)
    assert total.count == 3300 and total.dense == dense and list(total.sums) == list(names[: 1 + 2 * dense])
    for name, found in total.sums.items():
        exact = sum(each.sums[name].numpy().astype(np.float64) for each in singles)
        assert found.dtype == torch.float64 and np.array_equal(found.numpy(), exact)
    again = Moments.of(singles[0].count, singles[0].sums)
    # One batch has the bits of its own sums.
    wide = singles[0].to(torch.float64).to(torch.float32)
    for name in names:
        assert torch.equal(getattr(again, name), getattr(singles[0], name))
        assert torch.equal(getattr(wide, name), getattr(singles[0], name))


def test_switches_of_the_caller_do_not_matter(rng: np.random.Generator) -> None:
    x = torch.from_numpy(rng.standard_normal((40, 6), np.float32)).requires_grad_()
    matmul: Any = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    inside, plain = Moments(6, "cpu"), Moments(6, "cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside.add(x)
    plain.add(x.detach())
    assert torch.equal(inside.gram, plain.gram) and not inside.gram.requires_grad
    assert matmul.fp32_precision == before
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(
    ("dense", "given", "message"),
    [
        (False, [(4, 6)], "inputs are floating [..., 5], got torch.float32 [4, 6]: add what the layer reads"),
        (False, [()], "inputs are floating [..., 5], got torch.float32 []: add what the layer reads"),
        (False, [(4, 5), (4, 5)], "moments with dense=False take one input, got 2"),
        (True, [(4, 5)], "moments with dense=True take two inputs, got 1"),
        (True, [(4, 5), (3, 5)], "both models' inputs have one shape, got [4, 5] and dense [3, 5]"),
    ],
)
def test_inputs_that_do_not_fit(dense: bool, given: list[tuple[int, ...]], message: str) -> None:
    moments = Moments(5, "cpu", dense=dense)
    with pytest.raises(ValueError, match=re.escape(message)):
        moments.add(*(torch.ones(shape) for shape in given))
    assert moments.count == 0


def test_integers_are_no_inputs() -> None:
    with pytest.raises(ValueError, match=re.escape("inputs are floating [..., 5], got torch.int64 [4, 5]")):
        Moments(5, "cpu").add(torch.ones(4, 5, dtype=torch.int64))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("whose", ["the inputs", "the dense model's inputs"])
def test_what_is_not_finite_is_told(value: float, whose: str, rng: np.random.Generator) -> None:
    both = [torch.from_numpy(rng.standard_normal((4, 9, 5), np.float32)) for _ in range(2)]
    both[whose != "the inputs"][2, 3, 3] = value
    moments = Moments(5, "cpu", dense=True)
    moments.add(*both)
    message = f"{whose} have NaN, infinity or squares above f32's range, got them in 1 of 5 features, the first is 3"
    with pytest.raises(ArithmeticError, match=message):
        moments.check()
