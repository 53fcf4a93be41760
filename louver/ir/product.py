"""A GEMM-shaped kernel as plain records: operands, tile, epilogue and store.

`louver.compile.plan.nest.read_nest` reads tile IR into a `ProductNest`. The generator makes schedule IR from it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from louver.formats.pattern import LIFTED_PATTERNS, Pattern
from louver.ir.conditions import NO_CONDITIONS, Conditions
from louver.ir.polynomial import Size
from louver.isa.rule import RuleError
from louver.isa.wgmma import TRANSPOSABLE


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a kernel: its name, and its type in tile IR (such as `!tt.ptr<f16>` or `i32`)."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class EntryIndex:
    """An array with the batch entry of each tile.

    Element t of `argument`, "s32" or "s64", is the entry of tile t along an axis of the product.
    """

    argument: str
    element: Literal["s32", "s64"]
    axis: Literal["m", "n"]


@dataclass(frozen=True, slots=True)
class Batch:
    """The entries of an array along a first axis.

    extent: the number of entries; None if the kernel does not give it. Then it is the number in the tensor.
    stride: elements between entries; dense elements for a sparse operand.
    index: the array with the entry of each tile; None if the entry is the number of the product in a batch.
    """

    extent: Size | None
    stride: Size
    index: EntryIndex | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows of the dense operand by which a row of the left operand is multiplied. By default these are all rows.

    indexed: they are the rows that a list names. The rows of a window share the list (N:M@L).
    lifted: metadata maps stored values to their columns (2:4), or to the columns of the list (V:N:M).
    """

    indexed: bool = False
    lifted: bool = False


@functools.lru_cache(maxsize=256)
def selection_of(pattern: str | None) -> Selection:
    """The selection of a pattern. pattern: None for a dense operand."""
    if pattern is None:
        return Selection()
    *outer, inner = Pattern.parse(pattern).levels
    lifted = str(inner) in LIFTED_PATTERNS
    return Selection(indexed=bool(outer) or not lifted, lifted=lifted)


Unit: TypeAlias = Literal["wgmma", "fma"]
"""The unit that multiplies: tensor cores ("wgmma"), which read f32 as tf32, or CUDA cores ("fma"), which multiply f32
itself.
"""


def unit_of(pattern: str | None, element: str) -> Unit:
    """The unit for a left operand with this pattern and element type."""
    selection = selection_of(pattern)
    return "fma" if element == "f32" and selection.indexed and not selection.lifted else "wgmma"


def turns(pattern: str | None, element: str) -> bool:
    """Whether gathered rows of K of this element type are turned before the products.

    Tensor cores read such types only K-major.
    """
    indexed = selection_of(pattern).indexed
    return indexed and unit_of(pattern, element) == "wgmma" and element not in TRANSPOSABLE


@dataclass(frozen=True, slots=True)
class Load:
    """An operand of the product, read tile by tile from global memory.

    argument: the name of the pointer.
    element: the name of the element type.
    pattern: the pattern of a sparse operand along K, such as "2:4", or None.
    extent: elements along the axis that is not summed (M or N).
    depth: elements along K.
    stride: elements between neighbours along the axis that is not contiguous.
    k_major: whether K is contiguous, otherwise M or N.
    batch: the entries; None for an operand that all products of a batch share.
    gated: the two arguments of the user's kernel, gate and up, from which `louver.gated` makes this operand; None for
    one argument.

    For a sparse operand, extent, depth and stride count dense elements.
    """

    argument: str
    element: str
    pattern: str | None
    extent: Size
    depth: Size
    stride: Size
    k_major: bool
    batch: Batch | None = None
    gated: tuple[str, str] | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of the user's kernel for this operand."""
        return (self.argument,) if self.gated is None else self.gated

    @property
    def selection(self) -> Selection:
        """The selection of rows of the other operand."""
        return selection_of(self.pattern)

    @property
    def index(self) -> EntryIndex | None:
        """The array that selects the matrix of each tile; None without one."""
        return None if self.batch is None else self.batch.index


ADDED = ("f32", "f16", "bf16", "s32")
"""Element types to which a store may add."""


@dataclass(frozen=True, slots=True)
class Store:
    """The output: a row-major [M, N] matrix, or [N, M] if `transposed`.

    stride: its row pitch in elements.
    batch: its entries; None for one product.
    add: whether results are added to memory. Each addition is atomic, so several launches may add to one matrix at the
    same time.
    """

    argument: str
    element: str
    stride: Size
    transposed: bool
    batch: Batch | None = None
    add: bool = False

    def __post_init__(self) -> None:
        if self.add and self.element not in ADDED:
            raise RuleError(
                f"sums in memory are of {', '.join(ADDED)}, got {self.element}: convert the tile before it is added"
            )


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The sum of products, in the accumulator type of the nest.

    part: in a gated product, the number of one of the two sums of an output element, 0 or 1. The output has half as
    many rows as the sum. Output row 8i + r has row 16i + r of the sum as part 0, and row 16i + 8 + r as part 1.
    """

    part: Literal[0, 1] = 0


@dataclass(frozen=True, slots=True)
class Constant:
    """A number. It equals only numbers with the same bits, so 0 and -0 are different."""

    value: float
    element: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._facts == other._facts

    def __hash__(self) -> int:
        return hash(self._facts)

    @property
    def _facts(self) -> tuple[str, str]:
        return self.value.hex(), self.element


@dataclass(frozen=True, slots=True)
class Number:
    """An argument of the kernel, passed by value as f32. Integers are only compared with numbers that are exact in f32."""

    argument: str


@dataclass(frozen=True, slots=True)
class LoadScalar:
    """The element to which a pointer argument points."""

    argument: str
    element: str


@dataclass(frozen=True, slots=True)
class LoadVector:
    """Element m ("m") or n ("n") of a contiguous vector argument; zero beyond the vector.

    The vector has the size of that axis of the output.
    """

    argument: str
    element: str
    axis: Literal["m", "n"]


@dataclass(frozen=True, slots=True)
class LoadMatrix:
    """Element (m, n) of an array argument with the sizes of the output; zero outside.

    transposed: whether it is stored as [N, M].
    stride: its row pitch in elements.
    batch: its entries, with the same number as the output's.
    """

    argument: str
    element: str
    stride: Size
    transposed: bool
    batch: Batch | None = None


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise step or choice (`louver.isa.elementwise`) of operands of one element type, rounded to this type.

    Integers are added, subtracted and multiplied, and overflow wraps.
    """

    step: str
    operands: tuple[Expression, ...]

    @classmethod
    def of(cls, step: str, *operands: Expression) -> Apply:
        """The step on these operands."""
        return cls(step, operands)


@dataclass(frozen=True, slots=True)
class Cast:
    """The operand, converted to element type `to`: to nearest even; from floats to integers towards zero."""

    operand: Expression
    to: str


Leaf: TypeAlias = Accumulator | Constant | Number | LoadScalar | LoadVector | LoadMatrix

Expression: TypeAlias = Leaf | Apply | Cast
"""The computation of each element (m, n) of the output, from the sum of products."""


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """The expressions of which an expression is computed."""
    match expression:
        case Apply(operands=operands):
            return operands
        case Cast(operand):
            return (operand,)
        case _:
            return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """The nodes of an expression, operands before users, left before right. A node that is used twice comes twice."""
    for each in parts_of(expression):
        yield from walk(each)
    yield expression


Part: TypeAlias = Literal["kernel", "tiles", "a", "b", "loop", "dot", "store"] | Expression
"""A part of a nest that operations of the user's kernel compute."""


@dataclass(frozen=True, slots=True)
class ProductNest:
    """A kernel that computes each tile of an output as epilogue(sum over K of a · b).

    name: the name of the function.
    arguments: its arguments, in order.
    a, b: the operands [M, K] and [K, N], in the order of indices, for any layout in memory.
    m, n, k: the sizes of the product.
    tile_m, tile_n, tile_k: the sizes of a tile, in elements.
    accumulator: the element type of the sum, which starts at zero.
    epilogue: its element type is that of the store.
    gated: whether the output has M / 2 rows, see `Accumulator`.
    conditions: the facts that a launch must check.
    promoted: the most columns of K that tensor cores sum before f32 additions; None for all of K.
    places: the source locations of its parts, as attributes of xDSL. A record on disk has no places, so it needs no
    xDSL.

    In a batch, the output and at least one operand have entries. If an array selects the entry of `a` for each tile, no
    other array has entries.
    """

    name: str
    arguments: tuple[Argument, ...]
    a: Load
    b: Load
    tile_m: int
    tile_n: int
    tile_k: int
    accumulator: str
    epilogue: Expression
    store: Store
    gated: bool = False
    promoted: int | None = None
    conditions: Conditions = NO_CONDITIONS
    places: Mapping[Part, Any] = field(default_factory=dict[Part, Any], compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.a.depth != self.b.depth:
            raise RuleError(f"both operands must have one K, got {self.a.depth} and {self.b.depth}")
        if self.a.index is not None and (self.b.batch, self.store.batch) != (None, None):
            raise RuleError(
                f"a product whose matrices an array selects has no other batch, got {self.b.batch} and "
                f"{self.store.batch} for b and the output"
            )
        batches = [each.batch for each in (self.a, self.b, self.store) if each.batch is not None]
        extents = {each.extent for each in batches if each.index is None}
        if len(extents) > 1 or (self.store.batch is None) != (not extents):
            raise RuleError(
                f"a, b and the output must have one batch size, got {self.a.batch}, {self.b.batch} and "
                f"{self.store.batch}"
            )
        for size in (self.tile_m, self.tile_n, self.tile_k):
            if size < 1:
                raise RuleError(f"tile sizes are at least 1, got {self.tile_m}×{self.tile_n}×{self.tile_k}")

    @property
    def m(self) -> Size:
        """Rows of the product."""
        return self.a.extent

    @property
    def n(self) -> Size:
        """Columns of the product."""
        return self.b.extent

    @property
    def k(self) -> Size:
        """Elements that are summed."""
        return self.a.depth

    @property
    def turns(self) -> bool:
        """Whether rows of K are gathered, and turned before the products."""
        return turns(self.a.pattern, self.b.element)

    @property
    def batch(self) -> Size | None:
        """The number of products; None for one."""
        return None if self.store.batch is None else self.store.batch.extent


def require_rows(nest: ProductNest) -> None:
    """Raises ValueError unless the left operand has rows along K, a dense one is a single argument, and rows of the right
    operand can be gathered if the left one needs this.
    """
    if not nest.a.k_major:
        raise RuleError(f"the left operand must have K contiguous, got M contiguous in {nest.a.argument}")
    if nest.a.pattern is None and (nest.gated or nest.a.index is not None):
        what = "gate and up, or one matrix for each tile"
        raise RuleError(f"a dense left operand is read in place, got {what}, from {', '.join(nest.a.arguments)}")
    if nest.a.selection.indexed and nest.b.k_major:
        raise RuleError(
            f"of {nest.a.pattern}, rows of K are gathered from a dense operand with N contiguous, got "
            f"{nest.b.element} with K contiguous"
        )
