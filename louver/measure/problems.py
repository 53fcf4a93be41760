"""The problems that are measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from louver.formats.dtypes import element_type
from louver.frontend.problem import Problem, modes_of
from louver.measure.report.gemm import compressed_bytes, types_of
from louver.measure.suites import Shape


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """`linear`: x [n, k] @ w [m, k].T -> [n, m], w sparse, 2:4 or 1:2 (`lifted_pattern`); sizes in elements. dtype: of the operands.

    out: the result's element type, one of `OUTPUTS`; "auto" becomes the first. accumulate: how our product accumulates, one of
    `ACCUMULATE`; anything but "auto" is reported apart.
    """

    m: int
    n: int
    k: int
    dtype: str
    out: str = "auto"
    accumulate: str = "auto"

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise ValueError(f"sizes are at least 1, got {self.m}x{self.n}x{self.k}")
        _known(self.dtype)
        if self.out not in ("auto", *OUTPUTS[self.dtype]):
            raise ValueError(
                f"results of {self.dtype} are measured as {' or '.join(OUTPUTS[self.dtype])}, got {self.out!r}"
            )
        if self.out == "auto":
            object.__setattr__(self, "out", OUTPUTS[self.dtype][0])
        modes = ("auto", *(mode for mode in modes_of(self.dtype) if mode in ACCUMULATE))
        if self.accumulate not in modes:
            raise ValueError(
                f"products of {self.dtype} are measured with accumulate {' or '.join(modes)}, got "
                f"{self.accumulate!r}: choose other element types with --dtype"
            )
        self._check_multiples()

    def _check_multiples(self) -> None:
        """A contender that refuses a problem leaves nothing to compare with."""
        whole = WEIGHT_MULTIPLE[self.bits]
        if self.m % whole or self.k % whole:
            raise ValueError(
                f"measured M and K are multiples of {whole} for {self.dtype}, as cuSPARSELt needs, got {self.m}x{self.n}x{self.k}"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(M, N, K): rows of the sparse weight, tokens, inner size."""
        return self.m, self.n, self.k

    @property
    def product(self) -> Problem:
        """The library's problem."""
        return Problem("linear", self.dtype, self.dtype, self.out, accumulate=self.accumulate)

    @property
    def padded_n(self) -> int:
        """Tokens with those of zeros that cuSPARSELt needs."""
        return -(-self.n // TOKENS_MULTIPLE) * TOKENS_MULTIPLE

    @property
    def bits(self) -> int:
        """Bits of an operand's element."""
        return element_type(self.dtype).bits

    @property
    def compressed_bytes(self) -> int:
        """Bytes of the compressed weight."""
        return compressed_bytes(self.m, self.k, self.dtype)

    @property
    def moved_bytes(self) -> int:
        """Bytes that a sparse product reads and writes at least: weight, tokens and result, each once."""
        return self.compressed_bytes + self.n * (self.k * self.bits + self.m * element_type(self.out).bits) // 8

    def __str__(self) -> str:
        return f"{self.m}×{self.n}×{self.k} {types_of(self.dtype, self.out, self.accumulate)}"


OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "f16": ("f16",),
    "bf16": ("bf16",),
    "e4m3": ("f16",),
    "s8": ("f16", "s32"),
    "f32": ("f32",),
}
"""Element types of operands, and those of the results that each is measured with, every one a row of its own.

s8: PyTorch's dense product writes s32 only, and cuSPARSELt is known by its f16 results. f32: multiplied as tf32 by all.
"""

ACCUMULATE = ("auto", "f16", "promoted")
"""Ways to accumulate that are measured, each into a record of its own."""

OTHER_NAMES: Mapping[str, str] = {"int8": "s8"}
"""The users' word for a type, and its name."""

WEIGHT_MULTIPLE: Mapping[int, int] = {32: 8, 16: 16, 8: 32}
"""The numbers that cuSPARSELt wants M and K to be multiples of, by bits of an element."""

FEW_TOKENS = 256
"""Tokens up to which dependent launches are measured: they are for kernels that are short."""

TOKENS_MULTIPLE = 16
"""The number that cuSPARSELt wants N to be a multiple of."""


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Shapes from text such as "4096x8192x8192,4096x4096x4096" (M×N×K). Raises ValueError with the rule."""
    return tuple(_shape(part.strip()) for part in text.split(","))


def parse_dtypes(text: str) -> tuple[str, ...]:
    """Element types from text such as "f16,int8". Raises ValueError with the rule."""
    given = (part.strip() for part in text.split(","))
    return tuple(_known(OTHER_NAMES.get(name, name)) for name in given)


def _known(dtype: str) -> str:
    if dtype not in OUTPUTS:
        raise ValueError(f"measured element types are {', '.join([*OUTPUTS, *OTHER_NAMES])}, got {dtype!r}")
    return dtype


def _shape(text: str) -> Shape:
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise ValueError(f"a shape is MxNxK, such as 4096x8192x8192, got {text!r}")
    m, n, k = (int(part) for part in parts)
    return m, n, k
