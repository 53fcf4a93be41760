"""Matrices with scales of blocks of 64 columns, and batches of them: random numbers, bytes of scales, and exact values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import louver
from louver.formats.dtypes import element_type
from louver.formats.gated import interleaved
from louver.frontend.epilogue import Epilogue

SCALED = Epilogue(scale="blocks", dense_scale="blocks")


def drawn(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers of a type: all codes of the narrow ones, multiples of 2^-3 below 8 of the others. So sums are exact."""
    element = element_type(name)
    if element.unused:
        return rng.integers(0, 1 << element.width, shape).astype(np.uint8).view(element.numpy)
    return (rng.integers(-7, 8, shape) / 8).astype(element.numpy)


def scales(rng: np.random.Generator, *rows: int, k: int) -> np.ndarray:
    """Powers of two from 1/8 to 8 for blocks of 64 columns, as bytes [*rows, blocks]."""
    return rng.integers(124, 131, (*rows, -(-k // 64))).astype(np.uint8)


def scaled(matrix: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Matrices [..., K] times the factors of their blocks, in float64."""
    wide = np.repeat(2.0 ** (factors.astype(np.float64) - 127), 64, axis=-1)
    return matrix.astype(np.float64) * wide[..., : matrix.shape[-1]]


@dataclass(frozen=True)
class ScaledOperands:
    """A weight [..., M, K], tokens [..., N, K] and the scales of both, as a call takes them.

    left, right: both times their factors, float64; the rows of a gated pair in the order of the kernel's.
    """

    s: louver.SparseTensor
    x: np.ndarray
    of_rows: np.ndarray
    of_tokens: np.ndarray
    left: np.ndarray
    right: np.ndarray

    @property
    def exact(self) -> np.ndarray:
        """The sums [..., N, M]."""
        return self.right @ self.left.swapaxes(-1, -2)


def scaled_operands(
    rng: np.random.Generator, types: tuple[str, str], rows: tuple[int, ...], tokens: tuple[int, ...], k: int
) -> ScaledOperands:
    """A random product. rows, tokens: shapes of both operands without K."""
    s = louver.compress(drawn(rng, types[0], (*rows, k)), "2:4", method="magnitude")
    x, of_rows, of_tokens = drawn(rng, types[1], (*tokens, k)), scales(rng, *rows, k=k), scales(rng, *tokens, k=k)
    return ScaledOperands(s, x, of_rows, of_tokens, scaled(np.asarray(s), of_rows), scaled(x, of_tokens))


def scaled_pair(
    rng: np.random.Generator, types: tuple[str, str], half: int, tokens: tuple[int, ...], k: int
) -> ScaledOperands:
    """A random gated pair [2·half, K], whose scales are the gate's, then the up projection's."""
    gate, up = (scaled_operands(rng, types, (half,), tokens, k) for _ in "gu")
    of_rows, left = np.concatenate([gate.of_rows, up.of_rows]), interleaved(gate.left, up.left)
    return ScaledOperands(louver.gated(gate.s, up.s), gate.x, of_rows, gate.of_tokens, left, gate.right)
