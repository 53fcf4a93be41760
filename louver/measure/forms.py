"""Forms: users' kernels, each with a call. Checked at odd sizes on any machine, timed at large sizes on a GPU.

A file of forms is a Python module with a tuple `FORMS`. `louver bench kernels PATH` measures such files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import element_type
from louver.formats.pattern import lifted_pattern
from louver.user.descriptor import TensorDescriptor

Array = NDArray[Any]


def wide(array: Array) -> Array:
    """The array in float64."""
    return array.astype(np.float64)


KINDS = ("product", "8-bit floats", "block scales", "experts", "attention", "other")
"""Groups of forms for the summary of a record."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a product, M×N×K in elements, and of the kernel's tile. BK may be 0 for kernels that have no K tile."""

    m: int
    n: int
    k: int
    BM: int
    BN: int
    BK: int

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k, self.BM, self.BN) < 1 or self.BK < 0:
            raise ValueError(f"sizes and tiles are at least 1, got {self}")

    @property
    def tile(self) -> dict[str, int]:
        return {"BM": self.BM, "BN": self.BN, "BK": self.BK}

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.m // self.BM), -(-self.n // self.BN)

    @property
    def flat(self) -> int:
        return self.grid[0] * self.grid[1]


def square(side: int, *tiles: tuple[int, int, int]) -> tuple[Sizes, ...]:
    """Sizes of a product of square matrices, one for each tile M×N×K."""
    return tuple(Sizes(side, side, side, *tile) for tile in tiles)


@dataclass(frozen=True)
class Draw:
    """Random operands from one generator. element: the default element type."""

    rng: np.random.Generator
    element: str = "f16"

    def dense(self, *shape: int, element: str | None = None) -> Array:
        """Normal numbers. For 8-bit integers: -20 to 19, unsigned 0 to 19."""
        name = element or self.element
        if name in ("s8", "u8"):
            return self.rng.integers(0 if name == "u8" else -20, 20, shape).astype(element_type(name).numpy)
        return self.rng.standard_normal(shape, np.float32).astype(element_type(name).numpy)

    def pruned(self, *shape: int, element: str | None = None) -> Array:
        """The same, pruned along the last axis to the pattern that tensor cores lift for this element size."""
        dense = self.dense(*shape, element=element)
        return louver.prune(dense, lifted_pattern(element_type(dense.dtype).name))


@dataclass(frozen=True)
class Call:
    """A launch of a kernel. All arrays are dense here; the sparse operands are pruned.

    arguments: by name, without those that `Form.call` adds. expected: makes the outputs in float64.
    outputs: names of arrays that the kernel writes. sparse: names of arguments that may be compressed.
    grid: default: one program for each tile. operations: of the dense kernel; default: those of one product.
    blocks: block shapes of the arguments that become tensor descriptors. zeroed: outputs start as 0, not as NaN.
    library: the same product by the library of the dense arguments; None if the library has no single call for it.
    axes: sparse axes by argument, other than the last axis.
    """

    arguments: Mapping[str, Any]
    expected: Callable[[], dict[str, Array]]
    outputs: tuple[str, ...] = ("y",)
    sparse: tuple[str, ...] = ("w",)
    grid: tuple[int, ...] = ()
    operations: float = 0.0
    blocks: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    zeroed: bool = False
    library: Callable[[Mapping[str, Any]], Any] | None = None
    axes: Mapping[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        missing = [name for name in (*self.sparse, *self.outputs, *self.blocks) if name not in self.arguments]
        if missing:
            raise ValueError(f"a call's arrays are among its arguments, got none named {', '.join(missing)}")


@dataclass(frozen=True)
class Form:
    """A kernel and its calls.

    kernel: from `triton.jit`. small: odd sizes with tails, for checks. large: sizes to time, one for each tile.
    kind: one of `KINDS`. constants: constexprs other than the tile's. tolerance: as a fraction of the largest output.
    """

    name: str
    kernel: Any
    build: Callable[[Draw, Sizes], Call]
    small: Sizes
    large: tuple[Sizes, ...]
    kind: str = "product"
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tolerance: float = 2.0**-7

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a form's kind is one of {', '.join(KINDS)}, got {self.kind!r}")

    def call(self, seed: int, sizes: Sizes) -> Call:
        """The call at these sizes, with the tile, the constants, and the sizes that the kernel takes. Equal seeds give
        equal data.
        """
        made = self.build(Draw(np.random.default_rng(seed)), sizes)
        given = {"M": sizes.m, "N": sizes.n, "K": sizes.k, **made.arguments, **sizes.tile}
        taken = {
            name: value for name, value in given.items() if name in self.kernel.arg_names or name in made.arguments
        }
        operations = made.operations or 2.0 * sizes.m * sizes.n * sizes.k
        return replace(made, arguments={**taken, **self.constants}, grid=made.grid or sizes.grid, operations=operations)


def compressed(call: Call) -> Call:
    """The call with its sparse arguments compressed."""
    made = {
        name: louver.compress(
            call.arguments[name],
            lifted_pattern(element_type(call.arguments[name].dtype).name),
            axis=call.axes.get(name, -1),
        )
        for name in call.sparse
    }
    return replace(call, arguments={**call.arguments, **made})


def bind(call: Call, *, sparse: bool, place: Callable[[Array], Any] = np.copy) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of a launch, and its outputs. sparse: compress the sparse arguments. place: copies an array for the
    launch.
    """
    found: dict[str, Any] = {}
    for name, value in (compressed(call) if sparse else call).arguments.items():
        if name in call.outputs:
            value = np.full_like(value, 0 if call.zeroed else -77 if value.dtype.kind in "iu" else np.nan)
        found[name] = place(cast("Array", value)) if isinstance(value, np.ndarray) else value
    outs = {name: found[name] for name in call.outputs}
    for name, block in call.blocks.items():
        found[name] = TensorDescriptor.from_tensor(found[name], list(block))
    return found, outs
