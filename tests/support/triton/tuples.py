"""A call with tuples: its arguments, their types as Triton has them, and the kept text; no Triton needed to read this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

import louver
from louver.frontend.ttir import read_ttir
from louver.frontend.tuples import arrange
from support.jit import KeptSource
from support.triton.cases import BASE, Case, kept
from support.triton.tile_runs import Expected

NAME = "tuple_arguments"

PARAMETERS = ("d", "operands", "sizes", "strides", "scale")

LARGE, SMALL = {"BM": 128, "BN": 64, "BK": 64}, {"BM": 32, "BN": 32, "BK": 64}


class Sizes(NamedTuple):
    """Sizes by name."""

    rows: int
    columns: int
    depth: int


TUPLES = Case(
    NAME,
    {
        "d": "*fp16",
        "operands.0": "*fp16",
        "operands.1": "*fp16",
        **dict.fromkeys(("sizes.rows", "sizes.columns", "sizes.depth"), "i32"),
        **dict.fromkeys(("strides.0.0", "strides.1.0.0", "strides.1.1.0"), "i32"),
        "scale.0": "fp32",
    },
    {"strides.0.1": 1, "strides.1.0.1": 1, "strides.1.1.1": 1, **LARGE},
    {"operands.0": "2:4"},
    module="tuple_kernels",
)


@dataclass(frozen=True)
class KeptTuples(KeptSource):
    """The kernel as its kept text."""

    def tile_ir(
        self, signature: Mapping[str, str], constexprs: Mapping[str, Any], sparse: Mapping[str, str], target: str
    ) -> ModuleOp:
        self.asked.append((dict(signature), dict(constexprs)))
        types = {**signature, **dict.fromkeys(constexprs, "constexpr")}
        return read_ttir(self.text, names=arrange(self.order, types).passed)


def tuple_source(version: str = BASE, native: Any = None) -> KeptTuples:
    return KeptTuples(NAME, kept(NAME, version), (*PARAMETERS, *LARGE), tuple(LARGE), native)


@dataclass(frozen=True)
class TupleCall(Expected):
    """The result of a call. grid, arguments: of it. out: what it stores to."""

    grid: tuple[int, int]
    arguments: dict[str, Any]
    out: NDArray[Any]


def tuple_call(rng: np.random.Generator, m: int, n: int, k: int, tile: dict[str, int] | None = None) -> TupleCall:
    """A call on host arrays, its output poisoned."""
    tile = LARGE if tile is None else tile
    a = louver.prune(rng.standard_normal((m, k), np.float32).astype(np.float16), "2:4")
    b = rng.standard_normal((k, n), np.float32).astype(np.float16)
    out = np.full((m, n), np.nan, np.float16)
    arguments: dict[str, Any] = {
        "d": out,
        "operands": (louver.compress(a, "2:4"), b),
        "sizes": Sizes(m, n, k),
        "strides": ((n, 1), ((k, 1), (n, 1))),
        "scale": (0.5,),
        **tile,
    }
    wide = a.astype(np.float64), b.astype(np.float64)
    expected, magnitude = 0.5 * (wide[0] @ wide[1]), np.abs(wide[0]) @ np.abs(wide[1])
    bound = 2.0**-11 * np.abs(expected) + 2.0**-24 * (2 + k / 4) * magnitude + 1e-30
    return TupleCall(expected, bound, (-(-m // tile["BM"]), -(-n // tile["BN"])), arguments, out)
