"""The matrices of a library problem as tile IR, read and written in tiles through descriptors. The entries of a batch
are a first dimension with blocks of one element. Loads remove it by a reshape, stores add it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

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
