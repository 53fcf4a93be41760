"""Scales of blocks as tile IR: bytes of each matrix, [rows, blocks of K], that a step of K loads beside the operand.

They are contiguous, so strides follow from the sizes. The entries of a batch follow each other if the operand has entries.
Those of a gated pair are the gate's, then the up projection's, while the operand's rows alternate in blocks: axes of a
descriptor read both halves in the operand's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i32, i64
from xdsl.ir import SSAValue

from louver.formats.blocks import SCALED_COLUMNS
from louver.formats.gated import GATE_ROWS
from louver.frontend.build_epilogue import half_size, named
from louver.frontend.problem import Problem, Tile
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis of a descriptor: its size (i32) and stride (i64), and the size and the first element of the tile."""

    size: SSAValue
    stride: SSAValue
    block: int
    first: SSAValue


@dataclass(frozen=True, slots=True)
class BlockScales:
    """The scales of an operand. first: of the tile, along the descriptor's axes but the last. rows, blocks: of a tile."""

    name: str
    tensor: SSAValue
    first: tuple[SSAValue, ...]
    rows: int
    blocks: int

    def load(self, block: SSAValue) -> SSAValue:
        """The tile [rows, blocks] of the operand's rows from `block` on."""
        loaded = tt.DescriptorLoadOp(self.tensor, [*self.first, block])
        if len(self.first) == 1:
            return named(f"{self.name}_tile", loaded)
        return named(f"{self.name}_tile", tt.ReshapeOp(named(f"{self.name}_block", loaded), (self.rows, self.blocks)))


def block_scales(
    problem: Problem,
    tile: Tile,
    values: Mapping[str, SSAValue],
    one: SSAValue,
    first: tuple[SSAValue, SSAValue],
    entry: SSAValue | None,
) -> tuple[BlockScales, ...]:
    """The scales of both operands.

    values: the kernel's arguments. first: the tile's first row of each operand. entry: the program's entry of the batch.
    """
    before = arith.DivSIOp(arith.SubiOp(values["K"], _number(1)), _number(SCALED_COLUMNS))
    blocks = named("blocks", arith.AddiOp(before, _number(1)))
    pitch = named("pitch_scales", ExtSIOp(blocks, i64))
    count = tile.k // SCALED_COLUMNS

    def scales(name: str, rows: SSAValue, block: int, at: SSAValue, *, gated: bool, batched: bool) -> BlockScales:
        whole = _Axis(rows, pitch, block, at)
        axes = _pairs(whole) if gated else (whole,)
        if batched and entry is not None:
            stride = named(f"batch_pitch_{name}", arith.MuliOp(ExtSIOp(rows, i64), pitch))
            axes = (_Axis(values["batch"], stride, 1, entry), *axes)
        described = tt.MakeTensorDescriptorOp(
            values[name],
            [*(axis.size for axis in axes), blocks],
            [*(axis.stride for axis in axes), one],
            [*(axis.block for axis in axes), count],
        )
        tensor = named(f"{name}_tensor", described)
        return BlockScales(name, tensor, tuple(axis.first for axis in axes), block, count)

    gated = problem.epilogue.gated
    return (
        scales("scale", values["M"], tile.m, first[0], gated=gated, batched=problem.batched_a),
        scales("dense_scale", values["N"], tile.n, first[1], gated=False, batched=problem.batched_b),
    )


def _pairs(rows: _Axis) -> tuple[_Axis, _Axis, _Axis]:
    """The rows of a gated pair as pairs of blocks, the two blocks of a pair, and the rows of a block."""
    both, zero = 2 * GATE_ROWS, _number(0)
    pairs = named("pairs", arith.DivSIOp(rows.size, _number(both)))
    at = named("first_pair", arith.DivSIOp(rows.first, _number(both)))
    apart = arith.MuliOp(rows.stride, _wide(GATE_ROWS))
    half = arith.MuliOp(ExtSIOp(half_size(rows.size, "rows_of_gate"), i64), rows.stride)
    return (
        _Axis(pairs, named("pitch_pairs", apart), rows.block // both, at),
        _Axis(_number(2), named("pitch_halves", half), 2, zero),
        _Axis(_number(GATE_ROWS), rows.stride, GATE_ROWS, zero),
    )


def _number(value: int) -> SSAValue:
    return arith.ConstantOp(IntegerAttr(value, i32)).result


def _wide(value: int) -> SSAValue:
    return arith.ConstantOp(IntegerAttr(value, i64)).result
