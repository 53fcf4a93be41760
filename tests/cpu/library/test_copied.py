"""Dense operands that are copied before a product, on a device that records."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from louver.choose.times import NARROW_ROW_CLOCKS, NARROWEST_ROW_CLOCKS, ROW_CLOCKS
from louver.formats.tensor import SparseTensor
from louver.library.rows import Rows
from louver.runtime.driver import DriverError
from louver.runtime.workspace import PER_THREAD_STREAM
from support.fake_gpu import FakeGpu, FakeTorch, Launch, Map, Tensor

M, K = 136, 72
STREAM = 5


@pytest.fixture
def s(rng: np.random.Generator) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")


def weight(m: int, k: int, dtype: object = np.float16) -> SparseTensor:
    dense = np.zeros((m, k), dtype)
    dense[:, ::4] = 1
    return louver.compress(dense, "2:4")


def read_by(gpu: FakeGpu) -> tuple[int, Launch]:
    """The number of copies since the last time, and the product after them."""
    *copies, product = gpu.launches
    assert product.kernel is not None and all(each.kernel is None for each in copies)
    gpu.launches.clear()
    return len(copies), product


def dense_map(launch: Launch, inner: int, rows: int) -> Map:
    (found,) = {
        each for each in launch.arguments.values() if isinstance(each, Map) and (each.inner, each.rows) == (inner, rows)
    }
    return found


def test_a_call_that_copies_is_warm(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, checked: list[str]) -> None:
    places = set()
    for _ in range(5):
        x = Tensor((20, K), strides=(K + 1, 1))
        y = louver.linear(x, s)
        copies, product = read_by(gpu)
        dense = dense_map(product, K, 20)
        assert copies == 1 and dense.address != x.address and dense.address % 128 == 0 and dense.pitch % 128 == 0
        assert y.address in {getattr(each, "address", None) for each in product.arguments.values()}
        places.add(dense.address)
    assert len(checked) == 1


def test_the_copy_has_the_operand_s_elements(
    gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, rng: np.random.Generator
) -> None:
    whole = rng.standard_normal((K, 23)).astype(np.float16)
    taken: list[np.ndarray] = []
    make = torch.empty

    def empty(*arguments: object, **named: object) -> Tensor:
        made = make(*arguments, **named)  # type: ignore[arg-type]
        if made.dtype.name == "uint8":
            taken.append(made.memory[made.address - made.memory.ctypes.data :])
        return made

    torch.empty = empty  # type: ignore[method-assign]
    for columns in (whole[:, :23], whole[:, :23]):
        b = Tensor.of(columns)
        louver.matmul(s, b)
        copied = taken[-1][: 23 * 256].view(np.float16).reshape(23, 128)[:, :K]
        np.testing.assert_array_equal(copied, columns.T)
    gpu.launches.clear()


def test_each_alignment_of_a_kind_of_call_is_remembered(gpu: FakeGpu, torch: FakeTorch, checked: list[str]) -> None:
    s = weight(M, K)
    for _ in range(4):
        for start, copies in ((0, 0), (2, 1), (16, 0), (64, 0)):
            louver.linear(Tensor((20, K), address=(1 << 61) + start, strides=(K + 56, 1)), s, out=Tensor((20, M)))
            assert read_by(gpu)[0] == copies
    assert len(checked) == 4


def test_a_copy_in_a_capture_belongs_to_its_graph(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    torch.stream = STREAM
    x, y = Tensor((20, K), strides=(K + 1, 1)), Tensor((20, M))
    louver.linear(x, s, out=y)
    read_by(gpu)
    allocated = len(gpu.called("cuMemAllocAsync"))
    for number in (3, 4):
        gpu.captures[STREAM] = number
        louver.linear(x, s, out=y)
        assert read_by(gpu)[0] == 1
        del gpu.captures[STREAM]
    assert len(gpu.called("cuMemAllocAsync")) == allocated + 2
    louver.linear(x, s, out=y)
    assert len(gpu.called("cuMemAllocAsync")) == allocated + 2, "outside a capture PyTorch allocates"


def test_a_failed_launch_of_a_copy_is_reported(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    x, y = Tensor((20, K), strides=(K + 1, 1)), Tensor((20, M))
    louver.linear(x, s, out=y)
    gpu.fails["cuLaunchKernel"] = [700, 700]
    with pytest.raises(DriverError, match="launching copy_rows_16"):
        louver.linear(x, s, out=y)


def test_slow_rows_are_copied_where_that_takes_less_time(gpu: FakeGpu, torch: FakeTorch) -> None:
    s = weight(6400, 2560)
    for n, copies in ((8, 1), (72, 1), (1000, 1), (64, 0), (1024, 0)):
        for _ in range(2):
            louver.matmul(s, Tensor((2560, n)), out=Tensor((6400, n)))
            assert read_by(gpu)[0] == copies, n
    # The copy of a small operand takes longer than its rows.
    louver.matmul(weight(256, 256), Tensor((256, 72)), out=Tensor((256, 72)))
    assert read_by(gpu)[0] == 0


def test_a_plan_reads_in_place(gpu: FakeGpu, torch: FakeTorch) -> None:
    s, b = weight(6400, 2560), Tensor((2560, 8))
    p = louver.plan("matmul", s, n=8, like=b)
    for _ in range(2):
        p(b, out=Tensor((6400, 8)))
        copies, product = read_by(gpu)
        assert copies == 0 and dense_map(product, 8, 2560).address == b.address


def test_a_capture_reads_in_place_what_it_could_not_copy(gpu: FakeGpu, torch: FakeTorch) -> None:
    s, torch.stream = weight(6400, 2560), STREAM
    louver.plan("matmul", s, n=8, like=Tensor((2560, 8)))
    gpu.captures[STREAM] = 1
    louver.matmul(s, Tensor((2560, 8)), out=Tensor((6400, 8)))
    assert read_by(gpu)[0] == 0
    del gpu.captures[STREAM]


def test_a_stream_of_each_thread_has_memory_in_its_own_order(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    torch.stream = PER_THREAD_STREAM
    for _ in range(2):
        louver.linear(Tensor((20, K), strides=(K + 1, 1)), s)
        assert read_by(gpu)[0] == 1
    assert [stream for _, stream in gpu.called("cuMemAllocAsync")].count(PER_THREAD_STREAM) == 2


def test_prepare_covers_copies(gpu: FakeGpu, torch: FakeTorch) -> None:
    s = weight(6400, 2560)
    louver.prepare(s, n=(8, 16), kind="matmul", layout="n_major")
    torch.stream = STREAM
    gpu.captures[STREAM] = 1
    for n in (8, 16):
        louver.matmul(s, Tensor((2560, n)), out=Tensor((6400, n)))
        assert read_by(gpu)[0] == 1
    del gpu.captures[STREAM]


@pytest.mark.parametrize(
    ("address", "inner", "rows", "pitch", "clocks"),
    [
        (0, 64, 9, 128, 0),
        (128, 640, 9, 1280, 0),
        (64, 640, 9, 1280, ROW_CLOCKS[64]),
        (0, 640, 9, 1280 + 32, ROW_CLOCKS[32]),
        (16, 640, 9, 1280 + 32, ROW_CLOCKS[16]),
        (0, 640, 1, 1296, 0),
        (16, 640, 1, 1280, ROW_CLOCKS[16]),
        (0, 8, 9, 128, NARROWEST_ROW_CLOCKS),
        (0, 16, 9, 128, NARROW_ROW_CLOCKS),
    ],
)
def test_rows_that_are_no_whole_lines_are_slow(address: int, inner: int, rows: int, pitch: int, clocks: float) -> None:
    assert Rows(address, inner, rows, pitch, 2, None).row_clocks == clocks
    two = Rows(address, inner, rows, pitch, 2, None, 2, 64 * 128 + 16)
    assert two.row_clocks == (clocks if inner < 64 else ROW_CLOCKS[16])
