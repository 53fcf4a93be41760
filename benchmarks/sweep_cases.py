"""The sweep's cases: random products of every kind, biased towards the edges of tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.frontend.problem import Problem

EDGES = (1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1024, 1025)
LARGE = ((4096, 4096, 4096), (8192, 1000, 4096), (1000, 8192, 8192), (14336, 513, 2048), (300, 300, 65536))
LARGEST_SIZE = 4096
LARGEST_INTEGER = 4


@dataclass(frozen=True)
class Case:
    """One product.

    layout: of the dense operand, K or N contiguous, or neither ("strided"). dense_offset, dense_gap, out_offset, out_gap:
    elements from an aligned address, and unused at the end of each row. data: "integers" have exact sums, "normal" are
    held to the bound. seed: of the data.
    """

    kind: Literal["linear", "matmul"]
    m: int
    n: int
    k: int
    dtype: str
    out: str
    layout: Literal["k_major", "n_major", "strided"]
    bias: bool
    dense_offset: int
    dense_gap: int
    out_offset: int
    out_gap: int
    data: Literal["integers", "normal"]
    seed: int

    @property
    def problem(self) -> Problem:
        """As the library compiles it; where a dimension has one element it may choose the other layout."""
        b_layout = "n_major" if self.layout == "n_major" and self.kind == "matmul" else "k_major"
        return Problem(
            self.kind, self.dtype, self.dtype, self.out, b_layout=b_layout, bias="row" if self.bias else None
        )


@dataclass(frozen=True)
class HostData:
    """a [M, K] with zeros in a 2:4 pattern, s the same; b [K, N]; bias [M]."""

    a: NDArray[Any]
    s: SparseTensor
    b: NDArray[Any]
    bias: NDArray[Any]


def cases(count: int, seed: int) -> Iterator[Case]:
    """`count` cases, always the same for a seed; each data kind, element type and product equally often."""
    rng = np.random.default_rng(seed)
    for index in range(count):
        m, n, k = LARGE[index // 41 % len(LARGE)] if index % 41 == 40 else (_size(rng), _size(rng), _size(rng))
        kind = ("linear", "matmul")[index % 2]
        viewed, padded = rng.random() < 0.4, rng.random() < 0.5
        yield Case(
            kind=kind,
            m=m,
            n=n,
            k=k,
            dtype=("f16", "bf16")[index // 2 % 2],
            out=str(rng.choice(["f16", "bf16", "f32"])),
            layout=str(rng.choice(["k_major", "n_major", "strided"], p=[0.45, 0.45, 0.1])),
            bias=kind == "linear" and rng.random() < 0.5,
            dense_offset=int(rng.integers(0, 9)) if viewed else 0,
            dense_gap=int(rng.integers(0, 17)) if viewed else 0,
            out_offset=int(rng.choice([0, 0, 1, 8])) if padded else 0,
            out_gap=int(rng.integers(0, 17)) if padded else 0,
            data=("integers", "normal")[index // 4 % 2],
            seed=int(rng.integers(1 << 31)),
        )


def host_data(case: Case) -> HostData:
    """The case's operands."""
    rng = np.random.default_rng(case.seed)
    numpy = element_type(case.dtype).numpy

    def draw(*shape: int) -> NDArray[Any]:
        if case.data == "integers":
            return rng.integers(-LARGEST_INTEGER, LARGEST_INTEGER + 1, shape, np.int8).astype(numpy)
        return rng.standard_normal(shape, np.float32).astype(numpy)

    a = louver.prune(draw(case.m, case.k), "2:4")
    return HostData(a, louver.compress(a, "2:4"), draw(case.k, case.n), draw(case.m))


def _size(rng: np.random.Generator) -> int:
    """Log-uniform, or an edge of a tile, or next to a multiple of 64."""
    how = rng.random()
    if how < 0.3:
        return int(rng.choice(EDGES))
    if how < 0.45:
        return int(64 * rng.integers(1, 33) + rng.integers(-1, 2))
    return round(float(np.exp(rng.uniform(0, np.log(LARGEST_SIZE)))))
