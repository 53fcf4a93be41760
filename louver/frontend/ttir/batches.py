"""Dots of three axes: a batch of matrices in one tile. Tile IR multiplies matrices, so each tile of such a batch becomes one
tile for each matrix, from its loads to its stores.

The first axis is split. Operations on elements, loads, stores and everything along the other axes are repeated for each
matrix. A reduction along the first axis combines the matrices. A tile that is reshaped to a batch, or from one, has the
rows of a matrix together: its first axis is split in as many runs of rows. An operation that moves the first axis is
refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr, TensorType, i32
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.ir import tile as tt
from louver.ir.refusal import UnsupportedKernelError, unsupported
from louver.ir.tile.types import as_tensor, splat_of

_ALONG_AXIS = (tt.ReduceOp, tt.ScanOp, tt.GatherOp, tt.ExpandDimsOp)
"""Operations with the number of an axis."""


def split_batches(function: tt.FuncOp) -> None:
    """Rewrite in place. Rejects, with the user's line, operations that do not keep the first axis of such tiles."""
    dots = [op for op in function.body.walk() if isinstance(op, tt.DotOp) and len(_shape(op.d)) == 3]
    if dots:
        split = _Split()
        for op in dots:
            split.give(op.d, 1)
        split.rewrite(function.body.block)
        split.drop(function)


def _shape(value: SSAValue) -> tuple[int, ...]:
    return _shape_of(value.type)


def _shape_of(type_: Attribute) -> tuple[int, ...]:
    tile = as_tensor(type_)
    return () if tile is None else tuple(tile.get_shape())


def _of_part(type_: Attribute, rows: int) -> Attribute:
    """The type of a part of a tile: of its first axis a run of `rows`, or nothing instead of one."""
    tile = as_tensor(type_)
    assert tile is not None
    shape = (*([rows] if rows > 1 else []), *tile.get_shape()[1:])
    return TensorType(tile.element_type, shape) if shape else tile.element_type


def _refuse(op: Operation | Block) -> UnsupportedKernelError:
    found = op.parent_op() if isinstance(op, Block) else op
    assert found is not None
    return unsupported(
        "a dot of three axes multiplies a batch of matrices, whose axis stays the first one of each tile that is made of "
        "it or for it",
        found,
        "give each matrix of a batch its own program, such as tl.program_id(2)",
    )


def _end(block: Block) -> Operation:
    last = block.last_op
    assert last is not None
    return last


def _axis(op: Operation) -> int | None:
    return op.axis.value.data if isinstance(op, _ALONG_AXIS) else None


class _Split:
    """given: values that the rewrite replaces by parts. rows: values whose parts are read, each with the length of the first
    axis of a part; 1 for parts without that axis. parts: one value for each matrix.
    """

    def __init__(self) -> None:
        self.given: set[SSAValue] = set()
        self.rows: dict[SSAValue, int] = {}
        self.parts: dict[SSAValue, list[SSAValue]] = {}
        self.old: list[Operation] = []

    def give(self, value: SSAValue, rows: int) -> None:
        """Split a value, and what is made of it."""
        if value in self.given:
            self.ask(value, rows)
            return
        self.given.add(value)
        self.ask(value, rows)
        for use in list(value.uses):
            op = use.operation
            if isinstance(op, scf.ForOp):
                self._carry(op, use.index - 3, rows)
            elif isinstance(op, scf.YieldOp):
                self._carry(op.parent_op(), use.index, rows)
            elif isinstance(op, scf.WhileOp | scf.ConditionOp):
                raise _refuse(op)
            elif isinstance(op, tt.ReshapeOp):
                self._require_kept(op, rows)
                self.give(op.result, self._reshaped(op, op.src, op.result))
            else:
                combines = isinstance(op, tt.ReduceOp) and _axis(op) == 0
                if not combines:
                    self._require_kept(op, rows)
                elif rows > 1:
                    raise _refuse(op)
                for each in op.operands:
                    self.ask(each, rows)
                for each in () if combines else op.results:
                    self.give(each, rows)

    def ask(self, value: SSAValue, rows: int) -> None:
        """Split what a value is made of, if it is a tile."""
        if not _shape(value) or self.rows.get(value) == rows:
            return
        op = value.owner
        if value in self.rows or _shape(value)[0] % rows:
            raise _refuse(op)
        self.rows[value] = rows
        if isinstance(op, scf.ForOp | scf.IfOp):
            self._carry(op, [each is value for each in op.results].index(True), rows)
        elif isinstance(op, Block):
            assert isinstance(value, BlockArgument)
            self._carry(op.parent_op(), value.index - 1, rows)
        elif isinstance(op, tt.ReshapeOp):
            self._require_kept(op, rows)
            self.ask(op.src, self._reshaped(op, op.result, op.src))
        else:
            self._require_kept(op, rows)
            if _axis(op) != 0 and not self._repeats(op):
                for each in op.operands:
                    self.ask(each, rows)

    def _reshaped(self, op: tt.ReshapeOp, known: SSAValue, other: SSAValue) -> int:
        """The rows of a part of one side of a reshape, if those of the other are known."""
        count, length = self._count(known), _shape(other)[0]
        if length % count:
            raise _refuse(op)
        return length // count

    def _count(self, value: SSAValue) -> int:
        """The number of parts of a value."""
        return _shape(value)[0] // self.rows[value]

    def _repeats(self, op: Operation) -> bool:
        """Whether an operation repeats one row along the rows of each part."""
        return isinstance(op, tt.BroadcastOp) and self.rows[op.result] > 1 and _shape(op.src)[0] == 1

    def _carry(self, op: Operation | None, index: int, rows: int) -> None:
        """Split a value that a loop or a branch passes on."""
        if isinstance(op, scf.ForOp):
            names, sources = (op.body.block.args[index + 1], op.results[index]), [op.iter_args[index]]
        elif isinstance(op, scf.IfOp):
            names, sources = (op.results[index],), []
        else:
            raise _refuse(cast(Operation, op))
        for each in names:
            self.give(each, rows)
        for each in (*sources, *(_end(region.block).operands[index] for region in op.regions)):
            self.ask(each, rows)

    def _require_kept(self, op: Operation, rows: int) -> None:
        """Reject an operation whose result has another first axis than its operands. A reshape is judged by `_reshaped`."""
        match op:
            case arith.ConstantOp():
                kept = splat_of(cast(DenseIntOrFPElementsAttr, op.value)) is not None
            case tt.TransOp():
                kept = next(iter(op.order.get_values())) == 0
            case tt.ExpandDimsOp():
                kept = op.axis.value.data > 0 or op.result not in self.given
            case tt.ReduceOp() | tt.ScanOp() | tt.GatherOp():
                kept = op.axis.value.data > 0
            case tt.JoinOp() | tt.SplitOp():
                kept = len(_shape(op.operands[0])) > 1
            case tt.DotOp():
                kept = len(_shape(op.d)) == 3 and rows == 1
            case (
                tt.ReshapeOp()
                | tt.SplatOp()
                | tt.BroadcastOp()
                | tt.MakeRangeOp()
                | tt.LoadOp()
                | tt.StoreOp()
                | tt.AtomicRMWOp()
            ):
                kept = not isinstance(op, tt.LoadOp) or bool(_shape(op.ptr))
            case _:
                kept = (
                    not op.regions
                    and len({shape for each in (*op.operands, *op.results) if (shape := _shape(each))}) == 1
                )
        if not kept:
            raise _refuse(op)

    def rewrite(self, block: Block) -> None:
        """Make the parts of all values of a block that are given, in order."""
        for op in list(block.ops):
            if isinstance(op, scf.ForOp):
                self._loop(op)
            elif isinstance(op, scf.IfOp):
                self._branch(op)
            elif op.regions and not isinstance(op, tt.ReduceOp | tt.ScanOp):
                for region in op.regions:
                    for each in region.blocks:
                        self.rewrite(each)
            elif not isinstance(op, scf.YieldOp) and any(each in self.given for each in (*op.operands, *op.results)):
                self.old.append(op)
                if isinstance(op, tt.ReduceOp) and _axis(op) == 0:
                    for result, value in zip(op.results, self._combined(op), strict=True):
                        result.replace_all_uses_with(value)
                else:
                    self._make(op)

    def drop(self, function: tt.FuncOp) -> None:
        """Remove what the rewrite replaced, and what only that used."""
        for op in self.old:
            Rewriter.erase_op(op, safe_erase=False)
        made = {value.owner for value in self.rows}
        for op in reversed([op for op in function.body.walk() if op in made]):
            if not any(result.first_use for result in op.results):
                Rewriter.erase_op(op)

    def _spread(self, values: Sequence[SSAValue], names: Sequence[SSAValue]) -> list[SSAValue]:
        """Values that are passed on, with the parts of those whose names are split."""
        return [
            each
            for value, name in zip(values, names, strict=True)
            for each in (self._of(value) if name in self.given else [value])
        ]

    def _receive(self, names: Sequence[SSAValue], values: Sequence[SSAValue]) -> None:
        """Take the values that a new loop or branch passes on, in the order of `_spread`."""
        rest = list(values)
        for name in names:
            count = self._count(name) if name in self.given else 1
            taken, rest = rest[:count], rest[count:]
            for each in taken:
                each.name_hint = name.name_hint
            if name in self.given:
                self.parts[name] = taken
            else:
                name.replace_all_uses_with(taken[0])

    def _loop(self, op: scf.ForOp) -> None:
        old, names = op.body.block, op.body.block.args[1:]
        if not any(name in self.given for name in names):
            self.rewrite(old)
            return
        first = self._spread(op.iter_args, names)
        block = Block(arg_types=[old.args[0].type, *(each.type for each in first)])
        block.args[0].name_hint = old.args[0].name_hint
        old.args[0].replace_all_uses_with(block.args[0])
        self._receive(names, block.args[1:])
        for each in list(old.ops):
            each.detach()
            block.add_op(each)
        self.rewrite(block)
        self._end(block, names)
        new = scf.ForOp(op.lb, op.ub, op.step, first, Region(block))
        new.attributes = dict(op.attributes)
        self._add(op, new)
        self._receive(op.results, new.results)
        self.old.append(op)

    def _branch(self, op: scf.IfOp) -> None:
        for region in op.regions:
            for block in region.blocks:
                self.rewrite(block)
        if not any(name in self.given for name in op.results):
            return
        for region in op.regions:
            self._end(region.block, op.results)
        ends = _end(op.true_region.block).operands
        new = scf.IfOp(op.cond, [each.type for each in ends], op.detach_region(0), op.detach_region(0))
        self._add(op, new)
        self._receive(op.results, new.results)
        self.old.append(op)

    def _end(self, block: Block, names: Sequence[SSAValue]) -> None:
        end = _end(block)
        new = scf.YieldOp(*self._spread(end.operands, names))
        new.location = end.location
        Rewriter.replace_op(end, new, [])

    def _of(self, value: SSAValue) -> list[SSAValue]:
        """The parts of a value."""
        if value not in self.parts:
            assert isinstance(value.owner, Operation)
            self._make(value.owner)
        return self.parts[value]

    def _part(self, value: SSAValue, number: int) -> SSAValue:
        """A part of a tile; a scalar as it is. A tile of one matrix has the same part for each."""
        if not _shape(value):
            return value
        found = self._of(value)
        return found[number] if len(found) > 1 else found[0]

    def _make(self, op: Operation) -> None:
        """Repeat an operation for each matrix."""
        count = next(self._count(each) for each in (*op.results, *op.operands) if each in self.rows)
        made = [self._once(op, number) for number in range(count)]
        for index, result in enumerate(op.results):
            self.parts[result] = [each[index] for each in made]
            for each in self.parts[result]:
                each.name_hint = each.name_hint or result.name_hint

    def _once(self, op: Operation, number: int) -> Sequence[SSAValue]:
        rows = next(self.rows[each] for each in (*op.results, *op.operands) if each in self.rows)
        inner = [_of_part(each.type, rows) for each in op.results]
        shape = _shape_of(inner[0]) if inner else ()
        match op:
            case arith.ConstantOp():
                return self._add(op, arith.ConstantOp(cast(Any, _filled(op, inner[0]))))
            case tt.MakeRangeOp() if rows > 1:
                first = op.start.value.data + number * rows
                return self._add(op, tt.MakeRangeOp(first, first + rows))
            case tt.MakeRangeOp():
                return self._add(op, arith.ConstantOp(IntegerAttr(op.start.value.data + number, i32)))
            case tt.SplatOp():
                return self._add(op, tt.SplatOp(op.src, shape)) if shape else [op.src]
            case tt.ExpandDimsOp() if _axis(op) == 0:
                return [op.src]
            case tt.ExpandDimsOp() | tt.ReshapeOp() | tt.BroadcastOp() | tt.TransOp():
                source = op.src if self._repeats(op) else self._part(op.src, number)
                if not isinstance(op, tt.TransOp) and source.type == inner[0]:
                    return [source]
                return self._add(op, _moved(op, source, shape, 1 if rows == 1 else 0))
            case _:
                new = op.clone({each: self._part(each, number) for each in op.operands})
                for result, type_ in zip(list(new.results), inner, strict=True):
                    Rewriter.replace_value_with_new_type(result, type_)
                axis = _axis(op)
                if axis is not None and rows == 1:
                    new.properties["axis"] = IntegerAttr(axis - 1, i32)
                return self._add(op, new)

    def _combined(self, op: tt.ReduceOp) -> list[SSAValue]:
        """The results of a reduction along the first axis."""
        rows = list(zip(*(self._of(each) for each in op.srcs), strict=True))
        found = list(rows[0])
        body = op.regions[0].block
        for row in rows[1:]:
            known = dict[SSAValue, SSAValue](zip(body.args, (*found, *row), strict=True))
            for each in list(body.ops)[:-1]:
                new = each.clone({value: known.get(value, value) for value in each.operands})
                for result, old in zip(list(new.results), each.results, strict=True):
                    tile = as_tensor(found[0].type)
                    if tile is not None:
                        Rewriter.replace_value_with_new_type(result, TensorType(old.type, tile.get_shape()))
                known |= zip(each.results, self._add(op, new), strict=True)
            found = [known[value] for value in _end(body).operands]
        return found

    def _add(self, op: Operation, new: Operation) -> Sequence[SSAValue]:
        new.location = op.location
        Rewriter.insert_op(new, InsertPoint.before(op))
        return new.results


def _filled(op: arith.ConstantOp, type_: Attribute) -> Attribute:
    """The attribute of a constant's part."""
    number = splat_of(cast(DenseIntOrFPElementsAttr, op.value))
    tile = as_tensor(type_)
    if tile is not None:
        return DenseIntOrFPElementsAttr.from_list(cast(Any, tile), cast(Any, [number]))
    return (
        IntegerAttr(number, cast(Any, type_)) if isinstance(number, int) else FloatAttr(number or 0.0, cast(Any, type_))
    )


def _moved(op: Operation, source: SSAValue, shape: Sequence[int], dropped: int) -> Operation:
    """The same movement of a part. dropped: axes of the tile that the part does not have."""
    if as_tensor(source.type) is None:
        return tt.SplatOp(source, shape)
    match op:
        case tt.ExpandDimsOp():
            return tt.ExpandDimsOp(source, op.axis.value.data - dropped)
        case tt.ReshapeOp():
            return tt.ReshapeOp(source, shape)
        case tt.BroadcastOp():
            return tt.BroadcastOp(source, shape)
        case _:
            assert isinstance(op, tt.TransOp)
            return tt.TransOp(source, [each - dropped for each in list(op.order.get_values())[dropped:]])
