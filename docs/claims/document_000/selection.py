"""Document 000's choices: its cost functions, `should_use_sparse…` in four forms, and the database of patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from claims.document_000.coefficients import COEFFICIENTS, LATENCY, generation, minimum_size
from claims.document_000.cost_value import INFINITY, CostValue, Undefined, compare, cost, literal_compare
from claims.document_000.detection import is_2_4_sparse


# --- the cost of a matrix (L2177-2337) ----------------------------------------------------------------------------------
def dense_cost(rows: int, cols: int, sm: int) -> CostValue:
    """`compute_dense_cost`: latency · rows · cols << 48, in 64 bits."""
    return cost(LATENCY[generation(sm)] * rows * cols << 48)


def sparse_cost(rows: int, cols: int, sm: int) -> CostValue:
    """`compute_sparse_cost`."""
    share = COEFFICIENTS[generation(sm)]["sparsity"]
    return cost(int(LATENCY[generation(sm)] * share * rows * cols) << 48)


def metadata_factor(sm: int) -> tuple[int, float]:
    """Cycles and factor of `compute_metadata_cost`."""
    return (5 if sm >= 90 else 1), (0.05 if sm >= 100 else 0.25)


def metadata_cost(size: int, sm: int) -> CostValue:
    """`compute_metadata_cost` of `size` bytes."""
    cycles, factor = metadata_factor(sm)
    return cost(int(cycles * factor * size) << 48)


def break_even(rows: int, cols: int, sm: int, *, share: float | None = None) -> tuple[float, float]:
    """`should_use_sparse` (L1601-1627): cycles dense, and sparse with metadata.

    share: of the product that remains; by default the 0.5 that its code has for every target. Its comments take the
    target's own, and cycles · factor of metadata as in `metadata_factor`.
    """
    blocks = rows * cols // 4
    latency = LATENCY[generation(sm)]
    cycles, factor = metadata_factor(sm)
    return latency * blocks, latency * (0.5 if share is None else share) * blocks + cycles * factor * blocks


# --- the five criteria (L2833-2905) -------------------------------------------------------------------------------------
def failed_criterion(values: Sequence[float], rows: int, cols: int, sm: int, intensity: float) -> str | None:
    """`should_use_sparse_variant`: the first of its five criteria that fails, None where it takes the sparse product.

    intensity: FLOP a byte. Costs are compared as the text says, which its own comparison and sums do not.
    """
    if not is_2_4_sparse(values):
        return "pattern"
    if compare(sparse_cost(rows, cols, sm), dense_cost(rows, cols, sm)) <= 0:
        return "cost"
    if min(rows, cols) < minimum_size(sm):
        return "size"
    if intensity > 10.0:
        return "intensity"
    return "target" if sm < 80 else None


# --- the database of patterns (L2945-3035) ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class PatternEntry:
    """40 bytes: a signature at 0, then two costs at 8 and 24, each a mantissa of 8 bytes, an exponent of 2, 6 of padding."""

    signature: int
    latency: CostValue
    throughput: CostValue


ENTRY_FIELDS = {"signature": 8, "latency": 8 + 2, "padding1": 6, "throughput": 8 + 2, "padding2": 6}
"""Bytes of its members in order."""


@dataclass(slots=True)
class PatternDatabase:
    """A table with linear probing; signature 0 is an empty place. `compute_hash` has no code there: the signature itself."""

    capacity: int
    places: list[PatternEntry | None] = field(init=False)

    def __post_init__(self) -> None:
        self.places = [None] * self.capacity

    def insert(self, entry: PatternEntry) -> None:
        index = entry.signature % self.capacity
        while self.places[index] is not None:
            index = (index + 1) % self.capacity
        self.places[index] = entry

    def lookup(self, signature: int) -> PatternEntry | None:
        """`lookup_pattern`. Raises RecursionError after a whole turn, where the document's loop has no end."""
        index = signature % self.capacity
        for _ in range(self.capacity):
            found = self.places[index]
            if found is None or found.signature == signature:
                return found
            index = (index + 1) % self.capacity
        raise RecursionError("every place is taken by another signature: the loop has no end")


# --- Example 3 (L3735-3951) ---------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class InstructionPattern:
    """An entry of `PATTERN_DB`."""

    mnemonic: str
    input_type: str
    sm: int
    sparse: bool
    cost: CostValue


PATTERN_DB = (
    InstructionPattern("tcgen05.mma.m64n32k32.f32.f16.f16.f32", "FP16", 100, False, cost(2 << 56)),
    InstructionPattern("tcgen05.mma.m64n32k32.f32.f16.f16.f32.sparse", "FP16", 100, True, cost((2 << 56) // 4)),
    InstructionPattern("tcgen05.mma.m64n32k32.f32.e4m3.e4m3.f32", "FP8", 100, False, cost(1 << 56)),
    InstructionPattern("tcgen05.mma.m64n32k32.f32.e4m3.e4m3.f32.sparse", "FP8", 100, True, cost((1 << 56) // 8)),
)


def select_instruction(
    precision: str, has_sparsity: bool, sm: int, *, literal: bool = False
) -> InstructionPattern | None:
    """`select_instruction` (L3841-3909). literal: compare as its code does on an x86; else as its text says."""
    best, best_cost = None, INFINITY
    for pattern in PATTERN_DB:
        if pattern.sm > sm or pattern.input_type != precision or (pattern.sparse and not has_sparsity):
            continue
        order = literal_compare(pattern.cost, best_cost, x86=True) if literal else compare(pattern.cost, best_cost)
        if order > 0:
            best, best_cost = pattern, pattern.cost
    return best


def first_comparison_is_undefined() -> bool:
    """Whether C leaves the first comparison of `select_instruction` undefined: against INFINITY, by a shift of -1."""
    try:
        literal_compare(PATTERN_DB[0].cost, INFINITY)
    except Undefined:
        return True
    return False


def compile_mma_operation(precision: str, has_sparsity: bool, sm: int) -> str:
    """The line that `compile_mma_operation` prints (L3915-3951). `cost_to_float` has no code there: relative to 2^56."""
    found = select_instruction(precision, has_sparsity, sm)
    if found is None:
        return "No matching pattern found, using fallback"
    return f"Selected: {found.mnemonic} (cost: {float(found.cost.value) / 2**56:.2f})"


def emitted_family(sm: int) -> str:
    """`emit_sparse_instruction` (L3057-3093): what it emits for a target."""
    return "tcgen05" if sm >= 100 else "warpgroup" if sm >= 90 else "mma.sync" if sm >= 80 else "dense"


# --- Example 2 (L3429-3711) ---------------------------------------------------------------------------------------------
METADATA_COST = {80: 0.25, 90: 0.1, 100: 0.05}
"""`metadata_cost` of its `get_cost_model`."""


def example_2(side: int, sm: int) -> tuple[float, float, float]:
    """`print_cost_comparison`: dense and sparse cycles of a square matrix, and the speedup."""
    blocks, latency = side * side // 4, LATENCY[sm]
    dense = blocks * latency * COEFFICIENTS[sm]["compute"]
    sparse = blocks * latency * COEFFICIENTS[sm]["sparsity"] + blocks * latency * METADATA_COST[sm]
    return dense, sparse, dense / sparse


EXAMPLE_2_PRINTED = {
    80: {64: (4096.00, 3072.00, 1.33), 256: (65536.00, 49152.00, 1.33), 1024: (1048576.00, 786432.00, 1.33)},
    90: {64: (3072.00, 1843.20, 1.67), 256: (49152.00, 29491.20, 1.67), 1024: (786432.00, 471859.20, 1.67)},
    100: {64: (2048.00, 563.20, 3.64), 256: (32768.00, 9011.20, 3.64), 1024: (524288.00, 144179.20, 3.64)},
}
"""What the document says that Example 2 prints."""
