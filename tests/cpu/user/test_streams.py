"""The stream that a call is launched on, where arrays of several libraries meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from louver.formats.dtypes import element_type
from louver.runtime.arrays import ArrayView, Kind
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.jit import tile_source
from support.triton.tile_cases import TILE_CASES


def array(size: int, stream: int, *, named: bool = True, kind: Kind = "cupy") -> ArrayView:
    """A library's array on device 0, which it works on in `stream`, by its own account or by ours."""
    return ArrayView(
        element_type("f32"), (size,), (1,), Tensor((size,)).address, 0, None, kind, stream=stream, names_stream=named
    )


class Producer:
    """A device array by DLPack. streams: those that it was asked to have wait."""

    def __init__(self, size: int, interface: dict[str, Any] | None = None) -> None:
        self.memory = np.zeros(size, np.float32)
        self.streams: list[int] = []
        if interface is not None:
            self.__cuda_array_interface__ = {"typestr": "<f4", **interface}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: int, **more: Any) -> Any:
        self.streams.append(stream)
        return self.memory.__dlpack__(**more)


def launch(out: Any, x: Any, way: str = "launch") -> None:
    kernel = JitKernel(tile_source("pointer_loop"), Hints())
    run = kernel if way == "launch" else kernel.prepare
    run[(1,)](out=out, x=x, STEPS=4, ROW=144, **TILE_CASES["pointer_loop"].constexprs)


@pytest.mark.parametrize("way", ["launch", "prepare"])
@pytest.mark.parametrize(("torch_s", "other"), [(77, 5), (77, 0), (77, 1), (0, 77), (1, 77), (2, 1)])
def test_libraries_on_different_streams_are_refused(
    gpu: FakeGpu, torch: FakeTorch, torch_s: int, other: int, way: str
) -> None:
    torch.stream = torch_s
    calls = len(gpu.calls)
    rule = "pointer_loop's arrays must be in use on one stream"
    got = rf"got 'out' \(torch\) on stream {torch_s:#x} and 'x' \(cupy\) on stream {other:#x}; neither stream waits"
    with pytest.raises(
        ValueError, match=f"{rule}, {got} .*: make one of them the current stream of both libraries, or"
    ):
        launch(Tensor((256,), "float32"), array(720, other), way)
    assert not gpu.launches and len(gpu.calls) == calls


@pytest.mark.parametrize(("torch_s", "other"), [(77, 77), (0, 0), (0, 1), (1, 0)])
def test_libraries_on_one_stream_go_on_on_it(gpu: FakeGpu, torch: FakeTorch, torch_s: int, other: int) -> None:
    torch.stream = torch_s
    launch(Tensor((256,), "float32"), array(720, other))
    assert gpu.launches[-1].stream == max(torch_s, other)


@pytest.mark.parametrize("unnamed", [0, 1])
@pytest.mark.parametrize("stream", [0, 3, 77])
def test_arrays_whose_library_names_no_stream_do_not_count(
    gpu: FakeGpu, torch: FakeTorch, stream: int, unnamed: int
) -> None:
    torch.stream = stream
    launch(Tensor((256,), "float32"), array(720, unnamed, named=False))
    assert gpu.launches[-1].stream == stream
    launch(array(256, unnamed, named=False), Tensor((720,), "float32"))
    assert gpu.launches[-1].stream == stream
    launch(array(256, unnamed, named=False), array(720, unnamed, named=False))
    assert gpu.launches[-1].stream == unnamed


def test_streams_of_two_others_are_refused(gpu: FakeGpu) -> None:
    with pytest.raises(ValueError, match=r"'out' \(louver\) on stream 0x9 and 'x' \(other\) on stream 0x8"):
        launch(array(256, 9, kind="louver"), array(720, 8, kind="other"))
    assert not gpu.launches


def test_producers_that_name_no_stream_make_that_of_the_call_wait(gpu: FakeGpu, torch: FakeTorch) -> None:
    torch.stream = 77
    x = Producer(720)
    launch(Tensor((256,), "float32"), x)
    assert x.streams == [1, 77] and gpu.launches[-1].stream == 77
    torch.stream = 0
    y = Producer(720)
    launch(Tensor((256,), "float32"), y)
    assert y.streams == [1] and gpu.launches[-1].stream == 0
    z = Producer(720, {"stream": None, "data": (y.memory.ctypes.data, False), "shape": (720,)})
    torch.stream = 5
    launch(Tensor((256,), "float32"), z)
    assert z.streams == [1, 5] and gpu.launches[-1].stream == 5


def test_preparing_waits_for_nothing(gpu: FakeGpu, torch: FakeTorch) -> None:
    torch.stream = 77
    x = Producer(720)
    launch(Tensor((256,), "float32"), x, "prepare")
    assert x.streams == [1] and not gpu.launches
