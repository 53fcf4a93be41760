"""A library product: kind, element types, layouts and epilogue. Sizes are runtime arguments of its kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from louver.formats.dtypes import PAIR_TYPES, multiplied_as
from louver.formats.pattern import Operation, Pattern, has_kernels, lifted_pattern, without_kernels
from louver.frontend.epilogue import ADDENDS, NO_EPILOGUE, Epilogue
from louver.ir.product import Unit, selection_of, unit_of
from louver.isa.mma import kind_of, pairs_of
from louver.isa.targets import FP8_FP6_FP4
from louver.isa.wgmma import ACCUMULATORS, FP8, INTEGER, TRANSPOSABLE

Kind = Literal["matmul", "linear"]

BLayout = Literal["k_major", "n_major"]

Batch = Literal["dense", "sparse", "both"]
"""The operands that have an entry for each product of a batch. The output always has."""

EIGHT_BITS = ("e4m3", "e5m2", "s8")
"""The 8-bit output types. Every product has them."""

MAX_SIZE = 2**31 - 1
"""The largest M, N, K and batch: kernels count in signed 32 bits."""

PRODUCTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("f16", "f16"): ("f16", "bf16", "f32", *EIGHT_BITS),
    ("bf16", "bf16"): ("bf16", "f16", "f32", *EIGHT_BITS),
    **{(a, b): ("bf16", "f16", "f32", *EIGHT_BITS) for a in FP8_FP6_FP4 for b in FP8_FP6_FP4},
    ("f32", "f32"): ("f32", "f16", "bf16", *EIGHT_BITS),
    **{(a, b): ("s32", "f16", "bf16", "f32", *EIGHT_BITS) for a in INTEGER for b in INTEGER},
    **{(a, b): ("s32", "f16", "bf16", "f32", *EIGHT_BITS) for a in PAIR_TYPES for b in PAIR_TYPES},
}
"""The output types for the element types of (sparse, dense) operand. The first is the default of a library call.
Floating-point products accumulate in f32 unless `modes_of` gives another mode. Integer products accumulate in s32 and
wrap. 8-bit outputs saturate. s8 is rounded to nearest even, and NaN becomes 0.
"""

BIAS: dict[str, tuple[str, ...]] = {"f32": ADDENDS, "s32": ("s32",)}
"""Element types of a bias by the type of the addition: the accumulator's, or f32 if the epilogue has other steps."""


def accumulator_of(operand: str) -> str:
    """The widest accumulator of products of that element type: "f32" or "s32"."""
    return modes_of(operand)[0]


def modes_of(operand: str) -> tuple[str, ...]:
    """The accumulation modes of products of that element type; the default comes first. "f32": f32 registers. For 8-bit
    floats the tensor cores keep about 14 bits. "fast" is another name of this mode. "promoted": adds the sums over each
    `PROMOTED_COLUMNS` to separate f32 sums. "f16": f16 registers, which overflow beyond 65,504. "s32": exact.
    """
    unit = multiplied_as(operand)
    widest, *narrower = (pairs_of(kind_of(unit, unit)) | ACCUMULATORS)[unit, unit]
    return (widest, *narrower, *(("fast", "promoted") if operand in FP8 else ()))


PROMOTED_COLUMNS = 256
"""Dense columns that "promoted" sums in tensor cores at a time: four instructions of 8-bit operands, and the columns of
one metadata load. A power of two; every tile's K is a multiple of it.
"""


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile of a program: m × n elements of the product, summed in steps of k."""

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise ValueError(f"tile sizes are at least 1, got {self.m}×{self.n}×{self.k}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One product of a sparse or dense `a` [M, K] with a dense `b`. Element types are names, see `PRODUCTS`.

    kind: "matmul" is `out[M, N] = a[M, K] @ b[K, N]`; "linear" is `out[N, M] = b[N, K] @ a[M, K].T`, where N counts
        tokens and M output features. All are row-major.
    pattern: of `a`; None if dense. "auto" becomes 2:4, or 1:2 for f32, whose metadata tensor cores read.
    b_layout: "k_major" stores b as [N, K], "n_major" as [K, N]. 8-bit operands are K-major; for N:M@L all are N-major.
    accumulate: see `modes_of`. "auto" becomes "f32", or "s32" for integers; "fast" becomes "f32".
    bias: None, or "row" for a vector [M] that is added to the sum before it is rounded to `out`.
    bias_element: its element type, see `BIAS`. "auto": the operands' type, else the output's, else the addition's.
    epilogue: the other steps between the sum and the output.
    batch: None for one product. Else these operands, the output and the epilogue's `c` have a first axis of entries;
        all entries share the epilogue's other arrays, but scales of blocks, which have the entries of their operand.
    """

    kind: Kind = "matmul"
    a: str = "f16"
    b: str = "f16"
    out: str = "f16"
    pattern: str | None = "auto"
    accumulate: str = "auto"
    b_layout: BLayout = "k_major"
    bias: Literal["row"] | None = None
    bias_element: str = "auto"
    epilogue: Epilogue = NO_EPILOGUE
    batch: Batch | None = None

    def __post_init__(self) -> None:
        outputs = PRODUCTS.get((self.a, self.b))
        if outputs is None:
            known = ", ".join(f"{a}×{b}" for a, b in PRODUCTS)
            raise ValueError(
                f"element types of a product are one of {known}, got {self.a}×{self.b}: convert one operand"
            )
        if self.pattern == "auto":
            object.__setattr__(self, "pattern", lifted_pattern(self.a))
        _member("kind", self.kind, ("matmul", "linear"))
        if self.gathers:
            Pattern.parse(self.pattern)
        _member("b_layout", self.b_layout, ("k_major", "n_major"))
        _member("bias", self.bias, (None, "row"))
        _member("batch", self.batch, (None, "dense", "sparse", "both"))
        products: Operation = "gated products" if self.epilogue.gated else "products"
        if self.pattern is not None and not has_kernels(products, self.pattern, self.a):
            raise ValueError(without_kernels(products, self.pattern, self.a))
        _member("out", self.out, outputs)
        self._settle("accumulate", modes_of(self.a), accumulator_of(self.a))
        if self.accumulate == "fast":
            object.__setattr__(self, "accumulate", "f32")
        biases = BIAS[self.sum]
        self._settle("bias_element", biases, next(t for t in (self.a, self.out, self.sum) if t in biases))
        if self.epilogue.scaled and {self.a, self.b} - {*FP8_FP6_FP4}:
            raise ValueError(
                f"scales of blocks are for operands of {', '.join(FP8_FP6_FP4)}, got {self.a}×{self.b}: give scales of f32"
            )
        if self.out == "s32" and self.epilogue.floating:
            raise ValueError("an epilogue computes in f32 and cannot store s32: store f32, f16 or s8")
        if self.b_layout == "n_major" and not self.gathers and self.b not in TRANSPOSABLE:
            raise ValueError(
                f"the tensor cores transpose 16-bit operands only: an N-major dense operand is f16 or bf16, got {self.b}: "
                "give it K-major, copied if need be"
            )
        if self.gathers and self.b_layout != "n_major":
            raise ValueError(
                f"rows of K are gathered from [K, N] with N contiguous, got b_layout 'k_major' for {self.pattern}"
            )

    @property
    def unit(self) -> Unit:
        return unit_of(self.pattern, self.a)

    @property
    def gathers(self) -> bool:
        """Whether the kernel gathers rows of the dense operand, because tensor cores do not read the pattern of `a`."""
        return selection_of(self.pattern).indexed

    @property
    def batched_a(self) -> bool:
        """Whether each entry of a batch has its own sparse operand."""
        return self.batch in ("sparse", "both")

    @property
    def batched_b(self) -> bool:
        """Whether each entry of a batch has its own dense operand."""
        return self.batch in ("dense", "both")

    @property
    def out_layout(self) -> Literal["row_major", "transposed"]:
        """The output is [M, N] if "row_major", [N, M] if "transposed". Its last axis is contiguous."""
        return "transposed" if self.kind == "linear" else "row_major"

    @property
    def accumulator(self) -> str:
        """Element type of the registers that accumulate products: "f32", "f16" or "s32"."""
        return "f32" if self.accumulate == "promoted" else self.accumulate

    @property
    def sum(self) -> str:
        """The sum's type at the start of the epilogue: the accumulator's, f16 widened to f32; f32 if steps follow."""
        return "f32" if self.epilogue.floating else accumulator_of(self.a)

    @property
    def rows_per_output(self) -> int:
        """Sparse rows for each output row: 2 for gated products."""
        return 2 if self.epilogue.gated else 1

    def written_tile(self, m: int, n: int, k: int) -> Tile:
        """The tile in the problem's tile IR: these sizes, or whole windows and groups where the sizes would cut vectors."""
        if not self.gathers:
            return Tile(m, n, k)
        pattern = Pattern.parse(self.pattern)
        fits = m % pattern.length == 0 or pattern.length % m == 0
        return Tile(m if fits else pattern.length, n, -(-k // pattern.m) * pattern.m)

    def _settle(self, field: str, allowed: tuple[str, ...], auto: str) -> None:
        """Check a field, and replace "auto" by its meaning, so that equal problems compare equal."""
        value = getattr(self, field)
        _member(field, value, ("auto", *allowed))
        if value == "auto":
            object.__setattr__(self, field, auto)


def _member(field: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{field} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
