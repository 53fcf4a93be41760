"""`update_`: everything that was made of a tensor follows its values, and what is on a device stays where it is."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from louver.library import host
from louver.library.forms import Values, tile_values
from louver.library.state import TensorState
from louver.user.gated_pairs import pairs
from support.fake_gpu import FakeGpu, FakeTorch, Map, Tensor
from support.threads import in_threads

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

M, K = 40, 72


def weight(rng: np.random.Generator, m: int = M, k: int = K) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((m, k)).astype(np.float16), "2:4"), "2:4")


def other_values(s: SparseTensor) -> np.ndarray:
    return np.negative(s.values) + np.float16(1)


def exact(s: SparseTensor, x: np.ndarray) -> np.ndarray:
    return (x.astype(np.float32) @ s.dense().astype(np.float32).T).astype(np.float16)


def test_the_reference_path_follows(rng: np.random.Generator) -> None:
    s, x = weight(rng), rng.standard_normal((5, K)).astype(np.float16)
    p = louver.plan("linear", s, n=5)
    before = louver.linear(x, s)
    s.update_(other_values(s))
    for y in (louver.linear(x, s), p(x), x @ s.T):
        np.testing.assert_array_equal(y, exact(s, x))
        assert not np.array_equal(y, before)


def device_values(maps: list[Map], s: SparseTensor) -> np.ndarray:
    (values,) = {each for each in maps if each.inner == s.kept and each.rows == s.rows}
    words = (ctypes.c_uint16 * (values.rows * values.pitch // 2)).from_address(values.address)
    return np.array(words).reshape(s.rows, -1)[:, : s.kept].view(np.float16)


def test_device_copies_follow_where_they_are(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s = weight(rng)
    x, y = Tensor((16, K)), Tensor((16, M))
    p = louver.plan("linear", s, n=16)
    for run in (lambda: p(x, out=y), lambda: louver.linear(x, s, out=y)):
        run()
        (before,) = gpu.launches
        gpu.launches.clear()
        gpu.calls.clear()
        s.update_(other_values(s))
        names = [name for name, _ in gpu.calls if name in ("cuCtxSynchronize", "cuMemcpyHtoDAsync", "cuMemAllocAsync")]
        assert names == ["cuCtxSynchronize", "cuMemcpyHtoDAsync"], "readers are waited for, and nothing is allocated"
        run()
        (after,) = gpu.launches
        gpu.launches.clear()
        assert after.arguments == before.arguments, "a graph that captured the launch replays with the new values"
        maps = [each for each in after.arguments.values() if isinstance(each, Map)]
        np.testing.assert_array_equal(device_values(maps, s), s.values)


def test_tiles_on_a_device_follow(gpu: FakeGpu, rng: np.random.Generator) -> None:
    s = weight(rng)
    state, form = s.derived.of(TensorState), tile_values(s)
    address = state.form(s, form, 0).address
    s.update_(other_values(s))
    assert form == Values(packed=True) and state.form(s, form, 0).address == address
    held = (ctypes.c_uint16 * (M * K // 2)).from_address(address)
    np.testing.assert_array_equal(np.array(held).view(np.float16).reshape(M, -1), s.values)


def test_a_view_and_its_tensor_are_one(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s = weight(rng)
    turned = s.T
    louver.linear(Tensor((16, K)), s)
    allocated = len(gpu.called("cuMemAllocAsync"))
    louver.linear(Tensor((16, K)), turned.T)
    assert len(gpu.called("cuMemAllocAsync")) == allocated, "a view of a view has the tensor's operand"
    new = other_values(s)
    turned.update_(new)
    for each in (s, turned, turned.T):
        np.testing.assert_array_equal(each.values, new)
    np.testing.assert_array_equal(turned.dense(), s.dense().T)


def test_pairs_follow_both_of_their_tensors(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    gate, up = weight(rng), weight(rng)
    pair = pairs().of(gate, up)
    louver.linear(Tensor((16, K)), pair)
    for each in (gate, up):
        gpu.launches.clear()
        each.update_(other_values(each))
        assert pairs().of(gate, up) is pair
        np.testing.assert_array_equal(pair.values, louver.gated(gate, up).values)
        louver.linear(Tensor((16, K)), pair)
        (launch,) = gpu.launches
        maps = [value for value in launch.arguments.values() if isinstance(value, Map)]
        np.testing.assert_array_equal(device_values(maps, pair), pair.values)


def test_a_gated_pair_is_updated(rng: np.random.Generator) -> None:
    pair, other = (louver.gated(weight(rng), weight(rng)) for _ in range(2))
    x = rng.standard_normal((5, K)).astype(np.float16)
    louver.linear(x, pair, activation="silu")
    new = (np.asarray(other.values, np.float32)).astype(np.float16)
    pair.update_(new)
    gate, up = pair.parts()
    expected = louver.linear(x, louver.gated(gate, up), activation="silu")
    np.testing.assert_array_equal(louver.linear(x, pair, activation="silu"), expected)


def test_a_failed_update_changes_nothing(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s = weight(rng)
    louver.linear(Tensor((16, K)), s)
    before, new = s.values, other_values(s)
    gpu.fails["cuCtxSynchronize"] = [1]
    with pytest.raises(RuntimeError, match="waiting for the products"):
        s.update_(new)
    assert s.values is before
    s.update_(new)
    np.testing.assert_array_equal(s.values, new)


def test_threads_may_update_what_was_never_used(rng: np.random.Generator) -> None:
    gate, up = weight(rng, 48), weight(rng, 48)
    pair = pairs().of(gate, up)

    def work(s: SparseTensor) -> None:
        for _ in range(50):
            s.update_(other_values(s))

    in_threads(work, (gate, up))
    np.testing.assert_array_equal(pair.values, louver.gated(gate, up).values)


def test_the_dense_form_is_made_once(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SparseTensor] = []
    dense = SparseTensor._host_dense

    def counted(s: SparseTensor) -> Any:
        made.append(s)
        return dense(s)

    monkeypatch.setattr(SparseTensor, "_host_dense", counted)
    s, x = weight(rng), rng.standard_normal((5, K)).astype(np.float16)
    for _ in range(3):
        louver.linear(x, s)
    assert made == [s]
    s.update_(other_values(s))
    for _ in range(2):
        np.testing.assert_array_equal(louver.linear(x, s), (x.astype("f4") @ dense(s).astype("f4").T).astype("f2"))
    assert made == [s, s]


def test_dense_forms_are_kept_up_to_a_bound(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "KEPT_BYTES", 2 * 4 * M * K)
    host._dense_weights.cache_clear()
    tensors, x = [weight(rng) for _ in range(3)], rng.standard_normal((5, K)).astype(np.float16)

    def kept() -> list[bool]:
        forms = [s.derived.of(host.DenseWeight) for s in tensors]
        return [form.array is not None for form in forms]

    seen = []
    for index in (0, 1, 0, 2, 2):
        np.testing.assert_array_equal(louver.linear(x, tensors[index]), exact(tensors[index], x))
        seen.append(kept())
    assert seen == [
        [True, False, False],
        [True, True, False],
        [True, True, False],
        [True, False, True],
        [True, False, True],
    ]
    del tensors[0]
    louver.linear(x, tensors[0])
    assert kept() == [True, True], "a tensor's form goes with it"
