"""Integers that are 1 in a call, and may hide the form of a product, because a 1 is compiled in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from louver.analysis.affine import Affine, BlockPointer
from louver.analysis.atoms import lanes
from louver.analysis.integers import constant_integer, without_extension
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp
from louver.ir.comparisons import CmpiOp
from louver.ir.polynomial import Polynomial
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile.syntax import join_indices


@dataclass(frozen=True, slots=True)
class Ones:
    """Arguments that are 1 in a call, by what a kernel uses them for.

    sizes: of a matrix; counts of matrices, distances between them, and between rows of a stored tile.
    pitches: distances between rows of a loaded tile. Bulk copies cannot read rows that are 1 apart.
    The others are in neither: distances between the neighbours of a tile, without which no tile is described, and flags,
    which are compared to a number. Of the distances in a tile that are all 1, as of a matrix of one column, the last one
    is between neighbours.
    """

    sizes: tuple[str, ...]
    pitches: tuple[str, ...]

    @classmethod
    def of(cls, function: tt.FuncOp, names: Collection[str]) -> Ones:
        """Those among the arguments `names`, all of which the function reads at the launch."""
        arguments = {each: name for each, name in function.argument_names.items() if name in names}
        affine = Affine(divides=True)
        strides: set[SSAValue] = set()
        fixed: set[SSAValue] = set()
        for op in function.walk():
            found = _strides(affine, op)
            given = [each for each in found if each is not None and each in arguments]
            if not isinstance(op, tt.StoreOp | tt.AtomicOp):
                strides.update(given)
            if None not in found:
                fixed.update(given[-1:])
            if isinstance(op, CmpiOp) and any(constant_integer(each) is not None for each in op.operands):
                fixed.update(without_extension(each) for each in op.operands)
        freed = {each: name for each, name in arguments.items() if each not in fixed}
        pitches = tuple(name for each, name in freed.items() if each in strides and _only_multiplies(each))
        return cls(tuple(name for name in freed.values() if name not in pitches), pitches)


def _strides(affine: Affine, op: Operation) -> list[SSAValue | None]:
    """The strides of a tile that are one value each, in the order of its dimensions. None for neighbours."""
    if isinstance(op, tt.MakeTensorDescriptorOp | tt.MakeTensorPtrOp):
        given = join_indices(op.strides, op.static_strides)
        steps = [each if isinstance(each, int) else constant_integer(each) or without_extension(each) for each in given]
        return [None if each == 1 else each for each in steps if each == 1 or isinstance(each, SSAValue)]
    if not isinstance(op, tt.LoadOp | tt.StoreOp | tt.AtomicOp):
        return []
    try:
        pointer = affine.recombined(op.ptr)
    except UnsupportedKernelError:
        return []
    if isinstance(pointer, BlockPointer):
        return []
    found: list[tuple[int, SSAValue | None]] = []
    for monomial, factor in pointer.offset:
        atoms = [atom for atom, power in monomial for _ in range(power)]
        along = lanes(Polynomial.of({monomial: 1}))
        strides = [cast(SSAValue, each) for each in atoms if isinstance(each, SSAValue)]
        if len(along) == 1 and len(atoms) == len(strides) + 1 <= 2 and factor == 1:
            found.append((min(along), strides[0] if strides else None))
    return [stride for _, stride in sorted(found, key=lambda each: each[0])]


def _only_multiplies(value: SSAValue) -> bool:
    """Whether a value is only a factor of offsets, or a stride."""
    return all(
        isinstance(use.operation, arith.MuliOp | tt.MakeTensorDescriptorOp | tt.MakeTensorPtrOp)
        or (
            isinstance(use.operation, ExtSIOp | tt.SplatOp | tt.BroadcastOp)
            and _only_multiplies(use.operation.results[0])
        )
        for use in value.uses
    )
