"""join-splits: replaces programs that sum parts of K and add them to one tile by one program that sums all of K.

One axis of the grid numbers the parts of K. A program processes every SPLIT-th step (`z·BK`, then on by `BK·SPLIT`), or
a chunk of consecutive steps (`z·CHUNK` to `z·CHUNK + CHUNK`). All programs together compute the sum over all of K. The
pass records the number of programs with which each step is processed once, and the launch checks it
(`Conditions.split`). `read_nest` checks two more facts: programs add their sums to memory, and the epilogues of the
parts add up to the epilogue of the whole.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerType, ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.affine import Affine, launch_size
from louver.analysis.atoms import Iteration
from louver.analysis.integers import constant_integer, least_of
from louver.compile.condition_attributes import require_multiple, state_split
from louver.compile.rewrite.insert import integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.conditions import Split
from louver.ir.polynomial import Part, Polynomial, Size, divide, programs
from louver.ir.refusal import unsupported
from louver.ir.tile import DescriptorLoadOp, FuncOp, GetProgramIdOp, Index, MakeTensorDescriptorOp


def join_splits(module: ModuleOp) -> None:
    """Rewrite in place. Kernels whose programs sum all of K do not change, and neither do splits in an unknown form.

    Rejects, with operation and source line, a split whose program number is also used for something else.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        for loop in [op for op in function.body.block.ops if isinstance(op, scf.ForOp)]:
            found = _Reader.of(function, loop).read()
            if found is not None:
                _join(function, loop, found)


@dataclass(frozen=True, slots=True)
class _Found:
    """A split of K.

    program: the program number that numbers the parts.
    loads: for each load, the dimension of the index that moves.
    size: the size of K.
    step: elements of a step.
    whole: K must be a multiple of it, because the number of steps is rounded down.
    """

    program: GetProgramIdOp
    loads: dict[DescriptorLoadOp, int]
    size: Index
    step: int
    split: Split
    whole: int = 1


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one loop. first, by: the lower bound and the step of the loop."""

    function: FuncOp
    loop: scf.ForOp
    affine: Affine
    first: Polynomial
    by: Polynomial

    @classmethod
    def of(cls, function: FuncOp, loop: scf.ForOp) -> _Reader:
        """The reader of a loop of a function."""
        affine = Affine()
        for op in function.body.walk():
            # The operations that `describe_tiles` makes from a polynomial: wide numbers that are truncated to the width
            # of an
            # index, and steps of a loop.
            if isinstance(op, TruncIOp) and isinstance(op.result.type, IntegerType):
                affine.known[op.result] = affine.integer(op.input)
            elif isinstance(op, arith.DivSIOp) and isinstance(op.rhs.owner, ExtSIOp):
                by = affine.integer(op.rhs).constant
                if by is not None and by > 0:
                    affine.known[op.result] = affine.integer(op.lhs) // by
        return cls(function, loop, affine, affine.integer(loop.lb), affine.integer(loop.step))

    @property
    def times(self) -> Polynomial:
        """The number of earlier iterations."""
        return Polynomial.atom(Iteration(self.loop))

    def read(self) -> _Found | None:
        """The split of K that the loop sums a part of; None without a split."""
        loads = [op for op in self.loop.body.block.ops if isinstance(op, DescriptorLoadOp)]
        moving = {op: place for op in loads if (place := self._moving(op)) is not None}
        starts = {self._index(op.offsets[place]) for op, place in moving.items()}
        steps = {_made(op).block.get_shape()[place] for op, place in moving.items()}
        sizes = self._sizes(moving)
        if len(moving) != len(loads) or len(starts) != 1 or len(steps) != 1 or sizes is None:
            return None
        (start,), (step,) = starts, steps
        program, base = _per_program(start)
        growth = _coefficient(start, Iteration(self.loop))
        if program is None or growth is None:
            return None
        number = Polynomial.atom(program.result)
        size, ends = sizes
        # A mask that ends with a part must end where the next part begins.
        if start != base * number + growth * self.times or not ends <= {base * number + base}:
            return None
        found = None if ends else self._rounds(program, base, growth, step, size)
        found = found or self._chunks(program, base, growth, step, size, masked=bool(ends))
        return None if found is None else _Found(program, moving, size, step, *found)

    def _moving(self, op: DescriptorLoadOp) -> int | None:
        """The only dimension whose index changes with the iteration; None if there is not exactly one."""
        found = [place for place, index in enumerate(op.offsets) if Iteration(self.loop) in self._index(index).atoms]
        return found[0] if len(found) == 1 else None

    def _index(self, index: Index) -> Polynomial:
        """An index as a polynomial, in which the number of the loop is replaced by its value in an iteration."""
        number = self.loop.body.block.args[0]
        found = self.affine.index(index)
        factor = _coefficient(found, number)
        if factor is None or number not in found.atoms:
            return found
        return found - factor * Polynomial.atom(number) + factor * (self.first + self.by * self.times)

    def _sizes(self, moving: dict[DescriptorLoadOp, int]) -> tuple[Index, set[Polynomial]] | None:
        """The size of K, and the earlier ends of masks."""
        found: dict[Polynomial, Index] = {}
        ends: set[Polynomial] = set()
        for op, place in moving.items():
            size = _made(op).sizes[place]
            least = least_of(size) if isinstance(size, SSAValue) else ()
            whole = [each for each in least if self._is_given(each)]
            if len(least) > 1 and len(whole) == 1:
                ends |= {self.affine.integer(each) for each in least if each is not whole[0]}
                size = whole[0]
            found[self.affine.index(size)] = size
        return (next(iter(found.values())), ends) if len(found) == 1 else None

    def _is_given(self, value: SSAValue) -> bool:
        return value in self.function.body.block.args or constant_integer(value) is not None

    def _rounds(
        self, program: GetProgramIdOp, base: Polynomial, growth: Polynomial, step: int, size: Index
    ) -> tuple[Split, int] | None:
        """The split in which program z processes step z, and then steps at a distance of the number of programs."""
        if base != Polynomial.number(step):
            return None
        programs = self._programs(_quotient(growth, step), program.axis.value.data)
        if programs is None:
            return None
        k, end, zero = self.affine.index(size), self.loop.ub, Polynomial.number(0)
        split = Split(program.axis.value.data, programs)
        if self.by == growth and self.first in (zero, base * Polynomial.atom(program.result)):
            return (split, 1) if self.affine.integer(end) == k else None
        if self.first == zero and self.by == Polynomial.number(1):
            if self._divides(end, k + growth - Polynomial.number(1), growth):
                return split, 1
            whole = growth.constant
            if whole is not None and self._divides(end, k, growth):
                return split, whole
        return None

    def _chunks(
        self, program: GetProgramIdOp, base: Polynomial, growth: Polynomial, step: int, size: Index, *, masked: bool
    ) -> tuple[Split, int] | None:
        """The split in which program z processes chunk z of steps, or its part up to the end."""
        if growth != Polynomial.number(step):
            return None
        k = self.affine.index(size)
        unit = {1: step, step: 1}.get(self.by.constant or 0)
        if unit is None:
            return None
        # Ends are in elements, from the first element of the chunk on. Beyond K there are zeros.
        from_start = base * Polynomial.atom(program.result) if self.first else Polynomial.number(0)
        if self.first * Polynomial.number(unit) != from_start:
            return None
        ends = [self.affine.integer(each) for each in least_of(self.loop.ub)]
        full = self.affine.integer(self.loop.ub) if len(ends) == 1 else None
        rest = base * Polynomial.atom(program.result) - from_start
        lengths = {each * Polynomial.number(unit) - from_start for each in ends}
        allowed = {base, k - from_start - rest, Polynomial.number(step) * _ceil(k, step) - from_start - rest}
        counted = full is not None and not self.first and unit == step and full == _ceil(base, step)
        if not counted and not (base in lengths and lengths <= allowed):
            return None
        return self._chunk(base, k, step, program.axis.value.data, masked=masked)

    def _chunk(
        self, base: Polynomial, k: Polynomial, step: int, axis: int, *, masked: bool
    ) -> tuple[Split, int] | None:
        """The split into chunks of `base` elements, and a number of which K must be a multiple.

        masked: whether a mask ends with the chunk.
        """
        names = self.function.argument_names
        # The last step of a chunk that is not a multiple of steps extends into the next chunk, unless a mask ends it.
        multiple = 1 if masked else step
        if base.constant is not None:
            return (Split(axis, None, base, multiple), 1) if base.constant > 0 else None
        ((monomial, factor), *others) = base.terms
        ((atom, power), *rest) = monomial
        if others or rest or power != 1:
            return None
        if factor == 1 and isinstance(atom, SSAValue) and atom in names:
            return Split(axis, None, Polynomial.atom(names[cast(SSAValue, atom)]), multiple), 1
        parts = atom.by.constant if isinstance(atom, Part) else None
        if factor == 1 and isinstance(atom, Part) and parts and atom.whole in (k, k + (parts - 1)):
            rounded_up = atom.whole != k
            return Split(axis, atom.by), 1 if masked and rounded_up else parts * multiple
        if factor == step:
            programs = self._shared_out(cast(Hashable, atom), k, step, axis)
            return None if programs is None else (Split(axis, programs), 1)
        return None

    def _shared_out(self, atom: Hashable, k: Polynomial, step: int, axis: int) -> Size | None:
        """The number of programs, if `atom` is the number of steps divided by it and rounded up."""
        one, steps = Polynomial.number(1), _ceil(k, step)
        if isinstance(atom, Part):
            by, whole = atom.by, atom.whole
        elif isinstance(atom, SSAValue) and isinstance(op := cast(SSAValue, atom).owner, arith.DivSIOp):
            by, whole = self.affine.integer(op.rhs), self.affine.integer(op.lhs)
        else:
            return None
        if whole == steps + by - one:
            return self._programs(by, axis)
        return self._programs(_quotient(by, step), axis) if whole == k + by - one else None

    def _programs(self, count: Polynomial | None, axis: int) -> Size | None:
        """A number of programs: a constant, an argument, or the number of programs along the axis."""
        size = None if count is None else launch_size(count, self.function.argument_names)
        if size is None or (size.constant is not None and size.constant < 1):
            return None
        return size if size.constant or size.name in (*self.function.argument_names.values(), programs(axis)) else None

    def _divides(self, value: SSAValue, whole: Polynomial, by: Polynomial) -> bool:
        """Whether a value is `whole` divided by `by`, rounded down."""
        op = value.owner
        if isinstance(op, arith.CeilDivSIOp):
            rounded = self.affine.integer(op.lhs) + by - Polynomial.number(1)
            return rounded == whole and self.affine.integer(op.rhs) == by
        if not isinstance(op, arith.DivSIOp | arith.FloorDivSIOp):
            return False
        return self.affine.integer(op.lhs) == whole and self.affine.integer(op.rhs) == by


def _made(op: DescriptorLoadOp) -> MakeTensorDescriptorOp:
    made = op.desc.owner
    if not isinstance(made, MakeTensorDescriptorOp):
        raise unsupported("a descriptor must be made by tt.make_tensor_descriptor", op)
    return made


def _coefficient(value: Polynomial, atom: Hashable) -> Polynomial | None:
    """The coefficient of an atom; None if the polynomial is not linear in it."""
    total: dict[frozenset[tuple[Hashable, int]], int] = {}
    for monomial, factor in value:
        rest = divide(monomial, frozenset({(atom, 1)}))
        if rest is not None:
            if any(each == atom for each, _ in rest):
                return None
            total[rest] = factor
    return Polynomial.of(total)


def _per_program(start: Polynomial) -> tuple[GetProgramIdOp | None, Polynomial]:
    """The only program number in a polynomial, and its coefficient."""
    found = {
        op
        for atom in start.atoms
        if isinstance(atom, SSAValue) and isinstance(op := cast(SSAValue, atom).owner, GetProgramIdOp)
    }
    if len(found) != 1:
        return None, start
    (program,) = found
    factor = _coefficient(start, program.result)
    return (None, start) if factor is None else (program, factor)


def _quotient(value: Polynomial, by: int) -> Polynomial | None:
    if any(factor % by for _, factor in value):
        return None
    return Polynomial.of({monomial: factor // by for monomial, factor in value})


def _ceil(value: Polynomial, by: int) -> Polynomial:
    """The quotient, rounded up."""
    return (value + (by - 1)) // by


def _join(function: FuncOp, loop: scf.ForOp, found: _Found) -> None:
    number = loop.body.block.args[0]
    kind = cast("IntegerType", number.type)
    if kind != IntegerType(32):
        return
    for op, place in found.loads.items():
        offsets = list(op.offsets)
        offsets[place] = number
        new = DescriptorLoadOp(_described(op, place, found.size), offsets)
        new.properties |= {name: op.properties[name] for name in ("cache", "evict") if name in op.properties}
        new.location = op.location
        Rewriter.replace_op(op, new)
    loop.operands[0] = integer(loop, 0)
    loop.operands[1] = integer(loop, found.size) if isinstance(found.size, int) else found.size
    loop.operands[2] = integer(loop, found.step)
    remove_dead(function)
    if found.program.parent is not None:
        raise unsupported(
            "where programs share K, a program's number along that axis may only select its part of K",
            found.program,
        )
    if found.whole > 1 and isinstance(found.size, SSAValue):
        require_multiple(function, function.argument_names[found.size], found.whole)
    state_split(function, found.split)


def _described(op: DescriptorLoadOp, place: int, size: Index) -> SSAValue:
    """The descriptor of the load, with all of K."""
    made = _made(op)
    if made.sizes[place] is size:
        return op.desc
    sizes = list(made.sizes)
    sizes[place] = size
    new = MakeTensorDescriptorOp(made.base, sizes, made.steps, made.block.get_shape())
    if made.padding is not None:
        new.properties["padding"] = made.padding
    new.location, new.result.name_hint = made.location, made.result.name_hint
    Rewriter.insert_op(new, InsertPoint.before(made))
    return new.result
