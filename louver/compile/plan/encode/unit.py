"""Chooses the dots that warpgroups multiply, by `wgmma`; `mma` multiplies all others, warp by warp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import cast

from xdsl.dialects import scf
from xdsl.dialects.builtin import Float16Type, Float32Type, IntegerType
from xdsl.ir import Operation, SSAValue

from louver.analysis.elementwise import ELEMENTWISE
from louver.analysis.integers import is_zero
from louver.analysis.promotion import promotion
from louver.compile.plan.feeds.neighbours import is_computed, loaded_along
from louver.formats.dtypes import multiplied_as
from louver.ir.tile import DotOp, MmaAttr, SharedAttr, element_name
from louver.ir.tile.encodings import numbers_of
from louver.ir.tile.types import register_encoding, tensor_of
from louver.isa.fragments import ROWS
from louver.isa.instruction import LANES
from louver.isa.mma_fragments import COLUMNS
from louver.isa.targets import WARPS_PER_WARPGROUP
from louver.isa.wgmma import ACCUMULATORS, TRANSPOSABLE, Wgmma, legal_n

MOST_COLUMNS = 256
"""Columns of a product, at most."""

MOST_SUMS = 128
"""Sums of a thread, at most: beside them it has addresses and what it loads."""

REGISTERS_BESIDE_SUMS = 27
"""Registers that the assembler wants beside the sums of a product: it refuses the kernel otherwise (C7602)."""

PART_COLUMNS = 128
"""Columns of a product whose sums are added to others, at most: 64 registers of a thread, beside those of the others."""


def is_transposed(op: DotOp) -> bool:
    """Whether the product is the transpose of the dot: the instruction's A is the sparse operand, or one that is computed."""
    sums = register_encoding(op.d.type)
    if isinstance(sums, MmaAttr):
        return bool(sums.transposed.data)
    if op.sparse_index is not None:
        return op.sparse_index.value.data == 1
    return _gains_by_turning(op)


def _gains_by_turning(op: DotOp) -> bool:
    """Whether products of warpgroups read less shared memory for the transpose of a dense dot. Its A is computed, in registers if it lies
    along K.
    """
    if op.parts > 1 or is_computed(op.a) or not is_computed(op.b) or (along := loaded_along(op.b)) is None:
        return False
    if element_name(tensor_of(op.b).element_type) not in TRANSPOSABLE:
        return False
    rows, columns = tensor_of(op.d).get_shape()
    return columns % ROWS == 0 and columns * (rows + (ROWS if along else 0)) < rows * (columns + ROWS)


def product_shape(op: DotOp) -> tuple[int, int]:
    """Rows and columns of the product."""
    rows, columns = tensor_of(op.d).get_shape()
    return (columns, rows) if is_transposed(op) else (rows, columns)


def product_left(op: DotOp) -> tuple[SSAValue, int]:
    """The product's A, and its dimension that is K."""
    return (op.b, 0) if is_transposed(op) else (op.a, 1)


def warpgroup_encoding(op: DotOp, warps: int, staged: Mapping[SSAValue, int], registers: int) -> MmaAttr | None:
    """The encoding of a dot's sums in products of warpgroups; None where warps multiply it.

    warps: of a CTA. staged: the operands in shared memory, each with the dimension of its neighbours.
    registers: of an SM, which the threads of a CTA share.
    """
    if warps % WARPS_PER_WARPGROUP or not multiplies(op, staged):
        return None
    rows, columns = product_shape(op)
    groups = warps // WARPS_PER_WARPGROUP
    apart = op.parts > 1 or promoted_columns(op) is not None or bool(summed_apart(op))
    most = PART_COLUMNS if apart else MOST_COLUMNS
    # The factors of columns are in registers too: a warpgroup has few columns, where it has others' sums beside its own.
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
    """Whether warpgroups can multiply a dot's operands, however many there are. The product's A may be in registers."""
    left, _ = product_left(op)
    if any(value not in staged for value in (op.a, op.b) if value is not left):
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
    """Columns of K that a product sums before these sums are added to others in f32; None where it adds to them itself."""
    return promotion(op, _names(op)[0])


def summed_apart(op: DotOp) -> Sequence[Operation]:
    """The operations, in order, by which the sums of one step become part of a loop's totals, if each is on elements by themselves.

    A thread can then finish the sums of one block after the other, in the same registers. None for other dots.
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
        if not isinstance(user, ELEMENTWISE) or len(user.results) != 1:
            return ()
        found.append(user)
        made.add(user.results[0])
    inside = all(use.operation.parent is op.parent for value in made for use in value.uses)
    return found if inside else ()


def in_parts(op: DotOp) -> Sequence[Operation]:
    """The operations that finish a dot's sums block by block; none where a thread has those of one block, or of all, at once.

    Products of later blocks are issued at the last of them, so the operands are read until there.
    """
    encoding = register_encoding(op.d.type)
    assert isinstance(encoding, MmaAttr)
    fragment = warpgroup_instruction(op, encoding).d_fragment
    held = len(encoding.layout(tensor_of(op.d).get_shape()).registers)
    several = held > fragment.registers * fragment.packed
    return summed_apart(op) if several and fragment.packed == 1 else ()


def held_sums(op: DotOp) -> int:
    """Sums of the dot's tile in registers at once: twice as many where a loop keeps the total of its steps apart, as a whole."""
    whole = is_zero(op.c) and isinstance(op.parent_op(), scf.ForOp) and not summed_apart(op)
    return prod(tensor_of(op.d).get_shape()) * (2 if whole else 1)


def warpgroup_instruction(op: DotOp, encoding: MmaAttr) -> Wgmma:
    """The product that a warpgroup does, the first that a word of metadata serves."""
    # Operands in parts are turned.
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
