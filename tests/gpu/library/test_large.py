"""Sizes beyond 32-bit addresses and the deepest sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from support.device_products import FORMS, Form, compute, dense_operand, guarded, output_shape, result, to_torch
from support.products import assert_exact, operands

ROWS_AT_A_TIME = 4096


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("k", [1 << 20, (1 << 20) - 37])
def test_the_deepest_sums(rng: np.random.Generator, form: Form, k: int) -> None:
    given = operands(rng, 9, 17, k)
    target = guarded(output_shape(form, given), "f32", gap=3)
    compute(form, given, dense_operand(form, given.b), out=target.view)
    assert_exact(result(form, target.view), given)
    target.assert_untouched()


@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_outputs_beyond_two_to_the_31_elements(rng: np.random.Generator, torch: Any, kind: str) -> None:
    m, n, k = (65536 + 64, 33024, 60) if kind == "matmul" else (33024 + 8, 65536 + 40, 60)
    assert m * n > 1 << 31
    _needs(torch, 8 * m * n)
    given = operands(rng, m, 1, k)
    b = rng.integers(-4, 5, (k, n)).astype(np.float16)
    dense, weights = to_torch(b), to_torch(given.a).double()
    if kind == "matmul":
        out = torch.full((m, n), float("nan"), dtype=torch.float16, device="cuda")
        louver.matmul(given.s, dense, out=out)
        left, right = weights, dense.double()
    else:
        out = torch.full((n, m), float("nan"), dtype=torch.float16, device="cuda")
        louver.linear(dense.T.contiguous(), given.s, out=out)
        left, right = dense.double().T, weights.T
    # Every element, some rows at a time.
    for first in range(0, out.shape[0], ROWS_AT_A_TIME):
        expected = left[first : first + ROWS_AT_A_TIME] @ right
        assert torch.equal(out[first : first + ROWS_AT_A_TIME].double(), expected), f"rows from {first}"


def test_a_row_pitch_beyond_two_to_the_31_bytes(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 3, 40, 70)
    pitch = (1 << 30) + 8
    _needs(torch, 6 * pitch)
    whole = torch.empty(3 * pitch, dtype=torch.float16, device="cuda")
    out = whole.as_strided((3, 40), (pitch, 1))
    louver.matmul(given.s, to_torch(given.b), out=out)
    assert_exact(out.contiguous().cpu().numpy(), given)


def _needs(torch: Any, nbytes: int) -> None:
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    if free < nbytes + (8 << 30):
        pytest.skip(f"needs {nbytes / 2**30:.0f} GiB of device memory and some to spare, got {free / 2**30:.0f}")
