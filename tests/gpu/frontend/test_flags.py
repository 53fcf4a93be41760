"""Programs that wait for a number that another program stores, on the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import louver
from support.triton import operations

PROGRAMS, N = 100, 700


@pytest.mark.parametrize("cached", ["", ".cv"])
@pytest.mark.parametrize("lock", [torch.uint8, torch.int32, torch.int64])
def test_programs_that_wait_for_a_stored_flag(lock: torch.dtype, cached: str) -> None:
    kernel = louver.jit(operations.flags)
    wanted = np.repeat(np.arange(1.0, PROGRAMS + 1), N).reshape(PROGRAMS, N)
    for _ in range(20):
        locks = torch.zeros(PROGRAMS, dtype=lock, device="cuda")
        out = torch.full((PROGRAMS, N), torch.nan, device="cuda")
        kernel[(PROGRAMS,)](locks, out, N, cached, 1024)
        np.testing.assert_array_equal(out.cpu().numpy(), wanted)
