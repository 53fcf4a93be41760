"""Windows longer than a block are handled in parts: the same bits and errors, in bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats import rows
from louver.formats.dtypes import element_type, raw_bits

CASES = [
    ("2:4@40", "f16", (100, 333), -1),
    ("1:2@16", "s8", (48, 95), -1),
    ("3:5@33", "bf16", (70, 131), 0),
    ("5:20@9", "f32", (2, 20, 305), -1),
    ("2:8@V32", "e4m3", (100, 205), -1),
    ("2:17@V16", "f16", (40, 333), -1),
    ("2:4", "f16", (3, 1000), -1),
    ("3:7", "f16", (3, 1000), -1),
]


def drawn(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Any:
    w = rng.integers(-3, 4, shape).astype(np.float32) * (rng.random(shape) < 0.5)
    w[rng.random(shape) < 0.1] = -0.0
    return w.astype(element_type(dtype).numpy)


def results(w: Any, pattern: str, axis: int) -> list[Any]:
    """What every function gives, as bytes and texts."""
    pruned = louver.prune(w, pattern, axis=axis)
    s = louver.compress(pruned, pattern, axis=axis)
    s.validate()
    found = [raw_bits(pruned), raw_bits(np.ascontiguousarray(s.values)), s.indices, raw_bits(s.dense())]
    reports = [louver.check(each, pattern, axis=axis, exact=exact) for each in (w, pruned) for exact in (False, True)]
    with pytest.raises(ValueError, match="in the group at") as caught:
        louver.compress(np.ones_like(w), pattern, axis=axis)
    return [*(each.tobytes() for each in found), s.negative_zeros_dropped, *reports, str(caught.value)]


@pytest.mark.parametrize("block", [1, 700])
@pytest.mark.parametrize(("pattern", "dtype", "shape", "axis"), CASES)
def test_parts_of_windows_give_the_same(
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    pattern: str,
    dtype: str,
    shape: Any,
    axis: int,
    block: int,
) -> None:
    w = drawn(rng, dtype, shape)
    whole = results(w, pattern, axis)
    for name in ("BLOCK", "PART"):
        monkeypatch.setattr(rows, name, block)
    s = louver.compress(w, pattern, axis=axis, method="magnitude")
    assert any(each.inside.groups < s.groups for each in s.windows.blocks())
    assert results(w, pattern, axis) == whole


@pytest.mark.parametrize("pattern", ["2:4@40", "2:8@V32", "3:7@40"])
def test_errors_name_the_group_of_the_window(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    w = louver.prune(drawn(rng, "f16", (80, 400)), pattern)
    w[50, 300:340] = 1
    with pytest.raises(ValueError, match="in the group at") as caught:
        louver.compress(w, pattern)
    s = louver.compress(w, pattern, method="magnitude")
    bad = np.array(s.indices)
    bad[1, s.indices.shape[1] // 8] = 0xFF
    broken = louver.SparseTensor(s.pattern, s.dtype, s.shape, 1, s.values, bad)
    with pytest.raises(ValueError, match="in window 1.*group") as illegal:
        broken.validate()
    for name in ("BLOCK", "PART"):
        monkeypatch.setattr(rows, name, 1)
    with pytest.raises(ValueError) as other:
        louver.compress(w, pattern)
    assert str(other.value) == str(caught.value)
    with pytest.raises(ValueError) as other:
        broken.validate()
    assert str(other.value) == str(illegal.value)


@pytest.mark.parametrize("pattern", ["2:4@16384", "2:8@V16384"])
def test_memory_does_not_grow_with_the_window(pattern: str) -> None:
    """A window of 8 M elements: 16 MB, and a result of as many. Keys and masks of all of it would take 80 MB more."""
    w = np.zeros((16384, 512), np.float16)
    w[:, ::8] = 1
    functions: dict[str, Callable[[], Any]] = {
        "prune": lambda: louver.prune(w, pattern),
        "check": lambda: louver.check(w, pattern),
        "compress": lambda: louver.compress(w, pattern),
    }
    s = louver.compress(w, pattern)
    functions |= {"dense": s.dense, "validate": s.validate}
    for name, function in functions.items():
        tracemalloc.start()
        function()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64e6, (name, peak)
