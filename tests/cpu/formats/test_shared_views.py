"""Copies and pickles of a tensor and its transposed views; assignments; NumPy's functions."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from louver.library.state import TensorState

M, K = 48, 64


@pytest.fixture
def s(rng: np.random.Generator) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float32), "2:8"), "2:8")


WAYS: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    **{f"pickle {n}": lambda x, n=n: pickle.loads(pickle.dumps(x, n)) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (1, 0, 1, 2)])
def test_views_that_are_copied_together_share_their_values(s: SparseTensor, way: str, order: tuple[int, ...]) -> None:
    views = (s, s.T, s.T.T)
    given = [views[number] for number in order]
    made = WAYS[way]({"list": given, "again": given[0]})
    assert made["again"] is made["list"][0]
    for old, new in zip(given, made["list"], strict=True):
        assert (new.shape, new.axis, new.pattern) == (old.shape, old.axis, old.pattern)
        assert new is not old and new.derived is not old.derived
        assert new.derived is made["again"].derived and new.values is made["again"].values
        np.testing.assert_array_equal(np.asarray(new), np.asarray(old))
    state = made["again"].derived.of(TensorState)
    assert all(each.derived.of(TensorState) is state for each in made["list"])
    before = np.asarray(s)
    made["again"].update_(-made["again"].values)
    for old, new in zip(given, made["list"], strict=True):
        np.testing.assert_array_equal(np.asarray(new), -np.asarray(old))
    np.testing.assert_array_equal(np.asarray(s), before)


def test_a_pickle_holds_the_values_once(s: SparseTensor) -> None:
    alone, both = len(pickle.dumps(s)), len(pickle.dumps((s, s.T, [s.T], s.T.T)))
    assert both < alone + 600 < 2 * s.values.nbytes


@pytest.mark.parametrize("way", WAYS)
def test_a_view_alone_is_copied_alone(s: SparseTensor, way: str) -> None:
    t = s.T
    new = WAYS[way](t)
    np.testing.assert_array_equal(np.asarray(new), np.asarray(s).T)
    np.testing.assert_array_equal(np.asarray(new.T), np.asarray(s))
    assert new.T.values is new.values


def test_a_shallow_copy_is_independent(s: SparseTensor) -> None:
    t = s.T
    for each in (copy.copy(s), copy.copy(t), copy.copy((s, t))[1]):
        assert (each.derived is s.derived) == (each is t)
    one = copy.copy(t)
    one.update_(-one.values)
    np.testing.assert_array_equal(np.asarray(one), -np.asarray(t))


@pytest.mark.parametrize("name", ["foo", "values", "shape", "derived"])
def test_assignments_are_refused_in_words(s: SparseTensor, name: str) -> None:
    pair = louver.gated(*(louver.compress(np.eye(8, 16, dtype=np.float16), "2:4") for _ in range(2)))
    message = rf"attributes are fixed, got an assignment to '{name}': update_\(values\) changes the values"
    for each in (s, s.T, pair):
        with pytest.raises(AttributeError, match=message):
            setattr(each, name, 1)
        with pytest.raises(AttributeError, match=message):
            delattr(each, name)


@pytest.mark.filterwarnings("ignore:louver computes")
def test_plans_are_not_copied(s: SparseTensor) -> None:
    p = louver.plan("matmul", s, n=8)
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(
            TypeError, match=r"a plan belongs to its process and device.*call louver.plan where it is used"
        ):
            call(p)


@pytest.mark.filterwarnings("ignore:louver computes")
def test_numpy_dot_is_the_sparse_product(
    s: SparseTensor, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    for name in ("matmul", "linear"):
        real = getattr(louver, name)
        monkeypatch.setattr(louver, name, lambda *a, real=real, name=name, **o: (called.append(name), real(*a, **o))[1])
    x, v, dense = rng.standard_normal((5, K), np.float32), rng.standard_normal(K, np.float32), np.asarray(s)
    out = np.empty((5, M), np.float32)
    for got, expected in (
        (np.dot(x, s.T), x @ dense.T),
        (np.dot(s, x.T), dense @ x.T),
        (np.dot(s, v), dense @ v),
        (np.dot(v, s.T), v @ dense.T),
        (np.dot(x[None], s.T), x[None] @ dense.T),
        (np.dot(x, s.T, out=out), x @ dense.T),
        (x @ s.T, x @ dense.T),
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    assert len(called) == 7
    np.testing.assert_allclose(out, x @ dense.T, rtol=1e-4, atol=1e-4)
    with pytest.raises(
        ValueError, match=r"numpy.dot with a sparse tensor takes matrices, got shapes .*: use louver.matmul"
    ):
        np.dot(s, x.T[None])
    with pytest.raises(TypeError, match="__array_ufunc__"):
        np.matmul(x, s.T)


def test_numpy_functions_see_the_dense_array(s: SparseTensor) -> None:
    dense = np.asarray(s)
    assert np.array_equal(s, dense) and np.array_equal(dense, s)
    assert np.concatenate([s, [dense[0]]]).shape == (M + 1, K)
    assert np.count_nonzero(s) == np.count_nonzero(dense)
    assert np.sum(s, axis=0).shape == (K,) and np.shape(s) == (M, K)
    np.testing.assert_array_equal(np.stack((s, s)), np.stack((dense, dense)))
