"""Converts between elements in memory and registers of an epilogue.

Registers hold floats as f32, and integers in 32 bits.
"""

from __future__ import annotations

from louver.compile.lower.products.state import Lowering
from louver.formats.dtypes import element_type
from louver.ir.rule import RuleError
from louver.isa.convert import Half
from louver.ptx.module import Address, Reg


def load_element(low: Lowering, address: Address, element: str, inside: Reg | None) -> Reg:
    """Load one element; 0 if it is not `inside`. inside: None if it always is."""
    k = low.k
    if element in ("f32", "s32"):
        value = k.mov(0.0, kind="f32") if element == "f32" else k.mov(0)
        k.load_global([value], address, guard=inside)
        return value
    narrow = k.mov(0, kind="b16")
    k.load_global([narrow], address, guard=inside)
    return k.to_f32(half(element), narrow)


def store_element(low: Lowering, address: Address, value: Reg, element: str, inside: Reg) -> None:
    """Round the value to its element type, once, and store it."""
    bits = stored_bits(low, value, element)
    if element_type(element).bytes == 1:
        low.k.store_byte(address, bits, guard=inside)
    else:
        low.k.store_global(address, bits, guard=inside)


def stored_bits(low: Lowering, value: Reg, element: str) -> Reg:
    """The bits to store for a value. An 8-bit element is the low byte of a 16-bit register."""
    k = low.k
    integer = value.type == "b32"
    match element:
        case "s32" if integer:
            return value
        case "f32":
            return k.f32_from_s32(value) if integer else value
        case "f16" | "bf16":
            return k.half_from_s32(element, value) if integer else k.from_f32(element, value)
        case "e4m3" | "e5m2" if not integer:
            return k.fp8_pair_from_f32(element, value, value)
        case "s8" if integer:
            return k.low_half(value)
        case _:
            held = "integers" if integer else "floating-point values"
            raise RuleError(f"{held} are not stored as {element}: store f32, f16 or bf16, or cast to it first")


def stored_pair(low: Lowering, first: Reg, second: Reg, element: Half) -> Reg:
    """Pack two values as 16-bit elements in one register, the first one in the lower half."""
    if first.type == "f32":
        return low.k.pair_from_f32(element, first, second)
    return low.k.pack_b32(stored_bits(low, first, element), stored_bits(low, second, element))


def half(element: str) -> Half:
    """The 16-bit float type with this name."""
    match element:
        case "f16" | "bf16":
            return element
        case _:
            raise RuleError(f"an epilogue reads and writes f32, f16 and bf16, got {element}")
