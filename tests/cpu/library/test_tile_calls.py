"""Calls of the library on GPUs without warpgroup products: their kernels, run on the emulator by what a launch binds."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import louver
from louver.compile.plan.register_tiles import RegisterTiles
from louver.formats.dtypes import element_type
from louver.user.arguments import classify
from louver.user.source import Parameter
from support.fake_gpu import FakeGpu, FakeTorch
from support.tile_gpu import SHARED, TileGpu

M, N, K = 72, 40, 136


@pytest.mark.parametrize("capability", [each for each in SHARED if each != (9, 0)])
def test_linear_runs_on_every_capability(
    gpu: FakeGpu,
    torch: FakeTorch,
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    capability: tuple[int, int],
) -> None:
    card = TileGpu(gpu, monkeypatch, capability)
    w = louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4")
    x, y = rng.standard_normal((N, K)).astype(np.float16), np.full((N, M), np.nan, np.float16)
    bias = rng.standard_normal(M).astype(np.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        louver.linear(card.on(x), louver.compress(w, "2:4"), card.on(bias), card.on(y), activation="relu")
    expected = np.maximum(x.astype(np.float64) @ w.astype(np.float64).T + bias, 0)
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-2)
    (made,) = card.ran
    assert isinstance(made.schedule, RegisterTiles)
    major, minor = capability
    assert made.schedule.target.startswith(f"sm_{major}{minor}")
    assert made.signature.shared_bytes <= SHARED[capability] << 10


def plan_of(rng: np.random.Generator, target: str | None, n: int = 512) -> louver.Plan:
    s = louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")
    return louver.plan("linear", s, n, target=target)


def test_a_plan_explains_itself(
    gpu: FakeGpu, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    TileGpu(gpu, monkeypatch, (8, 9))
    detect, *cost, select = str(plan_of(rng, None).explain()).splitlines()
    assert detect == (
        f"detect: the weight [{M}, {K}] of f16 holds 2:4, promised by its type: a sparse tensor stores no other elements"
    )
    assert cost[0].startswith("cost:   ") and "clocks, limited by" in cost[0] and "not measured" in cost[-1]
    assert select.startswith(
        "select: mma.sp::ordered_metadata.m16n8k32 of f16, one machine instruction on sm_89, which"
    )


def test_a_plan_for_another_target_runs_its_kernel(
    gpu: FakeGpu, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    card = TileGpu(gpu, monkeypatch, (9, 0))
    w = louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4")
    x, y = rng.standard_normal((N, K)).astype(np.float16), np.full((N, M), np.nan, np.float16)
    for target in ("sm_80", "sm_120a"):
        plan = louver.plan("linear", louver.compress(w, "2:4"), N, like=card.on(x), target=target)
        plan(card.on(x), out=card.on(y))
        assert card.ran[-1].schedule.target == target
        np.testing.assert_allclose(y, x.astype(np.float64) @ w.astype(np.float64).T, rtol=2e-3, atol=2e-2)
    assert "wgmma.sp on sm_90a" in plan_of(rng, None).explain().select


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("sm_75", ValueError, "the targets are sm_80, .*, got 'sm_75'"),
        (80, TypeError, "target is a text such as 'sm_80', got int"),
        ("sm_90a", ValueError, "kernels for sm_90a run on GPUs of that target only, got .*sm_80"),
    ],
)
def test_targets_that_no_plan_has(
    gpu: FakeGpu,
    torch: FakeTorch,
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    target: str,
    error: type[Exception],
    message: str,
) -> None:
    TileGpu(gpu, monkeypatch, (8, 0))
    with pytest.raises(error, match=message):
        plan_of(rng, target)


def test_dependent_launches_are_for_hopper(
    gpu: FakeGpu, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    TileGpu(gpu, monkeypatch, (8, 9))
    s = louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")
    with pytest.raises(
        ValueError, match="dependent launches have kernels for sm_90a, got sm_89: leave out dependent=True"
    ):
        louver.plan("linear", s, 8, dependent=True)


def test_a_type_that_a_target_lacks(
    gpu: FakeGpu, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    card, numpy = TileGpu(gpu, monkeypatch, (8, 0)), element_type("e4m3").numpy
    s = louver.compress(louver.prune(rng.standard_normal((M, K)).astype(numpy), "2:4"), "2:4")
    message = "sm_80 has no sparse product of e4m3×e4m3 .*the first target with one is sm_89"
    with pytest.raises(ValueError, match=message):
        louver.plan("linear", s, 16, like=card.on(np.zeros((16, K), numpy)))


@pytest.mark.parametrize(
    ("element", "pattern", "message"),
    [("e4m3", "2:4", "sm_80 has no sparse product of e4m3×e4m3"), ("f16", "4:8@16", "sm_80 multiplies weights of 2:4")],
)
def test_host_arrays_that_the_gpu_would_refuse(
    gpu: FakeGpu,
    torch: FakeTorch,
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    element: str,
    pattern: str,
    message: str,
) -> None:
    TileGpu(gpu, monkeypatch, (8, 0))
    numpy = element_type(element).numpy
    s = louver.compress(louver.prune(rng.standard_normal((32, 64)).astype(numpy), pattern), pattern)
    x = rng.standard_normal((3, 64)).astype(numpy)
    with pytest.warns(louver.NoKernelWarning, match=message):
        louver.linear(x, s)
    with pytest.raises(ValueError, match=message):
        louver.prepare(s, n=3, kind="matmul")


def test_matmuls_batches_and_gated_pairs(
    gpu: FakeGpu, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    card = TileGpu(gpu, monkeypatch, (8, 6))
    w = louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4")
    s, wide = louver.compress(w, "2:4"), w.astype(np.float64)
    for shape in ((K, 24), (3, K, 24)):
        b, d = rng.standard_normal(shape).astype(np.float16), np.full((*shape[:-2], M, shape[-1]), np.nan, np.float32)
        louver.prepare(s, n=shape[-1], kind="matmul", out_dtype="f32", batch=3 if len(shape) == 3 else None)
        louver.matmul(s, card.on(b), card.on(d))
        np.testing.assert_allclose(d, wide @ b.astype(np.float64), rtol=1e-3, atol=1e-2)
    up = louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4")
    x, y = rng.standard_normal((N, K)).astype(np.float16), np.full((N, M), np.nan, np.float16)
    louver.linear(card.on(x), louver.gated(s, louver.compress(up, "2:4")), out=card.on(y), activation="relu")
    expected = np.maximum(x.astype(np.float64) @ wide.T, 0) * (x.astype(np.float64) @ up.astype(np.float64).T)
    np.testing.assert_allclose(y, expected, rtol=4e-3, atol=0.5)


def test_bytes_beside_a_weight_of_pairs_are_pairs(
    gpu: FakeGpu, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    card = TileGpu(gpu, monkeypatch, (8, 0))
    w = louver.pack_pairs(rng.integers(-8, 8, (M, 288)))
    s = louver.compress(w, "2:4", method="magnitude")
    numbers = rng.integers(-8, 8, (N, 288))
    x, y = louver.pack_pairs(numbers).view(np.int8), np.full((N, M), -1, np.int32)
    plan = louver.plan("linear", s, N, like=card.on(x))
    plan(card.on(x), out=card.on(y))
    np.testing.assert_array_equal(y, numbers @ louver.unpack_pairs(np.asarray(s)).T.astype(np.int64))
    assert plan.explain().select.startswith(
        "mma.sp::ordered_metadata.m16n8k128 of s4, one machine instruction on sm_80"
    )
    b, d = np.asfortranarray(x.T), np.full((M, N), -1, np.int32)
    louver.matmul(s, card.on(b), card.on(d))
    np.testing.assert_array_equal(d, y.T)


@pytest.mark.parametrize("capability", [(9, 0), (10, 0), (12, 0)])
def test_pairs_are_refused_where_the_assembler_emulates_them(
    gpu: FakeGpu,
    torch: FakeTorch,
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    capability: tuple[int, int],
) -> None:
    card = TileGpu(gpu, monkeypatch, capability)
    s = louver.compress(louver.pack_pairs(rng.integers(-8, 8, (M, 2 * K))), "2:4", method="magnitude")
    x = np.zeros((N, K), np.int8)
    message = r"sm_\d+a? has no sparse product of s4x2×s4x2 that is one instruction; the first target with one is sm_80"
    for call in (
        lambda: louver.linear(card.on(x), s),
        lambda: louver.plan("linear", s, N, like=card.on(x)),
        lambda: louver.prepare(s, n=N),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.warns(louver.NoKernelWarning, match=message):
        louver.linear(x, s)


@pytest.mark.parametrize("element", ["s4x2", "e2m1", "e3m2"])
def test_a_users_kernel_takes_no_type_that_triton_lacks(rng: np.random.Generator, element: str) -> None:
    w = rng.integers(0, 16, (M, K)).astype(np.uint8).view(element_type(element).numpy)
    for argument in (w, louver.compress(w, "2:4", method="magnitude")):
        with pytest.raises(
            ValueError, match=f"'w': kernels have elements of f16, .*, got {element}: call louver.linear"
        ):
            classify((Parameter("w"),), {"w": argument})


@pytest.mark.parametrize(("element", "capability"), [("e2m1", (12, 0)), ("e2m3", (12, 1)), ("e3m2", (12, 0))])
def test_narrow_floats_on_consumer_blackwell(
    gpu: FakeGpu,
    torch: FakeTorch,
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    element: str,
    capability: tuple[int, int],
) -> None:
    card, kind = TileGpu(gpu, monkeypatch, capability), element_type(element)
    w, bytes_ = (rng.integers(0, 1 << kind.width, (rows, 144)).astype(np.uint8) for rows in (M, N))
    s = louver.compress(w.view(kind.numpy), "2:4", method="magnitude")
    exact = bytes_.view(kind.numpy).astype(np.float64) @ np.asarray(s).astype(np.float64).T
    # No library but NumPy has the type. Bytes beside such a weight are of its type.
    y, plan = np.full((N, M), np.nan, np.float32), louver.plan("linear", s, N, like=card.on(bytes_), out_dtype="f32")
    plan(card.on(bytes_), out=card.on(y))
    np.testing.assert_array_equal(y, exact)
    assert plan.explain().select.startswith(
        f"mma.sp::ordered_metadata.m16n8k64 of {element}, one machine instruction on sm_12{capability[1]}a"
    )
    x = rng.integers(-3, 4, (N, 144)).astype(element_type("e5m2").numpy)
    wide, up = np.full((N, M), np.nan, np.float32), louver.compress(w[::-1].view(kind.numpy), "2:4", method="magnitude")
    louver.linear(card.on(x), louver.gated(s, up), out=card.on(wide), activation="relu")
    gate, other = (x.astype(np.float64) @ np.asarray(each).astype(np.float64).T for each in (s, up))
    np.testing.assert_allclose(wide, np.maximum(gate, 0) * other, rtol=1e-6)
    b, d = np.asfortranarray(bytes_.T), np.full((M, N), np.nan, np.float32)
    louver.matmul(s, card.on(b), card.on(d))
    np.testing.assert_array_equal(d, y.T)


@pytest.mark.parametrize("capability", [(8, 9), (9, 0), (10, 0)])
@pytest.mark.parametrize(("a", "b"), [("e2m1", "u8"), ("e3m2", "e4m3")])
def test_narrow_floats_are_refused_elsewhere(
    gpu: FakeGpu,
    torch: FakeTorch,
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    capability: tuple[int, int],
    a: str,
    b: str,
) -> None:
    card = TileGpu(gpu, monkeypatch, capability)
    s = louver.compress(np.ones((M, K), element_type(a).numpy), "2:4", method="magnitude")
    x, read = np.ones((N, K), element_type(b).numpy), a if b == "u8" else b
    message = (
        rf"sm_\d+a? has no sparse product of {a}×{read} that is one instruction; the first target with one is sm_120a"
    )
    for call in (lambda: louver.linear(card.on(x), s), lambda: louver.plan("linear", s, N, like=card.on(x))):
        with pytest.raises(ValueError, match=message):
            call()
