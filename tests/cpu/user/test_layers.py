"""The layers above a kernel, and the records of arrays while kernels are tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.runtime.arrays import view
from louver.runtime.memory import DeviceArray
from louver.user.decorators import unwrap
from louver.user.snapshot import DeviceSnapshot, HostSnapshot, zero
from support.autotune import Autotuner, Config, Function, Heuristics, styles
from support.fake_gpu import FakeGpu


def test_decorators_are_unwrapped_in_order() -> None:
    function = Function(["a", "N"])
    assert unwrap(function) == (function, None)
    kernel = Heuristics(Autotuner(Heuristics(Heuristics(function, {"Y": len}), {"X": len}), [Config({})]), {"Z": len})
    found, layers = unwrap(kernel)
    assert found is function and layers is not None and layers.native is kernel and layers.tuner is kernel.fn
    assert layers.names == ("a", "N") and [list(each) for each in layers.above] == [["Z"]]
    assert [list(each) for each in layers.below] == [["X"], ["Y"]]


def test_one_autotune_is_enough() -> None:
    inner = Autotuner(Function(["a"]), [Config({})])
    with pytest.raises(ValueError, match="a kernel has one triton.autotune, got two"):
        louver.jit(Autotuner(inner, [Config({})]))


def test_each_heuristic_sees_those_before_it() -> None:
    values = {"X": lambda args: args["N"] + 1, "Y": lambda args: args["X"] * args["BM"]}
    _, layers = unwrap(Autotuner(Heuristics(Function(["a", "N"]), values), [Config({"BM": 16})]))
    assert layers is not None
    (config,) = layers.configs((1, 2), {})
    candidate = layers.candidate(config, (1, 2), {})
    assert candidate.kwargs == {"BM": 16, "X": 3, "Y": 48} == candidate.constants
    assert candidate.named == {"a": 1, "N": 2, "BM": 16, "num_warps": 4, "num_stages": 3, "num_ctas": 1}
    assert str(candidate) == "BM=16, num_warps=4, num_stages=3"


def test_four_warps_are_triton_s_default_and_say_nothing() -> None:
    _, layers = unwrap(Autotuner(Function(["a"]), [*styles("x"), *styles("x", num_warps=8)]))
    assert layers is not None
    assert [layers.candidate(config, (), {}).warps for config in layers.tuner.configs] == [None, 8]


def test_descriptors_get_other_blocks_and_nothing_else() -> None:
    tiles = louver.TensorDescriptor(np.zeros((8, 16), np.float16), (8, 16), (16, 1), (1, 1))
    tiles.block_shape = [4, 8]  # type: ignore[assignment]
    assert tiles.block_shape == (4, 8)
    with pytest.raises(ValueError, match="a block size for each dimension"):
        tiles.block_shape = (4,)
    with pytest.raises(AttributeError, match="only block_shape may be set, got shape"):
        tiles.shape = (4, 4)
    assert tiles.block_shape == (4, 8) and tiles.shape == (8, 16)


def test_host_arrays_are_put_back() -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    part, fixed = whole[:, 1:4], np.ones(3, np.float32)
    fixed.setflags(write=False)
    before = whole.copy()
    kept = HostSnapshot([view(part), view(fixed)])
    part[:] = -1
    kept.restore()
    np.testing.assert_array_equal(whole, before)


def copying(gpu: FakeGpu) -> None:
    gpu._cuMemcpyDtoDAsync = gpu._cuMemcpyHtoDAsync  # type: ignore[attr-defined]


def test_device_arrays_are_put_back_as_often_as_is_wanted(gpu: FakeGpu) -> None:
    copying(gpu)
    array = DeviceArray.of(np.arange(6, dtype=np.float32))
    kept = DeviceSnapshot([view(array), view(array)], 0, 0)
    assert len(gpu.called("cuMemcpyDtoDAsync")) == 1
    for _ in range(2):
        array.buffer.fill(255)
        kept.restore()
        np.testing.assert_array_equal(array.numpy(), np.arange(6))
    kept.close()
    assert len(gpu.memory) == 1


def test_arrays_of_any_library_are_set_to_zero(gpu: FakeGpu) -> None:
    array = DeviceArray.of(np.ones((4, 6), np.float32))
    zero("d", view(array), 0, 0)
    assert not array.numpy().any()
    whole: Any = view(array)
    part = SimpleNamespace(**{name: getattr(whole, name) for name in ("address", "element", "kind", "owner")})
    part.size, part.byte_range = 12, whole.byte_range
    assert part.element == element_type("f32")
    with pytest.raises(ValueError, match="'d' is reset to zero as a whole, got an array with gaps"):
        zero("d", part, 0, 0)  # type: ignore[arg-type]
