"""Document 000's tables of numbers: coefficients of a target, its tables of latency and bandwidth, its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

COEFFICIENTS: Mapping[int, Mapping[str, float]] = {
    80: {
        "base": 1, "load": 1, "store": 1, "async_copy": 0.5, "compute": 1, "sparsity": 0.5,
        "memory_barrier": 3, "synchronization": 8,
    },
    90: {
        "base": 1, "load": 0.25, "store": 0.25, "tma": 0.1, "compute": 1, "sparsity": 0.5, "memory_barrier": 2,
        "synchronization": 5, "warpgroup_sync": 3,
    },
    100: {
        "base": 1, "load": 0.125, "store": 0.125, "tma": 0.05, "compute": 1, "fp8_compute_boost": 2.0,
        "fp4_compute_boost": 4.0, "int4_compute_boost": 4.0, "sparsity": 0.25, "memory_barrier": 1,
        "synchronization": 2, "warpgroup_sync": 1,
    },
}  # fmt: skip
"""`cost_model_sm80`, `_sm90`, `_sm100`, in "cost" (L359-381, L559-579, L919-945)."""

LATENCY = {80: 4, 90: 3, 100: 2}
"""Cycles of a product, dense or sparse alike (L101-105, L4123-4131)."""

WEIGHTS = {"WEIGHT_1": 1, "WEIGHT_3": 3, "WEIGHT_64": 64, "WEIGHT_100": 100}
"""Of a sum of costs (L1207, L1271-1281)."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table dense against sparse: cycles, instructions a cycle, operations, share of memory, relative cost."""

    operation: str
    latency: float
    throughput: float
    operations: float
    memory: float | None
    cost: float


TABLE_80 = (
    Row("dense f16", 4, 1.0, 256, 1.0, 1.0),
    Row("sparse f16", 4, 1.0, 256, 0.5, 0.5),
    Row("metadata", 1, 1.0, 128, 0.125, 0.25),
    Row("net sparse", 4, 1.0, 256, 0.625, 0.75),
)
TABLE_90 = (
    Row("dense f16", 3, 0.5, 512, None, 1.0),
    Row("sparse f16", 3, 0.5, 512, None, 0.5),
    Row("metadata by TMA", 5, 4.0, 128, None, 0.1),
    Row("net sparse", 3, 0.5, 512, None, 0.6),
)
TABLE_100 = (
    Row("dense f16", 2, 1.0, 512, 1.0, 1.0),
    Row("sparse f16", 2, 1.0, 512, 0.5, 0.25),
    Row("dense fp8", 2, 2.0, 2048, 1.0, 0.5),
    Row("sparse fp8", 2, 2.0, 2048, 0.5, 0.125),
    Row("dense fp4", 2, 4.0, 4096, 1.0, 0.25),
    Row("sparse fp4", 2, 4.0, 4096, 0.5, 0.0625),
    Row("metadata by TMA", 5, 4.0, 128, 0.125, 0.05),
)

PEAKS_PER_SM = {
    80: {"dense f16": 62.5, "sparse f16": 125.0},
    90: {"dense f16": 156.0, "sparse f16": 312.0, "dense fp8": 312.0, "sparse fp8": 624.0},
    100: {
        "dense f16": 352.0, "sparse f16": 704.0, "dense fp8": 704.0, "sparse fp8": 1408.0,
        "dense fp4": 1408.0, "sparse fp4": 2816.0,
    },
}  # fmt: skip
"""TFLOP/s that it gives to one SM (L1665-1673)."""

FP32_PER_SM = {80: (31.25, 62.5), 90: (78.0, 156.0), 100: (352.0, 704.0)}
"""Dense and sparse FP32 of one SM (L4193-4201)."""

FEATURE_SPARSITY_2_4, FEATURE_DYNAMIC = 1 << 25, 1 << 26


def feature_flags(sm: int) -> int:
    """The bits of a target's features (L125-135)."""
    return (FEATURE_SPARSITY_2_4 if sm >= 75 else 0) | (FEATURE_DYNAMIC if sm >= 100 else 0)


def minimum_size(sm: int) -> int:
    """`get_minimum_sparse_matrix_size` (L2357-2395)."""
    return {80: 64, 86: 64, 87: 64, 89: 64, 90: 64, 100: 32, 120: 32}.get(sm, 128)


def ideal_size(sm: int) -> int:
    """`get_ideal_sparse_matrix_size` (L2401-2413)."""
    return 128 if sm >= 100 else 256


def generation(sm: int) -> int:
    """The generation whose coefficients a target has."""
    return 100 if sm >= 100 else 90 if sm >= 90 else 80
