"""Library kernels in tile IR, with parts of their text replaced."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import Problem, Tile
from louver.ir.context import parse_ir

TILE = Tile(128, 64, 32)


def rewritten(problem: Problem, *changes: tuple[str, str]) -> ModuleOp:
    """The builder's text for `problem` in tiles of `TILE` with parts replaced, each of which must occur once."""
    text = str(build_tile_ir(problem, TILE))
    for old, new in changes:
        assert text.count(old) == 1, (old, text)
        text = text.replace(old, new)
    return parse_ir(text, "changed.mlir")
