"""Streaming kernels: what the assembler makes of them, and what records and launches refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import gcd
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.formats.tensor import row_pitch
from louver.isa.targets import FP8
from louver.library.streaming.derived.record import Derived
from louver.library.streaming.launch import Launch, build
from louver.library.streaming.launches import (
    Stored,
    check_into,
    compress_both_into,
    compress_into,
    dense_into,
    prepack_into,
    prune_into,
)
from louver.library.streaming.place import Record
from louver.library.streaming.record import Access, Layout, ScaledRows, Streaming
from louver.library.streaming.squares.record import Squared
from louver.library.streaming.windows.record import Windowed
from louver.ptx.assembler import assemble
from louver.ptx.module import Module
from louver.ptx.printer import print_module
from louver.ptx.validate import ValidationError
from louver.runtime.arrays import ArrayView, view
from support.fake_gpu import FakeGpu, FakeTorch
from support.fake_resident import on_gpu
from support.tile_gpu import TileGpu

PATTERNS = {"f16": "2:4", "bf16": "8:16", "e4m3": "2:4", "e5m2": "3:8", "s8": "15:16", "u8": "1:2", "f32": "1:2"}

FAST, TURNED = Access(16), Access(16, columns=True)


def records() -> Iterator[Record]:
    """Each kind on each type, by the widest accesses, by those of one element, and turned."""
    for element, text in PATTERNS.items():
        pattern, one = Pattern.parse(text), Access(element_type(element).bytes)
        words: Layout | None = "words" if text in ("2:4", "1:2") and element != "u8" else None
        for access in (FAST, TURNED, one):
            yield Streaming(element, pattern, "prune", "magnitude", source=access, out=access)
            yield Streaming(element, pattern, "check", source=access, exact=True)
            yield Streaming(element, pattern, "compress", source=access, words=words)
            yield Streaming(element, pattern, "compress", "magnitude", source=access, words=words)
            yield Streaming(element, pattern, "dense", out=access)
            yield Streaming(element, pattern, "take", source=access)
        if words:
            yield Streaming(element, pattern, "prepack", words="rows")
        for access in (Access(min(16, 8 * one.width)), one):
            yield Squared(element, "prune", access, access)
            for indices in (1, 2, 4):
                yield Squared(element, "compress", access, indices=indices)
        yield Squared(element, "turn")


def converting() -> Iterator[Streaming]:
    """Kernels that sparsify, by the widest accesses, by those of one element, and turned."""
    pattern, one = Pattern(2, 4), Access(2)
    for element in ("f16", "bf16"):
        for access in (FAST, TURNED, one):
            options: dict[str, Any] = {"source": access, "words": "words", "activation": "relu2"}
            yield Streaming(element, pattern, "compress", "magnitude", **options, indices=32)
            yield Streaming(element, pattern, "compress", "magnitude", **options, scaling="array", stored="e4m3")
        for threads in (32, 224, 256):
            options = {"source": FAST if threads > 32 else one, "words": "words", "activation": None}
            options |= {"scaling": "rows", "stored": "e4m3", "row_threads": threads, "indices": 4}
            yield ScaledRows(element, pattern, "compress", "magnitude", **options)
    yield Streaming("f16", pattern, "prepack", words="rows", trusted=True)


WINDOWS = {
    "f16": "2:8@128",
    "bf16": "16:64",
    "e4m3": "4:8@32",
    "e5m2": "100:256@8",
    "s8": "7:255@64",
    "u8": "1:3@5",
    "f32": "16:32@32",
}


def windowed() -> Iterator[Windowed]:
    """The same of kernels on windows."""
    for element, text in WINDOWS.items():
        pattern, size = Pattern.parse(text), element_type(element).bytes
        down = gcd(16, pattern.length * size)
        accesses = [Access(4), Access(size), *([Access(down, columns=True)] if down >= 4 else [])]
        for access in dict.fromkeys(accesses):
            for norm in ("l1", "l2"):
                yield Windowed(element, pattern, "prune", norm, access, access)
            yield Windowed(element, pattern, "check", source=access, exact=True)
            yield Windowed(element, pattern, "compress", "l2", access)
            yield Windowed(element, pattern, "compress", source=access)
            yield Windowed(element, pattern, "dense", out=access)
            yield Windowed(element, pattern, "take", source=access)
            if access.columns:
                yield Windowed(element, pattern, "prune", "l2", access, Access(size))


ALL: tuple[Record, ...] = (*records(), *converting(), *windowed())


@pytest.mark.sampled(7, every=3)
@pytest.mark.parametrize("record", [pytest.param(each, id=str(i)) for i, each in enumerate(ALL)])
def test_kernels_assemble_cleanly(record: Record) -> None:
    assembly = assemble(print_module(Module("sm_90a", [build(record)])))
    assert assembly.clean, (record, assembly.kernels, [warning.text for warning in assembly.warnings])


@pytest.mark.sampled(7, every=3)
@pytest.mark.parametrize("name", ["sm_80", "sm_89", "sm_100a", "sm_120a"])
@pytest.mark.parametrize("record", [pytest.param(each, id=str(i)) for i, each in enumerate(ALL)])
def test_kernels_assemble_for_other_targets(record: Record, name: str) -> None:
    try:
        module = print_module(Module(name, [build(record)]))
    except ValidationError as error:
        # 8-bit floats are converted from sm_89 on.
        stored = record.stored_type.name if isinstance(record, Streaming) else record.element
        assert name == "sm_80" and {record.element, stored} & set(FP8) and "needs sm_89" in str(error)
        return
    assert assemble(module, name).clean


def test_a_gpu_that_cannot_convert_8_bit_floats_is_named(
    gpu: FakeGpu, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    TileGpu(gpu, monkeypatch, (8, 0))
    with pytest.raises(
        ValueError, match=r"prune of e4m3 converts 8-bit floats, which GPUs do from sm_89 on, got .*sm_80"
    ):
        louver.prune(on_gpu(np.zeros((16, 16), element_type("e4m3").numpy)), "2:4", transposable=True)
    with pytest.raises(
        ValueError, match=r"compress of f16 as e4m3 converts 8-bit floats, .* from sm_89 on, got .*sm_80"
    ):
        louver.sparsify(on_gpu(np.zeros((16, 16), np.float16)), dtype="e4m3", scale=1.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"pattern": Pattern(2, 17)},
            "streaming kernels take patterns N:M of elements, N below M and M at most 16, got 2:17",
        ),
        ({"pattern": Pattern(2, 4, 8)}, "M at most 16, got 2:4@8"),
        ({"pattern": Pattern(4, 4)}, "N below M and M at most 16, got 4:4"),
        ({"element": "s32"}, "got 's32'"),
        ({"out": None}, "a kernel of kind prune has other dense arrays, got .* and None"),
        ({"kind": "prepack"}, "a kernel of kind prepack has other dense arrays"),
        ({"source": Access(1)}, "tiles of 2:4 in f16 are not reached by Access\\(width=1"),
        ({"indices": 3}, "indices of 2 bytes a span are not moved by 3"),
        ({"pattern": Pattern(2, 8), "words": "words"}, "products of f16 take no 2:8, so it has no metadata"),
        ({"activation": "relu2"}, "only a compressing kernel that prunes converts elements, got .*kind='prune'"),
        (
            {"kind": "compress", "method": None, "out": None, "activation": "relu2"},
            "only a compressing kernel that prunes",
        ),
        ({"indices": 32}, "indices of 2 bytes a span are not moved by 32"),
        ({"scaling": "rows"}, "values have a scale if they are narrower than the elements, got f16 as f16 by rows"),
        ({"kind": "compress", "out": None, "stored": "e4m3"}, "have a scale if .* got f16 as e4m3 by None"),
        ({"stored": "s32"}, "got 's32'"),
    ],
)
def test_records_that_no_kernel_has(fields: dict[str, Any], message: str) -> None:
    legal = {"element": "f16", "pattern": Pattern(2, 4), "kind": "prune", "method": "magnitude"}
    with pytest.raises(ValueError, match=message):
        Streaming(**{**legal, "source": FAST, "out": FAST, **fields})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pattern": Pattern(2, 8)}, "groups of 2:8 fit a thread, which another kernel uses"),
        ({"element": "s64"}, "got 's64'"),
        ({"source": None}, "a kernel of kind prune has other dense arrays"),
        ({"norm": None}, "compared by a norm to be pruned, got None for kind prune"),
        ({"kind": "check", "out": None}, "compared by a norm to be pruned, got l2 for kind check"),
        ({"source": Access(8)}, "windows of 2:8@12 in f16 are not reached by"),
        ({"source": Access(1)}, "windows of 2:8@12 in f16 are not reached by"),
        ({"source": TURNED}, "windows of 2:8@12 in f16 are not reached by"),
        ({"source": Access(8, columns=True)}, "windows of 2:8@12 in f16 are not reached by"),
    ],
)
def test_records_on_windows_that_no_kernel_has(fields: dict[str, Any], message: str) -> None:
    legal = {"element": "f16", "pattern": Pattern(2, 8, 12), "kind": "prune", "norm": "l2"}
    with pytest.raises(ValueError, match=message):
        Windowed(**{**legal, "source": Access(4), "out": Access(4), **fields})


@pytest.mark.parametrize(
    ("element", "access", "indices", "message"),
    [
        ("s32", FAST, 1, "got 's32'"),
        ("s8", FAST, 1, "at most 8 elements at once, got Access\\(width=16"),
        ("f16", Access(1), 1, "at most 8 elements at once"),
        ("f16", TURNED, 1, "squares of f16 are reached along rows"),
        ("f16", FAST, 8, "indices are moved by 1, 2 or 4 bytes, got 8"),
    ],
)
def test_squares_that_no_kernel_has(element: str, access: Access, indices: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Squared(element, "compress", access, indices=indices)
    with pytest.raises(ValueError, match="a kernel of kind prune has other dense arrays"):
        Squared("f16", "prune", FAST)


@pytest.mark.parametrize(("n", "m", "length"), [(1, 2, 5), (255, 256, 3), (7, 255, 1), (1, 1, 4), (3, 129, 2)])
@pytest.mark.parametrize("element", ["f32", "f16", "s8"])
def test_tiles_have_whole_blocks_and_bytes(element: str, n: int, m: int, length: int) -> None:
    """A block's columns are a thread's, and no two CTAs write a byte of indices."""
    size = element_type(element).bytes
    for width in {size, 4}:
        record = Windowed(element, Pattern(n, m, length), "check", source=Access(width))
        assert record.groups >= 1 and record.columns <= record.threads * record.block_columns <= 1024
        assert record.columns % record.block_columns == 0 and record.slots * record.index_bits % 8 == 0


@pytest.mark.parametrize(
    ("width", "columns", "message"),
    [(3, False, "1, 2, 4, 8 or 16 bytes wide, got 3"), (2, True, "at least 4 bytes, got 2")],
)
def test_accesses_that_no_kernel_has(width: int, columns: bool, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Access(width, columns=columns)


# --- launches ------------------------------------------------------------------------------------------------------------


def there(address: int, shape: tuple[int, ...] = (8, 32), dtype: Any = np.float16, **fields: Any) -> ArrayView:
    """A view of an array of a device."""
    strides = tuple(stride // np.dtype(dtype).itemsize for stride in np.empty(shape, dtype).strides)
    made = ArrayView(element_type(dtype), shape, strides, address, 0, None, "other", 0)
    return replace(made, **fields)


W, OUT = there(1 << 20), there(2 << 20)
TO = Stored(3 << 20, row_pitch(16, element_type("f16")), 4 << 20)
WORDS: tuple[Layout, int] = ("words", 5 << 20)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: prune_into(view(np.zeros((8, 32), np.float16)), OUT, "2:4"), "arrays of a device, got one in host"),
        (lambda: prune_into(W, there(2 << 20, (8, 16)), "2:4"), r"one shape, type and device, got f16 \[8, 32\]"),
        (lambda: prune_into(W, there(2 << 20, dtype=np.float32), "2:4"), r"and f32 \[8, 32\] on cuda:0"),
        (
            lambda: prune_into(W, there(2 << 20, device=1), "2:4"),
            r"got f16 \[8, 32\] on cuda:0 and f16 \[8, 32\] on cuda:1",
        ),
        (
            lambda: prune_into(W, there((1 << 20) + 64), "2:4"),
            "source and output overlap: prune into an array of its own",
        ),
        (lambda: prune_into(W, there(2 << 20, writable=False), "2:4"), "the output cannot be written"),
        (lambda: dense_into(TO, there(2 << 20, writable=False), "2:4", 64), "the output cannot be written"),
        (lambda: compress_into(W, TO, "2:4"), "compressing without a method needs counters"),
        (lambda: compress_into(W, replace(TO, values=8), "2:4", counters=64), "multiples of 16 bytes, got 0x8 and 32"),
        (lambda: compress_into(W, replace(TO, pitch=16), "2:4", counters=64), "takes 32 bytes, got a pitch of 16"),
        (
            lambda: compress_into(W, replace(TO, indices=(1 << 20) + 5), "2:4", counters=64),
            "and the dense array overlap",
        ),
        (lambda: compress_into(W, TO, "1:2", method="magnitude", words=WORDS), "products of f16 take no 1:2"),
        (lambda: compress_both_into(there(1 << 20, (64,)), TO, TO), "the last two axes, got 1 dimensions"),
        (lambda: check_into(there(1 << 20, ()), "2:4", 64), "at least one dimension, got a scalar"),
        (lambda: compress_into(W, TO, "2:8@4", method="magnitude", words=WORDS), "products of f16 take no 2:8@4"),
        (
            lambda: compress_into(W, replace(TO, indices=(1 << 20) - 5), "8:16@4", method="magnitude"),
            "and the dense array overlap",
        ),
        (
            lambda: check_into(there(1 << 20, (1, 1 << 31), strides=(1, 0)), "2:4", 64),
            "fewer than 2\\^31 rows and elem",
        ),
        (lambda: prepack_into(64, (1, 8, 32), "s32", WORDS, 64), "got 's32'"),
    ],
)
def test_launches_that_are_refused(call: Callable[[], Launch], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.parametrize(
    ("pattern", "rows", "step"), [(Pattern(2, 4), 1, 8), (Pattern(2, 8, 48), 32, 8), (Pattern(2, 8, 32), 16, 12)]
)
def test_forms_that_no_kernel_derives(pattern: Pattern, rows: int, step: int) -> None:
    with pytest.raises(ValueError, match="indices of windows that are whole"):
        Derived("pick", pattern, rows, step)


def test_nothing_to_do() -> None:
    launch = prune_into(there(1 << 20, (0, 8)), there(2 << 20, (0, 8)), "2:4")
    assert launch.record is None
    launch.send()


def test_ctas_share_the_tiles_of_a_device() -> None:
    """Some for each SM, and as many tiles of columns as there are."""
    large = there(1 << 30, (1 << 20, 4096))
    launch = check_into(large, "2:4", 64)
    assert launch.tiles == (16, 1 << 14) and launch.grid(132) == (16, 132, 1)
    assert launch.grid(1) == (16, 1, 1) and launch.grid(1 << 20) == (16, 1 << 14, 1)
    assert check_into(there(1 << 30, (1 << 30, 4)), "2:4", 64).grid(1 << 20)[1] == 65_535
