"""How the kernels are compiled: argument types, tile sizes and the sparse argument; no Triton needed to read this."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parents[2] / "golden" / "ttir"

SIZES = {"M": "i32", "N": "i32", "K": "i32"}
STRIDES = {"stride_a": "i64", "stride_b": "i32", "stride_d": "i64"}
TILE = {"BM": 128, "BN": 64, "BK": 64}


@dataclass(frozen=True)
class Case:
    """A kernel, by its name in `kernels`, with the types of its arguments, its constexprs and its sparse argument."""

    kernel: str
    signature: dict[str, str]
    constexprs: dict[str, Any]
    sparse: dict[str, str] = field(default_factory=lambda: {"a": "2:4"})
    oldest: bool = False

    def compile(self, kernels: Any) -> Any:
        """Tile IR by way of the Triton that is installed; `kernels` is that module."""
        from louver.frontend.triton import triton_to_tile_ir

        return triton_to_tile_ir(getattr(kernels, self.kernel), self.signature, self.constexprs, sparse=self.sparse)


def pointers(element: str, out: str) -> dict[str, str]:
    return {"a": f"*{element}", "b": f"*{element}", "d": f"*{out}"}


CASES = {
    "made_descriptors": Case("made_descriptors", {**pointers("fp16", "fp16"), **SIZES, **STRIDES}, TILE),
    "given_descriptors": Case(
        "given_descriptors",
        {
            "d_tiles": "tensordesc<bf16[128,64]>",
            "a_tiles": "tensordesc<bf16[128,64]>",
            "b_tiles": "tensordesc<bf16[64,64]>",
            "K": "i32",
        },
        TILE,
        {"a_tiles": "2:4"},
    ),
    "block_pointers": Case("block_pointers", {**pointers("fp16", "fp16"), **SIZES, **STRIDES}, TILE, oldest=True),
    "grouped_pointers": Case(
        "grouped_pointers",
        {**pointers("fp16", "fp16"), **SIZES, "stride_am": "i32", "stride_bk": "i32", "stride_dm": "i32"},
        {**TILE, "GROUP": 8, "ACTIVATION": "leaky", "stride_ak": 1, "stride_bn": 1, "stride_dn": 1},
    ),
    "indexed_pointers": Case(
        "indexed_pointers",
        {**pointers("i8", "fp16"), "bias": "*fp32", "scale": "*fp32", **SIZES, **STRIDES},
        {**TILE, "BK": 128},
    ),
    "eight_bit_blocks": Case(
        "eight_bit_blocks", {**pointers("fp8e4nv", "fp8e4nv"), **SIZES, **STRIDES}, {**TILE, "BK": 128}
    ),
}
"""By name of the kept text. `oldest`: block pointers, which Triton has up to 3.6."""


def kept(name: str, version: str) -> str:
    """What Triton of a version such as "3.6" made of a case."""
    return (KEPT / version / f"{name}.ttir").read_text(encoding="utf-8")


KEPT_CASES = [
    (name, version) for version in ("3.6", "3.9") for name, case in CASES.items() if version == "3.6" or not case.oldest
]
