"""Atomic operations: an access an element, by one of the threads that hold it."""

from __future__ import annotations

from typing import Literal, cast

from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type
from xdsl.ir import Attribute

from louver.ir.tile import AtomicCASOp, AtomicOp, AtomicRMWOp
from louver.isa.memory import AtomicAdd, AtomicCompareAndSwap, AtomicUpdate
from louver.isa.move import Bitcast
from louver.isa.scalar import ScalarType
from louver.isa.sync import FenceGpu
from louver.passes.lower_tiles.exchange import from_owners
from louver.passes.lower_tiles.memory import each_of, layout_of
from louver.passes.lower_tiles.numbers import bits_of, element_bytes, is_integer
from louver.passes.lower_tiles.state import Lowering, Registers, element_of
from louver.passes.refusal import unsupported
from louver.ptx.module import Address, Reg

_WHOLE = {"max": ("max", "s"), "min": ("min", "s"), "umax": ("max", "u"), "umin": ("min", "u")} | {
    name: (name, "b") for name in ("and", "or", "xor")
}
"""Kinds on integers: PTX's name, and the letter of the type."""


def lower_atomic(low: Lowering, op: AtomicOp, limit: int) -> Registers | None:
    """Changes of memory, element by element; None where nothing uses what was there. All orders but `relaxed` are acq_rel."""
    if op.scope.data == "sys":
        raise unsupported("atomic operations are seen on one GPU: their scope is 'gpu' or 'cta'", op)
    form = _form(op, element_of(op.value.type))
    layout = layout_of(low, op.value)
    pointers = low.values[op.ptr]
    given = [low.values[op.value]]
    if isinstance(op, AtomicCASOp):
        given = [low.values[op.expected], *given]
    masks = each_of(low, op.mask if isinstance(op, AtomicRMWOp) else None, len(pointers))
    low.begin_store()
    ordered = op.sem.data != "relaxed"
    if ordered:
        # The threads have met: each hands on what all of them have stored.
        low.k.emit(FenceGpu())
    owner = low.owner(layout)
    before: list[Reg] = []
    for pointer, mask, *values in zip(pointers, masks, *given, strict=True):
        guard, as_float = low.both(mask, owner), values[0].type == "f32" and not isinstance(form, AtomicAdd)
        # An exchange of f32 is one of its bits.
        bits = [low.emit(Bitcast("b32"), value) for value in values] if as_float else values
        if isinstance(form, AtomicCompareAndSwap) or form.returns:
            found = low.copy(low.constant(0, bits[0].type))
            low.k.emit(form, found, Address(pointer), *bits, guard=guard)
            before.append(low.emit(Bitcast("f32"), found) if as_float else found)
        else:
            low.k.emit(form, Address(pointer), *bits, guard=guard)
    if ordered:
        low.k.emit(FenceGpu())
    if op.result.first_use is None:
        return None
    return from_owners(low, op, tuple(before), layout, limit) if owner is not None else tuple(before)


def _form(op: AtomicOp, element: Attribute) -> AtomicAdd | AtomicUpdate | AtomicCompareAndSwap:
    """The instruction. Refuses what PTX has none for."""
    if isinstance(op, AtomicCASOp):
        held = element_bytes(element, op) * 8
        if held not in (16, 32, 64) or (held == 16 and is_integer(element)):
            raise unsupported(
                f"compare and swap is on f16, bf16, f32 and integers of 32 and 64 bits, not {element}", op
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
                f"atomic operations add f32, f16 and bf16, exchange f32, and do all of theirs on integers of 32 and 64 bits: "
                f"there is no {kind} of {element}",
                op,
            )
