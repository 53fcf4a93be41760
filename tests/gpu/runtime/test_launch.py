from __future__ import annotations

import numpy as np
import pytest

from louver.runtime.device import current_device, device, require_device
from louver.runtime.driver import DriverError, api, call, device_context, is_capturing
from louver.runtime.memory import DeviceArray, DeviceBuffer
from louver.runtime.module import ArgumentPack, LoadedKernel, load
from support import kernels
from support.threads import in_threads

N = 100_003


def axpy() -> LoadedKernel:
    return load(kernels.cubin(kernels.AXPY), "axpy", threads=128)


def operands(rng: np.random.Generator, stream: int) -> tuple[np.ndarray, np.ndarray, DeviceArray, DeviceArray]:
    x, y = (rng.integers(-1000, 1000, N).astype(np.float32) for _ in range(2))
    return x, y, DeviceArray.of(x, stream=stream), DeviceArray.of(y, stream=stream)


def pack(x: DeviceArray, y: DeviceArray, a: float) -> ArgumentPack:
    arguments = ArgumentPack(["u64", "u64", "f32", "u32"])
    arguments.bind(x.buffer.address, y.buffer.address, a, N)
    return arguments


def test_the_device_is_described() -> None:
    found = require_device()
    assert found is device(found.ordinal)
    assert found.capability >= (8, 0) and found.sm_count > 0 and found.driver >= (13, 0)
    assert found.shared_limit >= 99 * 1024 and found.l2_bytes > 1 << 20 and found.memory_bytes > 1 << 30
    assert found.name in str(current_device())


def test_a_launch_computes(rng: np.random.Generator, stream: int) -> None:
    x, y, dx, dy = operands(rng, stream)
    kernel = axpy()
    kernel.launch(-(-N // 128), pack(dx, dy, 2.0), stream)
    assert np.array_equal(dy.numpy(), y + 2 * x)


def test_the_default_stream_works(rng: np.random.Generator) -> None:
    x, y, dx, dy = operands(rng, 0)
    axpy().launch((-(-N // 128), 1, 1), pack(dx, dy, -3.0))
    assert np.array_equal(dy.numpy(), y - 3 * x)


def test_arguments_may_change_as_soon_as_a_launch_returns(rng: np.random.Generator, stream: int) -> None:
    x, y, dx, dy = operands(rng, stream)
    kernel = axpy()
    arguments = pack(dx, dy, 0.0)
    for a in range(200):
        arguments.bind(dx.buffer.address, dy.buffer.address, float(a % 5), N)
        kernel.launch(-(-N // 128), arguments, stream)
    assert np.array_equal(dy.numpy(), y + 400 * x)


def test_a_fresh_thread_may_launch(rng: np.random.Generator, stream: int) -> None:
    x, y, dx, dy = operands(rng, stream)
    arguments = pack(dx, dy, 2.0)
    in_threads(lambda _: axpy().launch(-(-N // 128), arguments, stream), [0])
    assert np.array_equal(dy.numpy(), y + 2 * x)


def test_a_fresh_thread_may_launch_on_the_default_stream(rng: np.random.Generator) -> None:
    x, y, dx, dy = operands(rng, 0)
    kernel, arguments = axpy(), pack(dx, dy, 2.0)
    in_threads(lambda _: kernel.launch(-(-N // 128), arguments), [0])
    assert np.array_equal(dy.numpy(), y + 2 * x)


def test_launches_are_captured_and_replayed(rng: np.random.Generator, stream: int) -> None:
    x, y, dx, dy = operands(rng, stream)
    kernel, arguments = axpy(), pack(dx, dy, 1.0)
    driver = api()
    assert not is_capturing(stream)
    call("cuStreamBeginCapture", stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    assert is_capturing(stream)
    kernel.launch(-(-N // 128), arguments, stream)
    kernel.launch(-(-N // 128), arguments, stream)
    graph = call("cuStreamEndCapture", stream)
    assert np.array_equal(dy.numpy(), y)
    # A captured launch has its own copy of the arguments, and needs none of Python's objects any more.
    arguments.bind(dx.buffer.address, dy.buffer.address, 100.0, N)
    del kernel
    runnable = call("cuGraphInstantiate", graph, 0)
    for _ in range(3):
        call("cuGraphLaunch", runnable, stream)
    assert np.array_equal(dy.numpy(), y + 6 * x)
    call("cuGraphExecDestroy", runnable)
    call("cuGraphDestroy", graph)


def test_clusters_are_launched(stream: int) -> None:
    kernel = load(kernels.cubin(kernels.CLUSTER_RANK), "rank", threads=32, cluster=2)
    out = DeviceBuffer(4 * 10, stream=stream)
    out.fill(0xFF)
    arguments = ArgumentPack(["u64"])
    arguments.bind(out.address)
    kernel.launch(10, arguments, stream)
    assert out.read().view(np.uint32).tolist() == [0, 1] * 5
    with pytest.raises(ValueError, match="a multiple of the cluster's 2 CTAs, got"):
        kernel.launch(3, arguments, stream)


def test_what_the_driver_refuses_is_named(stream: int) -> None:
    arguments = ArgumentPack(["u64", "u64", "f32", "u32"])
    with pytest.raises(DriverError, match="loading a cubin of 8 bytes on device 0 failed with CUDA_ERROR"):
        load(b"no cubin", "axpy", threads=128)
    with pytest.raises(DriverError, match="finding the kernel axqy failed with CUDA_ERROR_NOT_FOUND"):
        load(kernels.cubin(kernels.AXPY), "axqy", threads=128)
    with pytest.raises(ValueError, match="bytes of shared memory"):
        load(kernels.cubin(kernels.AXPY), "axpy", threads=128, dynamic_shared=1 << 20)
    wide = load(kernels.cubin(kernels.AXPY), "axpy", threads=256)
    with pytest.raises(DriverError, match=r"launching axpy on .*256 threads.* failed with CUDA_ERROR"):
        wide.launch(1, arguments, stream)
    # None of these is sticky: the context still works.
    assert DeviceArray.of(np.arange(5, dtype=np.int32)).numpy().tolist() == list(range(5))


def test_buffers_are_filled_and_copied(rng: np.random.Generator, stream: int) -> None:
    buffer = DeviceBuffer(1000, stream=stream)
    assert buffer.address % 256 == 0
    buffer.fill(0x5A)
    data = rng.integers(0, 256, 333, dtype=np.uint8)
    buffer.write(data, offset=111)
    expected = np.full(1000, 0x5A, np.uint8)
    expected[111:444] = data
    assert np.array_equal(buffer.read(), expected)
    buffer.close()


def test_the_context_on_a_thread_is_left_as_it_was() -> None:
    before = int(call("cuCtxGetCurrent"))
    with device_context(0):
        assert int(call("cuCtxGetCurrent"))
    assert int(call("cuCtxGetCurrent")) == before
