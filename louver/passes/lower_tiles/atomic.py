"""Atomic operations: an access an element, by one of the threads that hold it."""

from __future__ import annotations

from typing import Literal, cast

from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type
from xdsl.ir import Attribute

from louver.ir.tile import AtomicRMWOp
from louver.isa.memory import AtomicAdd, AtomicUpdate
from louver.isa.move import Bitcast
from louver.isa.scalar import ScalarType
from louver.isa.sync import FenceGpu
from louver.passes.lower_tiles.exchange import from_owners
from louver.passes.lower_tiles.memory import each_of, layout_of
from louver.passes.lower_tiles.numbers import bits_of, is_integer
from louver.passes.lower_tiles.state import Lowering, Registers, element_of
from louver.passes.refusal import unsupported
from louver.ptx.module import Address, Reg

_WHOLE = {"max": ("max", "s"), "min": ("min", "s"), "umax": ("max", "u"), "umin": ("min", "u")} | {
    name: (name, "b") for name in ("and", "or", "xor")
}
"""Kinds on integers: PTX's name, and the letter of the type."""


def lower_atomic(low: Lowering, op: AtomicRMWOp, limit: int) -> Registers | None:
    """Changes of memory, element by element; None where nothing uses what was there. All orders but `relaxed` are acq_rel."""
    element = element_of(op.value.type)
    form = _form(op, element)
    layout = layout_of(low, op.value)
    pointers, values = low.values[op.ptr], low.values[op.value]
    masks = each_of(low, op.mask, len(pointers))
    low.begin_store()
    ordered = op.sem.data != "relaxed"
    if ordered:
        # The threads have met: each hands on what all of them have stored.
        low.k.emit(FenceGpu())
    owner = low.owner(layout)
    before: list[Reg] = []
    for pointer, value, mask in zip(pointers, values, masks, strict=True):
        guard = low.both(mask, owner)
        # An exchange of f32 is one of its bits.
        given = low.emit(Bitcast("b32"), value) if value.type == "f32" and isinstance(form, AtomicUpdate) else value
        if form.returns:
            found = low.copy(low.constant(0, given.type))
            low.k.emit(form, found, Address(pointer), given, guard=guard)
            before.append(found if given is value else low.emit(Bitcast("f32"), found))
        else:
            low.k.emit(form, Address(pointer), given, guard=guard)
    if ordered:
        low.k.emit(FenceGpu())
    if op.result.first_use is None:
        return None
    return from_owners(low, op, tuple(before), layout, limit) if owner is not None else tuple(before)


def _form(op: AtomicRMWOp, element: Attribute) -> AtomicAdd | AtomicUpdate:
    """The instruction. Refuses what PTX has none for."""
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
        case _ if kind == "xchg" and (bits in (32, 64) or isinstance(element, Float32Type)):
            return AtomicUpdate("exch", "b64" if bits == 64 else "b32", returns=True)
        case _:
            raise unsupported(
                f"atomic operations add f32, f16 and bf16, exchange f32, and do all of theirs on integers of 32 and 64 bits: "
                f"there is no {kind} of {element}",
                op,
            )
