"""Calls of the kernels in `support.triton` by `louver.jit`: from their kept texts, or by the Triton that is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from louver.emulator import Report
from louver.formats.dtypes import element_type
from louver.user.descriptor import TensorDescriptor
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel, grid_sizes
from louver.user.reached import Read
from louver.user.source import Parameter
from support.compiled import read_copy
from support.triton.cases import BATCHES, CASES, Case, kept
from support.triton.products import Given
from support.triton.tile_cases import TILE_CASES, kept_tiles

Array = NDArray[Any]


def emulate_dependent(kernel: JitKernel, grid: Any, arguments: Mapping[str, Any]) -> Report:
    """A call on the emulator as a dependent launch, which users' kernels have no option for."""
    call, hints = kernel._call((), dict(arguments))
    dependent = replace(hints, schedule=(*hints.schedule, ("dependent", True)))
    return kernel._emulated(call, dependent, grid_sizes(grid, call.given))


@dataclass(frozen=True)
class KeptSource:
    """A kernel as a text that Triton made of it, for the types that it was made for. asked: what it was asked to compile."""

    name: str
    text: str
    order: tuple[str, ...]
    constexprs: tuple[str, ...] = ()
    native: Any = None
    reads: tuple[Read, ...] = ()
    files: tuple[str, ...] = ()
    asked: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, name: str, case: Case, text: str, native: Any = None) -> KeptSource:
        """A case's kernel."""
        return cls(name, text, case.parameters, tuple(case.constexprs), native)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(Parameter(name, name in self.constexprs) for name in self.order)

    @property
    def key(self) -> str:
        return f"kept {self.text}"

    def tile_ir(
        self, signature: Mapping[str, str], constexprs: Mapping[str, Any], sparse: Mapping[str, str], target: str
    ) -> ModuleOp:
        self.asked.append((dict(signature), dict(constexprs)))
        return read_copy(self.text)


def kept_source(name: str, native: Any = None) -> KeptSource:
    return KeptSource.of(name, CASES[name], kept(name), native)


def tile_source(name: str) -> KeptSource:
    return KeptSource.of(name, TILE_CASES[name], kept_tiles(name))


def kept_kernel(name: str, **hints: Any) -> JitKernel:
    return JitKernel(kept_source(name), Hints.of(hints))


def poisoned(shape: tuple[int, int], element: str, padding: int) -> Array:
    """An output with `padding` more columns, every element NaN."""
    rows, columns = shape
    return np.full((rows, columns + padding), np.nan).astype(element_type(element).numpy)[:, :columns]


def arguments(given: Given, out: Array) -> dict[str, Any]:
    """The call's arguments by name; integers that the kept text has as arguments are never 1."""
    case, (m, n, k) = CASES[given.name], given.shape
    dense = given.dense
    pitches = {"a": k, "b": dense.strides[0] // dense.itemsize, "d": out.strides[0] // out.itemsize}
    known: dict[str, Any] = {"b": dense, "d": out, "M": m, "N": n, "K": k, **given.reads}
    for letter, pitch in pitches.items():
        known |= dict.fromkeys((f"stride_{letter}", f"stride_{letter}m", f"stride_{letter}k"), pitch)
    known |= {"a": given.parts[0], "gate": given.parts[0], "up": given.parts[-1]}
    known |= {own: known[role] for own, role in case.roles.items()}
    if case.kernel == "given_descriptors":
        known["a_tiles"] = TensorDescriptor.from_tensor(known["a"], [128, case.constexprs["BK"]])
        known["b_tiles"] = TensorDescriptor.from_tensor(dense, [case.constexprs["BK"], 64])
        known["d_tiles"] = TensorDescriptor(out, out.shape, (pitches["d"], 1), [128, 64])
    return {name: (known | case.constexprs)[name] for name in case.parameters}


def grid_of(given: Given) -> tuple[int, ...]:
    """A program for each tile, as the kernel numbers them."""
    case, (m, n, _) = CASES[given.name], given.shape
    tiles = [-(-size // tile) for size, tile in zip((m, n), case.tiles(), strict=True)]
    if case.flat:
        return (tiles[0] * tiles[1],)
    return tuple(reversed(tiles) if case.transposed else tiles)


def output(given: Given, padding: int = 0) -> Array:
    case, (m, n, _) = CASES[given.name], given.shape
    shape = (n, m) if case.transposed else (m, n)
    return poisoned(shape, given.product.nest.store.element, 0 if case.sizes else padding)


def result(given: Given, out: Array) -> Array:
    return out.T if CASES[given.name].transposed else out


def batch_source(name: str) -> KeptSource:
    return KeptSource.of(name, BATCHES[name], kept(name))
