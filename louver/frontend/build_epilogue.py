"""The epilogue of a library problem as tile IR: from the sum of products to the stored value.

Matrices are read and written in tiles through descriptors. The entries of a batch are a first dimension with blocks of one
element. Loads remove it by a reshape, stores add it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr, TensorType, f32, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue

from louver.formats.dtypes import element_type
from louver.formats.gated import GATE_ROWS
from louver.frontend.epilogue import ACTIVATIONS
from louver.frontend.problem import Problem, Tile
from louver.ir import tile as tt
from louver.ir.arith import FPToSIOp, SIToFPOp
from louver.ir.elementwise import apply_step
from louver.ir.tile import DescriptorLoadOp, DescriptorStoreOp, MakeTensorDescriptorOp, ReshapeOp
from louver.ir.tile.types import tensor_of


def named(name: str, op: Operation) -> SSAValue:
    """The operation's only result, with the name hint `name`."""
    (result,) = op.results
    result.name_hint = name
    return result


@dataclass(frozen=True, slots=True)
class TiledMatrix:
    """A matrix argument that is read or written in tiles.

    name: of the argument. tensor: its descriptor. entry: the program's entry of the batch; None for a shared matrix.
    """

    name: str
    tensor: SSAValue
    entry: SSAValue | None

    @classmethod
    def describe(
        cls,
        values: Mapping[str, SSAValue],
        name: str,
        sizes: Sequence[SSAValue],
        block: Sequence[int],
        one: SSAValue,
        entry: SSAValue | None,
    ) -> TiledMatrix:
        """The argument `name` of shape `sizes`. values: the kernel's arguments, which include its strides."""
        strides = [values[f"stride_{name}"], one]
        shape = list(block)
        if entry is not None:
            sizes = [values["batch"], *sizes]
            strides.insert(0, values[f"batch_stride_{name}"])
            shape.insert(0, 1)
        return cls(name, named(f"{name}_tensor", MakeTensorDescriptorOp(values[name], sizes, strides, shape)), entry)

    def load(self, name: str, first: Sequence[SSAValue]) -> SSAValue:
        """The tile at `first`, with the name hint `name`."""
        if self.entry is None:
            return named(name, DescriptorLoadOp(self.tensor, first))
        block = named(f"{name}_block", DescriptorLoadOp(self.tensor, [self.entry, *first]))
        return named(name, ReshapeOp(block, tensor_of(block).get_shape()[1:]))

    def store(self, first: Sequence[SSAValue], value: SSAValue) -> None:
        if self.entry is None:
            DescriptorStoreOp(self.tensor, first, value)
            return
        block = named("block", ReshapeOp(value, (1, *tensor_of(value).get_shape())))
        DescriptorStoreOp(self.tensor, [self.entry, *first], block)


S8_RANGE = (-128.0, 127.0)


def epilogue_arguments(problem: Problem) -> tuple[dict[str, Attribute], dict[str, Attribute], dict[str, Attribute]]:
    """The kernel arguments that an epilogue adds, by name: pointers, numbers, strides. A vector along the rows of a
    gated product has two pointers: `name` for the gate and `name_up`.
    """
    epilogue = problem.epilogue
    pointers: dict[str, str] = {}
    if problem.bias is not None:
        pointers["bias"] = problem.bias_element
    if epilogue.scale is not None:
        pointers["scale"] = "u8" if epilogue.scaled else "f32"
    if epilogue.gated:
        vectors = {"bias"} if epilogue.scale != "row" else {"bias", "scale"}
        pointers |= {f"{name}_up": element for name, element in pointers.items() if name in vectors}
    if epilogue.dense_scale is not None:
        pointers["dense_scale"] = "u8" if epilogue.scaled else "f32"
    if epilogue.dense_bias is not None:
        pointers["dense_bias"] = epilogue.dense_bias
    if epilogue.c is not None:
        pointers["c"] = epilogue.c
    if epilogue.out_scale == "tensor":
        pointers["out_scale"] = "f32"
    given = {"alpha": epilogue.alpha, "beta": epilogue.c is not None, "out_scale": epilogue.out_scale == "number"}
    numbers: dict[str, Attribute] = {name: f32 for name, used in given.items() if used}
    strides: dict[str, Attribute] = {} if epilogue.c is None else {"stride_c": i64}
    return {name: tt.PointerType(tt.element_attribute(element)) for name, element in pointers.items()}, numbers, strides


@dataclass(frozen=True, slots=True)
class EpilogueBuilder:
    """Emits the epilogue at the builder's insertion point.

    values: the kernel's arguments by name. one: the constant 1 (i64). m, n: first row and column of the output's tile.
    rows: the output's size along m. entry: the program's entry of the batch.
    """

    problem: Problem
    tile: Tile
    values: dict[str, SSAValue]
    one: SSAValue
    m: SSAValue
    n: SSAValue
    rows: SSAValue
    entry: SSAValue | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The shape [m, n] of the output's tile."""
        return self.tile.m // self.problem.rows_per_output, self.tile.n

    def build(self, total: SSAValue) -> SSAValue:
        """The value to store, [m, n], in the output's element type."""
        epilogue = self.problem.epilogue
        if epilogue.gated:
            gate, up = (
                self._affine(part, suffix) for part, suffix in zip(self._split(total), ("", "_up"), strict=True)
            )
            result = named("gated", apply_step("multiply", self._activated(gate), up))
        else:
            result = self._activated(self._affine(total, ""))
        if epilogue.out_scale is not None:
            result = self._apply("multiply", result, self._scalar("out_scale"))
        return self._stored(result)

    def _split(self, total: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The gate and up parts of a gated product's sum."""
        rows, columns = self.shape
        blocks = named("blocks", tt.ReshapeOp(total, (rows // GATE_ROWS, 2, GATE_ROWS, columns)))
        split = tt.SplitOp(named("pairs", tt.TransOp(blocks, (0, 2, 3, 1))))
        gate, up = (tt.ReshapeOp(part, self.shape) for part in split.results)
        return named("gate", gate), named("up", up)

    def _affine(self, total: SSAValue, suffix: str) -> SSAValue:
        """The sum times alpha and scales, plus the addends."""
        problem, epilogue = self.problem, self.problem.epilogue.after
        if epilogue.floating and problem.accumulate == "s32":
            total = named("wide", SIToFPOp(total, TensorType(f32, self.shape)))
        elif problem.accumulate == "f16":
            total = named("wide", arith.ExtFOp(total, TensorType(f32, self.shape)))
        if epilogue.alpha:
            total = self._apply("multiply", total, self._scalar("alpha"))
        if epilogue.scale is not None:
            row = epilogue.scale == "row"
            total = self._apply("multiply", total, self._vector(f"scale{suffix}", 1) if row else self._scalar("scale"))
        if epilogue.dense_scale is not None:
            column = epilogue.dense_scale == "column"
            factor = self._vector("dense_scale", 0) if column else self._scalar("dense_scale")
            total = self._apply("multiply", total, factor)
        if problem.bias is not None:
            total = named("biased", apply_step("add", total, self._vector(f"bias{suffix}", 1)))
        if epilogue.dense_bias is not None:
            total = self._apply("add", total, self._vector("dense_bias", 0))
        if epilogue.c is not None:
            total = self._apply("add", total, self._apply("multiply", self._matrix(), self._scalar("beta")))
        return total

    def _activated(self, value: SSAValue) -> SSAValue:
        activation = self.problem.epilogue.activation
        return value if activation is None else ACTIVATIONS[activation](self._apply, value)

    def _apply(self, step: str, *operands: SSAValue | float) -> SSAValue:
        """A step in f32. Numbers become constants."""
        return apply_step(step, *(x if isinstance(x, SSAValue) else self._constant(x) for x in operands)).results[0]

    def _constant(self, value: float) -> SSAValue:
        type_ = TensorType(f32, self.shape)
        return arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(cast(Any, type_), [value])).result

    def _scalar(self, name: str) -> SSAValue:
        """A tile of one number: the argument, or the value that it points to."""
        value = self.values[name]
        if isinstance(value.type, tt.PointerType):
            value = named(f"{name}_value", tt.LoadOp(value))
        return named(f"{name}_all", tt.SplatOp(value, self.shape))

    def _vector(self, name: str, axis: int) -> SSAValue:
        """A tile of a vector along m (axis 1 is new) or n (axis 0 is new), repeated in every column or row."""
        first, size = (self.m, self.rows) if axis == 1 else (self.n, self.values["N"])
        described = tt.MakeTensorDescriptorOp(self.values[name], [size], [self.one], [self.shape[1 - axis]])
        part = named(f"{name}_tile", tt.DescriptorLoadOp(named(f"{name}_tensor", described), [first]))
        wide = self._widened(part, name)
        column = named(f"{name}_column" if axis == 1 else f"{name}_row", tt.ExpandDimsOp(wide, axis))
        return named(f"{name}_all", tt.BroadcastOp(column, self.shape))

    def _matrix(self) -> SSAValue:
        """The tile of `c`, which has the output's layout."""
        sizes, first, block = [self.rows, self.values["N"]], [self.m, self.n], list(self.shape)
        transposed = self.problem.out_layout == "transposed"
        if transposed:
            sizes, first, block = sizes[::-1], first[::-1], block[::-1]
        part = TiledMatrix.describe(self.values, "c", sizes, block, self.one, self.entry).load("c_tile", first)
        return self._widened(named("c_turned", tt.TransOp(part)) if transposed else part, "c")

    def _widened(self, value: SSAValue, name: str) -> SSAValue:
        """The value in the type of the epilogue's additions."""
        tensor = tensor_of(value)
        to = tt.element_attribute(self.problem.sum)
        if tensor.element_type == to:
            return value
        return named(f"{name}_wide", arith.ExtFOp(value, TensorType(to, tensor.get_shape())))

    def _stored(self, value: SSAValue) -> SSAValue:
        problem = self.problem
        if problem.out == problem.sum:
            return value
        to = TensorType(tt.element_attribute(problem.out), self.shape)
        if problem.sum == "f32":
            return self._narrowed(value, to)
        if element_type(problem.out).bits > 8:
            return named("result", SIToFPOp(value, to))
        return self._narrowed(named("wide", SIToFPOp(value, TensorType(f32, self.shape))), to)

    def _narrowed(self, value: SSAValue, to: TensorType[Attribute]) -> SSAValue:
        """The f32 value in the output's type. s8 is clamped and rounded first."""
        if self.problem.out != "s8":
            return named("result", arith.TruncFOp(value, to))
        low, high = S8_RANGE
        clamped = self._apply("minimum", self._apply("maximum", value, low), high)
        return named("result", FPToSIOp(named("rounded", apply_step("round_even", clamped)), to))


def half_size(size: SSAValue, name: str) -> SSAValue:
    """The value `size` / 2."""
    two = named("two", arith.ConstantOp(IntegerAttr(2, i32)))
    return named(name, arith.DivSIOp(size, two))
