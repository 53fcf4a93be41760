"""Lowers atomic operations. One of the threads that hold an element performs them.

One instruction may add several neighbours. Other operations are performed element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type
from xdsl.ir import Attribute

from louver.analysis.passages import function_of
from louver.compile.lower.tiles.exchange import from_owners
from louver.compile.lower.tiles.memory import each_of, layout_of
from louver.compile.lower.tiles.neighbours import accesses
from louver.compile.lower.tiles.numbers import bits_of, element_bytes, is_integer
from louver.compile.lower.tiles.older_targets import add_by_swaps
from louver.compile.lower.tiles.packing import WORD, pack_elements
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.compile.plan.feeds.copied_loads import array_of
from louver.ir.refusal import unsupported
from louver.ir.tile import (
    AddPtrOp,
    AtomicCASOp,
    AtomicOp,
    AtomicRMWOp,
    BroadcastOp,
    ExpandDimsOp,
    SplatOp,
)
from louver.ir.tile.multiples import apart_of
from louver.ir.tile.types import element_of
from louver.isa.instruction import REGISTER_BITS
from louver.isa.memory import MAX_BYTES, AddVector, AtomicAdd, AtomicCompareAndSwap, AtomicUpdate
from louver.isa.move import Bitcast
from louver.isa.scalar import Binary, ScalarType
from louver.isa.sync import FenceGpu
from louver.ptx.module import Address, Reg

_WHOLE = {"max": ("max", "s"), "min": ("min", "s"), "umax": ("max", "u"), "umin": ("min", "u")} | {
    name: (name, "b") for name in ("and", "or", "xor")
}
"""Kinds for integers: the name in PTX, and the letter of the type."""

_ONCE = ("and", "or", "max", "min")
"""Updates that change nothing the second time."""


def lower_atomic(low: Lowering, op: AtomicOp) -> Registers | None:
    """Change memory element by element. Returns the old values; None if nothing uses them.

    A fence is one of the threads that change memory. The others have synchronized with them before it, and get the old values behind it.
    So a change that nothing reads acquires nothing.
    """
    if op.scope.data == "sys":
        raise unsupported("the scope of an atomic operation must be 'gpu' or 'cta'", op, "leave scope out")
    form = _form(op, element_of(op.value.type))
    layout = layout_of(low, op.value)
    pointers = low.values[op.ptr]
    given = [low.values[op.value]]
    if isinstance(op, AtomicCASOp):
        given = [low.values[op.expected], *given]
    masks = each_of(low, op.mask if isinstance(op, AtomicRMWOp) else None, len(pointers))
    if is_ordered(op):
        low.begin_store()
    owner = low.owner(layout)
    if op.sem.data in ("release", "acq_rel"):
        low.k.emit(FenceGpu(), guard=owner)
    before: list[Reg] = []
    if _joins(form, (pointers, *given)):
        # One update by a thread is as good as one for each of its elements.
        pointers, given, masks = pointers[:1], [values[:1] for values in given], [_any(low, masks)]
    if isinstance(form, AtomicAdd) and not form.returns and low.provides(form):
        _add(low, form, (pointers, given[0], masks), owner)
    else:
        before = [
            _change(low, form, pointer, values, low.both(mask, owner))
            for pointer, mask, *values in zip(pointers, masks, *given, strict=True)
        ]
    if op.result.first_use is None:
        return None
    if op.sem.data in ("acquire", "acq_rel"):
        low.k.emit(FenceGpu(), guard=owner)
    return from_owners(low, op, tuple(before), layout) if owner is not None else tuple(before)


def is_ordered(op: AtomicOp) -> bool:
    """Whether an atomic operation keeps its place among other accesses of the program. It need not if it is relaxed, and its
    array, which overlaps no other one, has only such operations of one kind.
    """
    array = array_of(op.ptr)
    if op.sem.data != "relaxed" or array is None or array not in apart_of(function_of(op)):
        return True
    pending, kinds = [array], set[str]()
    while pending:
        value = pending.pop()
        for user in (use.operation for use in value.uses):
            if isinstance(user, AtomicRMWOp) and user.ptr is value and user.result.first_use is None:
                kinds.add(f"{user.sem.data} {user.kind.data}")
            elif isinstance(user, AddPtrOp | SplatOp | BroadcastOp | ExpandDimsOp) and user.operands[0] is value:
                pending += user.results
            else:
                return True
    return len(kinds) > 1


def _joins(form: AtomicAdd | AtomicUpdate | AtomicCompareAndSwap, tiles: Sequence[Sequence[Reg]]) -> bool:
    """Whether all elements of a thread change one number in one way, so that the first change is that of all."""
    same = all(len(set(registers)) == 1 for registers in tiles)
    return same and isinstance(form, AtomicUpdate) and not form.returns and form.op in _ONCE


def _any(low: Lowering, masks: Sequence[Reg | None]) -> Reg | None:
    """Whether any of these conditions holds. None is always true."""
    found = masks[0]
    for mask in masks[1:]:
        found = None if found is None or mask is None else low.emit(Binary("or", "pred"), found, mask)
    return found


def _change(
    low: Lowering,
    form: AtomicAdd | AtomicUpdate | AtomicCompareAndSwap,
    pointer: Reg,
    values: Sequence[Reg],
    guard: Reg | None,
) -> Reg:
    """Change one element. Returns the old value if `form` does."""
    if isinstance(form, AtomicAdd) and not low.provides(form):
        return add_by_swaps(low, pointer, values[0], guard)
    # An exchange of f32 exchanges its bits.
    as_float = values[0].type == "f32" and not isinstance(form, AtomicAdd)
    bits = [low.emit(Bitcast("b32"), value) for value in values] if as_float else values
    if not isinstance(form, AtomicCompareAndSwap) and not form.returns:
        low.k.emit(form, Address(pointer), *bits, guard=guard)
        return bits[0]
    found = low.copy(low.constant(0, bits[0].type))
    low.k.emit(form, found, Address(pointer), *bits, guard=guard)
    return low.emit(Bitcast("f32"), found) if as_float else found


def _add(
    low: Lowering, form: AtomicAdd, tiles: tuple[Sequence[Reg], Sequence[Reg], Sequence[Reg | None]], owner: Reg | None
) -> None:
    """Add elements, and neighbours by one instruction where it exists. tiles: pointers, values and masks."""
    pointers, values, masks = tiles
    size = REGISTER_BITS[values[0].type] // 8
    floating = form.type in ("f32", "f16", "bf16")
    most = size if not floating else MAX_BYTES if low.provides(AddVector()) else WORD
    for access in accesses(low, pointers, masks, size, most):
        words, guard = [values[number] for number in access.elements], low.both(access.mask, owner)
        kind = form.type
        if len(words) > 1 and size < WORD:
            words = [pack_elements(low, words[first : first + 2], size) for first in range(0, len(words), 2)]
            kind = "f16x2" if kind == "f16" else "bf16x2"
        if len(words) == 1:
            low.k.emit(AtomicAdd(kind), access.address, words[0], guard=guard)
        else:
            vector = AddVector(kind, cast("Literal[2, 4]", len(words)))
            low.k.emit(vector, access.address, tuple(words), guard=guard)


def _form(op: AtomicOp, element: Attribute) -> AtomicAdd | AtomicUpdate | AtomicCompareAndSwap:
    """The instruction. Rejects operations that PTX does not have."""
    if isinstance(op, AtomicCASOp):
        held = element_bytes(element, op) * 8
        if held not in (16, 32, 64) or (held == 16 and is_integer(element)):
            raise unsupported(
                f"compare and swap is on f16, bf16, f32 and integers of 32 and 64 bits, not {element}",
                op,
                "keep the array in one of these types",
            )
        return AtomicCompareAndSwap(cast(Literal["b16", "b32", "b64"], f"b{held}"))
    kind, returns = op.kind.data, op.result.first_use is not None
    bits = bits_of(element) if is_integer(element) else 0
    match element:
        case Float32Type() | Float16Type() | BFloat16Type() if kind == "fadd":
            names = {Float32Type: "f32", Float16Type: "f16", BFloat16Type: "bf16"}
            return AtomicAdd(cast(Literal["f32", "f16", "bf16"], names[type(element)]), returns)
        case _ if kind == "add" and bits in (32, 64):
            return AtomicAdd("u32" if bits == 32 else "u64", returns)
        case _ if kind in _WHOLE and bits in (32, 64):
            name, letter = _WHOLE[kind]
            return AtomicUpdate(name, cast(ScalarType, f"{letter}{bits}"), returns)
        case _ if kind == "exch" and (bits in (32, 64) or isinstance(element, Float32Type)):
            return AtomicUpdate("exch", "b64" if bits == 64 else "b32", returns=True)
        case _:
            raise unsupported(
                "atomic operations are add on f32, f16 and bf16, exchange on f32, and all kinds on integers of "
                f"32 and 64 bits, not {kind} on {element}",
                op,
                "keep the array in i32, or sum in f32",
            )
