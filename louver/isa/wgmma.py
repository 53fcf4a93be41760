"""Warpgroup products: wgmma.mma_async.sp, its dense form, and their fences and waits.

    D[64, n] = A[64, k] B[k, n] + D, or without D when scale-d is false

A comes from shared memory or registers, B from shared memory; D stays in registers. A sparse product stores half of A's
columns (2:4; 1:2 for tf32). Metadata places them. Its k is twice the dense k.
Source: PTX ISA, wgmma.mma_async and wgmma.mma_async.sp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType, element_type
from louver.isa.fragments import ROWS, Fragment, accumulator, operand_a
from louver.isa.instruction import Bits, Effect, Operand, RegType, Requirement, register
from louver.isa.metadata import MAPS, MetadataMap
from louver.isa.product_meaning import Shared, multiply, read
from louver.isa.rule import RuleError
from louver.isa.swizzle import CHUNK, Descriptor, Major
from louver.isa.targets import FP8, MAX_PENDING_PRODUCTS, MmaFamily

if TYPE_CHECKING:
    from louver.isa.machine import Outcome, WarpState

LINE_BYTES = 32
"""Bytes of a row of A along K in every product (of stored values if sparse)."""

FLOAT_N = tuple(range(8, 257, 8))
"""Legal n of the floating-point products."""

INTEGER_N = (8, *range(16, 33, 8), *range(48, 257, 16))
"""Legal n of the integer products."""

INTEGER = ("s8", "u8")
TRANSPOSABLE = ("f16", "bf16")
"""Types that wgmma reads M- or N-major."""

ACCUMULATORS: dict[tuple[str, str], tuple[str, ...]] = {
    ("f16", "f16"): ("f32", "f16"),
    ("bf16", "bf16"): ("f32",),
    ("tf32", "tf32"): ("f32",),
    **{(a, b): ("f32", "f16") for a in FP8 for b in FP8},
    **{(a, b): ("s32",) for a in INTEGER for b in INTEGER},
}
"""Legal accumulators of each (A, B)."""


def legal_n(a: str) -> tuple[int, ...]:
    """Legal n of products whose A has the element type `a`."""
    return INTEGER_N if a in INTEGER else FLOAT_N


@dataclass(frozen=True, slots=True)
class Wgmma(Effect):
    """wgmma.mma_async: a warpgroup product of shape m64nNkK.

    n: columns of B and D. a, b: element types. d: accumulators, "f32", "f16" or "s32". sparse: A is 2:4 (tf32: 1:2).
    a_source: where A is. negate_a, negate_b: flip the operand's sign (floating point). transpose_a, transpose_b: the
    operand is M- or N-major in shared memory (f16 and bf16). satfinite: saturate instead of wrapping (integers).
    selector: index of this product among those of one metadata word. Raises ValueError for a form that no target has.
    """

    n: int
    a: str
    b: str
    d: str
    sparse: bool
    a_source: Literal["shared", "registers"] = "shared"
    negate_a: bool = False
    negate_b: bool = False
    transpose_a: bool = False
    transpose_b: bool = False
    satfinite: bool = False
    selector: int = 0

    aligned = True

    def __post_init__(self) -> None:
        self._check_types()
        self._check_flags()

    def _check_types(self) -> None:
        allowed = ACCUMULATORS.get((self.a, self.b))
        if allowed is None:
            pairs = ", ".join(f"{a} x {b}" for a, b in ACCUMULATORS)
            raise RuleError(f"wgmma multiplies {pairs}, got {self.a} x {self.b}: convert one operand")
        if self.d not in allowed:
            raise RuleError(f"{self.a} x {self.b} accumulates in {' or '.join(allowed)}, got {self.d}")
        if self.n not in legal_n(self.a):
            steps = "8, 16, 24, 32 or a multiple of 16" if self.a in INTEGER else "a multiple of 8"
            raise RuleError(f"n of a product of {self.a} is {steps} up to 256, got {self.n}")

    def _check_flags(self) -> None:
        if self.a_source not in ("shared", "registers"):
            raise RuleError(f'A comes from "shared" or "registers", got {self.a_source!r}')
        if self.a in INTEGER and (self.negate_a or self.negate_b):
            raise RuleError(f"only floating-point products negate an operand, got {self.a} x {self.b}")
        if self.satfinite and self.a not in INTEGER:
            raise RuleError(f"satfinite belongs to integer products, got {self.a} x {self.b}")
        if (self.transpose_a or self.transpose_b) and self.a not in TRANSPOSABLE:
            raise RuleError(f"wgmma transposes f16 and bf16 only, got {self.a}: store the operand K-major")
        if self.transpose_a and self.a_source == "registers":
            raise RuleError("transpose_a needs A in shared memory, got registers: load the fragment transposed")
        selectors = self.metadata_map.selectors if self.sparse else 1
        if not 0 <= self.selector < selectors:
            kind = "sparse" if self.sparse else "dense"
            rule = "0 or 1" if selectors == 2 else "0"
            raise RuleError(f"the selector of a {kind} product of {self.a} is {rule}, got {self.selector}")

    # --- shapes ----------------------------------------------------------------------------------------------------
    @property
    def k(self) -> int:
        """Dense columns of A in one product."""
        return self.k_stored * (2 if self.sparse else 1)

    @property
    def k_stored(self) -> int:
        """Columns of A that one product reads: k, or half of k if sparse."""
        return LINE_BYTES // self._type_a.bytes

    @property
    def metadata_map(self) -> MetadataMap:
        return MAPS[self._type_a.bits]

    @property
    def d_fragment(self) -> Fragment:
        return accumulator(self.n, cast(Literal["f32", "f16", "s32"], self.d))

    @property
    def a_fragment(self) -> Fragment:
        return operand_a(cast(Literal[8, 16, 32], self._type_a.bits))

    @property
    def _type_a(self) -> ElementType:
        return element_type(self.a)

    @property
    def _type_b(self) -> ElementType:
        return element_type(self.b)

    @property
    def family(self) -> MmaFamily:
        """The name in a target's units."""
        return "wgmma.sp" if self.sparse else "wgmma"

    @property
    def unit(self) -> str:
        """The family: a warpgroup's products have no kinds."""
        return self.family

    @property
    def shape(self) -> str:
        """m, n and k, as PTX writes them."""
        return f"m{ROWS}n{self.n}k{self.k}"

    # --- text ------------------------------------------------------------------------------------------------------
    @property
    def operands(self) -> tuple[Operand, ...]:
        d_type: RegType = "f32" if self.d == "f32" else "b32"
        d = Operand("d", "inout", d_type, self.d_fragment.registers, "register", braces=True)
        a = register("a-desc", "b64")
        if self.a_source == "registers":
            a = Operand("a", "in", "b32", self.a_fragment.registers, "register", braces=True)
        meta = (register("sp-meta", "b32"),) if self.sparse else ()
        return d, a, register("b-desc", "b64"), *meta, register("scale-d", "pred")

    @property
    def mnemonic(self) -> str:
        sparse = ".sp" if self.sparse else ""
        saturate = ".satfinite" if self.satfinite else ""
        return f"wgmma.mma_async{sparse}.sync.aligned.{self.shape}{saturate}.{self.d}.{self.a}.{self.b}"

    def text(self, *args: str) -> str:
        """The selector comes before scale-d, the constants after it."""
        *values, scale_d = args
        selector = [str(self.selector)] if self.sparse else []
        signs = [] if self.a in INTEGER else ["-1" if negate else "1" for negate in (self.negate_a, self.negate_b)]
        transposes: list[str] = []
        if self.a in TRANSPOSABLE:
            transposes = [str(int(self.transpose_b))]
            if self.a_source == "shared":
                transposes.insert(0, str(int(self.transpose_a)))
        return f"{self.mnemonic} {', '.join([*values, *selector, scale_d, *signs, *transposes])}"

    @property
    def requires(self) -> Requirement:
        if self.a in INTEGER and self.a != self.b:
            return Requirement((8, 4), "sm_90a")
        return Requirement((8, 2) if self.sparse else (8, 0), "sm_90a")

    # --- meaning ---------------------------------------------------------------------------------------------------
    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        """Issue the product. It is asynchronous: the machine writes D when the product completes."""
        warp.wgmma(self, inputs[0], inputs[1:])

    def shared_bytes(self, a_desc: int | None, b_desc: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Addresses of all shared bytes that the product reads: of A, int64 [count], and of B, int64 [lines, bytes].

        a_desc: None for A in registers. A line of B is a column of the product, or a step of K if B is transposed.
        """
        chunks = self._chunks_b(b_desc)
        b = (chunks[:, :, None] + np.arange(CHUNK)).reshape(len(chunks), -1)
        if a_desc is None:
            return np.empty(0, np.int64), b
        return (self._chunks_a(a_desc).reshape(-1, 1) + np.arange(CHUNK)).reshape(-1), b

    def meaning(
        self,
        d: NDArray[np.uint32],
        a: int | NDArray[np.uint32],
        b_desc: int,
        meta: NDArray[np.uint32] | None,
        scale_d: bool,
        shared: Shared,
    ) -> NDArray[np.uint32]:
        """The new accumulators of the warpgroup, uint32 [count, 128], from the old ones.

        a: the descriptor's 64 bits, or registers, uint32 [4, 128]. meta: words, uint32 [128]; None if dense. shared:
        the CTA's shared memory, uint8 [size], or a function from addresses (int64) to bytes (uint8, same shape).
        Numerics: exact products, summed in float64, rounded once to d's type. PTX leaves the order and the intermediate
        rounding open. Integers are exact, wrapped or saturated at the end. Raises ValueError for illegal metadata.
        """
        stored = self._stored_a(a, shared)
        b_lines = read(shared, self._chunks_b(b_desc)).view(self._type_b.numpy)
        b_matrix = b_lines if self.transpose_b else b_lines.T
        columns = None
        if self.sparse:
            if meta is None:
                raise RuleError("a sparse product needs its metadata words, got None")
            layout = self.metadata_map
            columns = layout.columns_of(layout.unpack(meta, self.selector))
        old = self.d_fragment.scatter(d).view(element_type(self.d).numpy) if scale_d else None
        types, negate = (self.a, self.b, self.d), self.negate_a != self.negate_b
        new = multiply(types, stored, b_matrix, columns, old, negate=negate, saturate=self.satfinite)
        return self.d_fragment.gather(new.view(element_type(self.d).bits_dtype))

    def _stored_a(self, a: int | NDArray[np.uint32], shared: Shared) -> NDArray[np.generic]:
        if self.a_source == "registers":
            if isinstance(a, int):
                raise RuleError(f"A comes from registers, uint32 [4, 128], got the descriptor {a:#x}")
            return self.a_fragment.scatter(a).view(self._type_a.numpy)
        if not isinstance(a, int):
            raise RuleError(f"A comes from shared memory, through a descriptor of 64 bits, got {type(a).__name__}")
        lines = read(shared, self._chunks_a(a)).view(self._type_a.numpy)
        return lines.T if self.transpose_a else lines

    def _chunks_a(self, bits: int) -> NDArray[np.int64]:
        return self._chunks(bits, self.transpose_a, ROWS, self.k_stored, self._type_a.bytes)

    def _chunks_b(self, bits: int) -> NDArray[np.int64]:
        return self._chunks(bits, self.transpose_b, self.n, self.k, self._type_b.bytes)

    @staticmethod
    def _chunks(bits: int, transposed: bool, mn: int, k: int, size: int) -> NDArray[np.int64]:
        major: Major = "mn" if transposed else "k"
        lines, along = (k, mn) if transposed else (mn, k)
        return Descriptor.decode(bits).chunks(major, lines, along * size)


class _Ordering(Effect):
    """An instruction that orders a warp's products; it has no operands."""

    __slots__ = ()
    aligned = True
    needs = Requirement((8, 0), "sm_90a")


@dataclass(frozen=True, slots=True)
class WgmmaFence(_Ordering):
    """wgmma.fence: orders the warp's register and shared-memory accesses before the following products.

    It is needed before the first product, and after other instructions write registers of a product.
    """

    opcode = "wgmma.fence.sync.aligned"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.fence_wgmma()


@dataclass(frozen=True, slots=True)
class WgmmaCommit(_Ordering):
    """wgmma.commit_group: the products since the last commit become a group."""

    opcode = "wgmma.commit_group.sync.aligned"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.wgmma_commit()


@dataclass(frozen=True, slots=True)
class WgmmaWait(_Ordering):
    """wgmma.wait_group: wait until at most the `pending` newest groups are unfinished."""

    pending: int

    opcode = "wgmma.wait_group.sync.aligned {self.pending}"

    def __post_init__(self) -> None:
        if not 0 <= self.pending <= MAX_PENDING_PRODUCTS:
            raise RuleError(f"a wait leaves 0 to {MAX_PENDING_PRODUCTS} groups pending, got {self.pending}")

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        return warp.wgmma_wait(self.pending)
