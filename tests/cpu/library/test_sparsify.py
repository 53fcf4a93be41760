"""`louver.sparsify`: the same on a GPU as on the host, everything that was made of the tensor follows, and what it refuses.

The fake GPU runs the kernels on the emulator.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.library.forms import Form, Metadata, TileMetadata, Values
from louver.library.host import DenseWeight
from louver.library.sparsify import ROWS, sparsified
from louver.library.state import TensorState
from louver.library.streaming.record import LEAST_SCALE
from louver.runtime.arrays import view
from louver.runtime.memory import DeviceArray
from louver.user.gated_pairs import pairs
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.fake_resident import TRIPS, WAITS, calls, contents, on_gpu
from support.sparse import same_bits

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

CAPTURING = 0xCA
"""The stream that the recording driver says is being captured."""


def activations(rng: np.random.Generator, shape: tuple[int, ...] = (70, 76), dtype: str = "f16") -> np.ndarray:
    return rng.standard_normal(shape).astype(element_type(dtype).numpy)


def same(t: SparseTensor, s: SparseTensor) -> bool:
    return (
        (t.pattern, t.dtype, t.shape, t.axis, t.negative_zeros_dropped)
        == (s.pattern, s.dtype, s.shape, s.axis, s.negative_zeros_dropped)
        and same_bits(contents(t.values), np.ascontiguousarray(s.values))
        and np.array_equal(contents(t.indices), s.indices)
    )


def check_forms(t: SparseTensor, s: SparseTensor) -> None:
    """All forms of `t` on devices are those of `s`."""
    for form in t.derived.of(TensorState).forms():
        if form.memory is not t.values:
            assert ctypes.string_at(form.address, form.nbytes) == form.form.host(s).tobytes(), form.form


def floats(array: Any) -> np.ndarray:
    return contents(array).reshape(-1)


@pytest.mark.parametrize(
    ("dtype", "stored", "way", "activation", "shape"),
    [
        ("bf16", None, "", "relu2", (70, 76)),
        ("f16", None, "", None, (2, 2, 5, 8)),
        ("f16", "e4m3", "scale", "relu2", (2, 9, 40)),
        ("bf16", "e4m3", "scale", None, (70, 76)),
        ("f16", "e4m3", ROWS, "relu2", (2, 2, 5, 8)),
        ("bf16", "e4m3", ROWS, None, (2, 70, 76)),
    ],
)
def test_as_on_the_host(
    gpu: FakeGpu, torch: FakeTorch, rng: Any, dtype: str, stored: str | None, way: str, activation: Any, shape: Any
) -> None:
    x = activations(rng, shape, dtype)
    there, here = (
        {"scale": 0.3} if way == "scale" else {"row_scales": make(np.full(shape[:-1], -1, np.float32))} if way else {}
        for make in (on_gpu, lambda array: array)
    )
    s = louver.sparsify(x, dtype=stored, activation=activation, **here)
    t = louver.sparsify(on_gpu(x), dtype=stored, activation=activation, **there)
    assert not calls(gpu, TRIPS)
    assert same(t, s) and isinstance(t.values, Tensor) and t.dtype.name == (stored or dtype)
    check_forms(t, s)
    if way == ROWS:
        np.testing.assert_array_equal(floats(there["row_scales"]), floats(here["row_scales"]))
        largest = (
            np.abs(x.astype(np.float32)).max(-1) if activation is None else np.maximum(x, 0).max(-1).astype("f4") ** 2
        )
        np.testing.assert_array_equal(here["row_scales"], np.maximum(largest / np.float32(448), LEAST_SCALE))


def test_the_values_are_those_of_the_pruned_activations(rng: np.random.Generator) -> None:
    x = activations(rng)
    relu = np.maximum(x, 0)
    s = louver.sparsify(x, activation="relu2")
    np.testing.assert_array_equal(s.dense(), (louver.prune(relu, "2:4").astype(np.float32) ** 2).astype(np.float16))
    np.testing.assert_array_equal(louver.sparsify(x).dense(), louver.prune(x, "2:4"))
    w = activations(rng, (24, 76))
    expected = s.dense().astype(np.float32) @ w.T.astype(np.float32)
    np.testing.assert_allclose(louver.matmul(s, w.T), expected, rtol=1e-2, atol=1e-2)


# --- what follows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["", "scale", "array", ROWS])
def test_everything_on_a_gpu_follows(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, way: str) -> None:
    first, second = activations(rng), activations(rng)
    stored = "e4m3" if way else "f16"
    given: dict[str, Any] = {
        "": {},
        "scale": {"scale": 0.5},
        "array": {"scale": on_gpu(np.array([0.5], np.float32))},
        ROWS: {"row_scales": on_gpu(np.empty(70, np.float32))},
    }[way]
    kept = on_gpu(second)
    t = louver.sparsify(on_gpu(first), activation="relu2", dtype=stored if way else None, **given)
    state, view_of = t.derived.of(TensorState), t.T
    forms = (Metadata(), TileMetadata(stored), Values(), Values(packed=True))
    addresses = [state.form(t, form, 0).address for form in forms]
    s, _ = sparsified(first, element_type(stored), "relu2", {"": None, ROWS: ROWS}.get(way, 0.5))
    check_forms(t, s)
    for attempt in range(2):
        gpu.calls.clear()
        gpu.launches.clear()
        torch.stream = 7
        assert louver.sparsify(kept, out=t, activation="relu2", **given) is t
        torch.stream = 0
        assert len(gpu.launches) == 3 and {launch.stream for launch in gpu.launches} == {7}
        assert not calls(gpu, (*TRIPS, *WAITS)), "nothing is waited for"
        assert attempt == 0 or not gpu.called("cuMemAllocAsync")
        s, _ = sparsified(second, element_type(stored), "relu2", {"": None, ROWS: ROWS}.get(way, 0.5))
        assert same(t, s) and view_of.values is t.values
        check_forms(t, s)
    assert [state.form(t, form, 0).address for form in forms] == addresses, "a graph replays with the new tensor"


@pytest.mark.parametrize("method", ["compressed", "adopted"])
def test_a_tensor_from_elsewhere_is_written(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, method: str
) -> None:
    first, second = activations(rng), activations(rng)
    t = louver.compress(on_gpu(first), "2:4", method="magnitude")
    if method == "adopted":
        t = replace(t, values=on_gpu(contents(t.values)), indices=on_gpu(np.zeros_like(contents(t.indices))))
    louver.sparsify(on_gpu(second), out=t)
    expected = louver.compress(second, "2:4", method="magnitude")
    assert same(t, expected) and t.derived.of(TensorState).has(0, Metadata())
    check_forms(t, expected)


def test_arrays_of_louver_s_own_and_no_elements(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    x = activations(rng)
    t = louver.sparsify(DeviceArray.of(x))
    assert isinstance(t.values, DeviceArray) and same(t, louver.sparsify(x))
    gpu.launches.clear()
    for shape in ((0, 8), (4, 0)):
        assert louver.sparsify(Tensor(shape)).shape == shape
        assert louver.sparsify(np.zeros(shape, np.float16), activation="relu2").shape == shape
    assert not gpu.launches


def test_a_copy_is_apart(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    first, second = activations(rng), activations(rng)
    t = louver.sparsify(on_gpu(first))
    apart = copy.copy(t)
    louver.sparsify(on_gpu(second), out=t)
    assert same(apart, louver.sparsify(first)) and same(t, louver.sparsify(second))


def test_the_host_follows(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    first, second = activations(rng), activations(rng)
    s = louver.sparsify(first, activation="relu2")
    state, turned = s.derived.of(TensorState), s.T
    for form in (Metadata(), TileMetadata("f16"), Values(), Values(packed=True)):
        state.form(s, form, 0)
    assert louver.sparsify(second, out=s, activation="relu2") is s
    expected = louver.sparsify(second, activation="relu2")
    assert same(s, expected) and turned.values is s.values and turned.indices is s.indices
    check_forms(s, expected)


def test_plans_of_the_reference_path_follow(rng: np.random.Generator) -> None:
    s, b = louver.sparsify(activations(rng)), activations(rng, (76, 16))
    p = louver.plan("matmul", s, n=16)
    before = p(b)
    x = activations(rng)
    louver.sparsify(x, out=s)
    expected = louver.matmul(louver.sparsify(x), b)
    for y in (p(b), louver.matmul(s, b)):
        np.testing.assert_array_equal(y, expected)
        assert not np.array_equal(y, before)


# --- captures ------------------------------------------------------------------------------------------------------------


def test_captures(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    x = on_gpu(activations(rng))
    t = louver.compress(x, "2:4", method="magnitude")
    fresh = replace(t, values=on_gpu(contents(t.values)), indices=on_gpu(contents(t.indices)))
    torch.stream = CAPTURING
    with pytest.raises(
        RuntimeError, match="is not made while a stream is captured: make it by louver.sparsify.x. before"
    ):
        louver.sparsify(x)
    with pytest.raises(
        RuntimeError, match="memory for its metadata at the first call, which is not captured: make the"
    ):
        louver.sparsify(x, out=fresh)
    torch.stream = 0
    louver.sparsify(x, out=fresh)
    torch.stream = CAPTURING
    with pytest.raises(
        RuntimeError, match="kernel for compress of these arrays must be loaded before its stream is capt"
    ):
        louver.sparsify(x, out=fresh, activation="relu2")
    gpu.calls.clear()
    louver.sparsify(x, out=fresh)
    assert not calls(gpu, (*TRIPS, *WAITS)) and not gpu.called("cuMemAllocAsync")
    torch.stream = 0
    state = fresh.derived.of(TensorState)
    state.form(fresh, Metadata(), 0)
    state.form(fresh, Values(), 0)
    for form in (TileMetadata("f16"), Values(packed=True)):
        with pytest.raises(
            RuntimeError, match=rf"would not write what another product reads \({type(form).__name__}\): "
        ):
            state.form(fresh, form, 0)


def test_followers_are_loaded_before_a_capture(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    x = on_gpu(activations(rng))
    t = louver.sparsify(x)
    t.derived.of(TensorState).form(t, TileMetadata("f16"), 0)
    gpu.launches.clear()
    torch.stream = CAPTURING
    with pytest.raises(
        RuntimeError, match="kernel for prepack of these arrays must be loaded before its stream is captu"
    ):
        louver.sparsify(x, out=t)
    assert not gpu.launches, "nothing is captured half"
    torch.stream = 0
    louver.sparsify(x, out=t)
    torch.stream = CAPTURING
    louver.sparsify(x, out=t)


def test_plans_that_read_early_are_refused(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    x, b = on_gpu(activations(rng, (128, 256))), Tensor((64, 256))
    t = louver.sparsify(x)
    with pytest.raises(
        ValueError, match="dependent=True reads its sparse tensor while .* louver.sparsify writes: plan with"
    ):
        louver.plan("linear", t, n=64, like=b, dependent=True)
    weight = louver.compress(x, "2:4", method="magnitude")
    louver.plan("linear", weight, n=64, like=b, dependent=True)
    gpu.launches.clear()
    with pytest.raises(
        ValueError, match="dependent=True reads its sparse tensor while .* is to write: plan without it"
    ):
        louver.sparsify(x, out=weight)
    assert not gpu.launches


# --- errors --------------------------------------------------------------------------------------------------------------

X = np.zeros((8, 16), np.float16)
SCALES = np.zeros(8, np.float32)


def tensor(pattern: str = "2:4", **options: Any) -> SparseTensor:
    return louver.compress(options.pop("w", X), pattern, method="magnitude", **options)


BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: louver.sparsify(X.astype(np.float32)), ValueError, "x must be of f16 or bf16, got f32: convert it first"),
    (lambda: louver.sparsify(X.astype(complex)), ValueError, "x must be of f16 or bf16, got complex128: convert"),
    (lambda: louver.sparsify([1.0]), TypeError, "x: expected an array"),
    (
        lambda: louver.sparsify(X[0]),
        ValueError,
        r"x is \[..., K\] with at least two axes, got shape \[16\]: give x\[None\]",
    ),
    (lambda: louver.sparsify(X, activation="gelu"), ValueError, "activation is \"relu2\" or None, got 'gelu': apply"),
    (lambda: louver.sparsify(X, out=X), TypeError, "out is a louver.SparseTensor, got ndarray: leave it out"),
    (
        lambda: louver.sparsify(X, louver.gated(tensor(), tensor())),
        TypeError,
        "out is a louver.SparseTensor, got GatedTensor",
    ),
    (
        lambda: louver.sparsify(X, tensor("1:2")),
        ValueError,
        r"out keeps 2:4 along its last axis and has x's shape \[8, 16\]",
    ),
    (lambda: louver.sparsify(X, tensor(axis=0)), ValueError, "out keeps 2:4 along its last axis"),
    (lambda: louver.sparsify(X[:4], tensor()), ValueError, r"x's shape \[4, 16\], got SparseTensor"),
    (
        lambda: louver.sparsify(X, tensor(), dtype="e4m3"),
        ValueError,
        "dtype is that of out, f16, got e4m3: leave one out",
    ),
    (lambda: louver.sparsify(X, dtype="bf16"), ValueError, "values are of x's type, f16, or e4m3, got bf16: convert x"),
    (lambda: louver.sparsify(X, tensor(w=X.astype("f4"))), ValueError, "values are of x's type, f16, or e4m3, got f32"),
    (lambda: louver.sparsify(X, scale=2.0), ValueError, 'values of f16 have no scale, got one: give dtype="e4m3"'),
    (lambda: louver.sparsify(X, row_scales=SCALES), ValueError, "values of f16 have no scale"),
    (lambda: louver.sparsify(X, dtype="e4m3"), ValueError, "either a scale or row_scales, got neither: give one"),
    (
        lambda: louver.sparsify(X, dtype="e4m3", scale=1, row_scales=SCALES),
        ValueError,
        "row_scales, got both: give one",
    ),
    (lambda: louver.sparsify(X, dtype="e4m3", scale=0), ValueError, "scale is a positive number of f32, got 0"),
    (lambda: louver.sparsify(X, dtype="e4m3", scale=1e99), ValueError, "scale is a positive number of f32, got 1e"),
    (
        lambda: louver.sparsify(X, dtype="e4m3", scale=SCALES),
        ValueError,
        r"an array of one f32 on the host, got f32 \[8\]",
    ),
    (lambda: louver.sparsify(X, dtype="e4m3", scale=X[:1, :1]), ValueError, "an array of one f32 on the host, got f16"),
    (
        lambda: louver.sparsify(X, dtype="e4m3", row_scales=SCALES[:4]),
        ValueError,
        r"contiguous array of f32 \[8\] on the host",
    ),
    (
        lambda: louver.sparsify(X, dtype="e4m3", row_scales=X[:, 0]),
        ValueError,
        "row_scales is a contiguous array of f32",
    ),
    (
        lambda: louver.sparsify(X, dtype="e4m3", row_scales=np.zeros(16, "f4")[::2]),
        ValueError,
        "a contiguous array of f32",
    ),
    (
        lambda: louver.sparsify(X, dtype="e4m3", row_scales=X.view(np.float32).reshape(-1)[:8]),
        ValueError,
        "row_scales overlaps x or out: give an array of its own",
    ),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_arguments(number: int) -> None:
    call, kind, message = BAD[number]
    with pytest.raises(kind, match=message):
        call()


def test_two_places_are_refused(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    x = activations(rng, (8, 16))
    with pytest.raises(
        ValueError, match="x and out must be in one place, got x on cuda:0 and SparseTensor.*: move one"
    ):
        louver.sparsify(on_gpu(x), out=tensor())
    with pytest.raises(ValueError, match="x and out must be in one place, got x on the host and .*cuda:0"):
        louver.sparsify(x, out=louver.sparsify(on_gpu(x)))
    with pytest.raises(ValueError, match=r"f32 \[8\] on cuda:0, to be written, got f32 \[8\] on the host"):
        louver.sparsify(on_gpu(x), dtype="e4m3", row_scales=SCALES)


def test_objects_that_do_not_follow_are_refused(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    x = activations(rng, (8, 16))
    gate, up = louver.sparsify(x), louver.sparsify(x)
    pair = pairs().of(gate, up)
    with pytest.raises(ValueError, match="got one of which a pair was made: give another tensor"):
        louver.sparsify(x, out=gate)
    assert pair is pairs().of(gate, up)

    dense = louver.sparsify(on_gpu(x))
    dense.derived.of(DenseWeight)
    with pytest.raises(ValueError, match="got one of which a denseweight was made: give another tensor"):
        louver.sparsify(on_gpu(x), out=dense)

    class Another(Form):
        def nbytes(self, s: SparseTensor) -> int:
            return 16

        def host(self, s: SparseTensor) -> np.ndarray:
            return np.zeros(16, np.uint8)

    t = louver.sparsify(on_gpu(x))
    t.derived.of(TensorState).form(t, Another(), 0)
    gpu.launches.clear()
    with pytest.raises(ValueError, match="got a tensor of which a kernel reads Another: give another tensor"):
        louver.sparsify(on_gpu(x), out=t)
    assert not gpu.launches


def test_x_that_overlaps_the_tensor_is_refused(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    t = louver.sparsify(on_gpu(activations(rng, (8, 16))))
    values = view(t.values)
    x = Tensor((8, 16), address=values.address)
    with pytest.raises(ValueError, match="the arrays of the sparse tensor and the dense array overlap: give them mem"):
        louver.sparsify(x, out=t)
