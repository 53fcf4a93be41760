from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from louver.library import warm
from louver.library.deleted_forms import give_back
from louver.runtime import device
from louver.runtime.device import NoDeviceError
from support.fake_gpu import FakeGpu, FakeTorch, Map, Parameter, Tensor
from support.signatures import grid
from support.threads import in_threads

M, K = 136, 72
CAPTURING = 0xCA
"""The stream that the recording driver says is being captured."""


def weight(rng: np.random.Generator, m: int = M, k: int = K, dtype: Any = np.float16) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((m, k)).astype(dtype), "2:4"), "2:4")


@pytest.fixture
def s(rng: np.random.Generator) -> SparseTensor:
    return weight(rng)


def test_a_plan_binds_what_it_is_called_with(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    bias = Tensor((M,))
    p = louver.plan("linear", s, n=16, bias=bias, like=Tensor((16, K)))
    assert not gpu.launches
    for n, stream in ((16, 0), (16, 7), (3, 7), (1000, 0)):
        torch.stream = stream
        x, y = Tensor((n, K)), Tensor((n, M))
        for _ in range(3):
            assert p(x, out=y) is y
            launch = gpu.only_launch()
            assert launch.stream == stream
            assert launch.kernel.launch.schedule.tile.n == 16, "the kernel is the planned one"
            assert launch.grid == grid(launch.kernel.signature, M, n, 132)
            read = launch.arguments
            maps = {v.address: v for v in read.values() if isinstance(v, Map)}
            assert maps[x.address] == Map(x.address, K, n, 2 * K)
            assert maps.get(y.address) == Map(y.address, M, n, 2 * M) or read["d"] == y.address
            assert (read["M"], read["N"], read["K"], read["bias"]) == (M, n, K, bias.address)


def test_a_warm_call_only_launches(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, checked: list[str]) -> None:
    p = louver.plan("linear", s, n=16)
    x, y = Tensor((16, K)), Tensor((16, M))
    p(x, out=y)
    gpu.calls.clear()
    encoded = gpu.encoded
    for _ in range(5):
        p(x, out=y)
    assert {name for name, _ in gpu.calls} == {"cuLaunchKernel"} and gpu.encoded == encoded
    again = Tensor((16, K))
    p(again, out=y)
    assert gpu.encoded == encoded + 1, "only the map of the array that moved is encoded"
    assert checked == ["linear"]


@pytest.mark.parametrize("with_bias", [False, True])
def test_linear_warms_and_follows_its_arguments(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, checked: list[str], with_bias: bool
) -> None:
    for shape in ((2, 8, K), (16, K), (K,)):
        n = 1 if shape == (K,) else 16
        for _ in range(3):
            x, bias = Tensor(shape), Parameter((M,)) if with_bias else None
            y = louver.linear(x, s, bias)
            assert y.shape == (*shape[:-1], M) and y.dtype is torch.float16
            read = gpu.only_launch().arguments
            assert Map(x.address, K, n, 2 * K) in read.values() and read["N"] == n
            assert read.get("bias", 0) == (bias.address if bias else 0)
    assert len(checked) == 3, "one slow call for each shape"


def test_matmul_warms_in_both_layouts(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    for strides, rows in (((64, 1), (64, K)), ((1, 80), (K, 64))):
        for _ in range(2):
            b = Tensor((K, 64), strides=strides)
            y = louver.matmul(s, b, out_dtype="f32")
            assert y.shape == (M, 64) and y.dtype is torch.float32
            read = gpu.only_launch().arguments
            assert Map(b.address, *rows, 2 * max(strides)) in read.values()


def test_element_types_are_part_of_what_is_remembered(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    x = Tensor((16, K))
    narrow, wide = Tensor((16, M)), Tensor((16, M), "float32")
    p = louver.plan("linear", s, n=16)
    assert p(x, narrow) is narrow
    with pytest.raises(ValueError, match="out must have element type f16, got f32"):
        p(x, wide)
    assert louver.linear(x, s, out=wide) is wide and louver.linear(x, s, out=narrow) is narrow
    with pytest.raises(ValueError, match="one element type"):
        p(Tensor((16, K), "bfloat16", address=x.address), narrow)


WRONG: list[tuple[str, str]] = [
    ("out is one row short", "out must have shape"),
    ("out is broadcast", "out must be writable"),
    ("out overlaps itself", "must not overlap each other"),
    ("out is x's memory", "must not overlap an input"),
    ("out is the bias's memory", "must not overlap an input"),
    ("out is on another device", "on the inputs' device"),
    ("out is pending negation", "negation is still pending"),
    ("out is misaligned", "aligned to 2 bytes"),
    ("x has another K", "x must be"),
    ("x is pending negation", "negation is still pending"),
    ("x is misaligned", "multiples of 16 bytes"),
    ("x's rows are misaligned", "multiples of 16 bytes"),
    ("x is on another device", "the plan is for arrays on cuda:0"),
    ("bias has moved to another device", "on one device"),
    ("bias is strided", "bias must be contiguous"),
]


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize(("what", "rule"), WRONG)
def test_nothing_wrong_slips_through_a_warm_plan(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, what: str, rule: str, guarded: bool
) -> None:
    if not guarded:
        del torch._C._dynamo
    x, y, bias = Tensor((16, K)), Tensor((16, M)), Tensor((M,))
    p = louver.plan("linear", s, n=16, bias=bias, like=x)
    for _ in range(2):
        p(x, out=y)
    gpu.launches.clear()
    match what:
        case "out is one row short":
            y.shape = (15, M)
        case "out is broadcast":
            y._strides = (0, 1)
        case "out overlaps itself":
            y._strides = (8, 1)
        case "out is x's memory":
            y.address = x.address + 16
        case "out is the bias's memory":
            y.address = bias.address - 2 * 15 * M
        case "out is on another device":
            y.device.index = 1
        case "out is pending negation":
            y._negative = True
        case "out is misaligned":
            y.address += 1
        case "x has another K":
            x.shape = (16, K - 8)
        case "x is pending negation":
            x._negative = True
        case "x is misaligned":
            x.address += 2
        case "x's rows are misaligned":
            x._strides = (K + 1, 1)
        case "x is on another device":
            x.device.index = y.device.index = bias.device.index = 1
        case "bias has moved to another device":
            bias.device.index = 1
        case _:
            bias._strides = (2,)
    with pytest.raises(ValueError, match=rule):
        p(x, out=y)
    assert not gpu.launches


def test_outputs_of_any_alignment_get_a_kernel_that_can_write_them(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor
) -> None:
    p = louver.plan("linear", s, n=64)
    x, y = Tensor((64, K)), Tensor((64, M))
    start = y.address
    for _ in range(2):
        for offset, store in ((0, "d_map"), (2, "direct"), (16, "d_map"), (8, "direct")):
            y.address = start + offset
            p(x, out=y)
            read = gpu.only_launch().arguments
            in_bulk = any(isinstance(v, Map) and v.address == y.address for v in read.values())
            assert in_bulk == (store == "d_map")
            assert in_bulk or read["d"] == y.address


def test_columns_between_an_inputs_columns_may_be_written(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator
) -> None:
    s = weight(rng, 64, 64)
    x = Tensor((16, 64), strides=(128, 1))
    y = Tensor((16, 64), strides=(128, 1), address=x.address + 128)
    for _ in range(2):
        assert louver.linear(x, s, out=y) is y
        assert gpu.only_launch().arguments["N"] == 16
    y.address += 64
    with pytest.raises(ValueError, match="overlap"):
        louver.linear(x, s, out=y)


def test_what_must_be_copied_is_copied_every_time(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    x = Tensor((16, K), strides=(2 * K, 2))
    for _ in range(2):
        louver.linear(x, s)
        copy, product = gpu.launches
        gpu.launches.clear()
        assert copy.kernel is None and Map(x.address, K, 16, 2 * K) not in product.arguments.values()


def test_a_capture_needs_prepare(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    torch.stream = CAPTURING
    x, y = Tensor((16, K)), Tensor((16, M))
    call = r"louver.prepare\(s, n=…, bias=False, out_dtype='f16', layout='k_major'\) before the capture"
    with pytest.raises(RuntimeError, match=call):
        louver.linear(x, s, out=y)
    with pytest.raises(RuntimeError, match=call):
        louver.plan("linear", s, n=16, like=x)
    assert not gpu.launches and not gpu.called("cuModuleLoadData") and not gpu.called("cuMemAllocAsync")
    louver.prepare(s, n=(9, 16))
    loaded = len(gpu.called("cuModuleLoadData"))
    louver.linear(x, s, out=y)
    louver.linear(Tensor((11, K), strides=(K + 1, 1)), s, out=Tensor((11, M), strides=(M + 1, 1)))
    louver.plan("linear", s, n=16, like=x)(x, out=y)
    assert len(gpu.called("cuModuleLoadData")) == loaded
    assert all(launch.stream == CAPTURING for launch in gpu.launches)
    with pytest.raises(RuntimeError, match="kind='matmul', bias=False, out_dtype='f16', layout='n_major'"):
        louver.matmul(s, Tensor((K, 64)))


@pytest.mark.parametrize("m", [1, 64])
@pytest.mark.parametrize("ns", [1, 2, (1, 9)])
def test_vectors_of_any_length_are_prepared(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, m: int, ns: int | tuple[int, int]
) -> None:
    """Calls read a vector with one element as the scale of the whole operand."""
    s = weight(rng, m, 64, ml_dtypes.float8_e4m3fn)
    louver.prepare(s, ns, bias=True, epilogue=louver.Epilogue(scale="row", dense_scale="column"))
    loaded = len(gpu.called("cuModuleLoadData"))
    torch.stream = CAPTURING
    for n in (ns,) if isinstance(ns, int) else (1, 2, 9):
        x, bias = Tensor((n, 64), "float8_e4m3fn"), Tensor((m,), "bfloat16")
        rows, tokens = Tensor((m,), "float32"), Tensor((n,), "float32")
        louver.linear(x, s, bias, scale=rows, dense_scale=tokens)
        read = gpu.only_launch().arguments
        assert (read["scale"], read["dense_scale"]) == (rows.address, tokens.address)
    assert len(gpu.called("cuModuleLoadData")) == loaded


def test_a_copy_under_capture_needs_its_kernel(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    aligned, apart = Tensor((16, K)), Tensor((16, K), strides=(2 * K, 2))
    y = Tensor((16, M))
    louver.linear(aligned, s, out=y)
    torch.stream = CAPTURING
    with pytest.raises(RuntimeError, match=r"louver.prepare before the capture, or give an operand"):
        louver.linear(apart, s, out=y)
    torch.stream = 0
    louver.linear(apart, s, out=y)
    torch.stream = CAPTURING
    louver.linear(apart, s, out=y)


def test_calls_are_remembered_up_to_a_bound(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "RECENT_CALLS", 3)
    monkeypatch.setattr(warm, "RECENT_ADDRESSES", 2)
    p = louver.plan("linear", s, n=16)
    for n in (*range(1, 9), *range(1, 9)):
        for _ in range(3):
            x, y = Tensor((n, K)), Tensor((n, M))
            p(x, out=y)
            read = gpu.only_launch().arguments
            assert Map(x.address, K, n, 2 * K) in read.values() and read["N"] == n
    assert len(p._warm.calls) <= 3 and all(len(call.launches) <= 2 for call in p._warm.calls.values())


def test_nothing_keeps_a_tensor_or_its_memory(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s = weight(rng)
    louver.linear(Tensor((16, K)), s)
    p = louver.plan("linear", s, n=16)
    p(Tensor((16, K)))
    alive, held = weakref.ref(s), len(gpu.memory)
    assert held == 2
    del s
    gc.collect()
    assert alive() is not None, "a plan keeps its tensor"
    gpu.calls.clear()
    del p
    gc.collect()
    names = [name for name, _ in gpu.calls if name in ("cuCtxSynchronize", "cuMemFreeAsync")]
    assert names == 2 * ["cuCtxSynchronize", "cuMemFreeAsync"], "what still reads is waited for"
    assert alive() is None and not gpu.memory


def test_memory_of_a_tensor_that_goes_during_a_capture_is_given_back_later(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator
) -> None:
    """Waiting for the device would end the capture."""
    s, other = weight(rng), weight(rng)
    louver.linear(Tensor((16, K)), s)
    gpu.captures[torch.stream] = 7
    gpu.calls.clear()
    del s
    gc.collect()
    assert len(gpu.memory) == 2 and not any(name in ("cuCtxSynchronize", "cuMemFreeAsync") for name, _ in gpu.calls)
    del gpu.captures[torch.stream]
    louver.linear(Tensor((16, K)), other)
    assert len(gpu.memory) == 2, "that of the other tensor"


def test_memory_that_cannot_be_waited_for_is_given_back_later(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator
) -> None:
    """A capture of another stream refuses the wait, and kernels may still read the memory."""
    s, other = weight(rng), weight(rng)
    louver.linear(Tensor((16, K)), s)
    gpu.fails["cuCtxSynchronize"] = [900, 900]
    del s
    gc.collect()
    assert len(gpu.memory) == 2
    louver.linear(Tensor((16, K)), other)
    assert len(gpu.memory) == 2, "that of the other tensor"


def test_memory_may_go_while_other_memory_is_given_back(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator
) -> None:
    """A garbage collection may come at any time."""
    tensors = [weight(rng) for _ in range(3)]
    for number in range(3):
        louver.linear(Tensor((16, K)), tensors[number])
    gpu.captures[torch.stream] = 7
    tensors.pop()
    gc.collect()

    class Collecting(int):
        def __eq__(self, other: object) -> bool:
            del tensors[1:]
            gc.collect()
            return int(self) == other

        __hash__ = int.__hash__

    give_back(Collecting(0))
    assert len(gpu.memory) == 6 and len(tensors) == 1
    del gpu.captures[torch.stream]
    give_back(0)
    assert len(gpu.memory) == 2, "that of the tensor that is left"


def test_a_capture_of_the_device_s_own_default_stream_is_seen(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator
) -> None:
    s = weight(rng)
    louver.linear(Tensor((16, K)), s)
    gpu.contexts[:] = [1]
    gpu.calls.clear()
    del s
    gc.collect()
    names = [name for name, _ in gpu.calls]
    assert names.index("cuCtxPushCurrent") < names.index("cuStreamIsCapturing")


def test_each_tensor_has_an_operand_of_its_own(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    x, y = Tensor((16, K)), Tensor((16, M))
    seen = set()
    for _ in range(8):
        s = weight(rng)
        for _ in range(2):
            louver.linear(x, s, out=y)
        (values,) = {v for v in only_of(gpu) if v.inner == K // 2}
        held = (ctypes.c_uint16 * (values.rows * values.pitch // 2)).from_address(values.address)
        kept = np.array(held).reshape(M, values.pitch // 2)[:, : K // 2]
        np.testing.assert_array_equal(kept, s.values.view(np.uint16))
        seen.add(kept.tobytes())
    assert len(seen) == 8


def only_of(gpu: FakeGpu) -> list[Map]:
    """The tensor maps of the launches since the last time."""
    maps = [v for launch in gpu.launches for v in launch.arguments.values() if isinstance(v, Map)]
    gpu.launches.clear()
    return maps


def test_threads_share_a_plan(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    p = louver.plan("linear", s, n=16)
    wanted: set[tuple[int, int]] = set()

    def work(_: int) -> None:
        for n in range(1, 60):
            x, y = Tensor((n, K)), Tensor((n, M))
            wanted.add((x.address, n))
            p(x, out=y)

    in_threads(work, range(4))
    got = {(v.address, v.rows) for launch in gpu.launches for v in launch.arguments.values() if isinstance(v, Map)}
    assert wanted <= got and len(gpu.launches) == len(wanted)


def test_options_that_are_none_are_refused_by_the_checks(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    x = Tensor((16, K))
    louver.linear(x, s)
    for out_dtype in ([], "f64", "s32"):
        with pytest.raises(ValueError):
            louver.linear(x, s, out_dtype=out_dtype)
    with pytest.raises(ValueError, match="accumulate"):
        louver.linear(x, s, accumulate="promoted")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kind": "conv"}, "kind is 'linear' or 'matmul', got 'conv'"),
    ({"n": -1}, "n is an integer from 0 to 2,147,483,647, got -1"),
    ({"out_dtype": "s32"}, "out_dtype must be"),
    ({"layout": "rows"}, "layout is 'k_major' or 'n_major', got 'rows'"),
]


@pytest.mark.parametrize(("arguments", "rule"), REFUSED)
def test_plans_of_no_product_are_refused(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, arguments: dict[str, Any], rule: str
) -> None:
    given = {"kind": "linear", "n": 16, **arguments}
    with pytest.raises(ValueError, match=rule):
        louver.prepare(s, **given)
    with pytest.raises(ValueError, match=rule):
        louver.plan(s=s, **given)


def test_examples_and_biases_of_a_plan_are_checked(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    with pytest.raises(ValueError, match="got an array on the host as the example"):
        louver.plan("linear", s, n=4, like=np.ones((4, K), np.float16))
    with pytest.raises(ValueError, match=r"bias must be \[out\]"):
        louver.plan("linear", s, n=4, bias=Tensor((M + 1,)))
    with pytest.raises(ValueError, match="without unit stride"):
        louver.plan("matmul", s, n=4, like=Tensor((K, 4), strides=(8, 2)))
    with pytest.raises(ValueError, match=r"b must be \[..., K, N\]"):
        louver.plan("matmul", s, n=4, like=Tensor((K,)))
    with pytest.raises(ValueError, match="one number or a pair, from least to greatest, got 9 to 8"):
        louver.prepare(s, n=(9, 8))
    with pytest.raises(TypeError, match=r"louver\.SparseTensor"):
        louver.plan("linear", np.ones((4, 4)), n=4)  # type: ignore[arg-type]


def test_a_plan_takes_the_layout_of_its_example(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    turned = Tensor((K, 16), strides=(1, K))
    p = louver.plan("matmul", s, n=16, like=turned, out_dtype="bf16")
    assert p.layout == "k_major" and p(turned).dtype is torch.bfloat16 and "k_major" in repr(p)
    assert louver.plan("matmul", s, n=16).layout == "n_major"
    with pytest.raises(ValueError, match=r"reads its dense operand in place, k_major .* call louver\.matmul or linear"):
        p(Tensor((K, 16)))
    tokens = Tensor((16, K), strides=(1, 16))
    p = louver.plan("linear", s, n=16, like=tokens)
    assert p.layout == "n_major" and p(tokens).shape == (16, M)


def test_bf16_products_are_planned(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    p = louver.plan("linear", weight(rng, dtype=ml_dtypes.bfloat16), n=16)
    assert p(Tensor((16, K), "bfloat16")).dtype is torch.bfloat16


def test_without_a_gpu_nothing_is_made_ready(monkeypatch: pytest.MonkeyPatch, s: SparseTensor) -> None:
    monkeypatch.setattr(device, "_why_none", lambda: "none for this test")
    with pytest.raises(NoDeviceError, match="none for this test"):
        louver.prepare(s)


def test_options_are_bound_and_followed(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    x, y = Tensor((16, K)), Tensor((16, M))
    scale, tokens, c = Tensor((M,), "float32"), Tensor((16,), "float32"), Tensor((16, M), strides=(M + 8, 1))
    kernels = 0
    for alpha, beta in ((2.0, 0.5), (3, -1), (0.0, 1.0), (-0.0, 1.0), (2.0, 0.5)):
        for moved in (Tensor((16, M), strides=(M + 8, 1)), c):
            options = {"scale": scale, "dense_scale": tokens, "c": moved, "alpha": alpha, "beta": beta}
            assert louver.linear(x, s, out=y, activation="relu", **options) is y
            read = gpu.only_launch().arguments
            assert (read["scale"], read["dense_scale"], read["c"]) == (scale.address, tokens.address, moved.address)
            assert (str(read["alpha"]), read["beta"], read["pitch_c"]) == (str(float(alpha)), beta, M + 8)
            loaded = len(gpu.called("cuModuleLoadData"))
            assert loaded == (kernels or loaded), "a new number compiles and loads nothing"
            kernels = loaded
    gpu.calls.clear()
    louver.linear(x, s, out=y, activation="relu", scale=scale, dense_scale=tokens, c=c, alpha=2.0, beta=0.5)
    assert {name for name, _ in gpu.calls} == {"cuLaunchKernel"}, "a warm call only launches"
    louver.linear(x, s, out=y, scale=2.0, alpha=0.5, dense_scale=3)
    assert gpu.launches[-1].arguments["alpha"] == 3.0, "numbers are one factor"


def test_a_gated_pair_reads_both_halves(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    pair = louver.gated(weight(rng), weight(rng))
    x, bias, scale = Tensor((16, K)), Tensor((2 * M,)), Tensor((2 * M,), "float32")
    p = louver.plan("linear", pair, n=16, bias=bias, scale=scale, activation="silu", like=x)
    for _ in range(3):
        y = p(x)
        assert y.shape == (16, M)
        read = gpu.only_launch().arguments
        assert (read["bias"], read["bias_up"]) == (bias.address, bias.address + 2 * M)
        assert (read["scale"], read["scale_up"]) == (scale.address, scale.address + 4 * M)
        assert (read["M"], read["d"]) == (2 * M, y.address)


def test_a_plan_takes_new_options_of_its_epilogue(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    x, y = Tensor((16, K)), Tensor((16, M))
    tokens = Tensor((16,), "float32")
    p = louver.plan("linear", s, n=16, dense_scale=tokens, alpha=1.0, like=x)
    for n in (16, 1, 300, 16, 1):
        other, result = Tensor((n,), "float32"), Tensor((n, M))
        for alpha in (2.0, 3.0):
            p(Tensor((n, K)), out=result, dense_scale=other, alpha=alpha)
            read = gpu.only_launch().arguments
            assert (read["dense_scale"], read["alpha"], read["N"]) == (other.address, alpha, n)
    p(x, out=y)
    assert gpu.only_launch().arguments["dense_scale"] == tokens.address
    with pytest.raises(ValueError, match="got options for .* make another plan"):
        p(x, out=y, c=Tensor((16, M)))
    with pytest.raises(ValueError, match="have one for each of 16"):
        p(x, out=y, dense_scale=Tensor((15,), "float32"))
    assert not gpu.launches


C_WRONG: list[tuple[str, str]] = [
    ("overlaps", "unless it is c itself"),
    ("misaligned", "aligned to 2 bytes"),
    ("other shape", "c must have the output's shape"),
    ("columns apart", "c's rows must be contiguous"),
    ("scale over out", "must not overlap an input"),
]


@pytest.mark.parametrize(("what", "rule"), C_WRONG)
def test_nothing_wrong_slips_through_with_warm_options(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, what: str, rule: str
) -> None:
    x, y, c, scale = Tensor((16, K)), Tensor((16, M)), Tensor((16, M)), Tensor((M,), "float32")
    for given in (c, y, c):
        louver.linear(x, s, out=y, c=given, scale=scale)
        assert gpu.only_launch().arguments["c"] == given.address
    match what:
        case "overlaps":
            c.address = y.address + 2 * M
        case "misaligned":
            c.address += 1
        case "other shape":
            c.shape = (15, M)
        case "columns apart":
            c._strides = (2 * M, 2)
        case _:
            scale.address = y.address
    with pytest.raises(ValueError, match=rule):
        louver.linear(x, s, out=y, c=c, scale=scale)
    assert not gpu.launches


@pytest.mark.parametrize("given", [{"activation": "silu", "alpha": 2.0}, {"accumulate": "f16"}])
def test_a_capture_names_what_to_prepare(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, given: dict[str, Any]
) -> None:
    x, y = Tensor((16, K)), Tensor((16, M))
    torch.stream = CAPTURING
    with pytest.raises(RuntimeError) as caught:
        louver.linear(x, s, out=y, **given)
    call = str(caught.value).partition("louver.prepare(s, n=…, ")[2].partition(") before the capture")[0]
    torch.stream = 0
    eval(f"louver.prepare(s, n=16, {call})", {"louver": louver, "s": s})
    torch.stream = CAPTURING
    louver.linear(x, s, out=y, **given)
    assert gpu.only_launch().arguments.get("alpha") == given.get("alpha")
