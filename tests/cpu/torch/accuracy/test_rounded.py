"""Changed weights in a checkpoint's own types: bits that stay, scales that grow, zeros that stay zeros."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from louver.models.roles import Scale
from louver.models.scaled import Factors, numbers

torch: Any = pytest.importorskip("torch")

from louver.formats.torch_tensors import host_array  # noqa: E402
from louver.torch.accuracy.rounded import rounded  # noqa: E402

E4M3, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu


def random_weight(rng: Any, shape: tuple[int, ...], block: tuple[int, ...], kind: Any) -> tuple[Any, Factors]:
    """A stored weight whose blocks use the whole range of e4m3, and its factors."""
    counts = [-(-size // part) for size, part in zip(shape, block, strict=True)]
    scales = np.exp2(rng.integers(-9, -5, counts)).astype(np.float32)
    if kind is not E8M0:
        scales *= rng.uniform(1, 2, counts).astype(np.float32)
    stored = (rng.standard_normal(shape) * 120).clip(-448, 448).astype(E4M3)
    return stored, Factors.of(scales.astype(kind), Scale("s", block), shape)


def as_numbers(stored: Any, factors: Factors) -> Any:
    rows, columns = range(int(np.prod(stored.shape[:-1]))), range(stored.shape[-1])
    return numbers(stored, factors.at(rows, columns).reshape(stored.shape))


@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16, E8M0])
@pytest.mark.parametrize(
    ("shape", "block"), [((13, 35), (4, 8)), ((7, 24), (1, 24)), ((9, 16), (9, 16)), ((3, 10, 33), (1, 4, 8))]
)
def test_values_fit_and_the_others_stay(shape: Any, block: Any, kind: Any, rng: np.random.Generator) -> None:
    stored, factors = random_weight(rng, shape, block, kind)
    dense = torch.from_numpy(as_numbers(stored, factors)).to(torch.bfloat16)
    new = dense.clone()
    new[..., ::2] = 0
    # Only the first matrix changes; one of its numbers exceeds what its block's scale allows.
    first = new if new.dim() == 2 else new[0]
    first[:5, 1::2] *= 1.07
    first[1, 3] = 1000 * float(factors.scales.astype(np.float32).max())
    result = rounded(new, dense, torch.from_numpy(stored.view(np.uint8)).view(torch.float8_e4m3fn), factors)
    made, after = host_array(result.stored), result.scales
    assert made.dtype == E4M3 and after is not None and after.dtype == factors.scales.dtype
    got = as_numbers(made, Factors(after, factors.block, factors.shape))
    wanted = new.float().numpy()
    # Three bits of mantissa, and subnormal steps of 2⁻⁹ scales.
    scale = (
        Factors(after, factors.block, factors.shape)
        .at(range(int(np.prod(shape[:-1]))), range(shape[-1]))
        .reshape(shape)
    )
    assert np.all(np.abs(got - wanted) <= 2**-4 * np.abs(wanted) * (1 + 2**-7) + 2**-10 * scale)
    assert np.all(made.view(np.uint8)[wanted == 0] == 0)
    grown = after.astype(np.float32) > factors.scales.astype(np.float32)
    assert grown[tuple(at // part for at, part in zip((0, 1, 3)[-len(shape) :], block, strict=True))]
    same = (wanted == dense.float().numpy()) & (wanted != 0)
    before = Factors(factors.scales, factors.block, factors.shape).at(range(int(np.prod(shape[:-1]))), range(shape[-1]))
    same &= before.reshape(shape) == scale
    assert same.any() != (block == shape) and np.all(made.view(np.uint8)[same] == stored.view(np.uint8)[same])
    if kind is E8M0:
        mantissa, _ = np.frexp(after.astype(np.float32))
        assert np.all(mantissa == 0.5)
    got = torch.from_numpy(got).to(torch.bfloat16).float().numpy()
    loss = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
    assert result.loss == pytest.approx(loss, rel=1e-4)


def test_wider_types_keep_the_bits_of_unchanged_elements(rng: np.random.Generator) -> None:
    stored = torch.from_numpy(rng.standard_normal((5, 9)).astype(np.float32))
    dense = stored.to(torch.bfloat16)
    new = dense.clone()
    new[:, ::3] = 0
    new[2] *= 1.5
    result = rounded(new, dense, stored, None)
    assert result.scales is None and result.stored.dtype == torch.float32
    kept = (new != 0) & (new == dense)
    assert torch.equal(result.stored[kept], stored[kept])
    assert torch.equal(result.stored[2], new[2].float()) and not result.stored[:, ::3].any()


def test_numbers_beyond_a_plain_type_take_its_largest(rng: np.random.Generator) -> None:
    dense = torch.from_numpy(rng.standard_normal((3, 8)).astype(np.float32)).to(torch.float8_e4m3fn).float()
    new = dense.clone()
    new[0, 0] = 1e6
    result = rounded(new, dense, dense.to(torch.float8_e4m3fn), None)
    assert float(result.stored[0, 0]) == 448 and torch.equal(result.stored[1:].float(), dense[1:])
    assert result.loss == pytest.approx(1, rel=1e-2)


def test_a_block_of_zeros_stays(rng: np.random.Generator) -> None:
    stored, factors = random_weight(rng, (8, 16), (4, 8), np.float32)
    scales = factors.scales.copy()
    scales[1, 1] = 0
    factors = Factors(scales, factors.block, factors.shape)
    dense = torch.from_numpy(as_numbers(stored, factors))
    result = rounded(dense, dense, torch.from_numpy(stored.view(np.uint8)).view(torch.float8_e4m3fn), factors)
    assert result.loss == 0 and result.scales is not None and np.array_equal(result.scales, scales)
    assert not host_array(result.stored)[4:, 8:].view(np.uint8).any()
