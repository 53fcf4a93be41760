"""Products of one warp: mma.sync, and mma.sp with a sparse A.

    D[16, 8] = A[16, k] B[k, 8] + C[16, 8]

All operands are registers, A row-major and B column-major as in `mma_fragments.py`. A sparse product stores half of A's
columns (2:4; 1:2 for tf32). Metadata places them, in the same words as wgmma.sp uses for this warp. Its k is twice the
dense k. C and D may be the same registers. Unlike wgmma, the product is synchronous.
Source: PTX ISA, mma and mma.sp.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ELEMENT_TYPES, ElementType, element_type
from louver.isa.fragments import Fragment, IndexArray
from louver.isa.instruction import Bits, Effect, Operand, RegType, Requirement
from louver.isa.metadata import GROUPS, MetadataMap, of_warp
from louver.isa.mma_fragments import COLUMNS, ROWS, ElementBits, warp_accumulator, warp_operand_a, warp_operand_b
from louver.isa.product_meaning import multiply
from louver.isa.targets import FP8, MmaFamily

if TYPE_CHECKING:
    from louver.isa.machine import Outcome, WarpState

INTEGER = ("s8", "u8")

ACCUMULATORS: dict[tuple[str, str], tuple[str, ...]] = {
    ("f16", "f16"): ("f32", "f16"),
    ("bf16", "bf16"): ("f32",),
    ("tf32", "tf32"): ("f32",),
    **{(a, b): ("f32",) for a in FP8 for b in FP8},
    **{(a, b): ("s32",) for a in INTEGER for b in INTEGER},
}
"""Legal accumulators of each (A, B). Sparse 8-bit floats have no f16 sums on sm_90a, so dense ones have none here."""

A_BITS = 256
"""Bits of a row of A in registers. All types but 8-bit floats and dense 8-bit integers also have half as many."""


def legal_k(a: str, sparse: bool) -> tuple[int, ...]:
    """Legal k of products whose A has the element type `a`, least first."""
    bits = element_type(a).bits
    whole = A_BITS // bits * (2 if sparse else 1)
    return (whole // 2, whole) if bits != 8 or (sparse and a in INTEGER) else (whole,)


@dataclass(frozen=True, slots=True)
class Mma(Effect):
    """mma.sync.aligned.m16n8kK.row.col, or mma.sp::ordered_metadata: a product of one warp.

    a, b: element types. d: type of C and D, "f32", "f16" or "s32". k: dense columns of A. sparse: A is 2:4 (tf32: 1:2).
    selector: index of this product among those of one metadata word. satfinite: saturate instead of wrapping
    (integers). Raises ValueError for a form that no target has.
    """

    a: str
    b: str
    d: str
    k: int
    sparse: bool = False
    selector: int = 0
    satfinite: bool = False

    aligned = True

    def __post_init__(self) -> None:
        allowed = ACCUMULATORS.get((self.a, self.b))
        if allowed is None:
            pairs = ", ".join(f"{a} x {b}" for a, b in ACCUMULATORS)
            raise ValueError(f"mma multiplies {pairs}, got {self.a} x {self.b}: convert one operand")
        if self.d not in allowed:
            raise ValueError(f"{self.a} x {self.b} accumulates in {' or '.join(allowed)}, got {self.d}")
        kind = "sparse" if self.sparse else "dense"
        ks = legal_k(self.a, self.sparse)
        if self.k not in ks:
            raise ValueError(f"k of a {kind} product of {self.a} is {' or '.join(map(str, ks))}, got {self.k}")
        if self.satfinite and self.a not in INTEGER:
            raise ValueError(f"satfinite belongs to integer products, got {self.a} x {self.b}")
        if not 0 <= self.selector < self.selectors:
            rule = "0" if self.selectors == 1 else f"0 to {self.selectors - 1}"
            raise ValueError(
                f"the selector of a {kind} product of {self.a} with k {self.k} is {rule}, got {self.selector}"
            )

    # --- shapes ----------------------------------------------------------------------------------------------------
    @property
    def k_stored(self) -> int:
        """Columns of A in registers: k, or half of k if sparse."""
        return self.k // 2 if self.sparse else self.k

    @property
    def selectors(self) -> int:
        """Products of consecutive K that one metadata word serves; 1 if dense."""
        if not self.sparse:
            return 1
        group = 2 if self._type_a.bits == 32 else 4
        return GROUPS * group // self.k

    @property
    def metadata_map(self) -> MetadataMap:
        return of_warp(self._type_a.bits, self.selectors)

    @property
    def a_fragment(self) -> Fragment:
        return warp_operand_a(cast(ElementBits, self._type_a.bits), self.k_stored)

    @property
    def b_fragment(self) -> Fragment:
        return warp_operand_b(cast(ElementBits, self._type_b.bits), self.k)

    @property
    def d_fragment(self) -> Fragment:
        return warp_accumulator(cast(Literal["f32", "f16", "s32"], self.d))

    @property
    def _type_a(self) -> ElementType:
        return ELEMENT_TYPES[self.a]

    @property
    def _type_b(self) -> ElementType:
        return ELEMENT_TYPES[self.b]

    @property
    def family(self) -> MmaFamily:
        """The name in a target's units."""
        return "mma.sp::ordered_metadata" if self.sparse else "mma"

    # --- text ------------------------------------------------------------------------------------------------------
    @property
    def operands(self) -> tuple[Operand, ...]:
        sums: RegType = "f32" if self.d == "f32" else "b32"
        meta = (Operand("e", "in", "b32", kind="register"),) if self.sparse else ()
        return (
            Operand("d", "out", sums, self.d_fragment.registers, "register", braces=True),
            Operand("a", "in", "b32", self.a_fragment.registers, "register", braces=True),
            Operand("b", "in", "b32", self.b_fragment.registers, "register", braces=True),
            Operand("c", "in", sums, self.d_fragment.registers, "register", braces=True),
            *meta,
        )

    @property
    def mnemonic(self) -> str:
        saturate = ".satfinite" if self.satfinite else ""
        shape = f"m{ROWS}n{COLUMNS}k{self.k}"
        return f"{self.family}.sync.aligned.{shape}.row.col{saturate}.{self.d}.{self.a}.{self.b}.{self.d}"

    def text(self, *args: str) -> str:
        selector = [f"{self.selector:#x}"] if self.sparse else []
        return f"{self.mnemonic} {', '.join([*args, *selector])}"

    @property
    def requires(self) -> Requirement:
        least = (8, 4) if self.a in FP8 else (7, 0)
        return Requirement((8, 5) if self.sparse else least, "sm_89" if self.a in FP8 else "sm_80")

    # --- meaning ---------------------------------------------------------------------------------------------------
    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        """Raises ValueError unless all 32 lanes take part."""
        if not warp.active.all():
            raise ValueError(f"a product needs all lanes of a warp, got {int(warp.active.sum())} of {warp.active.size}")
        a, b, c, *meta = inputs
        return (self.meaning(a, b, c, meta[0] if meta else None),)

    def meaning(
        self,
        a: NDArray[np.uint32],
        b: NDArray[np.uint32],
        c: NDArray[np.uint32],
        meta: NDArray[np.uint32] | None = None,
    ) -> NDArray[np.uint32]:
        """Registers of D, uint32 [count, 32], from A, B and C, [count, 32], and, if sparse, metadata words, [32].

        Numerics: exact products, summed in float64, rounded once to D's type. PTX leaves the order and the intermediate
        rounding open. Integers are exact, wrapped or saturated at the end. Raises ValueError for illegal metadata.
        """
        columns = None
        if self.sparse:
            if meta is None:
                raise ValueError("a sparse product needs its metadata words, got None")
            columns = _columns(self.metadata_map, self.selector, meta.tobytes())
        sums = ELEMENT_TYPES[self.d]
        new = multiply(
            (self.a, self.b, self.d),
            self.a_fragment.scatter(a).view(self._type_a.numpy),
            self.b_fragment.scatter(b).view(self._type_b.numpy),
            columns,
            self.d_fragment.scatter(c).view(sums.numpy),
            saturate=self.satfinite,
        )
        return self.d_fragment.gather(new.view(sums.bits_dtype))


@functools.lru_cache(maxsize=256)
def _columns(layout: MetadataMap, selector: int, words: bytes) -> IndexArray:
    """Dense columns of stored values, int64 [16, stored]. Cached: a kernel multiplies one A by many columns of B."""
    return layout.columns_of(layout.unpack(np.frombuffer(words, np.uint32), selector))
