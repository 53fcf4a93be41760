from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from louver.runtime.driver import DriverError
from louver.runtime.module import ArgumentPack, load

try:
    import cuda.bindings.driver as bindings
except ImportError:
    bindings = None

TYPES = ("u32", "tensormap", "f32", "u64", "u32", "tensormap")
FITTING = (1, bytes(128), 1.5, 2, 3, bytes(128))


def seen_by_driver(pack: ArgumentPack, sizes: tuple[int, ...]) -> list[bytes]:
    pointers = (ctypes.c_void_p * len(sizes)).from_address(pack.table)
    return [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)]


def test_arguments_are_where_the_driver_reads_them(rng: np.random.Generator) -> None:
    pack = ArgumentPack(TYPES)
    maps = rng.bytes(128), rng.bytes(128)
    pack.bind(2**32 - 1, maps[0], 1.5, 2**64 - 1, 0, maps[1])
    pack.bind(2**32 - 1, maps[0], 1.5, 2**64 - 1, 77, maps[1])
    expected = [
        np.uint32(2**32 - 1).tobytes(),
        maps[0],
        np.float32(1.5).tobytes(),
        np.uint64(2**64 - 1).tobytes(),
        np.uint32(77).tobytes(),
        maps[1],
    ]
    assert seen_by_driver(pack, (4, 128, 4, 8, 4, 128)) == expected


def test_tensor_maps_and_scalars_are_aligned() -> None:
    for _ in range(20):
        pack = ArgumentPack(TYPES)
        pointers = (ctypes.c_void_p * len(TYPES)).from_address(pack.table)
        for pointer, kind in zip(pointers, TYPES, strict=True):
            assert pointer % {"tensormap": 64, "u64": 8}.get(kind, 4) == 0


@pytest.mark.parametrize(
    ("index", "value"),
    [(0, -1), (0, 2**32), (0, 1.5), (0, b"x"), (2, "1"), (3, 2**64), (2, 1e300)],
)
def test_values_must_fit(index: int, value: Any) -> None:
    with pytest.raises(ValueError, match=f"argument {index} must be a value of type {TYPES[index]}, got"):
        ArgumentPack(TYPES).bind(*FITTING[:index], value, *FITTING[index + 1 :])


@pytest.mark.parametrize("value", [b"short", 5, bytes(129)])
def test_tensor_maps_have_128_bytes(value: Any) -> None:
    with pytest.raises(ValueError, match="argument 1 is a tensor map of 128 bytes, got"):
        ArgumentPack(TYPES).bind(1, value, *FITTING[2:])


def test_other_misuse_of_packs() -> None:
    with pytest.raises(ValueError, match="6 parameters, got 2 arguments"):
        ArgumentPack(TYPES).bind(1, 2)
    with pytest.raises(ValueError, match="a parameter is one of u32, u64, f32, tensormap; got 'i8'"):
        ArgumentPack(["i8"])  # type: ignore[list-item]


def test_a_launch_is_one_call(fake: Any) -> None:
    kernel = load(b"code", "copy", threads=256, dynamic_shared=100_000, ordinal=1)
    pack = ArgumentPack(["u64"])
    pack.bind(42)
    fake.calls.clear()
    kernel.launch(7, pack, 0xBEEF)
    kernel.launch((4, 3, 2), pack)
    function = "copy of module 4"
    assert fake.calls == [
        ("cuLaunchKernel", (function, 7, 1, 1, 256, 1, 1, 100_000, 0xBEEF, pack.table, 0)),
        ("cuLaunchKernel", (function, 4, 3, 2, 256, 1, 1, 100_000, 0, pack.table, 0)),
    ]
    assert fake.reads == [42, 42]
    assert "copy" in repr(kernel)


def test_a_dependent_launch_is_one_call_too(fake: Any) -> None:
    kernel = load(b"code", "copy", threads=256, dynamic_shared=100_000, ordinal=1, dependent=True)
    pack = ArgumentPack(["u64"])
    pack.bind(42)
    bound = kernel.bound((4, 3, 2), pack, 0xBEEF)
    fake.calls.clear()
    bound()
    bound.on(0)()
    configs = []
    for (config, *rest), stream in zip(fake.called("cuLaunchKernelEx"), (0xBEEF, 0), strict=True):
        assert rest == ["copy of module 4", pack.table, 0]
        assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (4, 3, 2)
        assert (config.blockDimX, config.blockDimY, config.blockDimZ, config.sharedMemBytes) == (256, 1, 1, 100_000)
        assert config.hStream == stream and config.numAttrs == 1
        configs.append(config.attrs[0])
    assert [each.id for each in configs] == ["programmatic"] * 2
    assert [each.value.programmaticStreamSerializationAllowed for each in configs] == [1, 1]
    assert fake.reads == [42, 42]


@pytest.mark.skipif(bindings is None, reason="cuda-bindings is not installed")
def test_the_driver_s_own_record_takes_what_a_dependent_launch_says(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuda-bindings keeps the attribute by value: its numbers are C's."""
    for name in ("CUlaunchAttribute", "CUlaunchAttributeID", "CUlaunchConfig", "CUstream"):
        monkeypatch.setattr(type(fake), name, getattr(bindings, name), raising=False)
    bound = load(b"code", "copy", threads=96, dynamic_shared=64, dependent=True).bound(5, ArgumentPack(()), 7)
    bound()
    ((config, *_),) = fake.called("cuLaunchKernelEx")
    assert (config.gridDimX, config.blockDimX, config.sharedMemBytes, int(config.hStream)) == (5, 96, 64, 7)
    (attribute,) = config.attrs
    assert int(attribute.id) == 6 and attribute.value.programmaticStreamSerializationAllowed == 1


def test_a_kernel_without_parameters_launches(fake: Any) -> None:
    load(b"code", "nothing", threads=32).launch(1, ArgumentPack(()))
    assert fake.reads == []


def test_loading_allows_the_shared_memory(fake: Any) -> None:
    load(b"code", "copy", threads=256, dynamic_shared=200_000)
    assert fake.called("cuFuncSetAttribute") == [("copy of module 4", "shared", 200_000)]
    load(b"code", "copy", threads=256)
    assert len(fake.called("cuFuncSetAttribute")) == 1
    assert fake.contexts == [0]


def test_equal_cubins_are_loaded_once_per_device(fake: Any) -> None:
    for ordinal in (0, 0, 1):
        load(bytes([1, 2, 3]), "copy", threads=32, ordinal=ordinal)
    assert len(fake.called("cuModuleLoadData")) == 2


@pytest.mark.parametrize("dependent", [False, True])
@pytest.mark.parametrize("code", [201, 400])
def test_a_thread_without_the_device_gets_it_for_the_launch(fake: Any, code: int, dependent: bool) -> None:
    kernel = load(b"code", "copy", threads=32, ordinal=1, dependent=dependent)
    launch = "cuLaunchKernelEx" if dependent else "cuLaunchKernel"
    fake.fails[launch] = [code]
    fake.calls.clear()
    kernel.launch(1, ArgumentPack(["u64"]))
    names = [name for name, _ in fake.calls]
    assert names == [launch, "cuCtxPushCurrent", launch, "cuCtxPopCurrent"]
    assert fake.contexts == [0]
    assert len(fake.reads) == 1


def test_launch_errors_say_what_was_launched(fake: Any) -> None:
    kernel = load(b"code", "copy", threads=32, cluster=2, dynamic_shared=64)
    fake.fails["cuLaunchKernel"] = [701, 400, 400, 1, 1]
    pack = ArgumentPack(["u64"])
    with pytest.raises(
        DriverError,
        match=r"launching copy on Fake GPU \(grid \(4, 1, 1\), 32 threads, cluster 2, 64 bytes of shared memory, "
        r"stream 0x5\) failed with CUDA_ERROR_FAKE \(701\): the CTA needs more",
    ):
        kernel.launch(4, pack, 5)
    with pytest.raises(DriverError, match="400"):
        kernel.launch(4, pack)
    with pytest.raises(ValueError, match=r"x a multiple of the cluster's 2 CTAs, got \(3, 1, 1\)"):
        kernel.launch(3, pack)
    with pytest.raises(ValueError, match="sides are at least 1"):
        kernel.launch((2, 0, 1), pack)


def test_limits_are_checked_before_loading(fake: Any) -> None:
    with pytest.raises(ValueError, match="at most 232448 bytes of shared memory on Fake GPU, got 232449: use fewer"):
        load(b"code", "copy", threads=32, dynamic_shared=232449)
    with pytest.raises(ValueError, match="1 to 1024 threads"):
        load(b"code", "copy", threads=1025)
    with pytest.raises(ValueError, match="clusters of at least 1"):
        load(b"code", "copy", threads=32, cluster=0)
    assert not fake.called("cuModuleLoadData")


def test_a_cubin_that_the_driver_refuses(fake: Any) -> None:
    fake.fails["cuModuleLoadData"] = [209]
    with pytest.raises(DriverError, match=r"loading a cubin of 4 bytes on device 0 .*assembled for another GPU"):
        load(b"code", "copy", threads=32)
    fake.fails["cuModuleGetFunction"] = [500]
    with pytest.raises(DriverError, match="finding the kernel copy"):
        load(b"code", "copy", threads=32)
    assert fake.contexts == [0]
