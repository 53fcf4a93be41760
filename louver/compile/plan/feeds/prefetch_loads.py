"""prefetch-loads: loads operands of a loop's dots, or what it reduces, to registers one step ahead.

    first = load at the loop's first number                  if there is one
    for i … iter_args(…, tile = first):
        … tile goes to shared memory …
        next = load at i + step                              if there is such a number
        … products of tile …
        yield …, next

The loads run during the products or reductions of the step before. Loaded tiles stay in registers, so `KEPT_BYTES`
limits them together with the sums.

Input and output are valid tile IR without sparse types, block pointers and descriptors, with or without encodings. The
loaded values do not change. Addresses past the end of the loop are computed but not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.passages import end_of
from louver.compile.decompose.reported import known_flag
from louver.compile.plan.encode.unit import multiplies as of_warpgroups
from louver.compile.plan.feeds.chunks import is_tested
from louver.compile.plan.feeds.copied_loads import addresses, array_of, is_unchanged, known_ahead
from louver.compile.plan.feeds.neighbours import tile_bytes
from louver.compile.plan.feeds.ring_tiles import goes_to_ring
from louver.compile.plan.feeds.staged_operands import staged_operands
from louver.compile.plan.feeds.steps_ahead import (
    Sources,
    computed_again,
    guarded_mask,
    loaded_again,
    move_up,
    only_loads,
)
from louver.compile.rewrite.insert import carrying, insert, insert_before
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.comparisons import CmpiOp
from louver.ir.tile import AtomicRMWOp, DotOp, FuncOp, LoadOp, ReduceOp
from louver.ir.tile.multiples import apart_of
from louver.ir.tile.types import as_tensor
from louver.ir.walk import each_once
from louver.isa.instruction import LANES

KEPT_BYTES = 448
"""Bytes of each thread for sums and for loads ahead: 112 of 255 registers. The rest is for operands and addresses."""


def prefetch_loads(module: ModuleOp, warps: int, *, rings: bool = False) -> None:
    """Rewrites innermost loops in place, if they load, compute and store, and have dots with operands in shared memory, or
    reductions and no dots.

    Loads of scalars, of dot operands and of what is reduced move ahead, if all of them and the sums fit `KEPT_BYTES`.
    A load does not move if its address depends on tiles or sums of the loop. Scalars on which addresses depend move first, so
    that they are there when tiles, or copies of a ring, need them. In a loop that also stores, loads move if no store may
    change them. If it carries sums of warpgroup products, only those scalars move: what the loop carries keeps products from running on,
    as does a branch of copies that test their addresses. Reports of violations move with the loads, which need the same conditions.

    warps: warps of a CTA.
    rings: whether ring-copies follows. Loads that it copies do not move ahead.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp) and op.is_public]:
        staged, apart, flag = staged_operands(function), apart_of(function), known_flag(function)
        for loop in [op for op in function.body.walk() if isinstance(op, scf.ForOp)]:
            block = loop.body.block
            dots = [op for op in block.walk() if isinstance(op, DotOp)]
            reduces = not dots and any(isinstance(op, ReduceOp) for op in block.ops)
            multiplies = any(value in staged for dot in dots for value in (dot.a, dot.b))
            if not (reduces or multiplies) or not only_loads(loop, stores=True):
                continue
            tiles = [op for op in block.ops if isinstance(op, LoadOp) and as_tensor(op.result.type) is not None]
            needed = Sources(loop, [each for tile in tiles for each in addresses(tile)], repeated=False).loads
            # Warps wait for their own products, which do not run on.
            runs_on = any(dot.c in block.args for dot in dots if dot.parent is block and of_warpgroups(dot, staged))
            runs_on &= not any(rings and is_tested(op) and goes_to_ring(loop, op, apart) for op in tiles)
            ahead = only_loads(loop) or not runs_on
            multiplied = _multiplied(dots, loop) if multiplies else set(block.ops)
            loads = [
                op
                for op in block.ops
                if isinstance(op, LoadOp)
                and (op in needed or (ahead and (op in multiplied or as_tensor(op.result.type) is None)))
                and is_unchanged(op, loop, apart)
                and not (rings and goes_to_ring(loop, op, apart))
                and known_ahead(loop, op.operands, apart, repeated=False)
            ]
            sums = [dot.d for dot in dots] if dots else [each for each in loop.results if as_tensor(each.type)]
            kept = sum(map(tile_bytes, [*(load.result for load in loads), *sums]))
            if kept > KEPT_BYTES * LANES * warps:
                continue
            first, then = [op for op in loads if op in needed], [op for op in loads if op not in needed]
            loop = _load_ahead(loop, first) if first else loop
            if then:
                reports = [op for op in loop.body.block.ops if isinstance(op, AtomicRMWOp) and array_of(op.ptr) is flag]
                known = [op for op in reports if known_ahead(loop, op.operands, apart, repeated=False)]
                _load_ahead(loop, then, known)
        remove_dead(function)


def _multiplied(dots: Sequence[DotOp], loop: scf.ForOp) -> set[Operation]:
    """The loads of a loop from which operands are computed."""
    found: set[Operation] = set()
    for dot in dots:
        for operand in (dot.a, dot.b, *([] if dot.metadata is None else [dot.metadata]), *dot.scales):
            found |= _loads_of(operand, loop) or set()
    return found


def _loads_of(operand: SSAValue, loop: scf.ForOp) -> set[Operation] | None:
    """The loads of a loop from which a tile is computed; None if the tile depends on a dot or a reduction there."""
    found: set[Operation] = set()
    pending = [operand]
    for value in each_once(pending):
        owner = value.owner
        if not isinstance(owner, Operation) or not loop.is_ancestor(owner):
            continue
        if isinstance(owner, LoadOp):
            if as_tensor(owner.result.type) is not None:
                found.add(owner)
        elif isinstance(owner, DotOp) or owner.regions:
            return None
        else:
            pending += owner.operands
    return found


def _load_ahead(loop: scf.ForOp, loads: Sequence[LoadOp], reports: Sequence[AtomicRMWOp] = ()) -> scf.ForOp:
    """Move these loads and reports of the loop one step ahead. Returns the new loop."""
    block, end = loop.body.block, end_of(loop.body.block)
    sources = Sources(loop, [each for op in (*loads, *reports) for each in op.operands], repeated=False)
    made, varying = sources.made, sources.varying
    move_up(block, (set(made) - varying).union(sources.stepped))
    # Before the dot, the tiles of this step are stored to shared memory, so their registers are free.
    at = next((op for op in block.ops if any(isinstance(each, DotOp) for each in op.walk())), loads[0])

    runs = insert_before(loop, CmpiOp(loop.lb, loop.ub, "slt"))
    starts = dict[SSAValue, SSAValue](zip(block.args, (loop.lb, *loop.iter_args), strict=True))
    first = _loads_at(loop, loads, made, starts, runs, reports)

    # The next number may overflow. The difference to the upper bound does not: it is at least 1, and fits as unsigned.
    number = block.args[0]
    left = insert(at, arith.SubiOp(loop.ub, number), loop).results[0]
    goes_on = insert(at, CmpiOp(loop.step, left, "ult"), loop).results[0]
    following = insert(at, arith.AddiOp(number, loop.step), loop).results[0]
    following.name_hint = number.name_hint
    ends = dict[SSAValue, SSAValue](zip(block.args, (following, *end.operands), strict=True))
    ahead = _loads_at(at, loads, [op for op in made if op in varying], ends, goes_on, reports)
    for op in reports:
        Rewriter.erase_op(op)
    return _carry(loop, loads, first, ahead)


def _loads_at(
    before: Operation,
    loads: Sequence[LoadOp],
    made: Iterable[Operation],
    known: dict[SSAValue, SSAValue],
    guard: SSAValue,
    reports: Sequence[AtomicRMWOp],
) -> list[SSAValue]:
    """Clones loads and reports before an operation, under the condition `guard`, and returns the results of the loads.

    known: maps values of the body to values there.
    """
    computed_again(before, made, known, guard)
    for op in reports:
        again = op.clone(known)
        again.operands[2] = guarded_mask(before, op, known, guard)
        insert(before, again, op)
    return [loaded_again(before, load, known, guard) for load in loads]


def _carry(loop: scf.ForOp, loads: Sequence[LoadOp], first: Sequence[SSAValue], ahead: Sequence[SSAValue]) -> scf.ForOp:
    """Replace the loads of the loop by arguments that carry the tiles loaded ahead."""
    block, end = loop.body.block, end_of(loop.body.block)
    for load in loads:
        tile = block.insert_arg(load.result.type, len(block.args))
        Rewriter.replace_op(load, [], [tile])
    new = carrying(loop, [*loop.iter_args, *first], [*end.operands, *ahead])
    Rewriter.replace_op(loop, [], new.results[: len(loop.results)])
    return new
