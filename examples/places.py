"""Where an example runs: on a GPU with PyTorch's arrays, or on the emulator with NumPy's."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.library.numerics import accumulation, compare

Array = NDArray[Any]


@dataclass(frozen=True)
class Place:
    """torch: the module, if kernels run on a GPU."""

    torch: Any = None

    def array(self, values: Array) -> Any:
        """A host array here."""
        return values if self.torch is None else self.torch.from_numpy(values).cuda()

    def empty(self, *shape: int) -> Any:
        """f16, NaN everywhere: what a kernel does not write shows."""
        return self.array(np.full(shape, np.nan, np.float16))

    def run(self, kernel: Any, grid: tuple[int, ...], *args: Any, **constants: Any) -> None:
        """Launch it, or run what would be launched."""
        launch = kernel[grid] if self.torch is not None else kernel.emulate[grid]
        launch(*args, **constants)

    def host(self, array: Any) -> Array:
        """A copy on the host."""
        return array if self.torch is None else array.cpu().numpy()

    def __str__(self) -> str:
        return "the emulator" if self.torch is None else self.torch.cuda.get_device_name()


def find_place() -> Place:
    """A Hopper GPU, if PyTorch and one are here."""
    try:
        import torch
    except ImportError:
        return Place()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        return Place()
    return Place(torch)


def random(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Normal data."""
    return rng.standard_normal((rows, columns), np.float32).astype(np.float16)


def pruned(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """A weight with two of four elements left."""
    return louver.prune(random(rng, rows, columns), "2:4")


def check(result: Array, expected: Array, magnitude: Array, terms: int) -> float:
    """The largest error of f16 results of f16 operands, as a share of what rounding allows.

    expected: float64. magnitude: the same of absolute values. terms: of each sum. Raises ArithmeticError above 1.
    """
    found = compare(result, expected, magnitude, terms, "f16", accumulation("f16", floating=True))
    if not found.ok:
        raise ArithmeticError(str(found))
    return found.worst


def main(
    example: Callable[[Place, int, int, int], float], description: str | None, sizes: tuple[int, int, int]
) -> None:
    """Run an example with the sizes of the command line."""
    parser = argparse.ArgumentParser(description=description)
    for name, size in zip("mnk", sizes, strict=True):
        parser.add_argument(f"--{name}", type=int, default=size)
    given = parser.parse_args()
    place = find_place()
    worst = example(place, given.m, given.n, given.k)
    print(f"{given.m}×{given.n}×{given.k} on {place}: right; the largest error is {worst:.0%} of what rounding allows")
