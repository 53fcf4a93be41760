"""fuse-gated-pair: joins two sums of one loop, with two sparse operands and the same dense operand, to one sum.

Both sparse arguments become one, which `louver.gated` makes: 8 rows of the first, 8 rows of the second, and so on. The
sum has twice as many rows. It is split again in a form that `read_nest` reads, so the code after both sums does not
change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ArrayAttr, DenseIntOrFPElementsAttr, ModuleOp, StringAttr, TensorType
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.integers import (
    constant_integer,
    equal,
    equal_index,
    equal_indices,
    is_zero,
    literal,
    without_extension,
)
from louver.analysis.passages import end_of
from louver.compile.canonical.make_host_descriptors import own_sizes
from louver.compile.canonical.turn_across import lengths_across
from louver.compile.condition_attributes import require_equal
from louver.compile.rewrite.insert import begin_with, end_with, insert, insert_before, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.formats.gated import GATE_ROWS
from louver.ir import tile as tt
from louver.ir.polynomial import Polynomial
from louver.ir.refusal import unsupported
from louver.ir.tile.function import free_name
from louver.ir.tile.types import tensor_of

GATED_MARK = "louver.gated"
"""The attribute of an argument that joins two arguments of the user by `louver.gated`. It holds their names."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One of the two sums in a step of the loop: its dot, which adds to the carried value, and the sparse operand."""

    dot: tt.DotOp
    load: tt.DescriptorLoadOp
    made: tt.MakeTensorDescriptorOp


def fuse_gated_pair(module: ModuleOp) -> None:
    """Rewrite in place. Kernels without such a pair of sums do not change.

    Rejects two sparse operands with different rows, columns or strides.
    """
    for function in [op for op in module.body.ops if isinstance(op, tt.FuncOp)]:
        for loop in [op for op in function.body.walk() if isinstance(op, scf.ForOp)]:
            pair = _pair(loop)
            if pair is not None and not any(step.made.base in lengths_across(function) for step in pair):
                _fuse(function, loop, *pair)


def _pair(loop: scf.ForOp) -> tuple[_Step, _Step] | None:
    if len(loop.iter_args) != 2:
        return None
    one, two = (_step(loop, index) for index in (0, 1))
    if one is None or two is None:
        return None
    same = one.dot.a.type == two.dot.a.type and one.dot.properties == two.dot.properties
    if not same or one.made.base is two.made.base or not equal(one.dot.b, two.dot.b):
        return None
    if not equal_indices(one.load.offsets, two.load.offsets):
        return None
    rows = tensor_of(one.load.result).get_shape()[0]
    if rows % GATE_ROWS or _doubled_start(one.load.offsets[0], rows) is None:
        return None
    size = literal(one.made.sizes[0])
    if size is not None and size % GATE_ROWS:
        return None
    return one, two


def _step(loop: scf.ForOp, index: int) -> _Step | None:
    """The sum that the loop carries as value number `index`, from zeros on; None if that value is not such a sum."""
    partial, value = loop.body.block.args[index + 1], end_of(loop.body.block).operands[index]
    dot = value.owner
    if not isinstance(dot, tt.DotOp) or not is_zero(loop.iter_args[index]):
        return None
    if dot.c is not partial or not partial.has_one_use() or not value.has_one_use():
        return None
    load = dot.a.owner
    made = load.desc.owner if isinstance(load, tt.DescriptorLoadOp) else None
    if not isinstance(load, tt.DescriptorLoadOp) or not isinstance(made, tt.MakeTensorDescriptorOp):
        return None
    if tt.sparse_encoding(load.result.type) is None or len(made.sizes) != 2 or not isinstance(made.base, BlockArgument):
        return None
    return _Step(dot, load, made)


def _fuse(function: tt.FuncOp, loop: scf.ForOp, one: _Step, two: _Step) -> None:
    _require_one_shape(function, one, two)
    descriptor = _descriptor(function, one, two)
    rows, columns = tensor_of(one.dot.d).get_shape()
    total = _looped(loop, one, two, descriptor, (2 * rows, columns))
    Rewriter.replace_op(loop, [], _parts(total, (rows, columns), loop))
    remove_dead(function)
    _drop_arguments(function, [one.made.base, two.made.base])


def _require_one_shape(function: tt.FuncOp, one: _Step, two: _Step) -> None:
    """Require equal sizes and strides.

    If they are different arguments, the launch checks that they are equal. For sizes, one of both must then describe
    only one tensor.
    """
    names = function.argument_names
    described = own_sizes(function)
    rows = one.made.sizes[0]
    if rows in names:
        # Register tiles may run a call with other rows, so it is not stated as a multiple.
        size = Polynomial.atom(names[cast(SSAValue, rows)])
        require_equal(function, size // Polynomial.number(GATE_ROWS) * GATE_ROWS, size)
    pairs = [*zip(one.made.sizes, two.made.sizes, strict=True), *zip(one.made.steps, two.made.steps, strict=True)]
    for place, (first, second) in enumerate(pairs):
        if equal_index(first, second):
            continue
        values = [each if isinstance(each, int) else without_extension(each) for each in (first, second)]
        sizes = place < 2
        if not all(value in names for value in values) or (sizes and not any(value in described for value in values)):
            rule = "two sparse operands of one dense operand (gate and up) must have one shape and one row stride"
            raise unsupported(rule, two.made)
        require_equal(function, *(Polynomial.atom(names[cast(SSAValue, value)]) for value in values))


def _descriptor(function: tt.FuncOp, one: _Step, two: _Step) -> SSAValue:
    """Add the argument that joins both, and make its descriptor."""
    block = function.body.block
    names, attributes = list(function.argument_names.values()), function.argument_attributes
    gate, up = one.made.base, two.made.base
    assert isinstance(gate, BlockArgument) and isinstance(up, BlockArgument)
    place, pair = min(gate.index, up.index), (names[gate.index], names[up.index])
    argument = block.insert_arg(gate.type, place)
    attributes.insert(place, {GATED_MARK: ArrayAttr([StringAttr(each) for each in pair])})
    function.take_types()
    function.argument_attributes = attributes
    names.insert(place, free_name("_".join(pair), names))
    function.name_arguments(dict(enumerate(names)))
    rows, depth = one.made.sizes
    tile_rows, tile_depth = one.made.block.get_shape()
    made = tt.MakeTensorDescriptorOp(
        argument, [_doubled(rows, one.made), depth], list(one.made.steps), [2 * tile_rows, tile_depth]
    )
    # Both descriptors are defined before this place, so the values that they use are available.
    descriptor = insert_before(one.made, made)
    descriptor.name_hint = f"{argument.name_hint}_tensor"
    return descriptor


def _doubled(size: tt.Index, user: Operation) -> tt.Index:
    """Twice a size, in a form that `read_nest` reads."""
    number = literal(size)
    if number is not None:
        return 2 * number
    assert isinstance(size, SSAValue)
    value, factor = size, 2
    if isinstance(size.owner, arith.MuliOp) and isinstance(size.owner.lhs.owner, tt.GetNumProgramsOp):
        value, factor = size.owner.lhs, 2 * (constant_integer(size.owner.rhs) or 1)
    return insert_before(user, arith.MuliOp(value, integer(user, factor)))


def _doubled_start(start: tt.Index, rows: int) -> tuple[SSAValue, int] | None:
    """The number of a tile, and twice its rows; None if the tile does not start at the product of its number and its
    rows.
    """
    if isinstance(start, int) or not isinstance(start.owner, arith.MuliOp):
        return None
    for number, factor in ((start.owner.lhs, start.owner.rhs), (start.owner.rhs, start.owner.lhs)):
        if constant_integer(factor) == rows:
            return number, 2 * rows
    return None


def _looped(loop: scf.ForOp, one: _Step, two: _Step, descriptor: SSAValue, shape: tuple[int, int]) -> SSAValue:
    """Insert the loop with one sum before the old loop, and return the sum."""
    block = loop.body.block
    type_ = TensorType(tensor_of(one.dot.d).element_type, shape)
    zeros = insert_before(loop, arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(cast(Any, type_), [0])))
    last = two if one.dot.is_before_in_block(two.dot) else one
    found = _doubled_start(one.load.offsets[0], tensor_of(one.load.result).get_shape()[0])
    assert found is not None
    number, factor = found
    start = one.load.offsets[0]
    assert isinstance(start, SSAValue) and isinstance(start.owner, Operation)
    before = start.owner
    first = insert_before(before, arith.MuliOp(number, integer(before, factor)))
    load = insert_before(last.dot, tt.DescriptorLoadOp(descriptor, [first, *one.load.offsets[1:]]))
    partial = Rewriter.replace_value_with_new_type(block.args[1], type_)
    properties = dict(last.dot.properties)
    product = tt.DotOp.build(operands=[load, last.dot.b, [], partial, []], properties=properties, result_types=[type_])
    end_with(block, [insert_before(last.dot, product)])
    for op in (one.dot, two.dot):
        Rewriter.erase_op(op)
    for op in (one.load, two.load):
        if op.result.first_use is None:
            Rewriter.erase_op(op)
    block.erase_arg(block.args[2])
    total = begin_with(loop, [zeros]).results[0]
    total.name_hint = partial.name_hint
    return total


def _parts(total: SSAValue, shape: tuple[int, int], loop: scf.ForOp) -> tuple[SSAValue, SSAValue]:
    """The two sums in their old shapes."""
    rows, columns = shape
    blocks = insert_before(loop, tt.ReshapeOp(total, (rows // GATE_ROWS, 2, GATE_ROWS, columns)))
    pairs = tt.SplitOp(insert_before(loop, tt.TransOp(blocks, (0, 2, 3, 1))))
    insert(loop, pairs, loop)
    first, second = (insert_before(loop, tt.ReshapeOp(part, shape)) for part in pairs.results)
    return first, second


def _drop_arguments(function: tt.FuncOp, gone: list[SSAValue]) -> None:
    block = function.body.block
    attributes = function.argument_attributes
    for argument in [each for each in reversed(block.args) if each in gone]:
        if argument.first_use is None:
            del attributes[argument.index]
            block.erase_arg(argument)
    function.take_types()
    function.argument_attributes = attributes
