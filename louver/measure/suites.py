"""Lists of shapes to measure, by name."""

from __future__ import annotations

from collections.abc import Mapping

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
