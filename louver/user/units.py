"""The instruction, tile and bytes of each dot, and the reasons why the dense kernel may be faster."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, cast

from xdsl.dialects import scf
from xdsl.dialects.builtin import FixedBitwidthType
from xdsl.ir import Operation

from louver.choose.times import H200
from louver.compile.compiled import CompiledTiles
from louver.compile.decompose.multiply_kept import sparse_origins
from louver.compile.plan.encode.shared_access import SCHEDULERS
from louver.compile.plan.encode.unit import by_warpgroups, is_transposed, product_shape
from louver.ir.refusal import source_location
from louver.ir.tile import AtomicOp, DecompressOp, DotOp, MmaAttr, element_name
from louver.ir.tile.types import register_encoding, tensor_of
from louver.ir.walk import ancestors
from louver.isa.fragments import ROWS
from louver.isa.mma import Mma
from louver.isa.move import Move
from louver.isa.targets import MmaFamily
from louver.isa.wgmma import Wgmma
from louver.ptx.module import Block, If, Inst, While

if TYPE_CHECKING:
    from louver.choose.occupancy import Assembled

INSTRUCTION_BITS = 256
"""Bits of K that a dense `wgmma` multiplies."""

MOST = 0.6
"""With a larger share of dense products a kernel may not be faster: an adapted product with 0.62 runs at 0.94 times
Triton's speed, with 0.54 at 1.35 times (`louver bench kernels`).
"""

OUTNUMBERED = 2.0
"""Clocks of a step's instructions over those of its products from which a kernel may not be faster.

29 of 132 launchers of other packages reach it on an H200; all slow ones are among the 132. 17 of the 29 are below 1.1 times the speed of
Triton's dense kernel, 8 above 1.2 times (`docs/perf-log/69-launchers-of-other-packages.md`).
"""

FEW_TOKENS = 16
"""Columns of a product up to which memory limits it."""


def describe_dots(made: CompiledTiles) -> Iterator[str]:
    """A text for each dot: its place, instruction, M×N×K tile, and bytes of operands."""
    for op in made.encoded.walk():
        if not isinstance(op, DotOp):
            continue
        sparse = op.sparse_index is not None
        held = [tensor_of(each) for each in (op.a, op.b, *([] if op.metadata is None else [op.metadata]))]
        nbytes = sum(prod(each.get_shape()) * cast(FixedBitwidthType, each.element_type).size for each in held)
        rows, columns = tensor_of(op.d).get_shape()
        unit = ("wgmma" if by_warpgroups(op) else "mma") + (".sp" if sparse else "")
        place = source_location(op.location)
        where = f" at {place}" if place else ""
        yield f"the dot{where} is {unit} of {rows}×{columns}×{_depth(op)}, {nbytes:,} bytes of operands"


def reasons_for_dense(found: Assembled) -> tuple[str, ...]:
    """Reasons, known before any launch, why the dense kernel may be as fast or faster. Empty for products."""
    made = found.kernel.made
    if not isinstance(made, CompiledTiles):
        return ()
    said = (
        _without_instruction(made),
        found.warning,
        _mostly_dense(made),
        _outnumbered(made),
        _computed(made),
        _expanded(made),
        _waiting(made),
    )
    return (*[each for each in said if each is not None], *made.dense)


def _mostly_dense(made: CompiledTiles) -> str | None:
    """The share of the time in dense products, if it is large. A pass through each loop counts once."""
    dots = [op for op in made.encoded.walk() if isinstance(op, DotOp)]
    dense = [op for op in dots if op.sparse_index is None]
    share = sum(map(_clocks, dense)) / max(sum(map(_clocks, dots)), 1)
    if share in (0, 1) or share < MOST:
        return None
    places = ", ".join(dict.fromkeys(filter(None, (source_location(op.location) for op in dense))))
    return (
        f"products of dense operands{f' at {places}' if places else ''} take {share:.0%} of the tensor cores' time of a step: the dense "
        "kernel by Triton may be as fast"
    )


def _outnumbered(made: CompiledTiles) -> str | None:
    """The clocks in which threads issue the instructions of a step, if they are many times those of its products."""
    multiplied = [op for op in made.encoded.walk() if isinstance(op, DotOp) and _loop(op) is not None]
    # A weight beside few tokens waits for memory, which sends fewer bytes of a sparse one.
    if not any(op.sparse_index is not None and product_shape(op)[1] > FEW_TOKENS for op in multiplied):
        return None
    loops = [list(_own(node.body)) for node in made.kernel.body.walk() if isinstance(node, While)]
    steps = [each for step in loops if any(map(_is_sparse_product, step)) for each in step]
    issued = sum(not isinstance(each.op, Move) for each in steps) * made.signature.warps / SCHEDULERS
    times = issued / sum(map(_clocks, multiplied))
    if times < OUTNUMBERED:
        return None
    return (
        f"in a step threads issue instructions for {times:.1f} times as long as its products take, and sparsity shortens only the "
        "products: the dense kernel by Triton may be as fast"
    )


def _own(block: Block) -> Iterator[Inst]:
    """The instructions of a loop's body, those of its branches too, without those of inner loops."""
    for node in block.nodes:
        if isinstance(node, Inst):
            yield node
        elif isinstance(node, If):
            for each in node.blocks:
                yield from _own(each)


def _is_sparse_product(node: Inst) -> bool:
    return isinstance(node.op, Mma | Wgmma) and node.op.sparse


def _computed(made: CompiledTiles) -> str | None:
    """The sparse arguments that are addressed at run time, if warpgroups multiply them.

    One such product ran at 0.79 of Triton's dense kernel on an H200 (`docs/perf-log/69-launchers-of-other-packages.md`). Those of
    few tokens wait for memory, and gain.
    """
    names = sorted(made.options.computed or ())
    multiplied = any(
        isinstance(op, DotOp) and op.sparse_index is not None and by_warpgroups(op) for op in made.encoded.walk()
    )
    if not names or not multiplied:
        return None
    return (
        f"addresses in {' and '.join(names)} are computed in each step, and its pieces are copied one by one: the dense kernel by Triton "
        "may be as fast"
    )


def _expanded(made: CompiledTiles) -> str | None:
    """Sparse tiles that a dot's loop, or a kernel with a dot outside of loops, expands for another use: threads also
    compute with the zeros.
    """
    dots = [op for op in made.decomposed.walk() if isinstance(op, DotOp)]
    loops = {_loop(dot) for dot in dots}
    # `made.dense` has the reasons for tiles that dense dots multiply.
    told = {
        origin
        for dot in dots
        if dot.sparse_index is None
        for columns, operand in ((1, dot.a), (0, dot.b))
        for origin, _ in sparse_origins(operand, columns)
    }
    found = [
        op for op in made.decomposed.walk() if isinstance(op, DecompressOp) and op not in told and _loop(op) in loops
    ]
    if not found:
        return None
    used = (source_location(use.operation.location) for op in found for use in op.result.uses)
    places = ", ".join(dict.fromkeys(filter(None, used)))
    return (
        f"{f'{places}: ' if places else ''}beside the dot threads compute with a whole sparse tile, zeros too: sparsity does not halve that "
        "work, and the dense kernel by Triton may be as fast"
    )


def _waiting(made: CompiledTiles) -> str | None:
    """The loops in which a program waits for another program: they have an atomic operation and no dot."""
    waits = [
        op
        for loop in made.encoded.walk()
        if isinstance(loop, scf.WhileOp) and not any(isinstance(op, DotOp) for op in loop.walk())
        for op in loop.walk()
        if isinstance(op, AtomicOp)
    ]
    if not waits:
        return None
    places = ", ".join(dict.fromkeys(filter(None, (source_location(op.location) for op in waits))))
    return (
        f"programs wait for each other{f' at {places}' if places else ''}: sparsity does not shorten that, and the dense kernel by Triton may be "
        "as fast"
    )


def _loop(op: Operation) -> Operation | None:
    """The innermost loop around an operation, or None."""
    return next((each for each in ancestors(op) if isinstance(each, scf.ForOp | scf.WhileOp)), None)


def _clocks(op: DotOp) -> float:
    """Clocks of an SM's tensor cores for a dot, as `wgmma`."""
    rows, columns = product_shape(op)
    bits = cast(FixedBitwidthType, tensor_of(op.a).element_type).size * 8
    step = INSTRUCTION_BITS // bits * (1 if op.sparse_index is None else 2)
    return -(-rows // ROWS) * -(-_depth(op) // step) * (H200.product + H200.column * columns)


def _depth(op: DotOp) -> int:
    """K of the dense operand."""
    dense = op.a if is_transposed(op) else op.b
    return tensor_of(dense).get_shape()[1 if is_transposed(op) else 0]


def _without_instruction(made: CompiledTiles) -> str | None:
    """The change that avoids dots without a fast instruction; None if there is no such dot."""
    for op in made.encoded.walk():
        if not isinstance(op, DotOp):
            continue
        encoding, element = register_encoding(op.d.type), element_name(tensor_of(op.a).element_type)
        family: MmaFamily = "mma" if op.sparse_index is None else "mma.sp::ordered_metadata"
        if made.target.support(family, element) != "emulated":
            continue
        if not isinstance(encoding, MmaAttr) or encoding.of_warpgroup:
            continue
        rows, _ = product_shape(op)
        place = source_location(op.location)
        if not made.target.has("wgmma"):
            return (
                f"{made.target.name} has no instruction for {element}; the dot{f' at {place}' if place else ''} is made of others, which "
                "are slower: multiply f16"
            )
        which = "rows of the sparse operand" if op.sparse_index is not None else "rows"
        advice = (
            f"choose blocks with {ROWS} {which} or more"
            if rows % ROWS
            else "load both operands in the loop, from addresses and rows of multiples of 16 bytes"
        )
        return (
            f"{made.target.name} multiplies {element} in groups of {ROWS} {which}, loaded in 16 bytes; the dot"
            f"{f' at {place}' if place else ''} has {rows} and is made of other instructions, many times slower: {advice}"
        )
    return None
