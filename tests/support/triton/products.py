"""The kernels' operands and results: random data, and what each kernel computes, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.compile.compiled import CompiledProduct
from louver.compile.pipeline import compile_tile_ir
from louver.compile.plan.schedule import Schedule, steps_of
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.library.numerics import accumulation, compare
from support.compiled import read_copy, remembered
from support.triton.cases import CASES, kept

Array = NDArray[Any]

SCHEDULE = Schedule.of(tile_m=128, tile_n=64, tile_k=64, stages=3)


@remembered
def compiled(name: str, **options: Any) -> CompiledProduct:
    """A kept kernel, compiled for its own tile."""
    step = CASES[name].constexprs["BK"]
    # All kept products have operands of 16 or 8 bits, of the same steps.
    schedule = SCHEDULE.changed(tile_k=step if step in steps_of("f16") else SCHEDULE.tile.k, **options)
    return compile_tile_ir(read_copy(kept(name)), schedule)


@dataclass(frozen=True)
class Given:
    """a: [M, K], pruned; of a gated pair both, one below the other. dense: b as the kernel reads it. reads: the epilogue's."""

    name: str
    product: CompiledProduct
    a: Array
    b: Array
    reads: dict[str, Any]

    @property
    def parts(self) -> list[SparseTensor]:
        """The sparse arguments."""
        return [louver.compress(part, "2:4") for part in np.split(self.a, 2 if self.product.nest.gated else 1)]

    @property
    def s(self) -> SparseTensor:
        """The sparse operand."""
        return louver.gated(*self.parts) if self.product.nest.gated else self.parts[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, of one part, N and K."""
        return self.a.shape[0] // len(self.parts), self.b.shape[1], self.a.shape[1]

    @property
    def dense(self) -> Array:
        return np.ascontiguousarray(self.b.T if self.product.nest.b.k_major else self.b)

    def assert_close(self, y: Array) -> None:
        """`y` [M, N] keeps the bound of `louver.library.numerics` in every element."""
        a, b = self.a.astype(np.float64), self.b.astype(np.float64)
        total, magnitude = a @ b, np.abs(a) @ np.abs(b)
        match CASES[self.name].kernel:
            case "grouped_pointers":
                reference = np.where(total >= 0, total, total * float(np.float32(0.01)))
            case "indexed_pointers":
                scale, bias = self.reads["scale"].astype(np.float64)[:, None], self.reads["bias"].astype(np.float64)
                reference = np.clip(total * scale + bias, -100, 100)
                magnitude = magnitude * np.abs(scale) + np.abs(bias)
            case "eight_bit_blocks":
                # Slopes of x · sigmoid(x) are at most 1.1; the sigmoid itself is as exact as its exponential.
                reference, magnitude = total / (1 + np.exp(-total)), 1.1 * magnitude + np.abs(total)
            case "weight_descriptors":
                bias = self.reads["bias"].astype(np.float64)[:, None]
                reference, magnitude = np.maximum(total + bias, 0), magnitude + np.abs(bias)
            case "gated_layer":
                (gate, up), (one, two) = np.split(total, 2), np.split(magnitude, 2)
                factor = gate / (1 + np.exp(-gate))
                reference = factor * up
                magnitude = (1.1 * one + np.abs(gate)) * (np.abs(up) + 1) + (np.abs(factor) + 1) * two
            case "gated_pointers":
                (gate, up), (one, two) = np.split(total, 2), np.split(magnitude, 2)
                reference = np.maximum(gate, 0) * up + gate
                magnitude = one * (np.abs(up) + 2) + (np.abs(gate) + 1) * two
            case "persistent_groups":
                reference, magnitude = 0.5 * np.minimum(total, self.reads["limit"]), 0.5 * magnitude
            case _:
                reference = total
        assert np.abs(reference).max() > 0.01
        nest = self.product.nest
        how = accumulation(nest.a.element, floating=True)
        agreement = compare(y, reference, magnitude, a.shape[1], nest.store.element, how)
        assert agreement.ok, agreement


def given(rng: np.random.Generator, name: str, product: CompiledProduct, m: int, n: int, k: int) -> Given:
    """Random operands for a kernel, of sizes near these that it takes."""
    m, n, k = CASES[name].fitting(m, n, k)
    element = product.nest.a.element
    numpy = element_type(element).numpy

    def draw(*shape: int) -> Array:
        if element == "s8":
            return rng.integers(-128, 128, shape).astype(numpy)
        return rng.standard_normal(shape, np.float32).astype(numpy)

    reads: dict[str, Any] = {"limit": 1.5, "mode": 1}
    reads["scale"] = rng.standard_normal(m, np.float32) / 1000
    reads["bias"] = rng.standard_normal(m if name == "weight_descriptors" else n, np.float32)
    rows = 2 * m if product.nest.gated else m
    return Given(name, product, louver.prune(draw(rows, k), "2:4"), draw(k, n), reads)
