"""Sparse tensors whose arrays live on a GPU: taken over in place, moved, changed; nothing travels to the host."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from louver.library.forms import (
    GatheredValues,
    Metadata,
    RowLists,
    TileMetadata,
    Values,
    on_device,
    tile_values,
)
from louver.library.state import TensorState
from louver.library.streaming.launches import COUNTER_BYTES
from louver.runtime.arrays import view
from louver.runtime.device import NoDevice, NoDeviceError
from louver.runtime.memory import DeviceArray
from louver.user.device_and_stream import place
from louver.user.gated_pairs import pairs
from support.fake_gpu import FakeGpu, FakeTorch, Launch, Map, Tensor
from support.fake_resident import TRIPS, WAITS, calls, contents, on_gpu, read, resident
from support.sparse import random_bits, same_bits
from support.threads import in_threads

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

M, K = 40, 72
CAPTURING = 0xCA
"""The stream that the recording driver says is being captured."""


def weight(rng: np.random.Generator, shape: tuple[int, ...] = (M, K), dtype: str = "f16") -> SparseTensor:
    return louver.compress(louver.prune(random_bits(rng, shape, dtype), "2:4"), "2:4")


def products(gpu: FakeGpu) -> list[Launch]:
    """The launches of products: those that derive forms have other kernels."""
    return [launch for launch in gpu.launches if launch.kernel is not None]


@pytest.fixture
def s(rng: np.random.Generator) -> SparseTensor:
    return weight(rng)


def test_arrays_are_kept_where_they_are(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    values, indices = on_gpu(s.values), on_gpu(s.indices)
    t = replace(s, values=values, indices=indices)
    assert (t.values.address, t.indices.address, t.device) == (values.address, indices.address, 0)
    values.address += 1 << 20
    assert t.values.address != values.address, "a Parameter that gets other memory leaves the tensor its own"
    assert not gpu.calls, "nothing is copied or waited for"
    assert t.nbytes == s.nbytes and repr(t) == f"SparseTensor(2:4 f16 [40, 72], axis 1, {s.nbytes:,} bytes on cuda:0)"
    turned = t.T
    assert turned.values is t.values and turned.derived is t.derived and (turned.shape, turned.device) == ((K, M), 0)
    wide = np.zeros((M, 64), np.float16)[:, : s.kept]
    assert replace(s, values=on_gpu(wide), indices=indices).values.stride() == (64, 1)


@pytest.mark.parametrize(
    "laid_out",
    [
        lambda v: np.ascontiguousarray(v),
        lambda v: np.asfortranarray(v),
        lambda v: np.repeat(v, 2, axis=1)[:, ::2],
        lambda v: np.pad(v, ((0, 0), (1, 3)))[:, 1 : v.shape[1] + 1],
    ],
    ids=["no gaps", "columns", "every other", "not aligned"],
)
def test_values_laid_out_otherwise_are_copied_on_the_device(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, laid_out: Any
) -> None:
    given = laid_out(s.values)
    t = replace(s, values=on_gpu(given), indices=on_gpu(s.indices))
    assert len(gpu.launches) == 1 and not calls(gpu, TRIPS + WAITS)
    assert t.values.stride() == (40, 1) and t.values.address % 16 == 0
    assert same_bits(contents(t.values), np.ascontiguousarray(s.values))


def test_indices_laid_out_otherwise_are_copied_on_the_device(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    t = replace(s, values=on_gpu(s.values), indices=on_gpu(np.asfortranarray(s.indices)))
    assert len(gpu.launches) == 1 and not calls(gpu, TRIPS + WAITS)
    assert t.indices.stride() == (9, 1)
    np.testing.assert_array_equal(contents(t.indices), s.indices)


def test_arrays_of_louver_s_own(gpu: FakeGpu, s: SparseTensor) -> None:
    t = replace(s, values=DeviceArray.of(s.values, ordinal=1), indices=DeviceArray.of(s.indices, ordinal=1))
    assert t.device == 1 and isinstance(t.values, DeviceArray) and t.values.strides == (40, 1)
    assert same_bits(t.values.numpy(), np.ascontiguousarray(s.values))
    assert t.values.__cuda_array_interface__["strides"] == (80, 2)


@pytest.mark.parametrize(
    ("values", "indices", "error", "message"),
    [
        (lambda s: on_gpu(s.values), lambda s: s.indices, ValueError, "values on cuda:0 and indices on the host: move"),
        (lambda s: s.values, lambda s: on_gpu(s.indices, 1), ValueError, "values on the host and indices on cuda:1"),
        (lambda s: on_gpu(s.values, 1), lambda s: on_gpu(s.indices), ValueError, "values on cuda:1 and indices on cud"),
        (
            lambda s: on_gpu(s.values.astype(np.float32)),
            lambda s: on_gpu(s.indices),
            ValueError,
            "values of f16 are float16, got float32",
        ),
        (
            lambda s: on_gpu(s.values[:, 1:]),
            lambda s: on_gpu(s.indices),
            ValueError,
            r"keeps values of shape \(40, 36\), got \(40, 35\)",
        ),
        (
            lambda s: on_gpu(s.values),
            lambda s: on_gpu(s.indices.view(np.int8)),
            ValueError,
            r"indices are uint8 of shape \(40, 9\), got int8",
        ),
        (lambda s: on_gpu(s.values), lambda s: None, TypeError, "indices are a NumPy array or an array on a GPU, got"),
        (
            lambda s: memoryview(bytes(4)),
            lambda s: on_gpu(s.indices),
            TypeError,
            "values are a NumPy array or an array on a GPU, got memoryview: convert",
        ),
    ],
)
def test_arrays_that_do_not_fit(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, values: Any, indices: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        replace(s, values=values(s), indices=indices(s))
    assert not gpu.launches


def test_host_arrays_of_other_libraries_are_refused(s: SparseTensor) -> None:
    class Exported:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array.copy()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **more: Any) -> Any:
            return self.array.__dlpack__()

    with pytest.raises(TypeError, match="on the host are NumPy arrays, got Exported and Exported: convert"):
        replace(s, values=Exported(s.values), indices=Exported(s.indices))


def test_a_copy_that_a_capture_forbids(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    torch.stream = CAPTURING
    indices, tight = on_gpu(s.indices), on_gpu(np.ascontiguousarray(s.values))
    with pytest.raises(RuntimeError, match="must be loaded before a stream is captured"):
        replace(s, values=tight, indices=indices)
    assert replace(s, values=on_gpu(s.values), indices=indices).device == 0


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "s8", "f32"])
def test_moving(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, dtype: str) -> None:
    s = weight(rng, (6, 26), dtype)
    t = s.to("cuda:1")
    assert t is not s and t.device == 1 and isinstance(t.values, Tensor) and s.device is None
    for same in (t.to("cuda:1"), t.to(1), t.to(torch.device("cuda", 1))):
        assert same is t
    for back in (t.to("cpu"), t.to(None), t.to(torch.device("cpu", 0)), t.to(s.device)):
        assert back.device is None and same_bits(back.dense(), s.dense())
        assert back.values.strides == s.values.strides and not back.values.flags.writeable
    assert s.to("cpu") is s and s.to(None) is s
    other = t.to("cuda")
    assert other.device == 0 and same_bits(other.to("cpu").dense(), s.dense())


def test_moving_without_pytorch_or_where_it_sees_no_gpu(gpu: FakeGpu, s: SparseTensor, monkeypatch: Any) -> None:
    t = s.to("cuda")
    assert isinstance(t.values, DeviceArray) and same_bits(t.to("cpu").dense(), s.dense())
    blind = FakeTorch()
    blind.cuda.device_count = lambda: 0
    monkeypatch.setitem(__import__("sys").modules, "torch", blind)
    assert isinstance(s.to(0).values, DeviceArray)


@pytest.mark.parametrize(
    ("device", "error", "message"),
    [
        ("gpu", ValueError, 'a device is "cpu", "cuda", "cuda:1", an ordinal or a torch.device, got .gpu.'),
        ("cuda:x", ValueError, "got .cuda:x."),
        (-1, ValueError, "a device is .* got .cuda:-1."),
        (True, TypeError, "got bool"),
        (np.ones(2), TypeError, "got ndarray"),
    ],
)
def test_what_is_no_device(gpu: FakeGpu, s: SparseTensor, device: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        s.to(device)


def test_moving_without_a_gpu(s: SparseTensor, monkeypatch: pytest.MonkeyPatch) -> None:
    from louver.library import resident as module

    def none() -> Any:
        raise NoDeviceError(str(NoDevice("none for this test")))

    monkeypatch.setattr(module, "require_device", none)
    for device in ("cuda", "cuda:1", 0):
        with pytest.raises(NoDeviceError, match="none for this test"):
            s.to(device)


def test_the_dense_array_is_on_the_device(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    for shape, dtype in (((6, 26), "bf16"), ((3, 5, 13), "e4m3")):
        s = weight(rng, shape, dtype)
        for t in (resident(s, 1), s.to(1)):
            dense = t.dense()
            assert isinstance(dense, Tensor) and (dense.get_device(), dense.shape) == (1, shape)
            assert same_bits(contents(dense), s.dense())
            assert same_bits(np.asarray(t), s.dense()), "NumPy sees it on the host"
    plain = s.to("cpu").to("cuda")
    assert plain.T is plain if plain.ndim < 2 else plain.mT.device == 0


def test_leaving_the_process(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, tmp_path: Path) -> None:
    t = replace(resident(s), negative_zeros_dropped=3)
    back = pickle.loads(pickle.dumps(t))
    assert back.device is None and back.negative_zeros_dropped == 3 and same_bits(back.dense(), s.dense())
    louver.save(tmp_path / "w.safetensors", {"w": t})
    loaded = louver.load(tmp_path / "w.safetensors")["w"]
    assert isinstance(loaded, SparseTensor) and same_bits(loaded.dense(), s.dense())


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_stay_on_the_device(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, copied: Any) -> None:
    t = resident(s)
    twin = copied(t)
    assert twin is not t and twin.device == 0 and twin.values.address != t.values.address and not calls(gpu, TRIPS)
    t.update_(on_gpu(np.negative(s.values)))
    assert same_bits(twin.to("cpu").dense(), s.dense())


def test_contents_are_checked_on_request(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    resident(s).validate()
    indices = s.indices.copy()
    indices[4, 2] = 0x40
    t = replace(s, values=on_gpu(s.values), indices=on_gpu(indices))
    for look in (t.validate, lambda: np.asarray(t)):
        with pytest.raises(ValueError, match="got 0x0 in row 4, group 4"):
            look()


FORMS = (Values(), Values(packed=True), Metadata())


@pytest.mark.parametrize("dtype", ["f16", "e4m3", "s8"])
@pytest.mark.parametrize("shape", [(M, K), (1, 64), (130, 200), (3, 20, 68), (2, 64, 36)])
def test_derived_forms_are_the_ones_that_numpy_defines(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, shape: tuple[int, ...], dtype: str
) -> None:
    s = weight(rng, shape, dtype)
    tight = replace(s, values=on_gpu(s.values), indices=on_gpu(s.indices))
    wide = np.full((s.rows, 512), 77).astype(s.dtype.numpy)[:, : s.kept]
    wide[...] = s.values
    apart = replace(s, values=on_gpu(wide), indices=on_gpu(s.indices))
    for form in (*FORMS, TileMetadata(dtype), tile_values(s), GatheredValues(64), RowLists(64)):
        expected = form.host(s)
        assert expected.nbytes == form.nbytes(s)
        for t in (tight, apart):
            held = on_device(form, t, 0)
            if form == Values():
                assert (held.address, held.nbytes, held.memory) == (t.values.address, form.nbytes(t), t.values)
                continue
            assert held.nbytes == expected.nbytes
            assert read(gpu, held.address, held.nbytes) == expected.tobytes()


def test_transposed_tensors_have_the_same_tiles(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s = weight(rng, (2, 32, 64))
    turned = resident(s).mT
    for form in (TileMetadata("f16"), Values(packed=True)):
        held = on_device(form, turned, 0)
        assert read(gpu, held.address, held.nbytes) == form.host(s).tobytes()


def test_rows_without_gaps_serve_register_tiles_in_place(gpu: FakeGpu, torch: FakeTorch, rng: Any) -> None:
    s = weight(rng, (M, 64))
    for t in (s, resident(s)):
        assert tile_values(t) == Values()
    wide = on_gpu(np.zeros((M, 64), np.float16)[:, :32])
    assert tile_values(replace(s, values=wide, indices=on_gpu(s.indices))) == Values(packed=True)
    with pytest.raises(ValueError, match="a multiple of 4, got 70: pad it"):
        tile_values(weight(rng, (M, 70)))


def test_a_product_reads_the_values_where_they_are(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    t, x = resident(s), Tensor((16, K))
    y = louver.linear(x, t)
    (launch,) = products(gpu)
    (values,) = {each for each in launch.arguments.values() if isinstance(each, Map) and each.inner == s.kept}
    assert values == Map(t.values.address, s.kept, M, 80)
    words = Metadata().host(s)
    assert read(gpu, int(launch.arguments["metadata"]), words.nbytes) == words.tobytes()
    allocated = [arguments[0] for arguments in gpu.called("cuMemAllocAsync")]
    assert allocated == [words.nbytes, COUNTER_BYTES], "metadata, nothing else"
    assert [arguments[2] for arguments in gpu.called("cuMemcpyDtoHAsync")] == [COUNTER_BYTES]
    assert isinstance(y, Tensor) and y.shape == (16, M)
    gpu.calls.clear()
    for stream in (0, 7, 9):
        torch.stream = stream
        louver.linear(x, t)
        louver.linear(x, t, out=y)
    assert not calls(gpu, (*TRIPS, *WAITS, "cuMemAllocAsync"))


def test_a_form_waits_for_the_arrays_and_is_complete(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    torch.stream = 7
    louver.linear(Tensor((16, K)), resident(s))
    waited = gpu.called("cuStreamSynchronize")
    assert waited[0] == (7,), "what the stream has sent may write the indices"
    order = [name for name, _ in gpu.calls if name in ("cuStreamSynchronize", "cuMemAllocAsync", "cuLaunchKernel")]
    assert order[0] == "cuStreamSynchronize" and order[-2:] == ["cuStreamSynchronize", "cuLaunchKernel"]
    assert waited[-1] == (0,), "any stream may read it"


def test_illegal_codes_never_reach_a_kernel(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    indices = s.indices.copy()
    indices[7, 0] = 0x44 & 0xF0
    t = replace(s, values=on_gpu(s.values), indices=on_gpu(indices))
    for _ in range(2):
        with pytest.raises(ValueError, match="got 0x0 at row 7, group 0: compress the matrix again"):
            louver.linear(Tensor((16, K)), t)
    assert not products(gpu)


def test_the_first_use_may_not_be_captured(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    t, x, y = resident(s), Tensor((16, K)), Tensor((16, M))
    torch.stream = CAPTURING
    with pytest.raises(RuntimeError, match=r"before its stream is captured: call louver.prepare\(s, n=…"):
        louver.linear(x, t, out=y)
    torch.stream = 0
    louver.prepare(t, n=16)
    gpu.calls.clear()
    torch.stream = CAPTURING
    louver.linear(x, t, out=y)
    assert not calls(gpu, (*TRIPS, *WAITS, "cuMemAllocAsync"))


def test_products_on_another_gpu_are_refused(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    t = resident(s, 1)
    x = Tensor((16, K))
    for run in (lambda: louver.linear(x, t), lambda: louver.plan("linear", t, n=16, like=x)):
        with pytest.raises(ValueError, match="x and s must be on one GPU, got x on cuda:0 and s on cuda:1: move one"):
            run()
    with pytest.raises(ValueError, match="the product and s must be on one GPU, got the product on cuda:0"):
        louver.prepare(t, n=16, device=0)
    assert not gpu.launches
    louver.prepare(t, n=16)
    assert t.derived.of(TensorState).has(1, Values())
    p = louver.plan("linear", t, n=16)
    assert p.device is not None and p.device.ordinal == 1
    p(Tensor((16, K), ordinal=1))
    assert len(products(gpu)) == 1


def test_host_arrays_are_sent_to_the_tensor_s_gpu(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    t = resident(s, 1)
    louver.linear(np.zeros((16, K), np.float16), t)
    assert len(products(gpu)) == 1 and t.derived.of(TensorState).has(1, Values())


def test_a_gpu_without_kernels_leaves_host_arrays_to_the_reference_path(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from louver.library import host

    monkeypatch.setattr(host, "device", lambda ordinal: replace(louver.runtime.device.device(0), capability=(8, 0)))
    x = rng.standard_normal((5, K)).astype(np.float16)
    with pytest.warns(UserWarning, match="reference path"):
        y = louver.linear(x, resident(s))
    monkeypatch.setattr(host, "current_device", lambda: NoDevice("none for this test"))
    np.testing.assert_array_equal(y, louver.linear(x, s))
    assert not gpu.launches


def test_values_change_without_a_trip_to_the_host(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    t, x, y = resident(replace(s, negative_zeros_dropped=2)), Tensor((16, K)), Tensor((16, M))
    turned, state = t.T, t.derived.of(TensorState)
    packed = state.form(t, Values(packed=True), 0)
    louver.linear(x, t, out=y)
    before, gpu.launches[:] = gpu.launches[-1], []
    for new in (np.negative(s.values), np.asfortranarray(s.values), np.ascontiguousarray(s.values)):
        gpu.calls.clear()
        given = on_gpu(new)
        assert t.update_(given) is t
        assert not calls(gpu, TRIPS)
        assert calls(gpu, WAITS)[0] == "cuCtxSynchronize" and calls(gpu, WAITS)[-1] == "cuStreamSynchronize"
        assert same_bits(contents(t.values), np.ascontiguousarray(new))
        assert read(gpu, packed.address, packed.nbytes) == np.ascontiguousarray(new).tobytes()
        assert turned.values is t.values and t.negative_zeros_dropped == turned.negative_zeros_dropped == 0
    gpu.launches.clear()
    louver.linear(x, t, out=y)
    assert gpu.launches[-1].arguments == before.arguments, (
        "a graph that captured the launch replays with the new values"
    )


def test_the_tensor_s_own_array_may_be_written(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    t = resident(s)
    memory = t.values.memory
    packed = t.derived.of(TensorState).form(t, Values(packed=True), 0)
    memory[...] = np.negative(memory)
    gpu.launches.clear()
    t.update_(t.values)
    assert len(gpu.launches) == 1, "of the forms only"
    assert read(gpu, packed.address, packed.nbytes) == np.ascontiguousarray(memory).tobytes()


def test_new_values_may_come_from_the_host(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s = weight(rng, (6, 28), "bf16")
    t = resident(s)
    new = np.negative(s.values)
    t.update_(new)
    assert same_bits(contents(t.values), np.ascontiguousarray(new))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda t: on_gpu(np.zeros((6, 14), np.float32)), "values must be of the tensor's type, f16, got f32: convert"),
        (lambda t: on_gpu(np.zeros((6, 13), np.float16)), r"keeps values of shape \(6, 14\), got \(6, 13\)"),
        (
            lambda t: on_gpu(np.zeros((6, 14), np.float16), 1),
            "new values are on cuda:1, the tensor on cuda:0: move one",
        ),
        (lambda t: on_gpu(np.ones((6, 14), np.float16)), "only .0.0 may be stored past the end of the sparse axis"),
        (lambda t: np.ones((6, 14), np.float16), "only .0.0 may be stored past the end of the sparse axis"),
        (lambda t: Tensor.of(t.values.memory[:, 8:22]), "must not overlap those of the tensor: copy them first"),
        (lambda t: None, "values are a NumPy array or an array on a GPU, got NoneType: convert them"),
        (lambda t: np.ma.masked_array(np.zeros((6, 14), np.float16)), "masked array"),
    ],
)
def test_values_that_do_not_fit_change_nothing(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, values: Any, message: str
) -> None:
    s = weight(rng, (6, 25))
    whole = np.zeros((6, 24), np.float16)
    whole[:, :14] = s.values
    t = replace(s, values=on_gpu(whole)[:, :14], indices=on_gpu(s.indices))
    if "overlap" in message:
        t = replace(t, shape=(6, 28))
    before = contents(t.values)
    with pytest.raises((TypeError, ValueError), match=message):
        t.update_(values(t))
    assert same_bits(contents(t.values), before)


def test_a_device_that_fails_is_named(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    t = resident(s)
    before = contents(t.values)
    gpu.fails["cuCtxSynchronize"] = [1]
    with pytest.raises(RuntimeError, match="waiting for the products"):
        t.update_(on_gpu(np.negative(s.values)))
    assert same_bits(contents(t.values), before)


def test_pairs_are_made_on_the_device(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    gate, up = weight(rng), weight(rng)
    expected = louver.gated(gate, up)
    there = resident(gate), resident(up)
    pair = louver.gated(*there)
    assert pair.device == 0 and not calls(gpu, TRIPS)
    assert repr(pair) == f"GatedTensor(2:4 f16 2 × [40, 72], {expected.nbytes:,} bytes on cuda:0)"
    back = pair.to("cpu")
    assert isinstance(back, louver.GatedTensor) and same_bits(back.dense(), expected.dense())
    for part, original in zip(pair.parts(), (gate, up), strict=True):
        assert part.device == 0 and same_bits(part.to("cpu").dense(), original.dense())
    with pytest.raises(ValueError, match="gate and up must be in one place"):
        louver.gated(there[0], up)


def test_pairs_of_a_kernel_follow_their_tensors(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    gate, up = resident(weight(rng)), resident(weight(rng))
    pair = pairs().of(gate, up)
    address = pair.values.address
    gate.update_(on_gpu(np.negative(contents(gate.values))))
    assert pairs().of(gate, up) is pair and pair.values.address == address
    assert same_bits(contents(pair.values), contents(louver.gated(gate, up).values))


def test_arguments_of_a_kernel_are_in_one_place(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    x = view(Tensor((16, K)))
    assert place("kernel", {"x": x}, {"w": resident(s), "v": s}) == (0, 0)
    with pytest.raises(ValueError, match="must be in one place, got 'x' on device 0 and 'w' on device 1"):
        place("kernel", {"x": x}, {"w": resident(s, 1)})
    with pytest.raises(ValueError, match="got 'x' in host memory and 'w' on device 0"):
        place("kernel", {"x": view(np.zeros(4, np.float16))}, {"w": resident(s)})


def test_memory_is_given_back_when_no_stream_reads_it(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    values = on_gpu(s.values)
    memory = values.memory
    ref = weakref.ref(memory)
    gone: list[int] = []
    weakref.finalize(memory, lambda: gone.append(len(gpu.calls)))
    t = replace(s, values=values, indices=on_gpu(s.indices))
    louver.linear(Tensor((16, K)), t)
    p = louver.plan("linear", t, n=16)
    del values, memory, t
    gc.collect()
    assert ref() is not None, "the plan has it"
    gpu.calls.clear()
    del p
    gc.collect()
    assert ref() is None
    names = [name for name, _ in gpu.calls[: gone[0]] if name in ("cuCtxSynchronize", "cuMemFreeAsync")]
    assert "cuCtxSynchronize" in names, "what still reads is waited for"
    assert len(gpu.called("cuMemFreeAsync")) == 1


def test_threads_derive_a_form_once(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    t = resident(s)
    state = t.derived.of(TensorState)
    found = in_threads(lambda _: state.operand(t, 0), range(4))
    assert len({each.metadata for each in found}) == 1 and len(gpu.launches) == 1


def test_eight_bit_floats_are_their_own_types(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    t = weight(rng, (4, 8), "e4m3").to(0)
    assert view(t.values).element.numpy == np.dtype(ml_dtypes.float8_e4m3fn)


@pytest.mark.parametrize("dtype", ["bf16", "e4m3"])
def test_products_of_all_schedules_read_one_copy_of_the_metadata(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, dtype: str
) -> None:
    t = resident(weight(rng, (512, 1024), dtype))
    for n in (1, 96, 4096):
        louver.linear(Tensor((n, 1024), "float8_e4m3fn" if dtype == "e4m3" else "bfloat16"), t)
    rings = {launch.kernel.launch.schedule.ring for launch in products(gpu)}
    assert {ring.metadata for ring in rings} == {"global", "stage"}
    derived = [form for form in t.derived.of(TensorState).forms() if form.memory is not t.values]
    assert [form.form for form in derived] == [Metadata()]
    assert sum(form.nbytes for form in derived) == view(t.indices).size == 512 * 1024 // 8
