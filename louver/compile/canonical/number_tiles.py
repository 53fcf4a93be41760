"""number-tiles: changes any numbering of output tiles to one program for each tile, along axes of the grid for rows,
columns and the matrices of a batch.

A kernel may compute the row and column of a tile from one program number, for example in groups that share operands in
a cache, and its matrix in a batch too. The schedule has a separate order of tiles, so only one fact matters: every tile
is computed exactly once. The pass tests this: it runs the numbering for small grids, and for counts around one, two and
three times each number in it. A numbering is integer arithmetic on program numbers and on counts of tiles.

Sizes occur only as counts of tiles, rounded up, so a partial last tile does not matter. If a count is rounded down, the
launch checks that the size is a multiple of the tile. If a descriptor has a separate size argument, the launch checks
that it equals the size from which tiles are counted.

Sums and products of integers are computed in the width to which they are truncated.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, IntegerType, ModuleOp, i32
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.access import EVERY
from louver.analysis.affine import launch_size
from louver.analysis.integers import constant_integer, literal, steps_of, whole_steps_of, without_extension
from louver.compile.canonical.make_host_descriptors import own_sizes
from louver.compile.condition_attributes import require_equal, require_multiple, state_whole_batch
from louver.compile.rewrite.insert import insert_before, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.comparisons import CmpiOp
from louver.ir.interpret.arithmetic import ARITHMETIC
from louver.ir.interpret.values import Fault, dtype_of
from louver.ir.llvm import AssumeOp
from louver.ir.polynomial import Polynomial, programs
from louver.ir.refusal import UnsupportedKernelError, unsupported
from louver.ir.tile import FuncOp

Integers = NDArray[Any]

DescribedAccess = tt.DescriptorLoadOp | tt.DescriptorStoreOp | tt.DescriptorReduceOp

LARGEST = 256
"""The largest constant in a numbering. The pass can then test grids around three times each constant."""

ENTRIES = 2
"""The axis of the grid that numbers the matrices of a batch, as the third of `Axes`. The other axes number tiles."""

MOST_TILES = 4096
"""The largest number of tiles of a tested grid with two long sides."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A dimension along which tiles are counted.

    number: the number of the tile; None if there is only one tile, which starts at 0.
    size: elements of the output in this dimension.
    tile: elements of a tile.
    wrapped: what a tile's start is divided by, if the tile starts at the remainder (`number * tile % size`).
    other: an argument that is taken to be equal to `size`.
    """

    number: SSAValue | None
    size: tt.Index
    tile: int
    wrapped: SSAValue | None = None
    other: SSAValue | None = None

    def is_size(self, value: SSAValue) -> bool:
        return value is self.size or value is self.other

    @property
    def count(self) -> int | None:
        """The number of tiles; None if it is not a constant."""
        return -(-self.size // self.tile) if isinstance(self.size, int) and self.size != EVERY else None


Axes: TypeAlias = tuple[Axis, ...]
"""Rows and columns of the output. If other values than a program's number select matrices of a batch, these too, as
tiles of one element.
"""


def number_tiles(module: ModuleOp) -> None:
    """Rewrite in place. Kernels that use the program number along each of two axes do not change.

    Rejects a numbering that omits a tile or computes a tile twice. Rejects a numbering that uses other values than
    program numbers, sizes of the output and constants.
    """
    for function in [op for op in module.body.ops if isinstance(op, tt.FuncOp)]:
        for store in [
            op for op in function.body.walk() if isinstance(op, tt.DescriptorStoreOp | tt.DescriptorReduceOp)
        ]:
            axes, entry = _axes(store), _entry(store)
            _end_batch(function, entry)
            ends = _ends(function)
            if axes is None or (not ends and all(_is_program(axis.number) and axis.wrapped is None for axis in axes)):
                continue
            axes = _proven(function, axes, ends, store, entry)
            _state_conditions(function, axes)
            for end in ends:
                Rewriter.erase_op(end)
            numbers = [op for op in function.body.walk() if isinstance(op, tt.GetProgramIdOp | tt.GetNumProgramsOp)]
            _count_entries(function, axes)
            _replace(function, axes)
            remove_dead(function)
            for op in numbers:
                if isinstance(op, tt.GetProgramIdOp) and op.axis.value.data == entry:
                    op.axis = tt.GetProgramIdOp(ENTRIES).axis
                elif op.parent is not None and not _is_count(op, entry):
                    raise unsupported("a program's number may only select the tile that it computes", op)


def _is_program(number: SSAValue | None) -> bool:
    return number is None or isinstance(number.owner, tt.GetProgramIdOp)


def _entry(store: tt.DescriptorStoreOp | tt.DescriptorReduceOp) -> int | None:
    """The axis of the grid that numbers the matrices of a batch."""
    first = store.offsets[0]
    if len(store.offsets) < 3 or isinstance(first, int):
        return None
    program = without_extension(first).owner
    return program.axis.value.data if isinstance(program, tt.GetProgramIdOp) else None


def _is_count(op: tt.GetProgramIdOp | tt.GetNumProgramsOp, entry: int | None) -> bool:
    """Whether an operation is the number of matrices of a batch."""
    return isinstance(op, tt.GetNumProgramsOp) and op.axis.value.data == entry


def _ends(function: tt.FuncOp) -> list[AssumeOp]:
    """The assumptions from `unroll_programs` and `open_branches` that a program number is below a count."""
    return [op for op in function.body.block.ops if isinstance(op, AssumeOp) and isinstance(op.cond.owner, CmpiOp)]


def _end_batch(function: tt.FuncOp, entry: int | None) -> None:
    """Remove assumptions that the number of a matrix is below a count. The launch checks that the grid has this count of
    matrices.
    """
    for end in _ends(function):
        limit = cast(CmpiOp, end.cond.owner)
        program, count = without_extension(limit.lhs).owner, launch_size(limit.rhs, function.argument_names)
        if isinstance(program, tt.GetProgramIdOp) and program.axis.value.data == entry and count is not None:
            require_equal(function, count, Polynomial.atom(programs(program.axis.value.data)))
            Rewriter.erase_op(end)


def _axes(store: tt.DescriptorStoreOp | tt.DescriptorReduceOp) -> Axes | None:
    """The axes of a store to a tile; None if the store does not start at tile numbers times tile sizes."""
    made = store.desc.owner
    if not isinstance(made, tt.MakeTensorDescriptorOp) or len(store.offsets) < 2:
        return None
    found: list[Axis] = []
    dimensions = list(zip(store.offsets, made.sizes, made.block.get_shape(), strict=True))
    for offset, size, block in dimensions[-2:]:
        product = None if isinstance(offset, int) else offset.owner
        if isinstance(product, TruncIOp):
            product = product.input.owner
        wrapped = product.rhs if isinstance(product, arith.RemSIOp) else None
        if isinstance(product, arith.RemSIOp):
            product = product.lhs.owner
        number = literal(size)
        size = without_extension(size) if number is None and isinstance(size, SSAValue) else number or 0
        if literal(offset) == 0:
            found.append(Axis(None, size, block))
            continue
        if not isinstance(product, arith.MuliOp):
            return None
        for number, tile in ((product.lhs, product.rhs), (product.rhs, product.lhs)):
            elements = constant_integer(tile)
            if elements is not None and elements > 0:
                found.append(Axis(number, size, elements, wrapped))
                break
        else:
            return None
    for offset, size, _ in dimensions[:-2]:
        number = offset if isinstance(offset, int) else without_extension(offset)
        if isinstance(number, SSAValue) and isinstance(number.owner, Operation) and not _is_given(number):
            whole = literal(size)
            found.append(Axis(number, without_extension(cast(SSAValue, size)) if whole is None else whole, 1))
    return tuple(found)


def _is_given(number: SSAValue) -> bool:
    """Whether the number of a matrix is no numbering of tiles: a constant, a program's number, or loaded."""
    return constant_integer(number) is not None or isinstance(number.owner, tt.GetProgramIdOp | tt.LoadOp)


def _count_entries(function: tt.FuncOp, axes: Axes) -> None:
    """Give descriptors the number of matrices, where their accesses do not: the argument with which programs are counted,
    or the number of programs for the tiles of each matrix.
    """
    for axis in axes[ENTRIES:]:
        state_whole_batch(function)
        first = function.body.block.first_op
        if axis.size != EVERY or first is None:
            continue
        count = axis.other
        if count is None:
            rows, columns = (_tiles(each, first) for each in axes[:ENTRIES])
            programs = insert_before(first, tt.GetNumProgramsOp(0))
            count = insert_before(first, arith.DivSIOp(programs, insert_before(first, arith.MuliOp(rows, columns))))
        for made in [op for op in function.body.walk() if isinstance(op, tt.MakeTensorDescriptorOp)]:
            if _is_selected(made, axis):
                new = tt.MakeTensorDescriptorOp(made.base, [count, *made.sizes[1:]], made.steps, made.block.get_shape())
                if made.padding is not None:
                    new.properties["padding"] = made.padding
                new.result.name_hint = made.result.name_hint
                Rewriter.replace_op(made, [], [insert_before(made, new)])


def _tiles(axis: Axis, before: Operation) -> SSAValue:
    """The number of tiles along an axis."""
    if not isinstance(axis.size, SSAValue):
        return integer(before, axis.count or 0)
    above = insert_before(before, arith.AddiOp(axis.size, integer(before, axis.tile - 1)))
    return insert_before(before, arith.DivSIOp(above, integer(before, axis.tile)))


def _is_selected(made: tt.MakeTensorDescriptorOp, axis: Axis) -> bool:
    """Whether an axis numbers the matrices of a descriptor that does not know how many there are."""
    firsts = [use.operation.offsets[0] for use in made.result.uses if isinstance(use.operation, DescribedAccess)]
    return literal(made.sizes[0]) == EVERY and any(
        isinstance(each, SSAValue) and without_extension(each) is axis.number for each in firsts
    )


def _replace(function: tt.FuncOp, axes: Axes) -> None:
    first = function.body.block.first_op
    assert first is not None
    for place, axis in enumerate(axes):
        for op in [op for op in function.body.walk() if isinstance(op, arith.RemSIOp) and op.rhs is axis.wrapped]:
            start = op.lhs.owner
            # Tiles start before the end, so that the remainder is the start itself.
            if (
                isinstance(start, arith.MuliOp)
                and axis.number in start.operands
                and axis.tile in map(literal, start.operands)
            ):
                Rewriter.replace_op(op, [], [op.lhs])
        if axis.number is None:
            continue
        program = tt.GetProgramIdOp(place)
        program.location = _defining(axis.number, function).location
        program.result.name_hint = axis.number.name_hint
        Rewriter.insert_op(program, InsertPoint.before(first))
        number = program.result
        if axis.number.type != number.type:
            number = insert_before(first, ExtSIOp(number, axis.number.type))
        axis.number.replace_all_uses_with(number)
    narrow_sums(function)


def _defining(value: SSAValue, function: tt.FuncOp) -> Operation:
    return function if isinstance(value.owner, Block) else value.owner


def _proven(function: tt.FuncOp, axes: Axes, ends: Sequence[AssumeOp], store: Operation, entry: int | None) -> Axes:
    """The axes, for which each tile is computed once. An axis may have another argument for its size."""
    refusals: list[UnsupportedKernelError] = []
    for each in _readings(function, axes, ends):
        try:
            _require_bijection(each, ends, store, entry)
        except UnsupportedKernelError as error:
            refusals.append(error)
        else:
            return each
    raise refusals[0]


def _readings(function: tt.FuncOp, axes: Axes, ends: Sequence[AssumeOp]) -> Iterator[Axes]:
    """The axes without a change, and then with arguments for counts of tiles taken as sizes of the output."""
    own, arguments = own_sizes(function), function.body.block.args
    counted = {without_extension(steps[0]) for op in _operations(axes) for steps in _steps(op)}
    counted.update(without_extension(axis.wrapped) for axis in axes if axis.wrapped is not None)
    if len(axes) > ENTRIES:
        limits = {op for end in ends for op in _made_of(cast(CmpiOp, end.cond.owner).operands, axes)}
        counted.update(each for op in limits | _operations(axes) for each in op.operands if each.type == i32)
    others = [each for each in arguments if each in counted and not any(axis.is_size(each) for axis in axes)]
    ways: list[list[SSAValue | None]] = [
        [None, *(each for each in others if isinstance(axis.size, int) or axis.size in own)] for axis in axes
    ]
    for taken in itertools.product(*ways):
        named = [each for each in taken if each is not None]
        if len(named) == len(set(named)):
            yield tuple(replace(axis, other=each) for axis, each in zip(axes, taken, strict=True))


def _steps(op: Operation) -> list[tuple[SSAValue, int]]:
    found = [steps_of(op.results[0]) or whole_steps_of(op.results[0])] if op.results else []
    return [each for each in found if each is not None]


def _require_bijection(axes: Axes, ends: Sequence[AssumeOp], store: Operation, entry: int | None) -> None:
    numbers = [axis.number for axis in axes if axis.number is not None]
    if len(numbers) > len(set(numbers)):
        raise unsupported("the row and the column of a tile must be computed as two numbers", store)
    culprit = next((each.owner for each in numbers if isinstance(each.owner, Operation)), store)
    for axis in axes:
        end = axis.size if axis.wrapped is None else constant_integer(axis.wrapped) or without_extension(axis.wrapped)
        if end != axis.size and end is not axis.other:
            raise unsupported("a tile may start at a remainder only of the output's size", culprit)
    used = _program_axes(axes)
    free = {0, 1, 2} - {entry}
    allowed = used == [0, 1, 2][: len(used)] if entry is None else free.issuperset(used)
    if not allowed or not 0 < len(used) <= len(axes):
        beside = "" if entry is None else ", or along axes that no batch uses"
        raise unsupported(f"tiles must be numbered along the grid's axis x, or along x and y{beside}", culprit)
    unknown = any(axis.size == EVERY and axis.other is None for axis in axes)
    if unknown and (ends or used != [0] or not all(isinstance(each.size, int | BlockArgument) for each in axes)):
        raise unsupported("the number of matrices of a batch must be an argument", culprit, "pass it as an argument")
    orders = [each for each in itertools.product(used, repeat=len(axes)) if set(each) == set(used)]
    counts = list(_counts(axes, culprit))
    limits = [cast(CmpiOp, end.cond.owner) for end in ends]
    if not any(all(_covers(axes, limits, order, each) for each in counts) for order in orders):
        raise unsupported("every tile of the output must be computed by exactly one program", culprit)


def _program_axes(axes: Axes) -> list[int]:
    found = {op.axis.value.data for op in _operations(axes) if isinstance(op, tt.GetProgramIdOp | tt.GetNumProgramsOp)}
    return sorted(found)


def _operations(axes: Axes) -> set[Operation]:
    """All operations that compute the numbers of tiles."""
    return _made_of([axis.number for axis in axes if axis.number is not None], axes)


def _made_of(values: Sequence[SSAValue], axes: Axes) -> set[Operation]:
    """All operations that compute values, except those that count tiles."""
    found: set[Operation] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        op = value.owner
        if isinstance(op, Operation) and op not in found:
            found.add(op)
            # The tile size in a count of tiles is not a constant of the numbering.
            pending += op.operands if _counted(value, axes) is None else []
    return found


def _counted(value: SSAValue, axes: Axes) -> Axis | None:
    """The axis whose tiles a value counts: a size divided by the tile size. None if it does not count tiles."""
    whole, tile = steps_of(value) or whole_steps_of(value) or (value, 1)
    whole = without_extension(whole)
    return next((axis for axis in axes if axis.is_size(whole) and axis.tile == tile), None)


def _state_conditions(function: tt.FuncOp, axes: Axes) -> None:
    """Record conditions for the launch: sizes that are counted rounded down are multiples of the tile, and other sizes
    equal the output's.
    """
    names = function.argument_names
    for axis in axes:
        if axis.other is not None and axis.size != EVERY:
            size = Polynomial.number(axis.size) if isinstance(axis.size, int) else Polynomial.atom(names[axis.size])
            require_equal(function, Polynomial.atom(names[axis.other]), size)
    for op in _operations(axes):
        axis = _counted(op.results[0], axes) if op.results else None
        if axis is not None and axis.tile > 1 and steps_of(op.results[0]) is None and isinstance(axis.size, SSAValue):
            require_multiple(function, names[axis.size], axis.tile)


def _counts(axes: Axes, culprit: Operation) -> Iterator[tuple[int, ...]]:
    """The counts of tiles to test: few along one axis with every count along the other, and equal counts along both. A
    batch has few matrices there, and every count of them with few tiles.
    """
    fixed = [axis.count for axis in axes]
    if None not in fixed:
        yield tuple(cast(list[int], fixed))
        return
    found = {constant_integer(op.results[0]) for op in _operations(axes) if isinstance(op, arith.ConstantOp)}
    found -= {axis.size for axis in axes if isinstance(axis.size, int)}
    numbers = {_small(abs(value), fixed) for value in found if value is not None and abs(value) > 1} | {8}
    if max(numbers) > LARGEST:
        raise unsupported(f"constants that number tiles are at most {LARGEST}, not {max(numbers)}", culprit)
    near = {times * value + more for value in numbers for times in (1, 2, 3) for more in (-1, 0, 1)}
    every = sorted({1, 2, 3, 5, 7} | near)
    choices = [every if count is None else [count] for count in fixed]
    for m, n in itertools.product(*choices[:ENTRIES]):
        near_square = m * 2 > n and n * 2 > m and m * n <= MOST_TILES
        if min(m, n) <= 3 or m == n or near_square or fixed[:ENTRIES] != [None, None]:
            few = max(m, n) <= 3
            yield from itertools.product([m], [n], *(each if few else each[:3] for each in choices[ENTRIES:]))


def _small(value: int, fixed: Sequence[int | None]) -> int:
    """A constant without factors that are counts of tiles, if it is too large: `GROUP_M * tiles_n` is a constant where
    the output has a constant number of columns. Grids around GROUP_M are those to test.
    """
    for count in fixed:
        if value > LARGEST and count is not None and value % count == 0:
            value //= count
    return value


def _covers(axes: Axes, limits: Sequence[CmpiOp], order: Sequence[int], counts: tuple[int, ...]) -> bool:
    """Whether programs compute each of the tiles once, and all their numbers are below every limit.

    order: for each axis of the output, the axis of the grid that numbers its tiles.
    """
    grid = {
        place: prod(n for n, each in zip(counts, order, strict=True) if each == place) for place in dict.fromkeys(order)
    }
    numbers = np.meshgrid(*(np.arange(count) for count in grid.values()), indexing="ij")
    programs = {axis: each.ravel().astype(np.int32) for axis, each in zip(grid, numbers, strict=True)}
    run = _Numbering(programs, (prod(counts),), grid, axes, counts, {})
    try:
        places = np.stack([run.number(axis).astype(np.int64) for axis in axes])
        inside = (places >= 0) & (places < np.array(counts)[:, None])
        if not inside.all():
            return False
        taken = np.bincount(np.ravel_multi_index(tuple(places), counts), minlength=prod(counts))
        return bool((taken == 1).all()) and all(_is_start(limit, axes) or run.is_below(limit) for limit in limits)
    except Fault:
        # A division by 0 does not give the number of a tile.
        return False


def _is_start(limit: CmpiOp, axes: Axes) -> bool:
    """Whether a limit states that a tile starts before the end of the output."""
    start, end = without_extension(limit.lhs).owner, without_extension(limit.rhs)
    if not isinstance(start, arith.MuliOp):
        return False
    numbers = {without_extension(each) for each in start.operands}
    tile = constant_integer(start.rhs) or constant_integer(start.lhs)
    return any(
        axis.is_size(end)
        and tile == axis.tile
        and axis.number is not None
        and without_extension(axis.number) in numbers
        for axis in axes
    )


@dataclass(frozen=True, slots=True)
class _Numbering:
    """Runs the arithmetic of a numbering for all programs of a grid at once."""

    programs: dict[int, Integers]
    shape: tuple[int]
    grid: dict[int, int]
    axes: Axes
    counts: tuple[int, ...]
    known: dict[SSAValue, Integers]

    def number(self, axis: Axis) -> Integers:
        """The numbers of the tiles along an axis."""
        return np.zeros(self.shape, np.int64) if axis.number is None else self.value(axis.number)

    def is_below(self, limit: CmpiOp) -> bool:
        """Whether all numbers are below a limit, and the largest is just below it, as a persistent program would
        continue up to it.
        """
        number, end = self.value(limit.lhs), self.value(limit.rhs)
        return bool((number < end).all() and (number.max() + 1 == end).all())

    def value(self, value: SSAValue) -> Integers:
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = self._value(value)
        return found

    def _value(self, value: SSAValue) -> Integers:
        op, counted, number = value.owner, _counted(value, self.axes), constant_integer(value)
        if isinstance(op, tt.GetProgramIdOp | tt.GetNumProgramsOp) and op.axis.value.data not in self.grid:
            raise unsupported("a program's number may only select the tile that it computes", op)
        if counted is not None:
            number = self.counts[self.axes.index(counted)]
        elif isinstance(op, tt.GetNumProgramsOp):
            number = self.grid[op.axis.value.data]
        if number is not None:
            return np.full(self.shape, number, dtype_of(value.type))
        match op:
            case tt.GetProgramIdOp():
                return self.programs[op.axis.value.data]
            case Operation() if type(op) in ARITHMETIC and all(
                isinstance(each.type, IntegerType) for each in op.operands
            ):
                (found,) = ARITHMETIC[type(op)](op, [self.value(each) for each in op.operands])
                return cast(Integers, found)
            case Operation():
                raise unsupported(
                    "a tile's number must be integer arithmetic on program numbers, sizes and constants", op
                )
            case _:
                block = op.parent_op()
                assert block is not None
                name = value.name_hint or "an argument"
                if any(axis.size is value for axis in self.axes):
                    tiles = " and ".join(f"tl.cdiv(size, {axis.tile})" for axis in self.axes if axis.size is value)
                    raise unsupported(f"a tile's number may use {name} only to count tiles, as {tiles}", block)
                raise unsupported(
                    f"a tile's number may use the program's number and the output's sizes; {name} is another argument",
                    block,
                    "make it a constexpr",
                )


_EXACT = arith.AddiOp | arith.SubiOp | arith.MuliOp
"""Operations whose low bits depend only on the low bits of their operands."""


def narrow_sums(function: FuncOp) -> None:
    """Rewrite in place: a `trunci` of sums and products of constants and extended integers becomes narrow sums and
    products.
    """
    for op in [op for op in function.body.walk() if isinstance(op, TruncIOp)]:
        width = op.result.type
        if isinstance(width, IntegerType) and _is_narrow(op.input, width):
            Rewriter.replace_op(op, [], [_narrowed(op.input, width, op)])


def _is_narrow(value: SSAValue, width: IntegerType) -> bool:
    if constant_integer(value) is not None:
        return True
    match value.owner:
        case ExtSIOp(input=inner):
            return inner.type == width
        case arith.AddiOp(lhs=one, rhs=other) | arith.SubiOp(lhs=one, rhs=other) | arith.MuliOp(lhs=one, rhs=other):
            return _is_narrow(one, width) and _is_narrow(other, width)
        case _:
            return False


def _narrowed(value: SSAValue, width: IntegerType, before: Operation) -> SSAValue:
    constant, op = constant_integer(value), value.owner
    if constant is not None:
        low = constant & (1 << width.width.data) - 1
        signed = low - (1 << width.width.data) if low >> width.width.data - 1 else low
        made: Operation = arith.ConstantOp(IntegerAttr(signed, width))
    elif isinstance(op, ExtSIOp):
        return op.input
    else:
        assert isinstance(op, _EXACT)
        made = type(op)(_narrowed(op.lhs, width, before), _narrowed(op.rhs, width, before))
    found = insert_before(before, made)
    found.name_hint = value.name_hint
    return found
