"""The problems that are measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """`linear`: x [n, k] @ w [m, k].T -> [n, m], w 2:4 sparse; sizes in elements. dtype: of operands and result."""

    m: int
    n: int
    k: int
    dtype: str

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise ValueError(f"sizes are at least 1, got {self.m}x{self.n}x{self.k}")
        if self.dtype not in DTYPES:
            raise ValueError(f"element types are {' and '.join(DTYPES)}, got {self.dtype!r}")
        # cuSPARSELt's rule for 16-bit types; a contender that refuses a problem leaves nothing to compare with.
        if self.m % 16 or self.n % 16 or self.k % 16:
            raise ValueError(f"measured sizes are multiples of 16, as cuSPARSELt needs, got {self.m}x{self.n}x{self.k}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(M, N, K): rows of the sparse weight, tokens, inner size."""
        return self.m, self.n, self.k

    @property
    def compressed_bytes(self) -> int:
        """Bytes of the compressed weight: half of its 16-bit values, and 1/8 byte of indices an element."""
        return self.m * self.k * 9 // 8

    def __str__(self) -> str:
        return f"{self.m}×{self.n}×{self.k} {self.dtype}"


DTYPES = ("f16", "bf16")
Shape = tuple[int, int, int]

SHAPES: tuple[Shape, ...] = (
    (4096, 8192, 8192),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (6144, 8192, 4096),
    (28672, 4096, 4096),
    (4096, 4096, 14336),
    (4096, 1024, 4096),
)
QUICK: tuple[Shape, ...] = (SHAPES[0], SHAPES[-1])
SUSTAINED: tuple[Shape, ...] = (SHAPES[0], SHAPES[2], SHAPES[4])
"""Shapes that are also measured under sustained load."""


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Shapes from text such as "4096x8192x8192,4096x4096x4096" (M×N×K). Raises ValueError with the rule."""
    return tuple(_shape(part.strip()) for part in text.split(","))


def parse_dtypes(text: str) -> tuple[str, ...]:
    """Element types from text such as "f16,bf16". Raises ValueError with the rule."""
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in DTYPES:
            raise ValueError(f"element types are {' and '.join(DTYPES)}, got {name!r}")
    return names


def _shape(text: str) -> Shape:
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise ValueError(f"a shape is MxNxK, such as 4096x8192x8192, got {text!r}")
    m, n, k = (int(part) for part in parts)
    return m, n, k
