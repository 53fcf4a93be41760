"""A device that records launches, and PyTorch tensors that are facts only, for tests of what products send to a GPU."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import importlib
import itertools
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from louver.library import compiled
from louver.library.execute import schedule_for
from louver.library.streaming import launch as streaming
from louver.runtime import adapters, built, copy2d, driver, tensormap
from louver.runtime.cache import KernelCache
from louver.runtime.memory import DeviceBuffer
from louver.user import compiled as user_compiled
from support.fake_driver import FakeDriver, forget
from support.streaming import run_in_place

CACHED = (
    compiled._loaded,
    copy2d._loaded,
    copy2d._ready,
    streaming._ready,
    adapters.torch_stream,
    schedule_for,
)


@contextmanager
def recording(monkeypatch: pytest.MonkeyPatch, kernels: KernelCache) -> Iterator[FakeGpu]:
    """A device that records, with nothing loaded; kernels are kept in `kernels`."""
    made, real = FakeGpu(), importlib.import_module
    for function in CACHED:
        function.cache_clear()
    forget()
    monkeypatch.setattr(driver.importlib, "import_module", lambda name: made if "cuda" in name else real(name))
    monkeypatch.setattr(tensormap, "_encode_tiled", lambda: made.encode)
    for module in (compiled, user_compiled, built):
        monkeypatch.setattr(module, "kernel_cache", lambda: kernels)
    yield made
    for function in CACHED:
        function.cache_clear()
    # Objects that a failed test's traceback keeps must not reach for a driver later.
    kept = gc.get_objects() if made.memory else []
    # By its type: asking a proxy whose object is gone for its class raises.
    for buffer in [each for each in kept if type(each) is DeviceBuffer]:
        buffer.close()
    monkeypatch.undo()
    forget()


@dataclass(frozen=True)
class Map:
    """A tensor map as the recording device encodes it."""

    address: int
    inner: int
    rows: int
    pitch: int
    batch: int = 1
    batch_pitch: int = 0


@dataclass(frozen=True)
class Launch:
    kernel: Any
    grid: int
    stream: int
    arguments: dict[str, int | float | Map]


@dataclass
class FakeGpu(FakeDriver):
    """A FakeDriver that reads products' arguments as their kernels would. encoded: tensor maps encoded so far."""

    launches: list[Launch] = field(default_factory=list)
    encoded: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def only_launch(self) -> Launch:
        """The one launch since the last time."""
        (launch,) = self.launches
        self.launches.clear()
        return launch

    def encode(self, result: int, dtype: int, rank: int, address: int, sizes: int, strides: int, *rest: int) -> int:
        inner, rows, *batch = (ctypes.c_uint64 * rank).from_address(sizes)
        pitch, *batch_pitch = (ctypes.c_uint64 * (rank - 1)).from_address(strides)
        self.encoded += 1
        facts = (address, inner, rows, pitch, *(batch or (1,)), *(batch_pitch or (0,)))
        ctypes.memmove(result, struct.pack("=6Q", *facts), 48)
        return 0

    def _cuModuleLoadData(self, cubin: bytes) -> str:
        return hashlib.sha256(cubin).hexdigest()

    def _cuLaunchKernel(self, *arguments: Any) -> None:
        function, grid, stream, table = arguments[0], arguments[1], arguments[8], arguments[9]
        products = compiled._loaded().values()
        product: Any = next((p for p in products if p.kernel.function == function), None)
        if product is None:
            if function in {kernel.function for kernel in copy2d._ready().values()}:
                _copy(table, function)
            _stream(arguments[1:4], table, function)
            self.launches.append(Launch(None, grid, stream, {}))
            return
        parameters = product.signature.parameters
        pointers = (ctypes.c_void_p * len(parameters)).from_address(table)
        read = {p.name: _read(p, pointer) for p, pointer in zip(parameters, pointers, strict=True)}
        self.launches.append(Launch(product, grid, stream, read))


def _copy(table: int, function: Any) -> None:
    """A kernel of `copy2d`, run where its arrays are in the process's memory."""
    (width,) = {key[1].element_bytes for key, kernel in copy2d._ready().items() if kernel.function == function}
    pointers = (ctypes.c_void_p * len(copy2d._PARAMETERS)).from_address(table)
    kinds = {"u32": ctypes.c_uint32, "u64": ctypes.c_uint64}
    source, destination, row, column, pitch, rows, columns, _, _, step, apart, entries, _ = (
        kinds[kind].from_address(pointer or 0).value for kind, pointer in zip(copy2d._PARAMETERS, pointers, strict=True)
    )
    shape, element = (entries, rows, columns), np.dtype(f"V{width}")
    places = [(source, (step, row, column)), (destination, (apart, pitch, width))]
    if max(source, destination) < FAR:
        read, written = (
            np.ndarray(
                shape, element, (ctypes.c_char * _extent(shape, strides, width)).from_address(at), strides=strides
            )
            for at, strides in places
        )
        written[...] = read


def _stream(grid: tuple[int, int, int], table: int, function: Any) -> None:
    """A streaming kernel, run on the emulator, where its arrays are in the process's memory."""
    for (_, record), kernel in streaming._ready().items():
        if kernel.function == function:
            types = streaming._parameter_types(record)
            pointers = (ctypes.c_void_p * len(types)).from_address(table)
            kinds = {"u32": ctypes.c_uint32, "u64": ctypes.c_uint64}
            read = (kinds[kind].from_address(at or 0).value for kind, at in zip(types.values(), pointers, strict=True))
            arguments = dict(zip(types, read, strict=True))
            if max(arguments[name] for name in types if types[name] == "u64") < FAR:
                run_in_place(record, grid, arguments)
            return


def _extent(shape: tuple[int, ...], strides: tuple[int, ...], width: int) -> int:
    return sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + width


def _read(parameter: Any, pointer: int | None) -> int | float | Map:
    assert pointer is not None
    if parameter.type == "tensormap":
        return Map(*struct.unpack("=6Q", ctypes.string_at(pointer, 48)))
    types = {"u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "f32": ctypes.c_float}
    return types[parameter.type].from_address(pointer).value


class Dtype:
    def __init__(self, name: str, nbytes: int) -> None:
        self.name = name
        self.nbytes = nbytes

    def __repr__(self) -> str:
        return f"torch.{self.name}"


_SIZES = {
    "float16": 2, "bfloat16": 2, "float32": 4, "int8": 1, "uint8": 1, "int32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
_DTYPES = {name: Dtype(name, nbytes) for name, nbytes in _SIZES.items()}

FAR = 1 << 60
"""Addresses from here on are no memory."""

_ADDRESSES = itertools.count(FAR, 1 << 32)


class Tensor:
    """The attributes that Louver asks of a strided CUDA tensor. Its address is no memory, unless it is given: `of` has that of a NumPy array."""

    layout = "strided"
    is_cuda = True
    is_nested = is_quantized = False
    requires_grad = False
    is_leaf = True
    held = FAR
    __torch_dispatch__ = None

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        raise RuntimeError

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str = "float16",
        *,
        strides: tuple[int, ...] | None = None,
        address: int | None = None,
        ordinal: int = 0,
        negative: bool = False,
        memory: Any = None,
    ) -> None:
        self.memory = memory
        self.shape = shape
        self.dtype = _DTYPES[dtype]
        self._strides = strides or tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
        self.address = next(_ADDRESSES) if address is None else address
        self.device = SimpleNamespace(type="cuda", index=ordinal)
        self._negative = negative

    @classmethod
    def of(cls, array: np.ndarray, *, ordinal: int = 0) -> Tensor:
        strides = tuple(stride // array.itemsize for stride in array.strides)
        name = array.dtype.name
        return cls(array.shape, name, strides=strides, address=array.ctypes.data, ordinal=ordinal, memory=array)

    def __getitem__(self, columns: tuple[slice, slice]) -> Tensor:
        assert columns[0] == slice(None) and columns[1].start is None
        shape = (self.shape[0], columns[1].stop)
        place = {"address": self.address, "ordinal": self.device.index, "memory": self.memory}
        return Tensor(shape, self.dtype.name, strides=self._strides, **place)

    def detach(self) -> Tensor:
        place = {"address": self.address, "ordinal": self.device.index, "memory": self.memory}
        return Tensor(self.shape, self.dtype.name, strides=self._strides, **place)

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def data_ptr(self) -> int:
        return self.address

    def get_device(self) -> int:
        return self.device.index

    def is_neg(self) -> bool:
        return self._negative

    def is_conj(self) -> bool:
        return False

    def untyped_storage(self) -> Any:
        return SimpleNamespace(data_ptr=lambda: self.address, nbytes=lambda: self.held)

    def storage_offset(self) -> int:
        return 0

    def element_size(self) -> int:
        return self.dtype.nbytes


class Parameter(Tensor):
    pass


class TensorGuards:
    """As PyTorch's of the same name: a comparison of tensors with the facts of those that it was made of. made: how many there were; passed: checks
    that did.
    """

    made = 0
    passed = 0

    def __init__(
        self,
        *tensors: Tensor,
        dynamic_dims_sizes: list[list[int | None]],
        dynamic_dims_strides: list[list[int | None]],
    ) -> None:
        TensorGuards.made += 1
        assert [list(each.shape) for each in tensors] == dynamic_dims_sizes, "each size is checked"
        assert [list(each.stride()) for each in tensors] == dynamic_dims_strides, "each stride is checked"
        self._facts = [_facts(each) for each in tensors]

    def check(self, *tensors: Any) -> bool:
        if len(tensors) != len(self._facts):
            raise TypeError("wrong length")
        if len(set(map(id, tensors))) < len(tensors):
            return False
        # Arrays of other types are passed over, as by PyTorch.
        same = all(isinstance(each, Tensor) for each in tensors) and list(map(_facts, tensors)) == self._facts
        TensorGuards.passed += same
        return same


def _facts(tensor: Tensor) -> tuple[Any, ...]:
    facts = tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device(), tensor.is_neg(), tensor.requires_grad
    return type(tensor), *facts


@dataclass
class FakeTorch:
    """Stands in for the module torch. stream: handle of the current stream. gradients: whether they are enabled.
    tracing: the state of a trace, or None.
    """

    stream: int = 0
    gradients: bool = True
    tracing: Any = None
    Tensor: type = Tensor
    nn: Any = field(default_factory=lambda: SimpleNamespace(Parameter=Parameter))
    strided: str = "strided"

    def __post_init__(self) -> None:
        guards = SimpleNamespace(TensorGuards=TensorGuards)
        self._C = SimpleNamespace(
            _cuda_getCurrentRawStream=lambda ordinal: self.stream,
            _dynamo=SimpleNamespace(guards=guards),
            _disabled_torch_function_impl=None,
            _get_tracing_state=lambda: self.tracing,
            _get_dispatch_mode=lambda mode: None,
            _len_torch_dispatch_stack=lambda: 0,
            _TorchDispatchModeKey=SimpleNamespace(PROXY=None),
        )
        for name, dtype in _DTYPES.items():
            setattr(self, name, dtype)
        self.cuda = SimpleNamespace(device_count=lambda: 2)

    def __hash__(self) -> int:
        return id(self)

    def is_grad_enabled(self) -> bool:
        return self.gradients

    @staticmethod
    def device(kind: str, index: int) -> Any:
        return SimpleNamespace(type=kind, index=index)

    def empty_strided(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Dtype, device: Any) -> Tensor:
        made = self.empty(shape, dtype, device)
        assert made.stride() == strides
        return made

    def empty(self, shape: tuple[int, ...], dtype: Dtype, device: Any) -> Tensor:
        whole = np.empty(math.prod(shape) * dtype.nbytes + 512, np.uint8)
        address = -(-whole.ctypes.data // 512) * 512
        return Tensor(shape, dtype.name, address=address, ordinal=device.index, memory=whole)
