"""Kernels as users write them, each with a call of it: checked at odd sizes on any machine, timed at large ones on a GPU.

A file of forms is a Python module with a tuple `FORMS`. `louver bench kernels PATH` measures the forms of a file or a folder.
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
"""Groups of forms that a record sums up together."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a product, M×N×K in elements, and of the kernel's tile. K's tile may be 0 for kernels without one."""

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
        """Tiles along M and N, in units of tiles."""
        return -(-self.m // self.BM), -(-self.n // self.BN)

    @property
    def flat(self) -> int:
        """The number of all tiles."""
        return self.grid[0] * self.grid[1]


def square(side: int, *tiles: tuple[int, int, int]) -> tuple[Sizes, ...]:
    """Sizes of a product of square matrices, one for each tile of M×N×K."""
    return tuple(Sizes(side, side, side, *tile) for tile in tiles)


@dataclass(frozen=True)
class Draw:
    """Random operands from one generator. element: their type where a call does not name it."""

    rng: np.random.Generator
    element: str = "f16"

    def dense(self, *shape: int, element: str | None = None) -> Array:
        """Normal numbers; integers from -20 to 20 for 8-bit integers."""
        name = element or self.element
        if name in ("s8", "u8"):
            return self.rng.integers(0 if name == "u8" else -20, 20, shape).astype(element_type(name).numpy)
        return self.rng.standard_normal(shape, np.float32).astype(element_type(name).numpy)

    def pruned(self, *shape: int, element: str | None = None) -> Array:
        """The same, pruned along the last axis to the pattern of the element's size."""
        dense = self.dense(*shape, element=element)
        return louver.prune(dense, lifted_pattern(element_type(dense.dtype).name))


@dataclass(frozen=True)
class Call:
    """A launch of a kernel. Every array is dense here, the sparse ones pruned.

    arguments: the kernel's, by name, but those that `Form.call` gives. expected: makes the outputs in float64. outputs: names of arrays
    that the kernel writes. sparse: names of arguments that may be compressed. grid: by default a program for each tile of the sizes.
    operations: of the dense kernel, by default those of one product of the sizes.
    blocks: shapes of blocks of the arguments that become tensor descriptors. zeroed: outputs are 0 before the launch, not NaN.
    library: the same product of the dense arguments, by the library that they belong to; None where it has no one operation for it.
    axes: sparse axes that are not the last one, by argument.
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
    """A kernel and calls of it.

    kernel: what `triton.jit` returns. small: odd sizes with tails, for checks. large: sizes to time, one for each tile.
    kind: one of `KINDS`. constants: constexprs beside the tile's. tolerance: of the largest output, as a part of it.
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
        """The call at these sizes, the same for the same seed: with M, N and K where the kernel takes them, its tile and constants."""
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
    """Arguments for a launch, and the outputs among them.

    sparse: compress the sparse arguments, else leave them dense. place: puts an array where the launch finds it.
    """
    found: dict[str, Any] = {}
    for name, value in (compressed(call) if sparse else call).arguments.items():
        if name in call.outputs:
            value = np.full_like(value, 0 if call.zeroed else _poison(value))
        found[name] = place(cast("Array", value)) if isinstance(value, np.ndarray) else value
    outs = {name: found[name] for name in call.outputs}
    for name, block in call.blocks.items():
        found[name] = TensorDescriptor.from_tensor(found[name], list(block))
    return found, outs


def _poison(value: Array) -> Any:
    return -77 if value.dtype.kind in "iu" else np.nan
