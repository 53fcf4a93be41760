"""PTX text of one product for each family, kind and element type in `louver.isa.targets`, whatever a target has.

The texts do not come from the instruction objects: they check the table, and the table checks the objects.
"""

from __future__ import annotations

from typing import NamedTuple

from louver.isa.targets import TARGETS, MmaFamily

BITS = {"tf32": 32, "f16": 16, "bf16": 16, "s4": 4, "u4": 4}
"""Bits of the types that have not 8. Types of 6 and 4 bits have containers of 8, but for kinds of mxf4."""

SCALES = {"mxf8f6f4": ("1X", "ue8m0"), "mxf4": ("2X", "ue8m0"), "mxf4nvf4": ("4X", "ue4m3")}
"""Scales of each kind: a row's scales for one product, and their type."""


class Product(NamedTuple):
    """A product of A and B of one element type."""

    family: MmaFamily
    kind: str
    element: str

    @property
    def name(self) -> str:
        """The name of its kernel."""
        return "k_" + "".join(c if c.isalnum() else "_" for c in "_".join(self))


def every_product() -> list[Product]:
    """What at least one target has."""
    found = (
        Product(unit.family, unit.kind, element)
        for machine in TARGETS.values()
        for unit in machine.units
        for element in (*unit.native, *unit.emulated)
    )
    return list(dict.fromkeys(found))


def product_kernel(product: Product) -> str:
    """A kernel that loads the operands, multiplies once and stores the sums. Its statement is the line with "mma"."""
    integer = product.element[0] in "su"
    sums = [f"%{'r' if integer else 'f'}{index}" for index in range(4)]
    loaded = [*(f"%a{index}" for index in range(8)), "%e", *sums]
    return "\n".join(
        [
            f".visible .entry {product.name}(.param .u64 p) {{",
            ".reg .b32 %a<8>, %e, %r<4>; .reg .f32 %f<4>; .reg .b64 %p, %d<2>; .reg .pred %q;",
            "ld.param.u64 %p, [p];",
            *(f"ld.global.b32 {register}, [%p+{4 * index}];" for index, register in enumerate(loaded)),
            "ld.global.b64 %d0, [%p+128]; ld.global.b64 %d1, [%p+136]; setp.eq.u32 %q, %e, 0;",
            _statement(product, ", ".join(sums)),
            *(f"st.global.b32 [%p+{256 + 4 * index}], {register};" for index, register in enumerate(sums)),
            "ret; }",
            "",
        ]
    )


def _statement(product: Product, sums: str) -> str:
    family, kind, element = product
    d = "s32" if element[0] in "su" else "f32"
    bits = 4 if kind.startswith("mxf4") else BITS.get(element, 8)
    k = 256 // bits * (2 if "sp" in family else 1)
    if family == "tcgen05.sp":
        scales = ".block_scale" + (".scale_vec::4X" if kind == "mxf4nvf4" else "") if kind in SCALES else ""
        factors = "[%a4], [%a5], " if kind in SCALES else ""
        return f"tcgen05.mma.sp.cta_group::1.kind::{kind}{scales} [%a0], %d0, %d1, [%a1], %a2, {factors}%q;"
    if family in ("wgmma", "wgmma.sp"):
        sparse, meta = (".sp", "%e, 0, ") if family == "wgmma.sp" else ("", "")
        flags = "" if d == "s32" else ", 1, 1, 0, 0" if bits == 16 else ", 1, 1"
        shape = f"m64n8k{k}.{d}.{element}.{element}"
        return f"wgmma.fence.sync.aligned; wgmma.mma_async{sparse}.sync.aligned.{shape} {{{sums}}}, %d0, %d1, {meta}%q{flags};"
    b, meta = ("%a4, %a5, %a6, %a7", ", %e, 0") if "sp" in family else ("%a4, %a5", "")
    size, scale = SCALES.get(kind, ("", ""))
    middle = f".kind::{kind}" if kind else ""
    middle += f".block_scale.scale_vec::{size}" if size else ""
    end, factors = (f".{scale}", ", %a6, {0, 0}, %a7, {0, 0}") if size else ("", "")
    types = f"{d}.{element}.{element}.{d}{end}"
    return (
        f"{family}.sync.aligned.m16n8k{k}.row.col{middle}.{types} "
        f"{{{sums}}}, {{%a0, %a1, %a2, %a3}}, {{{b}}}, {{{sums}}}{meta}{factors};"
    )
