"""Finds the sizes of the tensors that a kernel accesses through pointers, from masks, other accesses or the grid.

An access without a mask is assumed to cover whole tiles. The size of such a dimension is the first of these that
exists:

1. the size of another access that starts at the same place. For a store, the launch checks that it is a multiple of the
tile.
2. the end of the tile, if the dimension starts at a number, or the end of the last step of a loop with a fixed number
of steps.
3. the number of programs times the tile, if the dimension starts at a program's tile.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.ir import Operation, SSAValue

from louver.analysis.access import Access, Dimension
from louver.analysis.affine import Affine
from louver.analysis.atoms import Iteration
from louver.analysis.integers import constant_integer, steps_of
from louver.analysis.residues import size_before, size_of_steps
from louver.compile.condition_attributes import require_multiple
from louver.compile.rewrite.insert import insert, insert_before, integer
from louver.ir.polynomial import Polynomial
from louver.ir.refusal import unsupported
from louver.ir.tile import AtomicRMWOp, FuncOp, GetNumProgramsOp, GetProgramIdOp, Index, LoadOp, StoreOp


@dataclass(slots=True)
class TileSizes:
    """The sizes of one kernel's tensors.

    known: sizes by the start of a tile.
    grid: sizes that follow from the grid, by axis and tile size.
    made: sizes that are computed at the start of the kernel.
    """

    function: FuncOp
    affine: Affine
    known: dict[Polynomial, Polynomial | None] = field(default_factory=dict[Polynomial, "Polynomial | None"])
    grid: dict[tuple[int, int], SSAValue] = field(default_factory=dict[tuple[int, int], SSAValue])
    made: list[SSAValue] = field(default_factory=list[SSAValue])

    def learn(self, found: Sequence[Access]) -> None:
        """Record the sizes of accesses and loops, for dimensions without a mask; None if there are different ones."""
        known = self.known
        pairs = [(each.first, each.size) for one in found for each in one.dimensions if each.size is not None]
        for loop in [op for op in self.function.body.walk() if isinstance(op, scf.ForOp)]:
            step, whole = constant_integer(loop.step), loop.ub
            if step == 1 and (steps := steps_of(loop.ub) or size_of_steps(loop.ub)) is not None:
                whole, step = steps
            elif step is not None and step > 1:
                whole = size_before(loop.ub, step) or loop.ub
            if step is not None and step > 1:
                times = Polynomial.number(step) * Polynomial.atom(Iteration(loop))
                pairs.append((times, self.affine.integer(whole)))
        for first, size in pairs:
            known[first] = size if known.get(first, size) == size else None
        # Dimensions of any size may start at 0.
        known.pop(Polynomial.number(0), None)

    def of(self, each: Dimension, op: LoadOp | StoreOp | AtomicRMWOp) -> Polynomial:
        """The size of the tensor along a dimension of a tile. Rejects a dimension without a known end."""
        if each.size is not None:
            return each.size
        size = self.known.get(each.first) or self._shared(each)
        if size is not None:
            if not isinstance(op, LoadOp):
                self.require_whole_tiles(size, each, op)
            return size
        last = self.affine.last(each.first)
        if last is not None and last.constant is not None:
            return last + each.extent
        program = self._program(each)
        if program is None:
            rule = f"dimension {each.number} of a tile needs a size"
            raise unsupported(rule, op, "mask it (offsets < size), here or at the store")
        return self.programs(program, each.extent, op)

    def _shared(self, each: Dimension) -> Polynomial | None:
        """The size of a dimension that programs process in turn, each from its own tile on."""
        programs: list[Hashable] = [
            atom for atom in each.first.atoms if isinstance(atom, SSAValue) and isinstance(atom.owner, GetProgramIdOp)
        ]
        if len(programs) != 1:
            return None
        own = Polynomial.number(each.extent) * Polynomial.atom(programs[0])
        return self.known.get(each.first - own) if each.first != own else None

    def require_whole_tiles(self, size: Polynomial, each: Dimension, op: Operation) -> None:
        """Make the launch check that a dimension without a mask is whole tiles. Rejects one that it cannot check."""
        found = self.entry(size)
        if found is None:
            raise unsupported(
                "a dimension without a mask must end at an argument or a number",
                op,
                "mask it (offsets < size)",
            )
        if isinstance(found, SSAValue):
            require_multiple(self.function, self.function.argument_names[found], each.extent)
        elif found % each.extent:
            rule = f"without a mask tiles are whole, and {found} elements are no multiple of {each.extent}"
            raise unsupported(rule, op, "mask it (offsets < size)")

    def _program(self, each: Dimension) -> GetProgramIdOp | None:
        """The program number, if a dimension starts at this number times the tile."""
        for atom in each.first.atoms:
            op = atom.owner if isinstance(atom, SSAValue) else None
            if isinstance(op, GetProgramIdOp):
                whole = Polynomial.number(each.extent) * Polynomial.atom(cast(Hashable, atom))
                return op if whole == each.first else None
        return None

    def programs(self, program: GetProgramIdOp, extent: int, op: Operation) -> Polynomial:
        """The number of programs along an axis of the grid times `extent`."""
        key = program.axis.value.data, extent
        if key not in self.grid:
            start = self.function.body.block.first_op
            assert start is not None
            count = insert(start, GetNumProgramsOp(key[0]), op).results[0]
            self.grid[key] = insert_before(start, arith.MuliOp(count, integer(start, extent)))
            self.made.append(self.grid[key])
        return Polynomial.atom(self.grid[key])

    def end(self) -> Operation:
        """The operation after the sizes that are computed at the start of the kernel."""
        found = self.function.body.block.first_op
        last = [op for value in self.made if isinstance(op := value.owner, Operation)]
        if last:
            found = max(last, key=lambda op: list(self.function.body.block.ops).index(op)).next_op
        assert found is not None
        return found

    def entry(self, value: Polynomial) -> Index | None:
        """A size or stride as an entry of a descriptor; None if it is neither a number nor one of `given`."""
        constant = value.constant
        if constant is not None:
            return constant
        return next((each for each in self.given if Polynomial.atom(each) == value), None)

    @property
    def given(self) -> tuple[SSAValue, ...]:
        """The values that are known at the start of the kernel."""
        return (*self.function.body.block.args, *self.made)
