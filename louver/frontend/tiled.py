"""Matrices of a library problem in tiles, as tile IR: one descriptor each, with an entry for each product of a batch.

An entry is a first dimension of blocks of one element: what is loaded loses it, what is stored gets it, by a reshape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from louver.ir.tile import DescriptorLoadOp, DescriptorStoreOp, MakeTensorDescriptorOp, ReshapeOp
from louver.ir.tile.types import tensor_of


def named(name: str, op: Operation) -> SSAValue:
    """The operation's only result, called `name` in the text."""
    (result,) = op.results
    result.name_hint = name
    return result


@dataclass(frozen=True, slots=True)
class TiledMatrix:
    """A matrix argument read or written in tiles.

    name: the argument's. tensor: its descriptor. entry: which entry of the batch the program works on, None for a matrix that
    all entries share.
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
        """The argument `name` with rows of `sizes`, its strides among the kernel's arguments `values`."""
        strides = [values[f"stride_{name}"], one]
        shape = list(block)
        if entry is not None:
            sizes = [values["batch"], *sizes]
            strides.insert(0, values[f"batch_stride_{name}"])
            shape.insert(0, 1)
        return cls(name, named(f"{name}_tensor", MakeTensorDescriptorOp(values[name], sizes, strides, shape)), entry)

    def load(self, name: str, first: Sequence[SSAValue]) -> SSAValue:
        """The tile whose first element is `first`, called `name`."""
        if self.entry is None:
            return named(name, DescriptorLoadOp(self.tensor, first))
        block = named(f"{name}_block", DescriptorLoadOp(self.tensor, [self.entry, *first]))
        return named(name, ReshapeOp(block, tensor_of(block).get_shape()[1:]))

    def store(self, first: Sequence[SSAValue], value: SSAValue) -> None:
        """Store a tile at `first`."""
        if self.entry is None:
            DescriptorStoreOp(self.tensor, first, value)
            return
        block = named("block", ReshapeOp(value, (1, *tensor_of(value).get_shape())))
        DescriptorStoreOp(self.tensor, [self.entry, *first], block)
