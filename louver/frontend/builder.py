"""A library problem as tile IR: the kernel that a user could have written for it. Each program computes one tile.
Sizes are i32, at most 2^31 - 1. Strides are i64, so a tensor may have more than 2^31 elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr, ModuleOp, TensorType, i32, i64
from xdsl.ir import Attribute, Block, SSAValue

from louver.formats.blocks import SCALED_COLUMNS
from louver.formats.dtypes import PAIR_TYPES, byte_of
from louver.frontend.build_epilogue import EpilogueBuilder, TiledMatrix, epilogue_arguments, half_size, named
from louver.frontend.build_scales import BlockScales, block_scales
from louver.frontend.problem import PROMOTED_COLUMNS, Problem, Tile
from louver.ir import tile as tt
from louver.ir.building import building

X, Y, Z = 0, 1, 2


Walk: TypeAlias = Literal["grid", "bands"]
"""The order of a kernel's programs. "grid": axis x of the grid walks M, y walks N, z the entries of a batch. "bands": one
axis walks the tiles of each entry in bands of `raster` rows of tiles, column by column.
"""


def build_tile_ir(problem: Problem, tile: Tile, walk: Walk = "grid") -> ModuleOp:
    """The problem's kernel in tiles of `tile`, as a verified module of tile IR. The function is named after the kind.

    The arguments are the pointers `a`, `b`, `d` and those of the epilogue, the epilogue's numbers (f32), `M`, `N`, `K`
    (i32), and `stride_a`, `stride_b`, `stride_d`, `stride_c` (i64). A stride counts elements from row to row: of a [M,
    K], of b [N, K] or [K, N], of d and c [M, N] or [N, M]. A batch adds `batch` (i32) and, for arrays with entries,
    `batch_stride_a` and so on (i64). Walk "bands" adds `raster` (i32, at least 1).
    Raises xDSL's VerifyException for an invalid tile.
    """
    own: dict[str, Attribute] = {"raster": i32} if walk == "bands" else {}
    function = tt.FuncOp.kernel(problem.kind, _arguments(problem) | own)
    values = {name: argument for argument, name in function.argument_names.items()}
    with building(function.body.block):
        place = _on_grid if walk == "grid" else _in_bands(problem, tile, values)
        _body(problem, tile, values, place)
    module = ModuleOp([function])
    module.verify()
    return module


def _arguments(problem: Problem) -> dict[str, Attribute]:
    encoding = None if problem.pattern is None else tt.SparseAttr.of_pattern(problem.pattern)
    arguments: dict[str, Attribute] = {
        "a": tt.PointerType(tt.element_attribute(byte_of(problem.a)), encoding),
        "b": tt.PointerType(tt.element_attribute(byte_of(problem.b))),
        "d": tt.PointerType(tt.element_attribute(problem.out)),
    }
    pointers, numbers, strides = epilogue_arguments(problem)
    sizes: dict[str, Attribute] = dict.fromkeys(("M", "N", "K"), i32)
    sizes |= dict.fromkeys(("stride_a", "stride_b", "stride_d"), i64)
    return arguments | pointers | numbers | sizes | strides | _batch_arguments(problem)


def _batch_arguments(problem: Problem) -> dict[str, Attribute]:
    if problem.batch is None:
        return {}
    own = {"a": problem.batched_a, "b": problem.batched_b, "d": True, "c": problem.epilogue.c is not None}
    sizes: dict[str, Attribute] = {"batch": i32}
    return sizes | {f"batch_stride_{name}": i64 for name, batched in own.items() if batched}


Place: TypeAlias = Callable[[int, str], SSAValue]
"""The number of a program's tile along an axis, `X`, `Y` or `Z`, for a value with a name."""


def _on_grid(axis: int, name: str) -> SSAValue:
    return named(name, tt.GetProgramIdOp(axis))


def _in_bands(problem: Problem, tile: Tile, values: dict[str, SSAValue]) -> Place:
    def number(value: int) -> SSAValue:
        return arith.ConstantOp(IntegerAttr(value, i32)).result

    def tiles(size: str, of: int) -> SSAValue:
        # M + tile - 1 may exceed 32 bits.
        before = arith.DivSIOp(arith.SubiOp(values[size], number(1)), number(of))
        return named(f"tiles_{size}", arith.AddiOp(before, number(1)))

    rows, columns = tiles("M", tile.m), tiles("N", tile.n)
    program, found = named("program", tt.GetProgramIdOp(X)), dict[int, SSAValue]()
    if problem.batch is not None:
        whole = arith.MuliOp(rows, columns)
        found[Z] = named("entry", arith.DivSIOp(program, whole))
        program = named("tile", arith.RemSIOp(program, whole))
    band = arith.MuliOp(values["raster"], columns)
    first = arith.MuliOp(arith.DivSIOp(program, band), values["raster"])
    height = named("height", arith.MinSIOp(arith.SubiOp(rows, first), values["raster"]))
    inside = named("inside", arith.RemSIOp(program, band))
    found[X] = named("m_tile", arith.AddiOp(first, arith.RemSIOp(inside, height)))
    found[Y] = named("n_tile", arith.DivSIOp(inside, height))
    return lambda axis, name: found[axis]


def _body(problem: Problem, tile: Tile, values: dict[str, SSAValue], place: Place) -> None:
    one = named("one", arith.ConstantOp(IntegerAttr(1, i64)))
    m_tile = place(X, "m_tile")
    m = _first(m_tile, tile.m, "m")
    n = _first(place(Y, "n_tile"), tile.n, "n")
    entry = None if problem.batch is None else place(Z, "entry")

    def operand(name: str, sizes: tuple[str, str], block: tuple[int, int], *, batched: bool) -> TiledMatrix:
        return TiledMatrix.describe(values, name, [values[s] for s in sizes], block, one, entry if batched else None)

    a = operand("a", ("M", "K"), (tile.m, tile.k), batched=problem.batched_a)
    if problem.b_layout == "k_major":
        b = operand("b", ("N", "K"), (tile.n, tile.k), batched=problem.batched_b)
    else:
        b = operand("b", ("K", "N"), (tile.k, tile.n), batched=problem.batched_b)
    scales = block_scales(problem, tile, values, one, (m, n), entry) if problem.epilogue.scaled else ()
    total = _sum(problem, tile, values["K"], (a, m), (b, n), scales)
    rows, first = values["M"], m
    if problem.epilogue.gated:
        rows, first = half_size(rows, "M_out"), _first(m_tile, tile.m // 2, "m_out")
    epilogue = EpilogueBuilder(problem, tile, values, one, first, n, rows, entry)
    result = epilogue.build(total)
    _store(problem, epilogue, result)
    tt.ReturnOp()


def _store(problem: Problem, epilogue: EpilogueBuilder, result: SSAValue) -> None:
    sizes, first, block = [epilogue.rows, epilogue.values["N"]], [epilogue.m, epilogue.n], list(epilogue.shape)
    if problem.out_layout == "transposed":
        sizes, first, block = sizes[::-1], first[::-1], block[::-1]
    d = TiledMatrix.describe(epilogue.values, "d", sizes, block, epilogue.one, epilogue.entry)
    if problem.out_layout == "transposed":
        result = named("transposed", tt.TransOp(result))
    d.store(first, result)


def _first(number: SSAValue, size: int, name: str) -> SSAValue:
    """The first element of tile `number` along an axis."""
    return named(name, arith.MuliOp(number, named(f"tile_{name}", arith.ConstantOp(IntegerAttr(size, i32)))))


def _sum(
    problem: Problem,
    tile: Tile,
    depth: SSAValue,
    a: tuple[TiledMatrix, SSAValue],
    b: tuple[TiledMatrix, SSAValue],
    scales: tuple[BlockScales, ...],
) -> SSAValue:
    """The sum over K in steps of tile_k. a, b: a matrix, and the tile's first element along M or N."""
    type_ = TensorType(tt.element_attribute(problem.accumulator), [tile.m, tile.n])
    zeros = named("zeros", arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(cast(Any, type_), [0])))
    zero = named("zero", arith.ConstantOp(IntegerAttr(0, i32)))
    step = named("tile_k", arith.ConstantOp(IntegerAttr(tile.k, i32)))
    body = Block(arg_types=[i32, type_])
    k, partial = body.args
    k.name_hint, partial.name_hint = "k", "partial"
    (left, m), (right, n) = a, b
    with building(body):
        a_tile = left.load("a_tile", [m, k])
        if problem.b_layout == "k_major":
            b_tile = named("b_tile", tt.TransOp(right.load("b_rows", [n, k])))
        else:
            b_tile = right.load("b_tile", [k, n])
        imprecise = PROMOTED_COLUMNS if problem.accumulate == "promoted" else None
        scaled: list[SSAValue] = []
        if scales:
            columns = arith.ConstantOp(IntegerAttr(SCALED_COLUMNS, i32))
            block = named("block", arith.DivSIOp(k, columns))
            scaled = [each.load(block) for each in scales]
        pairs = problem.a in PAIR_TYPES
        scf.YieldOp(named("product", tt.DotOp(a_tile, b_tile, partial, imprecise, pairs=pairs, scales=scaled)))
    return named("total", scf.ForOp(zero, depth, step, [zeros], body))
