"""Products of patterns that gather rows of K: what calls send to a GPU, and what they refuse."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile.plan.schedule import list_rows
from louver.formats.lists import GatheredRows, gathered
from louver.formats.tensor import SparseTensor
from louver.isa.metadata import prepack
from support.fake_gpu import FakeGpu, FakeTorch, Launch, Map, Tensor

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

M, K = 70, 96


PATTERNS = ("2:8", "3:8@64", "2:8@16", "4:8@1000")
"""Elements, and lists of a window, of several, and of one that ends behind the rows."""


def weight(rng: np.random.Generator, *leading: int, pattern: str = "2:8") -> SparseTensor:
    w = rng.standard_normal((*leading, M, K)).astype(np.float16)
    return louver.compress(louver.prune(w, pattern), pattern)


def words(address: int, shape: tuple[int, ...], kind: Any) -> np.ndarray:
    count = int(np.prod(shape))
    return np.array((kind * count).from_address(address)).reshape(shape)


def stored(launched: dict[str, Any], kept: int) -> np.ndarray:
    """The values that the launch reads."""
    values = launched["a_map"]
    assert isinstance(values, Map) and values.inner == kept
    whole = words(values.address, (values.batch * values.rows, values.pitch // 2), ctypes.c_uint16)
    return whole[:, :kept].view(np.float16)


def lists_read(launch: Launch, s: SparseTensor) -> GatheredRows:
    """The arrays that the launch has to read of `s`."""
    return gathered(s, list_rows(str(s.pattern), launch.kernel.launch.schedule))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_matmul_gathers_from_the_caller_s_rows(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, pattern: str
) -> None:
    s, b = weight(rng, pattern=pattern), Tensor((K, 200))
    louver.matmul(s, b)
    (launch,) = gpu.launches
    given = launch.arguments
    rows = lists_read(launch, s)
    assert (given["b_rows"], given["b_pitch"]) == (b.address, 200)
    assert (given["M"], given["N"], given["K"], given["kept"]) == (M, 200, K, rows.kept)
    np.testing.assert_array_equal(words(given["lists"], rows.lists.shape, ctypes.c_int32), rows.lists)
    np.testing.assert_array_equal(stored(given, rows.kept), rows.values)
    louver.matmul(s, b)
    assert len(gpu.launches) == 2


SHARED = ("2:8@V64", "2:6@V16", "2:5@V1000")


def check_lifted(launch: Launch, s: SparseTensor) -> None:
    """The launch reads values, lists and metadata of V:N:M."""
    rows, given = lists_read(launch, s), launch.arguments
    assert given["kept"] == 2 * rows.kept and rows.codes is not None
    np.testing.assert_array_equal(words(given["lists"], rows.lists.shape, ctypes.c_int32), rows.lists)
    np.testing.assert_array_equal(stored(given, rows.kept), rows.values)
    metadata = prepack(rows.codes, M, 2 * rows.kept, s.dtype)
    np.testing.assert_array_equal(words(given["metadata"], metadata.shape, ctypes.c_uint32), metadata)


@pytest.mark.parametrize("pattern", SHARED)
@pytest.mark.parametrize("on_gpu", [False, True])
def test_shared_vectors_have_metadata_too(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, pattern: str, on_gpu: bool
) -> None:
    s = weight(rng, pattern=pattern)
    t = s.to(0) if on_gpu else s
    louver.matmul(t, Tensor((K, 64)))
    launch = gpu.launches[-1]
    check_lifted(launch, s)
    t.update_(2 * s.values)
    check_lifted(launch, t.to("cpu"))


def test_shared_vectors_in_plans_and_linear(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s, b = weight(rng, pattern="2:8@V64"), Tensor((K, 64))
    plan = louver.plan("matmul", s, n=64, layout="n_major")
    plan(b)
    check_lifted(gpu.launches[-1], s)
    louver.linear(Tensor((5, 7, K)), s)
    check_lifted(gpu.launches[-1], s)
    louver.matmul(weight(rng, 3, pattern="2:8@V64"), Tensor((3, K, 64)))
    assert gpu.launches[-1].arguments["batch"] == 3


def test_shared_vectors_of_other_types_are_the_host_s(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    w = rng.standard_normal((M, K)).astype(np.float32)
    s = louver.compress(louver.prune(w, "2:8@V64"), "2:8@V64")
    with pytest.raises(
        ValueError,
        match=r"GPUs have products of V:N:M for f16, .*, u8; and of f32 for 1:2, .*, got 2:8@V64 f32: convert the weight",
    ):
        louver.matmul(s, Tensor((K, 64), "float32"))


def test_tokens_are_turned_first(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    """In one launch, to rows of whole lines."""
    s, x = weight(rng), Tensor((5, 7, K))
    y = louver.linear(x, s)
    copy, launch = gpu.launches
    assert copy.kernel is None and y.shape == (5, 7, M)
    assert launch.arguments["b_rows"] != x.address
    assert (launch.arguments["N"], launch.arguments["b_pitch"]) == (35, 64)


def test_tokens_of_axes_that_do_not_join_are_copied_together_first(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator
) -> None:
    s, x = weight(rng), Tensor((4, 5, K), strides=(12 * K, 2 * K, 1))
    for _ in range(2):
        gpu.launches.clear()
        assert louver.linear(x, s).shape == (4, 5, M)
        joins, turns, launch = gpu.launches
        assert joins.kernel is None and turns.kernel is None
        assert (launch.arguments["N"], launch.arguments["b_pitch"]) == (20, 64)


def test_a_matmul_s_operand_may_lie_any_way(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s = weight(rng)
    for b in (Tensor((K, 50), strides=(1, K)), Tensor((K, 50), strides=(51, 1))):
        gpu.launches.clear()
        louver.matmul(s, b)
        copy, launch = gpu.launches
        assert copy.kernel is None and launch.arguments["b_pitch"] == 64


def test_batches(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    """Of dense operands, and of both."""
    b = Tensor((3, K, 64))
    louver.matmul(weight(rng), b)
    louver.matmul(weight(rng, 3), b)
    for launch in gpu.launches:
        assert (launch.arguments["batch"], launch.arguments["b_batch_pitch"]) == (3, K * 64)
    assert gpu.launches[1].arguments["a_map"].batch == 3


def test_new_values_follow(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s, b = weight(rng), Tensor((K, 64))
    louver.matmul(s, b)
    s.update_(s.values * np.float16(-2))
    rows = gathered(s, 64)
    np.testing.assert_array_equal(stored(gpu.launches[0].arguments, rows.kept), rows.values)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_weight_on_the_gpu(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, pattern: str) -> None:
    s = weight(rng, pattern=pattern)
    t = s.to(0)
    assert np.array_equal(t.to("cpu").indices, s.indices) and np.array_equal(t.to("cpu").values, s.values)
    louver.matmul(t, Tensor((K, 64)))
    rows, given = lists_read(gpu.launches[-1], s), gpu.launches[-1].arguments
    np.testing.assert_array_equal(words(given["lists"], rows.lists.shape, ctypes.c_int32), rows.lists)
    np.testing.assert_array_equal(stored(given, rows.kept), rows.values)


@pytest.mark.parametrize("pattern", ["2:8", "2:8@V64", "2:6@V3"])
def test_the_reference_path_takes_them(rng: np.random.Generator, pattern: str) -> None:
    s, b = weight(rng, pattern=pattern), rng.standard_normal((K, 9)).astype(np.float16)
    expected = s.dense().astype(np.float64) @ b
    np.testing.assert_allclose(louver.matmul(s, b, out_dtype="f32"), expected, atol=1e-4)
    np.testing.assert_allclose(louver.linear(b.T, s, out_dtype="f32").T, expected, atol=1e-4)


def test_plans_that_cannot_gather_are_refused(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=r"a plan reads its operand in place, .* got tokens .* call louver\.linear"):
        louver.plan("linear", weight(rng), n=16)
    with pytest.raises(ValueError, match="rows of K are gathered from .* got b_layout 'k_major' for 2:8"):
        louver.plan("matmul", weight(rng), n=16, layout="k_major")
