"""Epilogues with random values of what they read, and their products' answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import element_type
from louver.formats.gated import GatedTensor
from louver.formats.tensor import SparseTensor
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem
from louver.library import reference
from louver.library.numerics import accumulation, compare

Array = NDArray[Any]

FULL = Epilogue(
    alpha=True,
    scale="row",
    dense_scale="column",
    dense_bias="f16",
    c="bf16",
    activation="gelu",
    out_scale="tensor",
)
"""Every option at once."""

EPILOGUES: dict[str, Epilogue] = {
    "alpha": Epilogue(alpha=True),
    "scale": Epilogue(scale="tensor", dense_scale="tensor"),
    "scales": Epilogue(scale="row", dense_scale="column"),
    "dense-bias": Epilogue(dense_bias="f32"),
    "c-f16": Epilogue(alpha=True, c="f16"),
    "c-f32": Epilogue(c="f32", activation="relu"),
    "relu": Epilogue(activation="relu"),
    "gelu": Epilogue(activation="gelu"),
    "gelu-tanh": Epilogue(activation="gelu_tanh"),
    "silu": Epilogue(activation="silu", out_scale="number"),
    "full": FULL,
    "gated": Epilogue(activation="silu", gated=True),
    "gated-scaled": Epilogue(
        alpha=True,
        scale="row",
        dense_scale="column",
        dense_bias="bf16",
        activation="gelu",
        gated=True,
        out_scale="tensor",
    ),
    "gated-bilinear": Epilogue(gated=True, scale="tensor"),
}
"""Each option alone, and some together."""


@dataclass(frozen=True)
class FusedOperands:
    """a [M, K] in the order of the kernel's rows; s: what a call takes; b [K, N]; bias [M] or None; reads: `c` as [M, N]."""

    problem: Problem
    a: Array
    s: SparseTensor
    b: Array
    bias: Array | None
    reads: dict[str, Array | float]

    @property
    def options(self) -> dict[str, Any]:
        """The options of a library call; `c` like the output."""
        given: dict[str, Any] = {**self.reads, "activation": self.problem.epilogue.activation}
        if self.bias is not None:
            given["bias"] = self.bias
        if "c" in given and self.problem.kind == "linear":
            given["c"] = np.ascontiguousarray(given["c"].T)
        return given

    @property
    def for_kernel(self) -> dict[str, Array | float]:
        """The arrays that the kernel reads besides the bias."""
        return {name: value for name, value in self.options.items() if name not in ("activation", "bias")}

    @property
    def exact(self) -> tuple[Array, Array]:
        """The result and its magnitude, float64, [M, N]."""
        return reference.exact_product(self.a, self.b, self.bias, self.problem.epilogue, self.reads)

    def assert_close(self, y: Array) -> None:
        """`y` [M, N] keeps the bound in every element."""
        exact, magnitude = self.exact
        rounding = accumulation(self.problem.a, floating=self.problem.epilogue.floating)
        agreement = compare(y, exact, magnitude, self.b.shape[0], self.problem.out, rounding)
        assert agreement.ok, agreement


def fused_operands(rng: np.random.Generator, problem: Problem, m: int, n: int, k: int) -> FusedOperands:
    """Random operands; m: sparse rows (gated: of both weights together). Results are of magnitude 1 or so."""

    def normal(name: str, *shape: int) -> Array:
        element = element_type(name)
        if element.floating:
            return rng.standard_normal(shape, np.float32).astype(element.numpy)
        if not scaled:
            return rng.integers(-1 if name == "s8" else 0, 2, shape).astype(element.numpy)
        limits = np.iinfo(element.numpy)
        return rng.integers(limits.min, limits.max, shape, dtype=element.numpy, endpoint=True)

    epilogue = problem.epilogue
    scaled = epilogue.alpha or epilogue.scale is not None
    pattern = problem.pattern or "2:4"
    a = louver.prune(normal(problem.a, m, k), pattern)
    s = louver.compress(a, pattern)
    if epilogue.gated:
        half = m // 2
        s = louver.gated(louver.compress(a[:half], pattern), louver.compress(a[half:], pattern))
        a = s.dense()
    unit = 1.0 if element_type(problem.a).floating else 1.0 / 8192
    reads: dict[str, Array | float] = {}
    if epilogue.alpha:
        reads["alpha"] = float(np.float32(-0.37 * unit))
        unit = 1.0
    if epilogue.scale is not None:
        shape = () if epilogue.scale == "tensor" else (m,)
        reads["scale"] = (rng.uniform(0.1, 0.5, shape) * unit).astype(np.float32)
    if epilogue.dense_scale is not None:
        reads["dense_scale"] = rng.uniform(0.5, 2, () if epilogue.dense_scale == "tensor" else (n,)).astype(np.float32)
    if epilogue.dense_bias is not None:
        reads["dense_bias"] = normal(epilogue.dense_bias, n)
    if epilogue.c is not None:
        reads["c"] = normal(epilogue.c, m, n)
        reads["beta"] = -1.5
    if epilogue.out_scale is not None:
        reads["out_scale"] = np.asarray(3.25, np.float32) if epilogue.out_scale == "tensor" else 3.25
    bias = normal(problem.bias_element, m) if problem.bias else None
    assert isinstance(s, GatedTensor) == epilogue.gated
    return FusedOperands(problem, a, s, normal(problem.b, k, n), bias, reads)
