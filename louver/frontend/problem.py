"""A library product as a value: which product, of which element types and layouts, with which epilogue.

Sizes are no part of it: M, N and K are runtime arguments of the kernel that a problem becomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["matmul", "linear"]

BLayout = Literal["k_major", "n_major"]

PRODUCTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("f16", "f16"): ("f16", "bf16", "f32"),
    ("bf16", "bf16"): ("f16", "bf16", "f32"),
}
"""Element types of (sparse, dense) operand, and the output types that go with them; all accumulate in f32."""

PATTERNS = ("2:4",)
"""Patterns of the sparse operand, along K."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One product of a sparse `a` [M, K] with a dense operand; element types by name ("f16", "bf16", "f32").

    kind: "matmul" is `out[M, N] = a[M, K] @ b[K, N]`; "linear" is `out[N, M] = b[N, K] @ a[M, K].T`, where N counts
    tokens and M output features, all row-major.
    b_layout: "k_major" stores the dense operand as [N, K] with K contiguous, "n_major" as [K, N] with N contiguous.
    `linear` has K-major tokens. bias: None, or "row" for a vector [M] of the operands' element type that is added before
    the result is rounded to `out`.
    """

    kind: Kind = "matmul"
    a: str = "f16"
    b: str = "f16"
    out: str = "f16"
    pattern: str = "2:4"
    accumulate: Literal["f32"] = "f32"
    b_layout: BLayout = "k_major"
    bias: Literal["row"] | None = None

    def __post_init__(self) -> None:
        _member("kind", self.kind, ("matmul", "linear"))
        _member("pattern", self.pattern, PATTERNS)
        _member("accumulate", self.accumulate, ("f32",))
        _member("b_layout", self.b_layout, ("k_major", "n_major"))
        _member("bias", self.bias, (None, "row"))
        outputs = PRODUCTS.get((self.a, self.b))
        if outputs is None:
            known = ", ".join(f"{a}×{b}" for a, b in PRODUCTS)
            raise ValueError(
                f"element types of a product are one of {known}, got {self.a}×{self.b}: convert one operand"
            )
        _member("out", self.out, outputs)
        if self.kind == "linear" and self.b_layout != "k_major":
            raise ValueError("linear takes tokens as [N, K] with K contiguous, got b_layout 'n_major': use matmul")

    @property
    def out_layout(self) -> Literal["row_major", "transposed"]:
        """Either way the last axis is contiguous: out is [M, N] if "row_major", [N, M] if "transposed"."""
        return "transposed" if self.kind == "linear" else "row_major"

    @property
    def bias_element(self) -> str:
        """Element type of the bias vector."""
        return self.a


@dataclass(frozen=True, slots=True)
class Tile:
    """What one program computes: m × n elements of the product, summed k at a time."""

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise ValueError(f"tile sizes are at least 1, got {self.m}×{self.n}×{self.k}")


def _member(field: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{field} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
