"""Follows the operands of a dot back to their loads, and copies these operations for another place along K."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.integers import equal_index, equal_indices, literal
from louver.ir.tile import DescriptorLoadOp, DotOp, Index, MakeTensorDescriptorOp, ReshapeOp, TransOp
from louver.ir.tile.types import tensor_of


@dataclass(frozen=True, slots=True)
class OperandChain:
    """The operations from a load to an operand of a dot.

    operations: from the operand back to the load, which is the last one.
    dimension: the dimension of the load along K, counted from its last one.
    """

    operations: tuple[Operation, ...]
    dimension: int

    @property
    def load(self) -> DescriptorLoadOp:
        """The load of the operand."""
        return cast(DescriptorLoadOp, self.operations[-1])

    @property
    def made(self) -> MakeTensorDescriptorOp | None:
        """The operation that describes the tensor; None if it is not known."""
        op = self.load.desc.owner
        return op if isinstance(op, MakeTensorDescriptorOp) else None

    @property
    def position(self) -> Index:
        """The start of the operand along K."""
        return self.load.offsets[self.dimension]

    def copied(self, k: SSAValue, body: Block) -> SSAValue:
        """Copy the chain to the end of a block, with a load at k. Returns the operand."""
        *moves, _ = self.operations
        offsets = list(self.load.offsets)
        offsets[self.dimension] = k
        value = append(body, DescriptorLoadOp(self.load.desc, offsets), self.load)
        for op in reversed(moves):
            new = op.clone()
            new.operands[0] = value
            value = append(body, new, op)
        return value

    def reads_like(self, other: OperandChain) -> bool:
        """Whether both read the same tensor in the same way, except for the place along K.

        `other`, read at the place of this chain, then gives the operand of this chain.
        """
        *mine, _ = self.operations
        *others, _ = other.operations
        if [(type(op), op.properties) for op in mine] != [(type(op), op.properties) for op in others]:
            return False
        if self.load.result.type != other.load.result.type or self.dimension != other.dimension:
            return False
        if not equal_indices(*(self._without_k(each.load.offsets) for each in (self, other))):
            return False
        return self.load.desc is other.load.desc or self._is_in_tensor_of(other)

    def _is_in_tensor_of(self, other: OperandChain) -> bool:
        one, two = self.made, other.made
        if one is None or two is None or one.base is not two.base or one.padding != two.padding:
            return False
        if not equal_indices(one.steps, two.steps):
            return False
        if not equal_indices(*(self._without_k(each.sizes) for each in (one, two))):
            return False
        depths = one.sizes[self.dimension], two.sizes[self.dimension]
        return equal_index(*depths) or all(map(self._ends_inside, depths))

    def _ends_inside(self, depth: Index) -> bool:
        """Whether the load is known to end at `depth` along K at the latest."""
        first, most = literal(self.position), literal(depth)
        block = tensor_of(self.load.result).get_shape()[self.dimension]
        return first is not None and most is not None and first + block <= most

    def _without_k(self, entries: tuple[Index, ...]) -> list[Index]:
        place = len(entries) + self.dimension
        return [entry for index, entry in enumerate(entries) if index != place]


def operand_chain(value: SSAValue, dot: DotOp, dimension: int) -> OperandChain | None:
    """The chain of a matrix that is loaded through a descriptor in the dot's block, transposed or not; None for other
    operands.

    dimension: the dimension of the operand that is summed, counted from its last one.
    """
    found: list[Operation] = []
    while True:
        op = value.owner
        if not isinstance(op, Operation) or op.parent is not dot.parent:
            return None
        found.append(op)
        match op:
            case TransOp() if tensor_of(op.result).get_num_dims() == 2:
                dimension, value = -3 - dimension, op.src
            case ReshapeOp() if tensor_of(op.src).get_shape() == (1, *tensor_of(op.result).get_shape()):
                value = op.src
            case DescriptorLoadOp():
                return OperandChain(tuple(found), dimension)
            case _:
                return None


def append(body: Block, new: Operation, like: Operation) -> SSAValue:
    """Add `new` to the end of a block, with the source line and name of `like`. Returns its first result."""
    new.location = like.location
    body.add_op(new)
    new.results[0].name_hint = like.results[0].name_hint
    return new.results[0]
