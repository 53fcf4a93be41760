"""Library problem -> tile IR: the kernel that a user would have written for it.

One program computes one tile; program axis x walks M, y walks N. Sizes are i32, and each is at most 2^31 - 1; strides
are i64, so that a tensor may have more than 2^31 elements.
"""

from __future__ import annotations

from typing import Any, cast

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr, ModuleOp, TensorType, i32, i64
from xdsl.ir import Attribute, Block, SSAValue

from louver.frontend.build_epilogue import EpilogueBuilder, epilogue_arguments, half_size, named
from louver.frontend.problem import PROMOTED_COLUMNS, Problem, Tile
from louver.ir.tile import (
    DescriptorLoadOp,
    DescriptorStoreOp,
    DotOp,
    FuncOp,
    GetProgramIdOp,
    MakeTensorDescriptorOp,
    PointerType,
    ReturnOp,
    SparseAttr,
    TransOp,
    element_attribute,
)

X, Y = 0, 1
"""Axes of the grid of programs."""


def build_tile_ir(problem: Problem, tile: Tile) -> ModuleOp:
    """The problem's kernel in tiles of `tile`, as a verified module of tile IR.

    The function has the problem's kind as name and the arguments `a`, `b`, `d` and what the epilogue reads (pointers), its
    numbers (f32), `M`, `N`, `K` (i32), `stride_a`, `stride_b`, `stride_d` and `stride_c` (i64). Strides count elements between
    neighbours along the axis that is not contiguous: rows of a [M, K], of b [N, K] or [K, N], of d and c [M, N] or [N, M].
    Raises xDSL's VerifyException for a tile that the operands do not allow.
    """
    function = FuncOp.kernel(problem.kind, _arguments(problem))
    block = function.body.block
    values: dict[str, SSAValue] = {argument.name_hint or "": argument for argument in block.args}
    with ImplicitBuilder(block):
        _body(problem, tile, values)
    module = ModuleOp([function])
    module.verify()
    return module


def _arguments(problem: Problem) -> dict[str, Attribute]:
    a = PointerType(element_attribute(problem.a), SparseAttr.of_pattern(problem.pattern))
    arguments: dict[str, Attribute] = {
        "a": a,
        "b": PointerType(element_attribute(problem.b)),
        "d": PointerType(element_attribute(problem.out)),
    }
    pointers, numbers, strides = epilogue_arguments(problem)
    sizes: dict[str, Attribute] = dict.fromkeys(("M", "N", "K"), i32)
    sizes |= dict.fromkeys(("stride_a", "stride_b", "stride_d"), i64)
    return arguments | pointers | numbers | sizes | strides


def _body(problem: Problem, tile: Tile, values: dict[str, SSAValue]) -> None:
    one = named("one", arith.ConstantOp(IntegerAttr(1, i64)))
    m = _first(X, tile.m, "m")
    n = _first(Y, tile.n, "n")
    a_tensor = _descriptor(values, "a", ("M", "K"), one, (tile.m, tile.k))
    if problem.b_layout == "k_major":
        b_tensor = _descriptor(values, "b", ("N", "K"), one, (tile.n, tile.k))
    else:
        b_tensor = _descriptor(values, "b", ("K", "N"), one, (tile.k, tile.n))
    total = _sum(problem, tile, values["K"], (a_tensor, m), (b_tensor, n))
    rows, first = values["M"], m
    if problem.epilogue.gated:
        rows, first = half_size(rows, "M_out"), _first(X, tile.m // 2, "m_out")
    epilogue = EpilogueBuilder(problem, tile, values, one, first, n, rows)
    result = epilogue.build(total)
    _store(problem, values["d"], values["stride_d"], epilogue, result)
    ReturnOp()


def _store(problem: Problem, d: SSAValue, stride: SSAValue, epilogue: EpilogueBuilder, result: SSAValue) -> None:
    sizes, first, block = [epilogue.rows, epilogue.values["N"]], [epilogue.m, epilogue.n], list(epilogue.shape)
    if problem.out_layout == "transposed":
        sizes, first, block = sizes[::-1], first[::-1], block[::-1]
    tensor = named("d_tensor", MakeTensorDescriptorOp(d, sizes, [stride, epilogue.one], block))
    if problem.out_layout == "transposed":
        result = named("transposed", TransOp(result))
    DescriptorStoreOp(tensor, first, result)


def _first(axis: int, size: int, name: str) -> SSAValue:
    """The tile's first element along an axis of the product."""
    program = named(f"{name}_tile", GetProgramIdOp(axis))
    return named(name, arith.MuliOp(program, named(f"tile_{name}", arith.ConstantOp(IntegerAttr(size, i32)))))


def _descriptor(
    values: dict[str, SSAValue], name: str, shape: tuple[str, str], one: SSAValue, block: tuple[int, int]
) -> SSAValue:
    sizes = [values[size] for size in shape]
    return named(f"{name}_tensor", MakeTensorDescriptorOp(values[name], sizes, [values[f"stride_{name}"], one], block))


def _sum(
    problem: Problem, tile: Tile, depth: SSAValue, a: tuple[SSAValue, SSAValue], b: tuple[SSAValue, SSAValue]
) -> SSAValue:
    """The sum over K, tile_k at a time; `a` and `b` are a descriptor and the tile's first element along M or N."""
    type_ = TensorType(element_attribute(problem.accumulator), [tile.m, tile.n])
    zeros = named("zeros", arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(cast(Any, type_), [0])))
    zero = named("zero", arith.ConstantOp(IntegerAttr(0, i32)))
    step = named("tile_k", arith.ConstantOp(IntegerAttr(tile.k, i32)))
    body = Block(arg_types=[i32, type_])
    k, partial = body.args
    k.name_hint, partial.name_hint = "k", "partial"
    (a_tensor, m), (b_tensor, n) = a, b
    with ImplicitBuilder(body):
        a_tile = named("a_tile", DescriptorLoadOp(a_tensor, [m, k]))
        if problem.b_layout == "k_major":
            b_rows = named("b_rows", DescriptorLoadOp(b_tensor, [n, k]))
            b_tile = named("b_tile", TransOp(b_rows))
        else:
            b_tile = named("b_tile", DescriptorLoadOp(b_tensor, [k, n]))
        imprecise = PROMOTED_COLUMNS if problem.accumulate == "promoted" else None
        scf.YieldOp(named("product", DotOp(a_tile, b_tile, partial, imprecise)))
    return named("total", scf.ForOp(zero, depth, step, [zeros], body))
