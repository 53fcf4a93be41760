"""The axis of an argument along which a kernel's dots sum, asked of the kernel's operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from louver.ir.computed import TRANSPOSED
from louver.isa.targets import target as machine
from louver.user.arguments import Kind
from louver.user.source import TileSource

Axis: TypeAlias = Literal[-1, -2]
"""An axis of the argument in memory: its rows, or the axis across them."""


def contracted_axis(source: TileSource, kind: Kind, name: str, pattern: str, target: str) -> Axis:
    """The axis of the argument `name`, in the order of memory, along which a dot sums.

    kind: of a call in which the argument is dense. pattern: the pattern that a sparse tensor would keep there.
    The argument alone is marked sparse along each axis, and the kernel is lowered as far as its sparse products. Raises
    ValueError with the argument if no dot sums along either.
    """
    reasons: list[str] = []
    marks: dict[Axis, str] = {-1: pattern, -2: pattern + TRANSPOSED}
    for axis, mark in marks.items():
        try:
            found = _multiplies(source, replace(kind, sparse=((name, mark),)), target)
        except ValueError as error:
            reasons.append(str(error))
            continue
        if found is None:
            return axis
        reasons += found
    why = "; ".join(dict.fromkeys(reasons)) or "no dot multiplies it"
    raise ValueError(
        f"find names arguments whose tiles a dot multiplies and sums along an axis, got {name!r} of {source.name}: {why}"
    )


def _multiplies(source: TileSource, kind: Kind, target: str) -> tuple[str, ...] | None:
    """None if the kernel has a sparse product; else the reasons why it has none."""
    # Imported here: a warm start reads kernels from disk and needs no xDSL until an argument is found.
    from louver.compile.kernel_state import KernelState
    from louver.compile.passes import run_passes
    from louver.compile.pipeline import TILES
    from louver.ir.tile import DotOp

    module = source.tile_ir(dict(kind.signature), dict(kind.constexprs), dict(kind.sparse), target)
    state = KernelState(module, machine(target))
    # Tiles are described, or addressed at run time.
    state = run_passes(TILES[0], state)
    sparse = any(isinstance(op, DotOp) and op.sparse_index is not None for op in state.kernel.walk())
    return None if sparse else state.dense
