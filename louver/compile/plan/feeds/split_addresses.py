"""split-addresses: each access computes its own pointers, from a scalar and small offsets of rows and columns.

A tensor of pointers takes two registers an element. A loop that carries such a tensor, or reads one computed before it,
fills the registers of a thread. The pass therefore does this:

- Pointers and indices that a loop advances by one amount become their values before the loop, plus a scalar that the
  loop carries. The amount may depend on a branch, as where a walk begins again.
- Each load and store computes its pointers right before it. They are a base plus offsets, which are small tiles with
  one element along some dimensions. Only the small tiles are live between accesses.

Input and output are valid tile IR without block pointers (after expand-blocks). Pointer offsets of 32 or 64 bits may be
added in any order. They do not overflow, because then the pointer would be 2^31 elements outside of its array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr, IntegerType, ModuleOp, TensorType, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.effects import varies
from louver.analysis.passages import end_of
from louver.compile.plan.feeds.split_masks import split_mask
from louver.compile.rewrite.insert import carrying, end_with, insert_before, with_ends
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp
from louver.ir.tile.multiples import has_known_addresses
from louver.ir.tile.types import AnyTensor, as_tensor, first_of, is_splat, tensor_of


def split_addresses(module: ModuleOp) -> None:
    """Rewrites accesses and loops in place."""
    for function in [op for op in module.body.ops if isinstance(op, tt.FuncOp) and op.is_public]:
        wide = has_known_addresses(function)
        # Inner loops come first. The amount that an inner loop adds to a pointer is then a scalar in the outer loop.
        for op in reversed([op for op in function.body.walk() if isinstance(op, scf.ForOp | scf.IfOp)]):
            if isinstance(op, scf.ForOp):
                _carry_scalars(op)
            else:
                _choose_scalars(op)
        for op in list(function.body.walk()):
            if isinstance(op, tt.LoadOp | tt.StoreOp | tt.AtomicOp) and as_tensor(op.ptr.type) is not None:
                _split(op, wide=wide)
                if not isinstance(op, tt.AtomicCASOp):
                    split_mask(op)
        remove_dead(function)


# --- carried pointers ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Moved:
    """A carried tile that becomes a scalar.

    index: its index among the carried values. steps: scalars that an iteration adds.
    """

    index: int
    steps: tuple[SSAValue, ...]


def _carry_scalars(loop: scf.ForOp) -> None:
    """Replace carried pointers and indices by scalars, if all their elements advance by the same amount."""
    end = end_of(loop.body.block)
    moved = [found for index in range(len(loop.iter_args)) if (found := _steps(loop, end, index)) is not None]
    if not moved:
        return
    block, given, ends = loop.body.block, list(loop.iter_args), list(end.operands)
    starts: dict[int, SSAValue] = {}
    for each in moved:
        argument = block.args[each.index + 1]
        scalar = _scalar_type(tensor_of(argument))
        starts[each.index] = given[each.index]
        given[each.index] = insert_before(loop, arith.ConstantOp(IntegerAttr(0, cast(Any, scalar))))
        carried = block.insert_arg(scalar, each.index + 2)
        carried.name_hint = argument.name_hint
        first = cast(Operation, block.first_op)
        argument.replace_all_uses_with(_plus(first, starts[each.index], carried))
        block.erase_arg(argument)
        ends[each.index] = _total(end, carried, each.steps)
    new = carrying(loop, given, ends)
    for index, (before, after) in enumerate(zip(loop.results, new.results, strict=True)):
        after.name_hint = before.name_hint
        before.replace_all_uses_with(_plus(loop, starts[index], after) if index in starts else after)
    Rewriter.erase_op(loop)


def _choose_scalars(branch: scf.IfOp) -> None:
    """Replace pointers and indices that a branch yields by a scalar, if its regions add amounts to the same ones."""
    starts: dict[int, SSAValue] = {}
    ends = [end_of(region.block) for region in branch.regions] if branch.results else []
    given = [list(end.operands) for end in ends]
    for index, result in enumerate(branch.results):
        chains = [_chain(end.operands[index]) for end in ends]
        start = next((each for each in chains[0] if each in chains[1] and not _is_inside(each, branch)), None)
        if start is None or not any(chain[start] for chain in chains):
            continue
        starts[index], scalar = start, _scalar_type(tensor_of(result))
        for end, chain, yielded in zip(ends, chains, given, strict=True):
            zero = insert_before(end, arith.ConstantOp(IntegerAttr(0, cast(Any, scalar))))
            yielded[index] = _total(end, zero, chain[start])
    if not starts:
        return
    for region, yielded in zip(branch.regions, given, strict=True):
        end_with(region.block, yielded)
    new = with_ends(branch)
    for index, (before, after) in enumerate(zip(branch.results, new.results, strict=True)):
        after.name_hint = before.name_hint
        before.replace_all_uses_with(_plus(branch, starts[index], after) if index in starts else after)
    Rewriter.erase_op(branch)


def _is_inside(value: SSAValue, op: Operation) -> bool:
    """Whether a value is made in a region of an operation."""
    return value.owner is not op and op.is_ancestor(value.owner)


def _total(before: Operation, start: SSAValue, steps: Sequence[SSAValue]) -> SSAValue:
    """A scalar plus steps, which may be narrower."""
    for step in steps:
        wide = step if step.type == start.type else insert_before(before, ExtSIOp(step, start.type))
        start = insert_before(before, arith.AddiOp(start, wide))
    return start


def _plus(before: Operation, start: SSAValue, scalar: SSAValue) -> SSAValue:
    """A tensor of pointers or integers with a scalar added to each."""
    by = insert_before(before, tt.SplatOp(scalar, tensor_of(start).get_shape()))
    pointers = isinstance(tensor_of(start).element_type, tt.PointerType)
    return insert_before(before, tt.AddPtrOp(start, by) if pointers else arith.AddiOp(start, by))


def _scalar_type(tensor: AnyTensor) -> Attribute:
    """The type of a scalar that is added to the elements of a tensor; i64 for pointers."""
    return i64 if isinstance(tensor.element_type, tt.PointerType) else tensor.element_type


def _steps(loop: scf.ForOp, end: Operation, index: int) -> _Moved | None:
    """The steps of a carried tensor of pointers or integers; None if its elements do not advance by the same amount."""
    steps = _chain(end.operands[index]).get(loop.body.block.args[index + 1])
    return _Moved(index, steps) if steps else None


def _chain(value: SSAValue) -> dict[SSAValue, tuple[SSAValue, ...]]:
    """The tensors of pointers or integers to which scalars are added for a value, itself first, each with its scalars."""
    tensor, steps = as_tensor(value.type), tuple[SSAValue, ...]()
    if tensor is None or not isinstance(tensor.element_type, tt.PointerType | IntegerType):
        return {}
    found = {value: steps}
    while True:
        match value.owner:
            case tt.AddPtrOp(ptr=ptr, offset=offset):
                value, step = ptr, _uniform(offset)
            case arith.AddiOp(lhs=lhs, rhs=rhs):
                step, value = _uniform(rhs), lhs
                if step is None:
                    step, value = _uniform(lhs), rhs
            case _:
                return found
        if step is None:
            return found
        steps = (*steps, step)
        found[value] = steps


def _uniform(value: SSAValue, known: dict[SSAValue, SSAValue | None] | None = None) -> SSAValue | None:
    """The scalar to which all elements of a tensor of integers are equal; None if they differ. known: of values that were read."""
    known = {} if known is None else known
    if value not in known:
        known[value] = _scalar_of(value, known)
    return known[value]


def _scalar_of(value: SSAValue, known: dict[SSAValue, SSAValue | None]) -> SSAValue | None:
    match value.owner:
        case tt.SplatOp(src=scalar):
            return scalar
        case tt.BroadcastOp(src=source) | tt.ExpandDimsOp(src=source):
            return _uniform(source, known)
        case arith.ConstantOp(value=DenseIntOrFPElementsAttr() as numbers) if is_splat(numbers):
            number, element = first_of(numbers), tensor_of(value).element_type
            return insert_before(value.owner, arith.ConstantOp(IntegerAttr(cast(Any, number), cast(Any, element))))
        case arith.AddiOp() | arith.SubiOp() | arith.MuliOp() as op:
            left, right = (_uniform(operand, known) for operand in op.operands)
            return None if left is None or right is None else insert_before(op, type(op)(left, right))
        case _:
            return None


# --- pointers of one access ----------------------------------------------------------------------------------------
def _split(op: tt.LoadOp | tt.StoreOp | tt.AtomicOp, *, wide: bool) -> None:
    """Compute the pointers of an access right before it, if they are a sum.

    wide: whether chunks are moved, so that a thread needs few pointers.
    """
    base, terms = _sum_of(op.ptr)
    if base is None or not terms:
        return
    rank = len(tensor_of(op.ptr).get_shape())
    pointer = base
    groups: dict[tuple[int, ...], list[SSAValue]] = {}
    scalars: list[SSAValue] = []
    loop = op.parent_op()
    wide = wide and any(_uniform(term) is None for term in terms)
    for term in terms:
        scalar = _uniform(term)
        if scalar is None:
            narrow = _narrow(term)
            groups.setdefault(tensor_of(narrow).get_shape(), []).append(narrow)
        elif wide and isinstance(loop, scf.ForOp) and varies(scalar, loop.body.block):
            scalars.append(scalar)
        else:
            pointer = insert_before(op, tt.AddPtrOp(pointer, scalar))
    # Columns come last, so that only the last addition differs between neighbours.
    order = sorted(groups, key=lambda shape: [-size for size in reversed(shape)], reverse=True)
    place: SSAValue = pointer
    reached = [1] * rank
    for shape in order:
        reached = [max(pair) for pair in zip(reached, shape, strict=True)]
        place = _repeated(op, place, reached)
        # The steps of a loop are added to the columns. The pointers of rows then do not change in the loop.
        last = shape == order[-1] and scalars
        for offset in [_sum(op, groups[shape], scalars)] if last else groups[shape]:
            place = insert_before(op, tt.AddPtrOp(place, _repeated(op, offset, reached)))
    op.operands[0] = _repeated(op, place, tensor_of(op.ptr).get_shape())


def _sum(op: Operation, terms: Sequence[SSAValue], scalars: Sequence[SSAValue]) -> SSAValue:
    """The sum of tiles of one shape and of scalars, in 64 bits."""
    total: SSAValue | None = None
    shape = tensor_of(terms[0]).get_shape()
    for each in [*(insert_before(op, tt.SplatOp(scalar, shape)) for scalar in scalars), *terms]:
        tile = tensor_of(each)
        wide = each if tile.element_type == i64 else insert_before(op, ExtSIOp(each, TensorType(i64, shape)))
        total = wide if total is None else insert_before(op, arith.AddiOp(total, wide))
    assert total is not None
    return total


def _repeated(op: Operation, value: SSAValue, shape: Sequence[int]) -> SSAValue:
    """A scalar or a tile, repeated to a shape."""
    tensor = as_tensor(value.type)
    if tensor is None:
        return insert_before(op, tt.SplatOp(value, shape))
    return value if tensor.get_shape() == tuple(shape) else insert_before(op, tt.BroadcastOp(value, shape))


def _sum_of(value: SSAValue) -> tuple[SSAValue | None, list[SSAValue]]:
    """The scalar pointer and the tensors of integers whose sum a tensor of pointers is; (None, []) if it is not a sum."""
    match value.owner:
        case tt.SplatOp(src=base):
            return base, []
        case tt.AddPtrOp(ptr=ptr, offset=offset):
            base, terms = _sum_of(ptr)
            return base, [*terms, *_terms(offset)]
        case tt.BroadcastOp(src=source):
            base, terms = _sum_of(source)
            shape, owner = tensor_of(value).get_shape(), value.owner
            return base, [insert_before(owner, tt.BroadcastOp(term, shape)) for term in terms]
        case tt.ExpandDimsOp(src=source):
            base, terms = _sum_of(source)
            axis, owner = value.owner.axis.value.data, value.owner
            return base, [insert_before(owner, tt.ExpandDimsOp(term, axis)) for term in terms]
        case _:
            return None, []


def _terms(offset: SSAValue) -> list[SSAValue]:
    """The addends of an offset."""
    match offset.owner:
        case arith.AddiOp(lhs=lhs, rhs=rhs):
            return [*_terms(lhs), *_terms(rhs)]
        case tt.BroadcastOp(src=source) if isinstance(source.owner, arith.AddiOp):
            shape, owner = tensor_of(offset).get_shape(), offset.owner
            return [insert_before(owner, tt.BroadcastOp(term, shape)) for term in _terms(source)]
        case _:
            return [offset]


def _narrow(term: SSAValue) -> SSAValue:
    """The smaller tile that a broadcast tile repeats."""
    return _narrow(term.owner.src) if isinstance(term.owner, tt.BroadcastOp) else term
