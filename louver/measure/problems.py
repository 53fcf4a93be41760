"""Problems that benchmarks measure, and suites of their shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from louver.formats.dtypes import element_type
from louver.frontend.problem import Problem, modes_of
from louver.measure.report.gemm import compressed_bytes, types_of

Shape = tuple[int, int, int]
"""M, N, K: rows of the sparse weight, tokens, inner size."""

PUBLISHED: tuple[Shape, ...] = (
    (4096, 8192, 8192),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (6144, 8192, 4096),
    (28672, 4096, 4096),
    (4096, 4096, 14336),
    (4096, 1024, 4096),
)

SUSTAINED: tuple[Shape, ...] = (PUBLISHED[0], PUBLISHED[2], PUBLISHED[4])
"""Shapes that are also measured under sustained load."""

WEIGHTS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "Llama 3 8B": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "Llama 3 70B": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
    "Qwen2.5 7B": ((4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)),
    "Qwen2.5 32B": ((7168, 5120), (5120, 5120), (55296, 5120), (5120, 27648)),
    "Gemma 2 9B": ((8192, 3584), (3584, 4096), (28672, 3584), (3584, 14336)),
    "Phi-3 mini": ((9216, 3072), (3072, 3072), (16384, 3072), (3072, 8192)),
    "Llama 3.2 1B": ((3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192)),
    "BERT large": ((3072, 1024), (1024, 1024), (4096, 1024), (1024, 4096)),
    "Llama 2 7B": ((12288, 4096), (4096, 4096), (22016, 4096), (4096, 11008)),
    "Yi 34B": ((9216, 7168), (7168, 7168), (40960, 7168), (7168, 20480)),
    "StableLM 3B": ((7680, 2560), (2560, 2560), (13824, 2560), (2560, 6912)),
}
"""Weights [M, K] of a layer: joined inputs and output of attention, joined inputs and output of the feed-forward."""

FITTED = (
    "Llama 3 8B",
    "Llama 3 70B",
    "Qwen2.5 7B",
    "Qwen2.5 32B",
    "Gemma 2 9B",
    "Phi-3 mini",
    "Llama 3.2 1B",
    "BERT large",
)
"""The choice of schedules is fitted to measured times of these models. The other models are held out."""

STORED = ((28672, 4096), (18944, 3584), (8192, 8192), (4096, 14336), (4096, 4096))
"""Weights [M, K] of several sizes in memory, for few tokens."""

UNEVEN: tuple[Shape, ...] = (
    (36864, 33, 4608),
    (36864, 1030, 4608),
    (18176, 65, 4544),
    (18176, 300, 4544),
    (14336, 17, 4096),
    (14336, 777, 4096),
    (8960, 129, 1536),
    (8960, 33, 1536),
    (6400, 100, 1600),
    (6400, 1030, 1600),
    (2112, 65, 7168),
    (2112, 300, 7168),
)
"""Weights of Gemma 2 27B, Falcon 7B, Mistral 7B, Qwen2.5 1.5B, GPT-2 XL and DeepSeek-V3. No tile divides their numbers
of tokens, and no schedule is fitted to them.
"""

SUITES: Mapping[str, tuple[Shape, ...]] = {
    "published": PUBLISHED,
    "quick": (PUBLISHED[0], PUBLISHED[-1]),
    "models": tuple(dict.fromkeys((m, n, k) for n in (1024, 4096) for weights in WEIGHTS.values() for m, k in weights)),
    "tokens": tuple((m, n, k) for m, k in STORED for n in (1, 2, 4, 8, 16, 32, 64, 128, 256)),
    "uneven": UNEVEN,
}
"""published: large shapes that other work measures. quick: two of them. models: `WEIGHTS` with 1,024 and 4,096 tokens.
tokens: `STORED` with 1 to 256 tokens. uneven: `UNEVEN`.
"""


def suite(name: str) -> tuple[Shape, ...]:
    """The shapes of a suite. Raises ValueError for an unknown name."""
    if name not in SUITES:
        raise ValueError(f"suites are {', '.join(SUITES)}, got {name!r}")
    return SUITES[name]


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """`linear`: x [n, k] @ w [m, k].T -> [n, m], with w sparse 2:4 or 1:2 (`lifted_pattern`). Sizes in elements.

    dtype: of the operands. out: of the result, one of `OUTPUTS`; "auto" becomes the first.
    accumulate: of Louver's product, one of `ACCUMULATE`. Each value has separate records.
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
        """Check the rules of all contenders: a contender that refuses the problem leaves nothing to compare with."""
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
        return Problem("linear", self.dtype, self.dtype, self.out, accumulate=self.accumulate)

    @property
    def padded_n(self) -> int:
        """Tokens, rounded up to the multiple that cuSPARSELt needs."""
        return -(-self.n // TOKENS_MULTIPLE) * TOKENS_MULTIPLE

    @property
    def bits(self) -> int:
        return element_type(self.dtype).bits

    @property
    def compressed_bytes(self) -> int:
        return compressed_bytes(self.m, self.k, self.dtype)

    @property
    def moved_bytes(self) -> int:
        """Least bytes that a sparse product reads and writes: weight, tokens and result, each once."""
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
"""Measured result types by element type of the operands. Each result type is a separate row.

s8: PyTorch's dense product writes only s32, and cuSPARSELt is known for f16 results. f32: all multiply it as tf32.
"""

ACCUMULATE = ("auto", "f16", "promoted")
"""Measured ways to accumulate. Each has a separate record."""

OTHER_NAMES: Mapping[str, str] = {"int8": "s8"}
"""Users' names of element types."""

WEIGHT_MULTIPLE: Mapping[int, int] = {32: 8, 16: 16, 8: 32}
"""cuSPARSELt needs M and K to be multiples of these numbers, by bits of an element."""

FEW_TOKENS = 256
"""Greatest number of tokens for which dependent launches are measured. They are for short kernels."""

TOKENS_MULTIPLE = 16
"""cuSPARSELt needs N to be a multiple of this number."""


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Shapes M×N×K from text such as "4096x8192x8192,4096x4096x4096". Raises ValueError for other text."""
    return tuple(_shape(part.strip()) for part in text.split(","))


def parse_dtypes(text: str) -> tuple[str, ...]:
    """Element types from text such as "f16,int8". Raises ValueError for other text."""
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
