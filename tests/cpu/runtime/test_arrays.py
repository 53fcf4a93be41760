from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from louver.formats.dtypes import ELEMENT_TYPES, NARROW_FLOATS
from louver.runtime import adapters
from louver.runtime.adapters import make_wait
from louver.runtime.arrays import ArrayView, empty_like_kind, overlaps, repeats, view

F16 = ELEMENT_TYPES["f16"]
NUMPY_TYPES = {name: t for name, t in ELEMENT_TYPES.items() if name != "tf32" and t.numbers == 1}


def device_view(address: int, shape: tuple[int, ...], strides: tuple[int, ...], **changes: Any) -> ArrayView:
    fields = {"element": F16, "device": 0, "owner": None, "kind": "other", **changes}
    return ArrayView(shape=shape, strides=strides, address=address, **fields)


class FakeDevice:
    """Says what a CUDA array says."""

    def __init__(self, **interface: Any) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (3, 5),
            "typestr": "<f2",
            "data": (0x7000_0000, False),
            **interface,
        }


@pytest.fixture
def on_device_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_ordinal_of", lambda address: 3)


@pytest.mark.parametrize("name", NUMPY_TYPES)
def test_numpy_is_read_in_place(name: str, rng: np.random.Generator) -> None:
    element = NUMPY_TYPES[name]
    x = rng.integers(0, 255, (6, 10 * element.bytes), dtype=np.uint8).view(element.numpy)
    v = view(x[1::2, 2:])
    assert (v.element, v.shape, v.strides) == (element, (3, 8), (20, 1))
    assert v.address == x.ctypes.data + 12 * element.bytes
    assert (v.device, v.stream, v.kind, v.writable) == (None, None, "numpy", True)
    assert v.to_numpy().tobytes() == x[1::2, 2:].tobytes()


def test_numpy_views_may_run_backwards_and_repeat(rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 7)).astype(np.float16)
    backwards = view(x[::-1, ::-2])
    assert backwards.strides == (-7, -2)
    assert backwards.byte_range == (x.ctypes.data, x.ctypes.data + x.nbytes)
    repeated = view(np.broadcast_to(x[0], (5, 7)))
    assert repeated.strides == (0, 1)
    assert not repeated.writable
    x.flags.writeable = False
    assert not view(x).writable


def test_a_view_is_its_own_view(rng: np.random.Generator) -> None:
    v = view(rng.standard_normal(3).astype(np.float32))
    assert view(v) is v


@pytest.mark.parametrize("dtype", [np.float64, np.complex64, ">i2", np.str_, ">f2"])
def test_other_element_types_are_named_in_the_error(dtype: Any) -> None:
    with pytest.raises(ValueError, match="an element type is one of f16, bf16"):
        view(np.ones((2, 2), dtype))


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(TypeError, match=r"expected an array .*, got list: np.asarray"):
        view([[1.0, 2.0]])


def test_strides_between_elements_are_refused() -> None:
    packed = np.zeros(4, np.dtype([("tag", "u1"), ("value", "<f2")]))["value"]
    with pytest.raises(ValueError, match="strides are whole elements of 2 bytes, got \\(3,\\) bytes"):
        view(packed)


def test_device_arrays_keep_to_the_rules() -> None:
    with pytest.raises(ValueError, match="cannot have negative strides"):
        device_view(0x1000, (3, 4), (-4, 1))
    with pytest.raises(ValueError, match="aligned to 2 bytes, got address 0x1001"):
        device_view(0x1001, (3, 4), (4, 1))
    with pytest.raises(ValueError, match="needs one stride for each dimension"):
        device_view(0x1000, (3, 4), (1,))
    with pytest.raises(ValueError, match="either in host memory"):
        device_view(0x1000, (3,), (1,), device=None)


@pytest.mark.usefixtures("on_device_3")
def test_cuda_array_interface_is_read() -> None:
    x = FakeDevice(strides=(32, 2), stream=2)
    v = view(x)
    assert (v.element, v.shape, v.strides, v.address) == (F16, (3, 5), (16, 1), 0x7000_0000)
    assert (v.device, v.stream, v.writable, v.owner) == (3, 2, True, x)
    dense = view(FakeDevice(typestr="|u1", data=(0x7000_0001, True)))
    assert (dense.strides, dense.writable, dense.stream) == ((5, 1), False, 0)
    assert v.names_stream and not dense.names_stream


@pytest.mark.usefixtures("on_device_3")
@pytest.mark.parametrize(
    ("interface", "message"),
    [
        ({"typestr": "<f8"}, "'<f8' names no element type"),
        ({"typestr": "<V2"}, "'<V2' names no element type"),
        ({"mask": object()}, "masked arrays"),
        ({"strides": (11, 2)}, r"whole elements of 2 bytes, got \(11, 2\)"),
        ({"strides": (-10, 2)}, "cannot have negative strides"),
    ],
)
def test_cuda_array_interface_errors(interface: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        view(FakeDevice(**interface))


class Producer:
    """Exports a NumPy array by DLPack under another device's name, with or without versions."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (1, 0), versioned: bool = True) -> None:
        self.array = array
        self.device = device
        self.versioned = versioned
        self.stream: Any = "not asked"

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: Any = None, **more: Any) -> Any:
        if more and not self.versioned:
            raise TypeError("max_version is new")
        self.stream = stream
        return self.array.__dlpack__(**more)


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack_host_arrays_are_read_in_place(versioned: bool, rng: np.random.Generator) -> None:
    base = rng.integers(-100, 100, (6, 9), dtype=np.int8)
    x = Producer(base[::2, 1:8:3], versioned=versioned)
    v = view(x)
    assert (v.element.name, v.shape, v.strides, v.device) == ("s8", (3, 3), (18, 3), None)
    assert np.array_equal(v.to_numpy(), base[::2, 1:8:3])
    base[0, 1] = 101
    assert v.to_numpy()[0, 0] == 101
    assert x.stream is None
    assert empty_like_kind(v, (2, 3), F16).dtype == np.float16


def test_dlpack_backwards_views_keep_their_order(rng: np.random.Generator) -> None:
    base = rng.standard_normal((5, 4)).astype(np.float32)
    assert np.array_equal(view(Producer(base[::-1])).to_numpy(), base[::-1])


def test_dlpack_device_arrays_are_read_for_a_stream(rng: np.random.Generator) -> None:
    base = rng.standard_normal((4, 6)).astype(np.float16)
    x = Producer(base[:, ::2], (2, 1))
    v = view(x)
    assert (v.device, v.stream, v.address, v.strides) == (1, 1, base.ctypes.data, (6, 2))
    assert (v.kind, v.writable, v.names_stream) == ("other", True, False)
    assert x.stream == 1
    for stream, asked in ((0, 1), (1, 1), (9, 9)):
        make_wait(v, stream)
        assert x.stream == asked


def test_dlpack_read_only_arrays_are_not_writable(rng: np.random.Generator) -> None:
    base = rng.standard_normal((4, 6)).astype(np.float16)
    base.flags.writeable = False
    try:
        base.__dlpack__(max_version=(1, 1))
    except (BufferError, TypeError):
        pytest.skip("this NumPy exports no read-only arrays")
    v = view(Producer(base, (2, 0)))
    assert not v.writable
    assert not view(Producer(base)).writable


def test_dlpack_leaves_the_interpreter_s_own_functions_alone(rng: np.random.Generator) -> None:
    """Every library in a process sees the same `ctypes.pythonapi`, and one may have declared its functions otherwise."""
    base = rng.standard_normal((4, 6)).astype(np.float16)
    function = ctypes.pythonapi.PyCapsule_GetPointer
    before = function.restype
    try:
        function.restype = ctypes.c_int
        assert view(Producer(base)).address == base.ctypes.data
        assert function.restype is ctypes.c_int
    finally:
        function.restype = before


def test_dlpack_errors(rng: np.random.Generator) -> None:
    base = rng.standard_normal((4, 6))
    with pytest.raises(ValueError, match="DLPack type code 2 of 64 bits"):
        view(Producer(base))
    with pytest.raises(ValueError, match="got DLPack device type 10"):
        view(Producer(base.astype(np.float16), (10, 0)))


def test_arrays_with_both_protocols_use_the_one_that_orders_the_stream(
    on_device_3: None, rng: np.random.Generator
) -> None:
    class Both(Producer, FakeDevice):
        def __init__(self, array: np.ndarray, **interface: Any) -> None:
            Producer.__init__(self, array, (2, 1))
            FakeDevice.__init__(self, **interface)

    base = rng.standard_normal((3, 5)).astype(np.float16)
    assert view(Both(base, stream=7)).address == 0x7000_0000
    unordered = view(Both(base))
    assert (unordered.address, unordered.stream) == (base.ctypes.data, 1)
    no_name = Both(base, typestr="<V2", stream=7)
    assert (view(no_name).address, no_name.stream) == (base.ctypes.data, 7)
    named = view(Both(base, stream=7)), view(no_name)
    assert all(each.names_stream for each in named) and not unordered.names_stream
    make_wait(named[1], 9)
    assert no_name.stream == 7, "it is for the caller to see to two streams that are both named"


@pytest.mark.parametrize("name", NUMPY_TYPES)
def test_outputs_are_numpy_for_numpy(name: str) -> None:
    element = NUMPY_TYPES[name]
    made = empty_like_kind(view(np.ones(3, np.float16)), [2, 5], element)
    assert isinstance(made, np.ndarray)
    assert (made.shape, made.dtype, view(made).writable) == ((2, 5), element.numpy, True)


def touched(v: ArrayView) -> set[int]:
    """Addresses of all bytes that elements cover, one by one."""
    out: set[int] = set()
    for index in np.ndindex(*v.shape):
        start = v.address + sum(i * s for i, s in zip(index, v.strides, strict=True)) * v.element.bytes
        out.update(range(start, start + v.element.bytes))
    return out


def test_overlap_is_exact_for_slices_of_one_matrix(rng: np.random.Generator) -> None:
    base = np.zeros((9, 13), np.float16)
    for _ in range(300):
        slices = [sorted(rng.choice(10, 2, replace=False)) + sorted(rng.choice(14, 2, replace=False)) for _ in range(2)]
        a, b = (view(base[r0:r1, c0:c1]) for r0, r1, c0, c1 in slices)
        if min(*a.shape, *b.shape) < 2:
            continue
        assert overlaps(a, b) == bool(touched(a) & touched(b)), (a, b)
        assert overlaps(a, b) == overlaps(b, a)


def test_overlap_needs_one_device() -> None:
    a = device_view(0x1000, (4, 4), (4, 1))
    assert overlaps(a, a)
    assert not overlaps(a, device_view(0x1000, (4, 4), (4, 1), device=1))
    assert not overlaps(a, device_view(0x1020, (4, 4), (4, 1)))


@pytest.mark.parametrize("name", [name for name in NUMPY_TYPES if name not in NARROW_FLOATS])
def test_torch_host_tensors_are_read_in_place(name: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    element = NUMPY_TYPES[name]
    bits = torch.from_numpy(rng.integers(0, 255, (4, 6 * element.bytes), dtype=np.uint8))
    x = bits.view(adapters._torch_dtype(element))[:, 1:5]
    v = view(x)
    assert (v.element, v.shape, v.strides, v.kind, v.device) == (element, (4, 4), (6, 1), "torch", None)
    assert v.address == x.data_ptr()
    made = empty_like_kind(v, (3, 2), element)
    assert isinstance(made, torch.Tensor) and made.dtype == x.dtype and tuple(made.shape) == (3, 2)
    assert v.host is not None
    v.host[0, 0] = v.host[1, 1]
    assert v.host[0, 0].tobytes() == ctypes.string_at(x.data_ptr(), element.bytes)


def test_torch_parameters_are_read() -> None:
    torch = pytest.importorskip("torch")
    w = torch.nn.Parameter(torch.randn(3, 4))
    with torch.no_grad():
        assert np.array_equal(view(w).to_numpy(), w.detach().numpy())


def test_torch_tensors_that_cannot_be_read_in_place() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="only strided tensors"):
        view(torch.eye(3).to_sparse())
    with pytest.raises(ValueError, match="an element type is one of"):
        view(torch.ones(3, dtype=torch.float64))
    with pytest.raises(ValueError, match="CUDA device or on the CPU, got meta"):
        view(torch.ones(3, device="meta"))
    with pytest.raises(ValueError, match="resolve_neg"):
        view(torch.ones(3, dtype=torch.complex64).conj().imag)


def test_expanded_torch_tensors_are_not_writable() -> None:
    torch = pytest.importorskip("torch")
    assert not view(torch.ones(1, 4).expand(3, 4)).writable


def test_ml_dtypes_views_keep_their_bits() -> None:
    x = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).reshape(16, 16)
    assert view(x).to_numpy().tobytes() == bytes(range(256))


def test_repeated_elements_are_found_exactly(rng: np.random.Generator) -> None:
    found = {False: 0, True: 0}
    for _ in range(3000):
        axes = int(rng.integers(1, 5))
        shape = tuple(int(size) for size in rng.integers(0 if rng.random() < 0.05 else 1, 5, axes))
        strides = tuple(int(stride) for stride in rng.integers(-12, 13, axes))
        places = [sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(*shape)]
        expected = len(set(places)) < len(places)
        assert repeats(shape, strides) == expected, (shape, strides)
        found[expected] += 1
    assert min(found.values()) > 500


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((), (), False),
        ((1, 1), (0, 0), False),
        ((2, 3), (3, 2), False),
        ((4096, 8192), (8192, 1), False),
        ((1 << 20, 1 << 20, 16), (1 << 24, 16, 1), False),
        ((100_000, 100_000, 7), (1_000_003, 1_000_033, 1), True),
        ((64,) * 12, tuple(10**9 + 977 * i * i for i in range(12)), True),
    ],
)
def test_repeated_elements_of_large_arrays(shape: tuple[int, ...], strides: tuple[int, ...], expected: bool) -> None:
    assert repeats(shape, strides) == expected


def test_overlap_is_never_missed(rng: np.random.Generator) -> None:
    base, found = np.zeros(400, np.int8), {False: 0, True: 0}
    for _ in range(1000):
        views = []
        for _ in range(2):
            shape, strides = tuple(rng.integers(1, 5, 3)), tuple(rng.integers(0, 30, 3))
            views.append(view(np.lib.stride_tricks.as_strided(base[int(rng.integers(0, 150)) :], shape, strides)))
        expected = bool(touched(views[0]) & touched(views[1]))
        assert overlaps(*views) == overlaps(views[1], views[0]) == expected, views
        found[expected] += 1
    assert min(found.values()) > 100


def test_empty_arrays_overlap_nothing() -> None:
    whole = np.zeros((4, 6), np.float16)
    empty = view(whole[:0])
    assert empty.writable and empty.byte_range == (empty.address, empty.address) and empty.to_numpy().shape == (0, 6)
    assert not overlaps(empty, view(whole)) and not overlaps(view(whole), empty) and not repeats((0, 4), (0, 0))


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_empty_arrays_of_other_libraries(on_device_3: None, shape: tuple[int, ...]) -> None:
    assert view(FakeDevice(shape=shape, data=(0, False))).shape == shape
    for device in ((1, 0), (2, 1)):
        assert view(Producer(np.zeros(shape, np.float16), device)).shape == shape


def test_masked_arrays_are_refused() -> None:
    with pytest.raises(
        ValueError, match="all elements of an array must have values, got a masked array: fill .* filled"
    ):
        view(np.ma.masked_array(np.zeros(3, np.float16)))
