"""Every call of the kernels that are written as people write them, by Triton or from kept texts."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from louver.measure.forms import Call, Sizes
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.jit import KeptSource
from support.triton.written_batch_cases import BATCHES
from support.triton.written_cases import KEPT, LARGE, SMALL, TILES, WRITTEN, Written

EVERY = WRITTEN | BATCHES
"""Cases by name."""

SIZES = {"large": LARGE, "small": SMALL}

KEPT_CALLS = sorted((path.stem, path.parent.name) for path in KEPT.glob("*/*.ttir"))
"""Cases whose small calls have a text, and the version of Triton that made it."""


def call_of(name: str, sizes: Sizes) -> Call:
    """The call, with the same data in every run."""
    return EVERY[name].call(np.random.default_rng(zlib.crc32(name.encode())), sizes)


def with_triton(known: dict[str, Any]) -> dict[str, Any]:
    """Constants such as "tl.float32" as Triton's own, which must be installed."""
    import triton.language as tl

    return {
        name: getattr(tl, value.removeprefix("tl.")) if isinstance(value, str) and value.startswith("tl.") else value
        for name, value in known.items()
    }


def kept_call(name: str, version: str) -> JitKernel:
    """The kernel of a small call, from its text."""
    text = (KEPT / version / f"{name}.ttir").read_text(encoding="utf-8")
    names = tuple(call_of(name, SMALL).arguments)
    return JitKernel(
        KeptSource(name, text, names, tuple(EVERY[name].constants)), Hints.of(hints_of(EVERY[name], "small"))
    )


def hints_of(case: Written, size: str) -> dict[str, str]:
    """Small tiles go by register tiles: a product of them would have tiles of its own."""
    return {"family": TILES} if case.families[list(SIZES).index(size)] == TILES else {}
