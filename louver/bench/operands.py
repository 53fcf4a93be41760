"""Operands of a problem: random normal data, the same for every contender."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from louver.bench.problems import GemmProblem
from louver.formats.compress import compress
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor

COMPRESSING = 8
"""Threads that compress at most; beyond that memory is the limit."""


@dataclass(frozen=True, slots=True)
class Operands:
    """x: [N, K] and y: [N, M] torch tensors on the GPU.

    dense: pruned weights, torch tensors [M, K] on the GPU. sparse: the same weights, compressed. One a set.
    """

    problem: GemmProblem
    x: Any
    y: Any
    dense: tuple[Any, ...]
    sparse: tuple[SparseTensor, ...]

    @property
    def sets(self) -> int:
        """Weights to rotate over."""
        return len(self.dense)


def make_operands(torch: Any, problem: GemmProblem, sets: int, seed: int = 0) -> Operands:
    """Draw activations and `sets` weights; prune the weights to 2:4 by magnitude, and compress them."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    dtype = getattr(torch, element_type(problem.dtype).numpy.name)

    def normal(rows: int) -> Any:
        return torch.randn(rows, problem.k, generator=generator, device="cuda").to(dtype)

    def pack(weight: Any) -> SparseTensor:
        return compressed(torch, weight, problem.dtype)

    x = normal(problem.n)
    y = torch.empty(problem.n, problem.m, dtype=dtype, device="cuda")
    dense = tuple(prune24(torch, normal(problem.m)) for _ in range(sets))
    with ThreadPoolExecutor(min(COMPRESSING, os.cpu_count() or 1)) as pool:
        sparse = tuple(pool.map(pack, dense))
    return Operands(problem, x, y, dense, sparse)


def prune24(torch: Any, weight: Any) -> Any:
    """The two greatest magnitudes of every four neighbours along a row; zeros elsewhere."""
    groups = weight.reshape(-1, 4)
    keep = torch.zeros_like(groups, dtype=torch.bool)
    keep.scatter_(1, groups.abs().topk(2, dim=1).indices, True)
    return torch.where(keep, groups, torch.zeros_like(groups)).reshape(weight.shape)


def compressed(torch: Any, weight: Any, dtype: str) -> SparseTensor:
    """A pruned torch weight as a SparseTensor."""
    # NumPy has no bfloat16 of its own: the bits go over as integers.
    bits = weight.cpu().view(torch.int16).numpy()
    return compress(bits.view(element_type(dtype).numpy), "2:4")
