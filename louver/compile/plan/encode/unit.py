"""Chooses the dots that warpgroups multiply, by `wgmma`; `mma` multiplies all others, warp by warp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import cast

from xdsl.dialects import scf
from xdsl.dialects.builtin import Float16Type, Float32Type, IntegerType
from xdsl.ir import Operation, SSAValue

from louver.analysis.effects import is_elementwise
from louver.analysis.integers import is_zero
from louver.compile.plan.feeds.loop_totals import MOST, LoopTotal
from louver.compile.plan.feeds.neighbours import is_computed, loaded_along
from louver.formats.dtypes import multiplied_as
from louver.ir.tile import CombiningOp, DotOp, MmaAttr, SharedAttr, element_name
from louver.ir.tile.dot import promotion
from louver.ir.tile.encodings import numbers_of
from louver.ir.tile.types import register_encoding, tensor_of
from louver.ir.walk import each_once
from louver.isa.fragments import ROWS
from louver.isa.instruction import LANES
from louver.isa.mma_fragments import COLUMNS
from louver.isa.targets import WARPS_PER_WARPGROUP
from louver.isa.wgmma import ACCUMULATORS, TRANSPOSABLE, Wgmma, legal_n

MOST_COLUMNS = 256
"""The largest number of columns of a product."""

MOST_SUMS = 128
"""The largest number of sums of a thread. Other registers hold addresses and loaded values."""

REGISTERS_BESIDE_SUMS = 27
"""Registers that the assembler needs beside the sums of a product. With fewer it rejects the kernel (C7602)."""

PART_COLUMNS = 128
"""The largest number of columns of a product whose sums are added to other sums: 64 further registers of a thread."""


def is_transposed(op: DotOp) -> bool:
    """Whether the product is the transpose of the dot, because the right operand is sparse, or is computed with a gain.

    A dense dot whose sums meet those of a sparse dot has the orientation of that dot.
    """
    sums = register_encoding(op.d.type)
    if isinstance(sums, MmaAttr):
        return bool(sums.transposed.data)
    if op.sparse_index is not None:
        return op.sparse_index.value.data == 1
    if (sparse := next((each for each in _meeting(op) if each.sparse_index is not None), None)) is not None:
        return is_transposed(sparse) and not turns_sums(sparse)
    return _gains_by_turning(op)


def _meeting(op: DotOp) -> Iterator[DotOp]:
    """Other dots of the same step whose sums meet those of a dot, in a dot that adds to them or an elementwise operation.

    With another orientation threads would exchange all sums in each step.
    """
    pending = [SSAValue.get(op.d)]
    for value in each_once(pending):
        owner = value.owner
        if owner is not op and isinstance(owner, DotOp):
            yield owner
        for each in (owner, *(use.operation for use in value.uses)):
            if not isinstance(each, Operation) or each.parent is not op.parent:
                continue
            if isinstance(each, DotOp):
                pending += (each.c, each.d) if value in (each.c, each.d) else ()
            elif is_elementwise(each):
                pending += (*each.operands, *each.results)


def _gains_by_turning(op: DotOp) -> bool:
    """Whether warpgroup products of the transpose of a dense dot read less shared memory.

    A of the transpose is the computed operand. It is in registers if its neighbours are along K.
    """
    if op.parts > 1 or is_computed(op.a) or not is_computed(op.b) or (along := loaded_along(op.b)) is None:
        return False
    if element_name(tensor_of(op.b).element_type) not in TRANSPOSABLE:
        return False
    rows, columns = tensor_of(op.d).get_shape()
    return columns % ROWS == 0 and columns * (rows + (ROWS if along else 0)) < rows * (columns + ROWS)


def turns_sums(op: DotOp) -> bool:
    """Whether threads exchange the sums of a transposed product, so that each warp has whole rows of the dot.

    A reduction along these rows then needs no other warp. As computed, all warps of a warpgroup share a row. Of a total of a loop
    each thread carries its own part of a quarter of the rows, without an exchange.
    """
    rows, _ = tensor_of(op.d).get_shape()
    if not is_transposed(op) or rows % ROWS:
        return False
    pending = [SSAValue.get(op.d)]
    for value in each_once(pending):
        for use in value.uses:
            user = use.operation
            if (
                isinstance(user, CombiningOp)
                and user.axis.value.data == 1
                and not (rows <= 4 * MOST and LoopTotal.made_by(user))
            ):
                return True
            if is_elementwise(user):
                pending += user.results
    return False


def product_shape(op: DotOp) -> tuple[int, int]:
    """Rows and columns of the product."""
    rows, columns = tensor_of(op.d).get_shape()
    return (columns, rows) if is_transposed(op) else (rows, columns)


def product_left(op: DotOp) -> tuple[SSAValue, int]:
    """A of the product, and the dimension of A that is K."""
    return (op.b, 0) if is_transposed(op) else (op.a, 1)


def warpgroup_encoding(op: DotOp, warps: int, staged: Mapping[SSAValue, int], registers: int) -> MmaAttr | None:
    """The encoding of a dot's sums in warpgroup products; None if warps multiply the dot.

    warps: warps of a CTA.
    staged: operands in shared memory, each with the dimension of its neighbours.
    registers: registers of an SM, which the threads of a CTA share.
    """
    if warps % WARPS_PER_WARPGROUP or not multiplies(op, staged):
        return None
    rows, columns = product_shape(op)
    groups = warps // WARPS_PER_WARPGROUP
    apart = op.parts > 1 or promoted_columns(op) is not None or bool(summed_apart(op))
    most = PART_COLUMNS if apart else MOST_COLUMNS
    # Factors of columns take registers too. So a warpgroup that holds further sums gets few columns.
    least = max(1, min(groups, columns // most)) if apart else 1
    along_rows = min(groups // least, rows // ROWS)
    along_columns = groups // along_rows
    n = min(most, columns // along_columns)
    most_sums = min(MOST_SUMS, registers // (LANES * warps) - REGISTERS_BESIDE_SUMS)
    if n < COLUMNS or rows * columns > most_sums * LANES * warps:
        return None
    return MmaAttr.of_warpgroups(along_rows, along_columns, n, transposed=is_transposed(op))


def by_warpgroups(op: DotOp) -> bool:
    """Whether warpgroups multiply a dot that has encodings."""
    sums = register_encoding(op.d.type)
    return isinstance(sums, MmaAttr) and sums.of_warpgroup


def multiplies(op: DotOp, staged: Mapping[SSAValue, int]) -> bool:
    """Whether warpgroups can multiply a dot, for any number of warpgroups. A of the product may be in registers."""
    # Both operands may be one tile.
    if op.pairs is not None or op.scales or (op.a if is_transposed(op) else op.b) not in staged:
        return False
    if not isinstance(tensor_of(op.d).element_type, Float32Type | Float16Type | IntegerType):
        return False
    rows, columns = product_shape(op)
    names = _names(op)
    if (
        rows % ROWS
        or columns < COLUMNS
        or _sums(op) not in ACCUMULATORS.get(names, ())
        or COLUMNS not in legal_n(names[0])
    ):
        return False
    along_k = staged.get(op.a, 1) == 1 and staged.get(op.b, 0) == 0
    if not along_k and op.parts == 1 and any(name not in TRANSPOSABLE for name in names):
        return False
    sparse = op.sparse_index is not None
    product = Wgmma(COLUMNS, *names, _sums(op), sparse)
    dense = op.a if is_transposed(op) else op.b
    depth = tensor_of(dense).get_shape()[1 if dense is op.a else 0]
    return depth % product.k == 0


def promoted_columns(op: DotOp) -> int | None:
    """Columns of K after which sums are added to other sums in f32; None if the product adds to all of them itself."""
    return promotion(op, _names(op)[0])


def summed_apart(op: DotOp) -> Sequence[Operation]:
    """The elementwise operations, in order, that add the sums of one step to the totals of a loop; empty for other
    dots.

    With these a thread can finish one block of sums after the other, in the same registers.
    """
    loop = op.parent_op()
    if not is_zero(op.c) or promoted_columns(op) is not None or not isinstance(loop, scf.ForOp):
        return ()
    if sum(isinstance(each, DotOp) for each in loop.body.walk()) > 1:
        return ()
    made, found = {SSAValue.get(op.d)}, list[Operation]()
    end = loop.body.block.last_op
    for user in loop.body.block.ops:
        if user is op or user is end or made.isdisjoint(user.operands):
            continue
        if not is_elementwise(user) or len(user.results) != 1:
            return ()
        found.append(user)
        made.add(user.results[0])
    inside = all(use.operation.parent is op.parent for value in made for use in value.uses)
    return found if inside else ()


def in_parts(op: DotOp) -> Sequence[Operation]:
    """The operations that finish a dot's sums block by block; empty if a thread has only one block, or all blocks at
    once.

    The products of later blocks are issued at the last of these operations, so the operands are read until there.
    """
    encoding = register_encoding(op.d.type)
    assert isinstance(encoding, MmaAttr)
    fragment = warpgroup_instruction(op, encoding).d_fragment
    held = len(encoding.layout(tensor_of(op.d).get_shape()).registers)
    several = held > fragment.registers * fragment.packed
    return summed_apart(op) if several and fragment.packed == 1 else ()


def held_sums(op: DotOp) -> int:
    """Sums of the dot's tile in registers at one time. They double if a loop holds all totals separately."""
    whole = is_zero(op.c) and isinstance(op.parent_op(), scf.ForOp) and not summed_apart(op)
    return prod(tensor_of(op.d).get_shape()) * (2 if whole else 1)


def warpgroup_instruction(op: DotOp, encoding: MmaAttr) -> Wgmma:
    """The instruction of a warpgroup product. For sparse products, it is the first one that uses a metadata word."""
    # The parts of operands in parts have neighbours along K.
    across = [op.parts == 1 and _across(value, k) for value, k in ((op.a, 1), (op.b, 0))]
    a_across, b_across = reversed(across) if is_transposed(op) else across
    source = "shared" if isinstance(register_encoding(product_left(op)[0].type), SharedAttr) else "registers"
    names, sparse = _names(op), op.sparse_index is not None
    return Wgmma(encoding.columns, *names, _sums(op), sparse, source, transpose_a=a_across, transpose_b=b_across)


def _across(value: SSAValue, k: int) -> bool:
    """Whether neighbours of a tile in shared memory are not along K, its dimension `k`."""
    encoding = register_encoding(value.type)
    return isinstance(encoding, SharedAttr) and numbers_of(encoding.order)[0] != k


def _names(op: DotOp) -> tuple[str, str]:
    """Element types of the product's A and B."""
    a, b = (element_name(tensor_of(each).element_type) for each in (op.a, op.b))
    names = (b, a) if is_transposed(op) else (a, b)
    return cast("tuple[str, str]", tuple(map(multiplied_as, names)))


def _sums(op: DotOp) -> str:
    element = tensor_of(op.d).element_type
    return "s32" if isinstance(element, IntegerType) else element_name(element)
