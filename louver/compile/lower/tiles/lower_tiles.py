"""Lowers a kernel of register tiles: its parameters, then each operation in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type
from xdsl.ir import Attribute, Block, Operation, SSAValue

from louver.analysis.effects import has_no_effect
from louver.analysis.runs import Runs
from louver.compile.lower.tiles.async_copy import begin_copy, commit_copies, wait_for_copies
from louver.compile.lower.tiles.atomic import lower_atomic
from louver.compile.lower.tiles.boxes import (
    clear_slots,
    copy_boxes,
    even_barriers,
    fit_box,
    init_barriers,
    meet,
    wait_for_boxes,
)
from louver.compile.lower.tiles.control import lower_for, lower_if, lower_while
from louver.compile.lower.tiles.decompress import lower_compress, lower_decompress
from louver.compile.lower.tiles.dot import lower_dot
from louver.compile.lower.tiles.exchange import lower_conversion, lower_gather
from louver.compile.lower.tiles.facts import Facts
from louver.compile.lower.tiles.join_equal import join_equal
from louver.compile.lower.tiles.memory import lower_load, lower_store
from louver.compile.lower.tiles.numbers import bits_of, compute, extended, from_f32, is_integer
from louver.compile.lower.tiles.order import order_by_demand
from louver.compile.lower.tiles.pairs import paired
from louver.compile.lower.tiles.reduce import lower_reduction
from louver.compile.lower.tiles.scan import lower_scan
from louver.compile.lower.tiles.shapes import (
    lower_constant,
    lower_join,
    lower_move,
    lower_range,
    lower_splat,
    lower_split,
)
from louver.compile.lower.tiles.shared import lower_slot, place_memory, put_tile, take_tile
from louver.compile.lower.tiles.state import Lowering, Registers, Rooms, register_class
from louver.compile.lower.tiles.sums import Made, derived, summed
from louver.compile.lower.tiles.warpgroup_dot import DotInParts, lower_warpgroup_dot, wait_for_dot
from louver.compile.plan.encode.anchors import is_tile
from louver.compile.plan.encode.unit import by_warpgroups, in_parts
from louver.compile.signature import ArgumentParameter, BoxParameter, BoxSizeParameter, kernel_name, with_tails
from louver.ir import tile as tt
from louver.ir.refusal import source_location, unsupported
from louver.ir.tile.multiples import has_known_addresses
from louver.ir.tile.staging import in_shared
from louver.ir.tile.syntax import AXES
from louver.ir.tile.types import element_of
from louver.isa.floating import Fma
from louver.isa.instruction import LANES
from louver.isa.targets import Target
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Block as PtxBlock
from louver.ptx.module import Kernel, Module, Param, Reg

_EXCHANGES = (
    tt.ConvertLayoutOp,
    tt.DotOp,
    tt.ReduceOp,
    tt.ScanOp,
    tt.GatherOp,
    scf.YieldOp,
    scf.ConditionOp,
    tt.ReturnOp,
)
"""Operations that may exchange data between threads, or that end a block. Products must end before them."""


def lower_tiles(
    function: tt.FuncOp,
    parameters: Sequence[ArgumentParameter | BoxParameter],
    warps: int,
    target: Target,
    rooms: Rooms,
) -> Module:
    """A PTX module with the function as its only kernel.

    parameters: the parameters of the function's arguments, in order.
    warps: warps of a CTA.
    rooms: the result of `place_shared`.

    Rejects operations without a lowering, with operation and source line.
    """
    params = tuple(Param(each.name, each.type) for each in with_tails(parameters))
    name = kernel_name(function.sym_name.data, [each.name for each in params])
    k = KernelBuilder(name, params, threads=warps * LANES)
    multiples = (each.multiple if isinstance(each, ArgumentParameter) else 1 for each in parameters)
    runs = Runs(dict(zip(function.body.block.args, multiples, strict=True)))
    low = Lowering(k, warps, PtxBlock(), target, rooms, runs, lambda block: _block(low, block))
    low.in_chunks = has_known_addresses(function)
    low.waits = any(isinstance(op, tt.LoadOp) and op.fresh and not is_tile(op.result) for op in function.body.walk())
    return Module(target.name, [_run(low, function, parameters)])


def _multiplies(op: Operation) -> bool:
    """Whether an operation is a warpgroup product, or contains one."""
    return any(isinstance(each, tt.DotOp) and by_warpgroups(each) for each in op.walk())


def _terms(op: Operation) -> Sequence[SSAValue]:
    """The operands of an operation. For the sum of a scaled dot and another term: both factors and that term.

    They become one multiply-add, which rounds once. The rounding of tensor cores is not specified, so one rounding less
    is allowed.
    """
    if isinstance(op, arith.AddfOp) and isinstance(element_of(op.result.type), Float32Type):
        for index, value in enumerate(op.operands):
            product = value.owner
            if (
                isinstance(product, arith.MulfOp)
                and value.has_one_use()
                and product.parent is op.parent
                and _scales_a_dot(product)
            ):
                return [*product.operands, op.operands[1 - index]]
    return op.operands


def _scales_a_dot(op: Operation | Block) -> bool:
    """Whether an operation multiplies the sums of a dot by any factors."""
    return isinstance(op, arith.MulfOp) and any(
        isinstance(factor.owner, tt.DotOp | tt.DotWaitOp) or _scales_a_dot(factor.owner) for factor in op.operands
    )


def _run(low: Lowering, function: tt.FuncOp, parameters: Sequence[ArgumentParameter | BoxParameter]) -> Kernel:
    """The kernel, complete."""
    with low.k.inside(low.prologue):
        for value, parameter in zip(function.body.block.args, parameters, strict=True):
            low.values[value] = (_argument(low, value.type, parameter, function),)
            if isinstance(parameter, BoxParameter) and parameter.tailed:
                rows = low.k.ld_param(BoxSizeParameter(parameter).name)
                low.tails[value] = low.k.map_address(parameter.tail.name), rows
    operations = list(function.body.block.ops)
    last = max((place for place, op in enumerate(operations) if _multiplies(op)), default=-1)
    for place, op in enumerate(operations):
        low.multiplies = place <= last
        _operation(low, op)
    kernel = low.k.finish()
    kernel.body.nodes[0:0] = low.prologue.nodes
    join_equal(kernel.body, low.k.reg)
    order_by_demand(kernel.body)
    kernel.dynamic_shared = low.rooms.bytes
    return kernel


def _argument(low: Lowering, type_: Attribute, parameter: ArgumentParameter | BoxParameter, function: tt.FuncOp) -> Reg:
    if isinstance(parameter, BoxParameter):
        return low.k.map_address(parameter.name)
    register = low.k.ld_param(parameter.name)
    if isinstance(type_, Float16Type | BFloat16Type):
        return from_f32(low, register, type_)
    if is_integer(type_):
        bits = bits_of(type_)
        if bits == 1:
            return low.k.setp("ne", "u32", low.k.and_(register, 1), 0)
        register = extended(low, register, type_)
    register_class(type_, function)
    if register.type in ("b32", "b64") and parameter.multiple > 1:
        low.known.has(register, Facts(parameter.multiple))
    return register


def _block(low: Lowering, block: Block) -> None:
    waiting: dict[Operation, DotInParts] = {}
    for op in block.ops:
        if isinstance(op, tt.DotOp) and by_warpgroups(op) and (sums := in_parts(op)):
            waiting = dict.fromkeys(sums, DotInParts(low, op))
        elif op not in waiting:
            _operation(low, op)
        elif op is list(waiting)[-1]:
            _finish_parts(low, list(waiting), waiting[op])
            waiting = {}


def _finish_parts(low: Lowering, operations: Sequence[Operation], dot: DotInParts) -> None:
    """Lower operations on elements of a dot's sums, part by part."""
    for number, places in enumerate(dot.parts):
        if number:
            dot.begin(number)
        low.finish_products()
        for op in operations:
            with low.k.at(source_location(op.location)):
                made = dict(zip(places, _elements(low, op, places), strict=True))
            before = low.values.get(op.results[0], low.values[op.operands[0]])
            low.values[op.results[0]] = tuple(made.get(at, each) for at, each in enumerate(before))


def _operation(low: Lowering, op: Operation) -> None:
    with low.k.at(source_location(op.location)):
        if low.pending and not _goes_on(low, op):
            low.finish_products()
        made = _RULES.get(type(op), _elementwise)(low, op)
        if made is not None:
            low.values[op.results[0]] = made


Rule: TypeAlias = Callable[[Lowering, Any], "Registers | None"]
"""Lowers an operation. Returns the registers of its result; None if it has no result or has set them itself."""


def _nothing(low: Lowering, op: Operation) -> None:
    """The end of a block. The enclosing operation reads its operands."""


def _program(register: str) -> Rule:
    def rule(low: Lowering, op: tt.GetProgramIdOp | tt.GetNumProgramsOp) -> Registers:
        return (low.k.special(f"%{register}.{AXES[op.axis.value.data]}"),)

    return rule


def _convert(low: Lowering, op: tt.ConvertLayoutOp) -> Registers | None:
    if in_shared(op.result):
        return put_tile(low, op)
    return take_tile(low, op) if in_shared(op.src) else lower_conversion(low, op)


def _turn(low: Lowering, op: tt.TransOp) -> Registers:
    return low.values[op.src] if in_shared(op.result) else lower_move(low, op)


def _dot(low: Lowering, op: tt.DotOp) -> Registers:
    return lower_warpgroup_dot(low, op) if by_warpgroups(op) else lower_dot(low, op)


def _elementwise(low: Lowering, op: Operation) -> Registers:
    if len(op.results) != 1 or op.regions:
        raise unsupported(f"{op.name} is not computed on tiles in registers", op)
    return _elements(low, op)


_RULES: dict[type[Operation], Rule] = {
    **dict.fromkeys((tt.ReturnOp, scf.YieldOp, scf.ConditionOp, tt.ReduceReturnOp, tt.ScanReturnOp), _nothing),
    scf.ForOp: lower_for,
    scf.IfOp: lower_if,
    scf.WhileOp: lower_while,
    arith.ConstantOp: lower_constant,
    tt.GetProgramIdOp: _program("ctaid"),
    tt.GetNumProgramsOp: _program("nctaid"),
    tt.MakeRangeOp: lower_range,
    tt.SplatOp: lower_splat,
    tt.ExpandDimsOp: lower_move,
    tt.BroadcastOp: lower_move,
    tt.ReshapeOp: lower_move,
    tt.TransOp: _turn,
    tt.JoinOp: lower_join,
    tt.SplitOp: lower_split,
    tt.LoadOp: lower_load,
    tt.StoreOp: lower_store,
    tt.AtomicRMWOp: lower_atomic,
    tt.AtomicCASOp: lower_atomic,
    tt.DotOp: _dot,
    tt.DotWaitOp: wait_for_dot,
    tt.DecompressOp: lower_decompress,
    tt.CompressOp: lower_compress,
    tt.ReduceOp: lower_reduction,
    tt.ScanOp: lower_scan,
    tt.GatherOp: lower_gather,
    tt.ConvertLayoutOp: _convert,
    tt.LocalAllocOp: place_memory,
    tt.LocalStoreOp: put_tile,
    tt.SlotOp: lower_slot,
    tt.AsyncCopyOp: begin_copy,
    tt.AsyncCommitOp: commit_copies,
    tt.AsyncWaitOp: wait_for_copies,
    tt.MeetOp: meet,
    tt.InitBarriersOp: init_barriers,
    tt.EvenBarriersOp: even_barriers,
    tt.WaitBarrierOp: wait_for_boxes,
    tt.BoxCopiesOp: copy_boxes,
    tt.ClearSlotsOp: clear_slots,
    tt.FitBoxOp: fit_box,
}
"""The lowering of each operation. Other operations are computed element by element."""


def _goes_on(low: Lowering, op: Operation) -> bool:
    """Whether an operation may run during warpgroup products. It must not read sums or affect the products."""
    if isinstance(op, tt.DotOp) and by_warpgroups(op):
        return True
    if any(isinstance(each.owner, tt.DotOp) for each in op.operands):
        return False
    if isinstance(op, tt.ConvertLayoutOp) and (in_shared(op.src) or op in low.rooms.own):
        return True
    return isinstance(op, tt.AsyncCopyOp | tt.AsyncCommitOp | tt.BoxCopiesOp | tt.LoadOp | tt.LocalStoreOp) or (
        has_no_effect(op) and not op.regions and not isinstance(op, _EXCHANGES)
    )


def _elements(low: Lowering, op: Operation, places: Sequence[int] | None = None) -> Registers:
    """Lower an operation for each element, or for the elements at `places`. All elements use the same scalar operands."""
    for value in (*op.operands, *op.results):
        register_class(element_of(value.type), op)
    whole = range(len(low.layout(op.results[0]).registers) if is_tile(op.results[0]) else 1)
    places = whole if places is None else places

    def column(value: SSAValue) -> Registers:
        registers = low.values[value]
        return tuple(registers[place] for place in places) if is_tile(value) else registers * len(places)

    if is_tile(op.results[0]) and (together := paired(low, op, list(map(column, op.operands)))) is not None:
        return together
    columns = list(map(column, _terms(op)))
    known: dict[tuple[Reg, ...], Reg] = {}
    made: Made = {}
    found: list[Reg] = []
    for operands in zip(*columns, strict=True):
        # Repeated elements of a tile are computed once.
        if operands not in known:
            known[operands] = _element(low, op, operands, made)
        found.append(known[operands])
    return tuple(found)


def _element(low: Lowering, op: Operation, operands: tuple[Reg, ...], made: Made) -> Reg:
    if len(operands) == len(op.operands) + 1:
        return low.emit(Fma(), *operands)
    found = summed(low, op, operands, made)
    if found is None:
        found = compute(low, op, operands)
        derived(low, op, operands, found)
    return found
