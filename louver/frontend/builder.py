"""Library problem -> tile IR: the kernel that a user would have written for it.

One program computes one tile; program axis x walks M, y walks N. Sizes are i32, and each is at most 2^31 - 1; strides
are i64, so that a tensor may have more than 2^31 elements.
"""

from __future__ import annotations

from typing import Any, cast

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr, ModuleOp, TensorType, i32, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue

from louver.frontend.problem import Problem, Tile
from louver.ir.arith import SIToFPOp
from louver.ir.tile import (
    BroadcastOp,
    DescriptorLoadOp,
    DescriptorStoreOp,
    DotOp,
    ExpandDimsOp,
    FuncOp,
    GetProgramIdOp,
    MakeTensorDescriptorOp,
    PointerType,
    ReturnOp,
    SparseAttr,
    TransOp,
    element_attribute,
)
from louver.ir.tile.types import tensor_of

X, Y = 0, 1
"""Axes of the grid of programs."""


def build_tile_ir(problem: Problem, tile: Tile) -> ModuleOp:
    """The problem's kernel in tiles of `tile`, as a verified module of tile IR.

    The function has the problem's kind as name and the arguments `a`, `b`, `d` (pointers), `bias` (if there is one),
    `M`, `N`, `K` (i32), `stride_a`, `stride_b`, `stride_d` (i64). Strides count elements between neighbours along the
    axis that is not contiguous: rows of a [M, K], of b [N, K] or [K, N], of d [M, N] or [N, M].
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
    if problem.bias is not None:
        arguments["bias"] = PointerType(element_attribute(problem.bias_element))
    return arguments | dict.fromkeys(("M", "N", "K"), i32) | dict.fromkeys(("stride_a", "stride_b", "stride_d"), i64)


def _body(problem: Problem, tile: Tile, values: dict[str, SSAValue]) -> None:
    one = _named("one", arith.ConstantOp(IntegerAttr(1, i64)))
    m = _first(X, tile.m, "m")
    n = _first(Y, tile.n, "n")
    a_tensor = _descriptor(values, "a", ("M", "K"), one, (tile.m, tile.k))
    if problem.b_layout == "k_major":
        b_tensor = _descriptor(values, "b", ("N", "K"), one, (tile.n, tile.k))
    else:
        b_tensor = _descriptor(values, "b", ("K", "N"), one, (tile.k, tile.n))
    total = _sum(problem, tile, values["K"], (a_tensor, m), (b_tensor, n))
    if problem.bias is not None:
        bias = MakeTensorDescriptorOp(values["bias"], [values["M"]], [one], [tile.m])
        total = _add_bias(problem, total, _named("bias_tensor", bias), m)
    result = total
    if problem.out != problem.accumulate:
        convert = SIToFPOp if problem.accumulate == "s32" else arith.TruncFOp
        result = _named("result", convert(total, _like(total, element_attribute(problem.out))))
    if problem.out_layout == "transposed":
        d_tensor = _descriptor(values, "d", ("N", "M"), one, (tile.n, tile.m))
        DescriptorStoreOp(d_tensor, [n, m], _named("transposed", TransOp(result)))
    else:
        d_tensor = _descriptor(values, "d", ("M", "N"), one, (tile.m, tile.n))
        DescriptorStoreOp(d_tensor, [m, n], result)
    ReturnOp()


def _first(axis: int, size: int, name: str) -> SSAValue:
    """The tile's first element along an axis of the product."""
    program = _named(f"{name}_tile", GetProgramIdOp(axis))
    return _named(name, arith.MuliOp(program, _named(f"tile_{name}", arith.ConstantOp(IntegerAttr(size, i32)))))


def _descriptor(
    values: dict[str, SSAValue], name: str, shape: tuple[str, str], one: SSAValue, block: tuple[int, int]
) -> SSAValue:
    sizes = [values[size] for size in shape]
    return _named(f"{name}_tensor", MakeTensorDescriptorOp(values[name], sizes, [values[f"stride_{name}"], one], block))


def _sum(
    problem: Problem, tile: Tile, depth: SSAValue, a: tuple[SSAValue, SSAValue], b: tuple[SSAValue, SSAValue]
) -> SSAValue:
    """The sum over K, tile_k at a time; `a` and `b` are a descriptor and the tile's first element along M or N."""
    type_ = TensorType(element_attribute(problem.accumulate), [tile.m, tile.n])
    zeros = _named("zeros", arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(cast(Any, type_), [0])))
    zero = _named("zero", arith.ConstantOp(IntegerAttr(0, i32)))
    step = _named("tile_k", arith.ConstantOp(IntegerAttr(tile.k, i32)))
    body = Block(arg_types=[i32, type_])
    k, partial = body.args
    k.name_hint, partial.name_hint = "k", "partial"
    (a_tensor, m), (b_tensor, n) = a, b
    with ImplicitBuilder(body):
        a_tile = _named("a_tile", DescriptorLoadOp(a_tensor, [m, k]))
        if problem.b_layout == "k_major":
            b_rows = _named("b_rows", DescriptorLoadOp(b_tensor, [n, k]))
            b_tile = _named("b_tile", TransOp(b_rows))
        else:
            b_tile = _named("b_tile", DescriptorLoadOp(b_tensor, [k, n]))
        scf.YieldOp(_named("product", DotOp(a_tile, b_tile, partial)))
    return _named("total", scf.ForOp(zero, depth, step, [zeros], body))


def _add_bias(problem: Problem, total: SSAValue, bias: SSAValue, m: SSAValue) -> SSAValue:
    row = _named("bias_tile", DescriptorLoadOp(bias, [m]))
    if problem.bias_element != problem.accumulate:
        row = _named("bias_wide", arith.ExtFOp(row, _like(row, element_attribute(problem.accumulate))))
    column = _named("bias_column", ExpandDimsOp(row, 1))
    every = _named("bias_all", BroadcastOp(column, tensor_of(total).get_shape()))
    add = arith.AddiOp if problem.accumulate == "s32" else arith.AddfOp
    return _named("biased", add(total, every))


def _like(value: SSAValue, element: Attribute) -> TensorType[Attribute]:
    """The type of a tensor with other elements."""
    return TensorType(element, tensor_of(value).get_shape())


def _named(name: str, op: Operation) -> SSAValue:
    """The operation's only result, called `name` in the text."""
    (result,) = op.results
    result.name_hint = name
    return result
