"""Kernels that add to memory, and share K among programs, on the device: every style, odd sizes and addresses, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.device_products import to_numpy, to_torch
from support.triton.splits import SPLITS, SplitCall, split_call, split_kernel

WHOLE = {"split_whole_rounds": 1152}
"""K of kernels whose loads are not masked."""


pytestmark = pytest.mark.usefixtures("torch")


def on_device(call: SplitCall) -> tuple[dict[str, Any], Any]:
    """The call's arguments on the device, and all of the output's memory."""
    known = {
        name: to_torch(value) if isinstance(value, np.ndarray) else value for name, value in call.arguments.items()
    }
    whole = to_torch(call.out if call.out.base is None else np.asarray(call.out.base))
    return known | {"d": whole[:, : call.out.shape[1]]}, whole


@pytest.mark.parametrize("padding", [0, 1, 2, 8])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 7, 16), (129, 65, 144), (1000, 776, 1040)])
@pytest.mark.parametrize("name", SPLITS)
def test_every_split(rng: np.random.Generator, name: str, m: int, n: int, k: int, padding: int) -> None:
    call = split_call(rng, name, m, n, WHOLE.get(name, k), padding)
    known, whole = on_device(call)
    gap = to_numpy(whole)[:, call.out.shape[1] :].copy()
    split_kernel(name)[call.grid](**known)
    found = to_numpy(whole).copy()
    call.check(found[:, : call.out.shape[1]])
    np.testing.assert_array_equal(found[:, call.out.shape[1] :], gap)


def test_launches_add_to_one_matrix(rng: np.random.Generator, torch: Any) -> None:
    """Two streams at a time, integers: no sum is lost."""
    call = split_call(rng, "split_steps", 640, 520, 528)
    known, whole = on_device(call)
    before, kernel = to_numpy(whole).astype(np.int64), split_kernel("split_steps")
    kernel.prepare[call.grid](**known)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(4)]
    for turn in range(20):
        with torch.cuda.stream(streams[turn % len(streams)]):
            kernel[call.grid](**known)
    torch.cuda.synchronize()
    once = call.value - call.out.astype(np.float64)
    expected = (before + 20 * once.astype(np.int64)).astype(np.int32)
    np.testing.assert_array_equal(to_numpy(whole), expected)


def test_a_split_that_leaves_out_some_of_k_adds_nothing(rng: np.random.Generator, torch: Any) -> None:
    call = split_call(rng, "split_rounds", 136, 72, 400)
    known, whole = on_device(call)
    before = to_numpy(whole).copy()
    with pytest.raises(ValueError, match="shares K among 3 programs along y"):
        split_kernel("split_rounds")[(call.grid[0], 2)](**known)
    torch.cuda.synchronize()
    np.testing.assert_array_equal(to_numpy(whole), before)
