"""Products of one warp: mma.sync, and mma.sp with a sparse A.

    D[16, 8] = A[16, k] B[k, 8] + C[16, 8]

All operands are registers, A row-major and B column-major as in `mma_fragments.py`. A sparse product stores half of A's
columns (2:4; 1:2 for tf32). Metadata places them, in the same words as wgmma.sp uses for this warp. Its k is twice the
dense k. C and D may be the same registers. Unlike wgmma, the product is synchronous. `narrow.py` has the operands of
elements below 8 bits, and of products with scales: D = (A · scales) (B · scales) + C.
Source: PTX ISA, mma and mma.sp.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ELEMENT_TYPES
from louver.isa.fragments import Fragment, IndexArray
from louver.isa.instruction import Bits, Effect, Operand, RegType, Requirement, register
from louver.isa.metadata import GROUPS, MetadataMap, of_warp
from louver.isa.mma_fragments import COLUMNS, ROWS, ElementBits, warp_accumulator, warp_operand_a, warp_operand_b
from louver.isa.narrow import KINDS, SHORT, Container, Kind, column_scales, row_scales
from louver.isa.product_meaning import multiply
from louver.isa.rule import RuleError
from louver.isa.targets import FP6_FP4, FP8, MmaFamily, unit_name

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

SHORT_ACCUMULATORS: dict[tuple[str, str], tuple[str, ...]] = {(a, b): ("s32",) for a in SHORT for b in SHORT}
"""The same of 4-bit integers, which tensors do not have."""


def kind_of(a: str, b: str) -> str:
    """The kind of products without scales of these types: "f8f6f4" if one is narrower than 8 bits, "" for none."""
    return "f8f6f4" if a in FP6_FP4 or b in FP6_FP4 else ""


A_BITS = 256
"""Bits of a row of A in registers. All types but narrow floats and dense 8-bit integers also have half as many."""


def legal_k(a: str, sparse: bool, kind: str = "") -> tuple[int, ...]:
    """Legal k of products whose A has the element type `a`, least first."""
    held = Container.of(a, kind)
    whole = A_BITS // held.bits * held.count * (2 if sparse else 1)
    halved = held.bits != 8 or a in SHORT or (sparse and a in INTEGER)
    return (whole // 2, whole) if halved else (whole,)


@dataclass(frozen=True, slots=True)
class Mma(Effect):
    """mma.sync.aligned.m16n8kK.row.col, or mma.sp::ordered_metadata: a product of one warp.

    a, b: element types. d: type of C and D, "f32", "f16" or "s32". k: dense columns of A. sparse: A is 2:4 (tf32: 1:2).
    selector: index of this product among those of one metadata word. satfinite: saturate instead of wrapping
    (integers). kind: of a sparse product, "f8f6f4" say, "" for none. scale: type of the scales of kinds that have them.
    scale_a, scale_b: byte and thread that supply them. Raises ValueError for a form that no target has.
    """

    a: str
    b: str
    d: str
    k: int
    sparse: bool = False
    selector: int = 0
    satfinite: bool = False
    kind: str = ""
    scale: str = ""
    scale_a: tuple[int, int] = (0, 0)
    scale_b: tuple[int, int] = (0, 0)

    aligned = True

    def __post_init__(self) -> None:
        self._check_types()
        self._check_flags()
        self._check_scales()

    def _check_types(self) -> None:
        if self.kind and (self.kind not in KINDS or not self.sparse):
            got = f"{'sparse' if self.sparse else 'dense'} {self.kind}"
            raise RuleError(f"kinds are of sparse products, {', '.join(KINDS)}, got {got}")
        known = pairs_of(self.kind)
        allowed = known.get((self.a, self.b))
        if allowed is None:
            pairs = ", ".join(f"{a} x {b}" for a, b in known)
            raise RuleError(f"mma multiplies {pairs}, got {self.a} x {self.b}: convert one operand")
        if self.d not in allowed:
            raise RuleError(f"{self.a} x {self.b} accumulates in {' or '.join(allowed)}, got {self.d}")

    def _check_flags(self) -> None:
        kind = "sparse" if self.sparse else "dense"
        ks = legal_k(self.a, self.sparse, self.kind)
        if self.k not in ks:
            raise RuleError(f"k of a {kind} product of {self.a} is {' or '.join(map(str, ks))}, got {self.k}")
        if self.satfinite and self.d != "s32":
            raise RuleError(f"satfinite belongs to integer products, got {self.a} x {self.b}")
        if not 0 <= self.selector < self.selectors:
            rule = "0" if self.selectors == 1 else f"0 to {self.selectors - 1}"
            raise RuleError(
                f"the selector of a {kind} product of {self.a} with k {self.k} is {rule}, got {self.selector}"
            )

    def _check_scales(self) -> None:
        """A row's scales are in one word, at a multiple of their number. The two threads of each row supply them."""
        types = ", ".join(name for name, _ in KINDS[self.kind].scales) if self.kind else ""
        if bool(self.scale) != bool(types) or (self.scale and not self.blocks):
            raise RuleError(
                f"scales of {self.kind or 'a product without a kind'} are {types or 'none'}, got {self.scale!r}"
            )
        for which, (byte, thread), threads in (("a", self.scale_a, 2), ("b", self.scale_b, 4)):
            if byte not in range(0, 4, self.blocks or 4) or thread not in range(threads if self.blocks else 1):
                bytes_ = ", ".join(map(str, range(0, 4, self.blocks or 4)))
                raise RuleError(
                    f"scale_{which} is a byte of {bytes_} and a thread below {threads if self.blocks else 1}, got {byte}, {thread}"
                )

    # --- shapes ----------------------------------------------------------------------------------------------------
    @property
    def k_stored(self) -> int:
        """Columns of A in registers: k, or half of k if sparse."""
        return self.k // 2 if self.sparse else self.k

    @property
    def columns(self) -> int:
        """Dense columns of A in containers: k, or half of k if a container has two elements."""
        return self.k // Container.of(self.a, self.kind).count

    @property
    def blocks(self) -> int:
        """Scales of a row of A, and of a column of B; 0 without scales."""
        return KINDS[self.kind].blocks(self.scale) or 0 if self.kind else 0

    @property
    def selectors(self) -> int:
        """Products of consecutive K that one metadata word serves; 1 if dense."""
        if not self.sparse:
            return 1
        held = Container.of(self.a, self.kind)
        group = 2 if held.bits == 32 else 4
        return GROUPS * group * held.count // self.k

    @property
    def metadata_map(self) -> MetadataMap:
        """Its groups are of containers, so of pairs of 4-bit elements."""
        return of_warp(Container.of(self.a, self.kind).bits, self.selectors)

    @property
    def a_fragment(self) -> Fragment:
        """In containers."""
        held = Container.of(self.a, self.kind)
        return warp_operand_a(cast(ElementBits, held.bits), self.k_stored // held.count)

    @property
    def b_fragment(self) -> Fragment:
        """In containers."""
        held = Container.of(self.b, self.kind)
        return warp_operand_b(cast(ElementBits, held.bits), self.k // held.count)

    @property
    def d_fragment(self) -> Fragment:
        return warp_accumulator(cast(Literal["f32", "f16", "s32"], self.d))

    @property
    def family(self) -> MmaFamily:
        """The name in a target's units."""
        return "mma.sp::ordered_metadata" if self.sparse else "mma"

    @property
    def unit(self) -> str:
        """Family and kind."""
        return unit_name(self.family, self.kind)

    @property
    def shape(self) -> str:
        """m, n and k, as PTX writes them."""
        return f"m{ROWS}n{COLUMNS}k{self.k}"

    # --- text ------------------------------------------------------------------------------------------------------
    @property
    def operands(self) -> tuple[Operand, ...]:
        sums: RegType = "f32" if self.d == "f32" else "b32"
        words = (*(["e"] if self.sparse else []), *(["scale-a", "scale-b"] if self.scale else []))
        return (
            Operand("d", "out", sums, self.d_fragment.registers, "register", braces=True),
            Operand("a", "in", "b32", self.a_fragment.registers, "register", braces=True),
            Operand("b", "in", "b32", self.b_fragment.registers, "register", braces=True),
            Operand("c", "in", sums, self.d_fragment.registers, "register", braces=True),
            *(register(word, "b32") for word in words),
        )

    @property
    def mnemonic(self) -> str:
        options = ".satfinite" if self.satfinite else ""
        options += f".kind::{self.kind}" if self.kind else ""
        options += f".block_scale.scale_vec::{self.blocks}X" if self.scale else ""
        types = ".".join([self.d, self.a, self.b, self.d, *([self.scale] if self.scale else [])])
        return f"{self.family}.sync.aligned.{self.shape}.row.col{options}.{types}"

    def text(self, *args: str) -> str:
        """Each selector follows its operand."""
        if not self.sparse:
            return f"{self.mnemonic} {', '.join(args)}"
        d, a, b, c, meta, *scales = args
        printed = [d, a, b, c, meta, f"{self.selector:#x}"]
        for word, (byte, thread) in zip(scales, (self.scale_a, self.scale_b), strict=False):
            printed += [word, f"{{{byte}, {thread}}}"]
        return f"{self.mnemonic} {', '.join(printed)}"

    @property
    def requires(self) -> Requirement:
        if self.kind:
            return KINDS[self.kind].needs
        least = (8, 4) if self.a in FP8 else (7, 0)
        return Requirement((8, 5) if self.sparse else least, "sm_89" if self.a in FP8 else "sm_80")

    # --- meaning ---------------------------------------------------------------------------------------------------
    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        """Raises ValueError unless all 32 lanes take part."""
        if not warp.active.all():
            raise RuleError(f"a product needs all lanes of a warp, got {int(warp.active.sum())} of {warp.active.size}")
        a, b, c, *others = inputs
        return (self.meaning(a, b, c, *others),)

    def meaning(
        self,
        a: NDArray[np.uint32],
        b: NDArray[np.uint32],
        c: NDArray[np.uint32],
        meta: NDArray[np.uint32] | None = None,
        scale_a: NDArray[np.uint32] | None = None,
        scale_b: NDArray[np.uint32] | None = None,
    ) -> NDArray[np.uint32]:
        """Registers of D, uint32 [count, 32], from A, B and C, [count, 32], and words, [32]: metadata, if sparse, and scales.

        Numerics: exact products, summed in float64, rounded once to D's type. PTX leaves the order and the intermediate
        rounding open. Integers are exact, wrapped or saturated at the end. Raises ValueError for illegal metadata.
        """
        columns = None
        if self.sparse:
            if meta is None:
                raise RuleError("a sparse product needs its metadata words, got None")
            columns = _columns(self.metadata_map, self.selector, Container.of(self.a, self.kind).count, meta.tobytes())
        sums = ELEMENT_TYPES[self.d]
        left = Container.of(self.a, self.kind).values(self.a_fragment.scatter(a), 1)
        right = Container.of(self.b, self.kind).values(self.b_fragment.scatter(b), 0)
        if self.scale:
            if scale_a is None or scale_b is None:
                raise RuleError("a product with scales needs the words of both operands, got None")
            # Groups lie inside blocks, so the stored values of a block are as many in each row.
            of_rows = row_scales(scale_a, self.scale_a, self.blocks, self.scale)
            left = left.astype(np.float64) * of_rows.repeat(self.k_stored // self.blocks, axis=1)
            of_columns = column_scales(scale_b, self.scale_b, self.blocks, self.scale)
            right = right.astype(np.float64) * of_columns.repeat(self.k // self.blocks, axis=0)
        new = multiply(
            (self.a, self.b, self.d),
            left,
            right,
            columns,
            self.d_fragment.scatter(c).view(sums.numpy),
            saturate=self.satfinite,
        )
        return self.d_fragment.gather(new.view(sums.bits_dtype))


@functools.lru_cache(maxsize=256)
def _columns(layout: MetadataMap, selector: int, count: int, words: bytes) -> IndexArray:
    """Dense columns of stored values, int64 [16, stored]. count: elements of a container. Cached: a kernel multiplies one A
    by many columns of B.
    """
    held = layout.columns_of(layout.unpack(np.frombuffer(words, np.uint32), selector))
    return (held[:, :, None] * count + np.arange(count)).reshape(len(held), -1)


@functools.lru_cache(maxsize=8)
def pairs_of(kind: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """Legal accumulators of each (A, B). Kind f8f6f4 has 8-bit floats with sums of f16; sums of f32 need no kind."""
    if not kind:
        return ACCUMULATORS | SHORT_ACCUMULATORS
    found: Kind = KINDS[kind]
    plain = () if found.scales else FP8
    return {(a, b): ("f16",) if a in plain and b in plain else found.sums for a in found.types for b in found.types}
