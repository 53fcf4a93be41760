"""Loops whose step chooses the sparse tensor, on the emulator: each tensor has a loop of its own, with bulk copies."""

from __future__ import annotations

import importlib.util
import re

import numpy as np
import pytest

import louver
from louver.measure.forms import wide

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.parts_of_k import parts_of_k

M, N1, N2, BM, BN, BK = 48, 128, 80, 64, 64, 64


@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("parts", [(320, 192, 256), (320, 192, 0), (320, 0, 0)])
def test_each_part_of_k_has_a_loop(rng: np.random.Generator, parts: tuple[int, ...], split: int) -> None:
    # A part of 0 columns is passed as its neighbour, with strides of 0, as by a caller with fewer parts than arguments.
    xs, ws = list[np.ndarray](), list[np.ndarray]()
    for columns in parts:
        xs.append(rng.standard_normal((M, columns)).astype(np.float16) if columns else xs[-1])
        for rows in (N1, N2):
            dense = rng.standard_normal((rows, columns)).astype(np.float16)
            ws.append(louver.prune(dense, "2:4") if columns else ws[-2])
    y = np.zeros((M, N1 + N2), np.float32)
    given = *xs, *(louver.compress(each, "2:4") for each in ws), y, M, N1, N2, *parts, *parts, *parts
    kernel, grid = louver.jit(parts_of_k), (1, N1 // BN + -(-N2 // BN), split)
    explained = kernel.explain[grid](*given, BM=BM, BN=BN, BK=BK, SPLIT=split)
    assert "computed" not in str(explained)
    boxes = set(re.findall(r"\[(\w*w\d\d\w*_box)", explained.ptx))
    assert len(boxes) >= 2 * sum(map(bool, parts)), "the values of each tensor that the call reads"
    kernel.emulate[grid](*given, BM=BM, BN=BN, BK=BK, SPLIT=split)
    read = [index for index, columns in enumerate(parts) if columns]
    expected = np.hstack([sum(wide(xs[i]) @ wide(ws[2 * i + side]).T for i in read) for side in (0, 1)])
    np.testing.assert_allclose(y, expected, rtol=0, atol=2.0**-8 * np.abs(expected).max())
