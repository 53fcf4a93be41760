"""Operands of a problem: random data, the same for every contender."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from louver.bench.problems import GemmProblem
from louver.formats.compress import compress
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor

INT8_SCALE, INT8_MOST = 30.0, 127
"""Normal numbers times the scale, cut to the range and to whole numbers, are the integers that are multiplied."""

COMPRESSING = 8
"""Threads that compress at most; beyond that memory is the limit."""


NEVER = -(2**31)
"""An s32 that no sum of products of 8-bit integers reaches before K = 133,144."""


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

    def poison(self) -> None:
        """Fill y with what no product of the operands gives, so that a result that is not written shows."""
        floating = element_type(self.problem.out).floating
        self.y.fill_(math.nan if floating else NEVER)


def make_operands(torch: Any, problem: GemmProblem, sets: int, seed: int = 0) -> Operands:
    """Draw activations and `sets` weights; prune the weights to 2:4 by magnitude, and compress them."""
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def draw(rows: int) -> Any:
        return converted(torch, torch.randn(rows, problem.k, generator=generator, device="cuda"), problem.dtype)

    def pack(weight: Any) -> SparseTensor:
        return compressed(torch, weight, problem.dtype)

    x = draw(problem.n)
    y = torch.empty(problem.n, problem.m, dtype=torch_dtype(torch, problem.out), device="cuda")
    dense = tuple(prune24(torch, draw(problem.m)) for _ in range(sets))
    with ThreadPoolExecutor(min(COMPRESSING, os.cpu_count() or 1)) as pool:
        sparse = tuple(pool.map(pack, dense))
    return Operands(problem, x, y, dense, sparse)


def torch_dtype(torch: Any, name: str) -> Any:
    """PyTorch's dtype of an element type."""
    return getattr(torch, element_type(name).numpy.name)


def converted(torch: Any, normal: Any, dtype: str) -> Any:
    """Normal f32 numbers as data of an element type; integers are scaled first."""
    if not element_type(dtype).floating:
        normal = (normal * INT8_SCALE).clamp(-INT8_MOST, INT8_MOST)
    return normal.to(torch_dtype(torch, dtype))


def prune24(torch: Any, weight: Any) -> Any:
    """The two greatest magnitudes of every four neighbours along a row; zeros elsewhere."""
    # PyTorch compares no 8-bit floats. f32 holds every type here exactly.
    groups = weight.float().reshape(-1, 4)
    keep = torch.zeros_like(groups, dtype=torch.bool)
    keep.scatter_(1, groups.abs().topk(2, dim=1).indices, True)
    return torch.where(keep, groups, torch.zeros_like(groups)).reshape(weight.shape).to(weight.dtype)


def compressed(torch: Any, weight: Any, dtype: str) -> SparseTensor:
    """A pruned torch weight as a SparseTensor."""
    # NumPy has neither bfloat16 nor 8-bit floats of its own: the bytes go over as integers.
    bits = weight.cpu().view(torch.uint8).numpy()
    return compress(bits.view(element_type(dtype).numpy), "2:4")
