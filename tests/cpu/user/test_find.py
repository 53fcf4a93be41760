"""`louver.jit(…, find=…)` on a recording device: what is launched, in which memory, and when."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile.signature import FLAG, parameter_name
from louver.library.forms import Metadata, TileMetadata
from louver.runtime.arrays import view
from louver.user import timing
from louver.user.finding import FindingKernel
from louver.user.found_memory import AllRooms
from support.fake_gpu import FakeGpu, FakeTorch, Launch, Tensor
from support.finds import TILE, Matrices, arguments, call, finding

found_kernels = pytest.importorskip(
    "support.triton.found", reason="Triton is not installed: pip install 'louver[triton]'"
)

FLAG_NAME = parameter_name(FLAG)


class Times:
    """What the two ways of a call are said to take. measured: how often that was asked."""

    def __init__(self) -> None:
        self.found, self.dense, self.measured = 1.0, 2.0, 0

    def measure(self, trials: Any, ordinal: int, stream: int) -> list[float]:
        self.measured += 1
        for trial in trials:
            trial.launch()
        return [self.found, self.dense]


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    made = Times()
    monkeypatch.setattr(timing, "measure", made.measure)
    return made


@pytest.fixture
def kernel() -> FindingKernel:
    return finding(found_kernels.matmul)


def on_device(matrices: Matrices) -> tuple[Tensor, Tensor, Tensor]:
    """The arrays as tensors of a device whose memory is the host's."""
    return Tensor.of(matrices.x), Tensor.of(matrices.w), Tensor.of(matrices.output())


def products(launches: list[Launch]) -> list[Launch]:
    return [each for each in launches if each.kernel is not None]


def flag_of(launch: Launch) -> int:
    """The word that a flagged kernel would read now."""
    address = launch.arguments[FLAG_NAME]
    assert isinstance(address, int)
    return ctypes.c_uint32.from_address(address).value


@pytest.mark.parametrize("across", [False, True])
def test_a_call_compresses_then_sends_both_kernels(
    gpu: FakeGpu, torch: FakeTorch, times: Times, rng: np.random.Generator, kernel: FindingKernel, across: bool
) -> None:
    m = Matrices.of(rng, across=across)
    x, w, y = on_device(m)
    call(kernel, m.grid, x, w, y)
    sparse, dense = products(gpu.launches)[-2:]
    assert gpu.launches[-3].kernel is None, "the arguments are compressed first"
    assert sparse.arguments[FLAG_NAME] == dense.arguments[FLAG_NAME] and flag_of(sparse) == 0
    assert sparse.arguments["a_map"] != dense.arguments["a_map"] and "metadata" in sparse.arguments
    s = louver.compress(m.stored, "2:4", axis=0 if across else 1)
    words = Metadata().host(s)
    address: Any = sparse.arguments["metadata"]
    written = np.frombuffer((ctypes.c_char * words.nbytes).from_address(address), words.dtype)
    np.testing.assert_array_equal(written, words.reshape(-1))


def test_each_call_looks_at_the_contents_as_they_are(
    gpu: FakeGpu, torch: FakeTorch, times: Times, rng: np.random.Generator, kernel: FindingKernel
) -> None:
    m = Matrices.of(rng)
    x, w, y = on_device(m)
    call(kernel, m.grid, x, w, y)
    for broken in (True, False):
        kept = m.stored[3].copy()
        m.stored[3] = 1 if broken else 0
        before = len(gpu.launches)
        call(kernel, m.grid, x, w, y)
        clear_and_three = gpu.launches[before:]
        assert [each.kernel is None for each in clear_and_three] == [True, False, False]
        assert bool(flag_of(gpu.launches[-1])) == broken
        m.stored[3] = kept
    assert times.measured == 1


def test_an_address_used_again_is_compressed_again(
    gpu: FakeGpu, torch: FakeTorch, times: Times, rng: np.random.Generator, kernel: FindingKernel
) -> None:
    m = Matrices.of(rng)
    x, w, y = on_device(m)
    call(kernel, m.grid, x, w, y)
    del w
    m.stored[:] = louver.prune(rng.standard_normal(m.stored.shape).astype(np.float16), "2:4")
    call(kernel, m.grid, x, Tensor.of(m.w), y)
    address: Any = products(gpu.launches)[-2].arguments["metadata"]
    words = Metadata().host(louver.compress(m.stored, "2:4"))
    written = np.frombuffer((ctypes.c_char * words.nbytes).from_address(address), words.dtype)
    np.testing.assert_array_equal(written, words.reshape(-1))


def test_streams_and_captures_have_memory_of_their_own(
    gpu: FakeGpu, torch: FakeTorch, times: Times, rng: np.random.Generator, kernel: FindingKernel
) -> None:
    m = Matrices.of(rng)
    x, w, y = on_device(m)
    places: list[Any] = []
    for stream, capture in ((0, None), (7, None), (7, 11), (7, 12), (7, None), (0, None)):
        torch.stream = stream
        if capture is not None:
            gpu.captures[stream] = capture
        call(kernel, m.grid, x, w, y)
        gpu.captures.clear()
        sparse = products(gpu.launches)[-2]
        assert sparse.stream == stream and not flag_of(sparse)
        places.append((sparse.arguments[FLAG_NAME], sparse.arguments["metadata"]))
    assert len(set(places[:4])) == 4 and places[4] == places[1] and places[5] == places[0]
    assert times.measured == 1


def test_a_capture_is_not_the_place_to_measure(
    gpu: FakeGpu, torch: FakeTorch, times: Times, rng: np.random.Generator, kernel: FindingKernel
) -> None:
    m = Matrices.of(rng)
    x, w, y = on_device(m)
    torch.stream = 5
    gpu.captures[5] = 3
    with pytest.raises(RuntimeError, match="before its stream is captured"):
        call(kernel, m.grid, x, w, y)
    gpu.captures.clear()
    call(kernel.prepare, m.grid, x, w, y)
    gpu.captures[5] = 3
    call(kernel, m.grid, x, w, y)
    assert times.measured == 1


def test_the_dense_kernel_runs_alone_where_it_was_faster(
    gpu: FakeGpu, torch: FakeTorch, times: Times, rng: np.random.Generator, kernel: FindingKernel
) -> None:
    times.dense = 0.5
    m = Matrices.of(rng)
    x, w, y = on_device(m)
    for _ in range(2):
        before = len(gpu.launches)
        call(kernel, m.grid, x, w, y)
        last = gpu.launches[-1]
        assert FLAG_NAME not in last.arguments and "metadata" not in last.arguments
    assert len(gpu.launches) == before + 1 and times.measured == 1
    text = str(kernel.explain(*arguments(x, w, y), **TILE))
    assert (
        "w: holds 2:4 along axis 1" in text and "the dense kernel 500000 µs" in text and "no argument is sparse" in text
    )
    # Sizes between other powers of two are measured again.
    m = Matrices.of(rng, m=140)
    call(kernel, m.grid, *on_device(m))
    assert times.measured == 2


def test_register_tiles_read_rows_of_metadata(
    gpu: FakeGpu, torch: FakeTorch, times: Times, rng: np.random.Generator, kernel: FindingKernel
) -> None:
    m = Matrices.of(rng)
    x, w, y = on_device(m)
    kernel[m.grid](*arguments(x, w, y), **TILE, family="register tiles")
    sparse, dense = products(gpu.launches)[-2:]
    assert flag_of(sparse) == 0 == flag_of(dense)
    address: Any = next(at for name, at in sparse.arguments.items() if "metadata" in name and isinstance(at, int))
    form = TileMetadata("f16")
    words = form.host(louver.compress(m.stored, "2:4"))
    written = np.frombuffer((ctypes.c_char * words.nbytes).from_address(address), words.dtype)
    np.testing.assert_array_equal(written, words)


def test_a_view_with_gaps_runs_dense(
    gpu: FakeGpu, torch: FakeTorch, times: Times, rng: np.random.Generator, kernel: FindingKernel
) -> None:
    m = Matrices.of(rng)
    wide = np.zeros((m.stored.shape[0], m.stored.shape[1] + 8), np.float16)
    wide[:, : m.stored.shape[1]] = m.stored
    x, _, y = on_device(m)
    w = Tensor.of(wide[:, : m.stored.shape[1]].T)
    call(kernel, m.grid, x, w, y)
    assert FLAG_NAME not in gpu.launches[-1].arguments and times.measured == 0
    assert "w is found in memory without gaps" in str(kernel.explain(*arguments(x, w, y), **TILE)).replace("'w'", "w")


def test_a_misaligned_weight_does_not_decide_for_others(
    gpu: FakeGpu, torch: FakeTorch, times: Times, rng: np.random.Generator, kernel: FindingKernel
) -> None:
    """Rows of 20 kept values of 16 bits are no multiples of 16 bytes, and register tiles read rows without gaps."""
    m = Matrices.of(rng, k=40)
    x, w, y = on_device(m)
    kernel[m.grid](*arguments(x, w, y), **TILE, family="register tiles")
    assert FLAG_NAME not in gpu.launches[-1].arguments and times.measured == 0
    text = str(kernel.explain(*arguments(x, w, y), **TILE, family="register tiles"))
    assert "not found: register tiles read rows of values without gaps" in text and "pad K" in text
    call(kernel, m.grid, x, w, y)
    assert FLAG_NAME in gpu.launches[-1].arguments and times.measured == 1


def test_other_libraries_are_not_captured() -> None:
    like = SimpleNamespace(kind="cupy")
    with pytest.raises(
        RuntimeError, match="memory that PyTorch allocates, got arrays of cupy: name the argument in frozen"
    ):
        AllRooms().of(like, (0, 7, 3, 0))  # type: ignore[arg-type]


def test_a_kernel_is_not_flagged_twice() -> None:
    """No argument of a user has the name of the flag."""
    assert not FLAG.isidentifier() and parameter_name("own0_4_flag") != FLAG_NAME
    assert view(np.zeros(1, np.int32)).element.bits == 32


def test_both_kernels_keep_what_was_found(
    gpu: FakeGpu, torch: FakeTorch, times: Times, rng: np.random.Generator, kernel: FindingKernel
) -> None:
    m = Matrices.of(rng)
    x, w, y = on_device(m)
    call(kernel, m.grid, x, w, y)
    sparse, dense = (each.kernel.launch.reasons for each in products(gpu.launches)[-2:])
    assert sparse.detect == "'w' of f16 holds 2:4, found by a check of its elements" and "wgmma.sp" in sparse.select
    assert dense.detect == "this kernel runs where the check of a call finds no pattern" and ".sp" not in dense.select
    said = kernel.explain(*arguments(x, w, y), **TILE).reasons
    assert said is not None and said.detect == sparse.detect
