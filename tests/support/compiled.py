"""Kernels that tests share, read and compiled once by each worker. Nothing may change the results of these functions."""

from __future__ import annotations

import functools

from xdsl.dialects.builtin import ModuleOp

from louver.compile import pipeline
from louver.compile.compiled import CompiledProduct, CompiledTiles
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.frontend.ttir import read_ttir
from louver.ir.context import parse_ir

remembered = functools.lru_cache(maxsize=1024)
"""A kernel at every level takes less than a megabyte."""


@remembered
def _read(ttir: str) -> ModuleOp:
    return read_ttir(ttir)


def read_copy(ttir: str) -> ModuleOp:
    """A text of Triton's as tile IR: a copy, which may be changed."""
    return _read(ttir).clone()


@remembered
def compiled_product(problem: Problem, schedule: Schedule) -> CompiledProduct:
    """`compile_product`."""
    return pipeline.compile_product(problem, schedule)


@remembered
def compiled_tiles(
    text: str, *, warps: int | None = None, boxes: bool = True, ctas: int | None = None
) -> CompiledTiles:
    """`compile_tiles` of a text of tile IR."""
    return pipeline.compile_tiles(parse_ir(text), warps=warps, boxes=boxes, ctas=ctas)


@remembered
def compiled_ttir(text: str, warps: int | None = None) -> CompiledTiles:
    """`compile_tiles` of a text of Triton's."""
    return pipeline.compile_tiles(_read(text), warps=warps)
