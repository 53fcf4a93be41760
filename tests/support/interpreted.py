"""Kernels on the interpreter of tile IR: what a library product or a kept Triton kernel is given, and its result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from louver.formats.dtypes import element_type
from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import Problem, Tile
from louver.ir.interpret import run_kernel
from louver.ir.tile import FuncOp
from support.fused import FusedOperands
from support.triton.cases import CASES
from support.triton.products import Given, given
from support.triton.texts import nest

Array = NDArray[Any]

PADDING = 5
"""Elements between the rows of an output, which no kernel may touch."""


def poisoned(rows: int, columns: int, element: str, padding: int = PADDING) -> Array:
    """An output with more columns, every element NaN or the least integer."""
    dtype = element_type(element).numpy
    value = np.nan if element_type(element).floating else np.iinfo(dtype).min
    return np.full((rows, columns + padding), value).astype(dtype)


def without_padding(d: Array) -> Array:
    """The output proper; the padding is as it was."""
    rest = d[:, -PADDING:].astype(np.float64)
    assert (np.isnan(rest) if np.isnan(rest).any() else rest == rest.min()).all()
    return d[:, :-PADDING]


def run_problem(problem: Problem, tile: Tile, operands: FusedOperands) -> Array:
    """A library product's result as [M, N], by its tile IR."""
    (m, k), n = operands.a.shape, operands.b.shape[1]
    rows = m // problem.rows_per_output
    b = np.ascontiguousarray(operands.b.T if problem.b_layout == "k_major" else operands.b)
    transposed = problem.out_layout == "transposed"
    d = poisoned(*((n, rows) if transposed else (rows, n)), problem.out)
    arguments: dict[str, Any] = {"a": operands.s, "b": b, "d": d, "M": m, "N": n, "K": k}
    arguments |= {"stride_a": k, "stride_b": b.shape[1], "stride_d": d.shape[1]}
    vectors: dict[str, Any] = {
        name: value if isinstance(value, float) else np.asarray(value) for name, value in operands.for_kernel.items()
    }
    if operands.bias is not None:
        vectors["bias"] = operands.bias
    if problem.epilogue.gated:
        for name in {"bias", "scale"} & {name for name, value in vectors.items() if np.ndim(value) == 1}:
            vectors[name], vectors[f"{name}_up"] = np.split(vectors[name], 2)
    if "c" in vectors:
        arguments["stride_c"] = vectors["c"].shape[1]
    grid = (-(-m // tile.m), -(-n // tile.n))
    run_kernel(build_tile_ir(problem, tile), grid, arguments | vectors)
    result = without_padding(d)
    return result.T if transposed else result


def triton_given(rng: np.random.Generator, name: str, m: int, n: int, k: int) -> Given:
    """Random operands of a kept kernel."""
    product: Any = SimpleNamespace(nest=nest(name))
    return given(rng, name, product, m, n, k)


def run_triton(
    module: ModuleOp, operands: Given, *, numbered: bool = False, programs: tuple[int, ...] | None = None
) -> Array:
    """A kept kernel's result as [M, N]; `numbered` after its tiles are, along two axes of the grid; or for a grid of one's own."""
    case = CASES[operands.name]
    m, n, k = operands.shape
    dense, transposed = operands.dense, case.transposed
    d = poisoned(*((n, m) if transposed else (m, n)), operands.product.nest.store.element, 0 if case.sizes else PADDING)
    known: dict[str, Any] = {"a": operands.s, "b": dense, "d": d, "M": m, "N": n, "K": k, **operands.reads}
    for letter, pitch in (("a", k), ("b", dense.shape[1]), ("d", d.shape[1])):
        known |= dict.fromkeys((f"stride_{letter}", f"stride_{letter}m", f"stride_{letter}k"), pitch)
        known[f"{letter}_tiles"] = known[letter]
        known[f"{letter}_tiles.stride.0"], known[f"{letter}_tiles.stride.1"] = pitch, 1
    for letter, sizes in (("a", (m, k)), ("b", dense.shape), ("d", (m, n))):
        known |= {f"{letter}_tiles.shape.{axis}": size for axis, size in enumerate(sizes)}
    if len(operands.parts) == 2:
        known |= {"gate": operands.parts[0], "up": operands.parts[1], "gate_up": operands.s}
    known |= {own: known[role] for own, role in case.roles.items() if role in ("a", "b", "d")}
    named: dict[str, Any] = {own: known[role] for own, role in case.roles.items()}
    (function,) = (op for op in module.body.ops if isinstance(op, FuncOp))
    names = list(function.argument_names.values())
    tiles = [-(-size // tile) for size, tile in zip((m, n), case.tiles(), strict=True)]
    grid: tuple[int, ...] = tuple(reversed(tiles) if transposed else tiles)
    if programs is not None:
        grid = programs
    elif case.flat and not numbered:
        grid = (tiles[0] * tiles[1],)
    run_kernel(module, grid, {each: (known | named)[each] for each in names})
    result = d if case.sizes else without_padding(d)
    return result.T if transposed else result
