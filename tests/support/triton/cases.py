"""The types, tile sizes and sparse argument that each kernel is compiled for; no Triton needed to read this."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parents[2] / "golden" / "ttir"

SIZES = {"M": "i32", "N": "i32", "K": "i32"}
STRIDES = {"stride_a": "i64", "stride_b": "i32", "stride_d": "i64"}
TILE = {"BM": 128, "BN": 64, "BK": 64}


@dataclass(frozen=True)
class Case:
    """A kernel, by its name in a module beside this one, with the types of its arguments, its constexprs and its sparse arguments.

    module: where it is. oldest: it has block pointers, which Triton has up to 3.6. transposed: the output has a row for each of the
    dense operand's vectors. flat: tiles are numbered along one axis of the grid. roles: what the tests call an argument (`a`, `b`,
    `d`, `M` rows of the sparse operand, `N`, `K`, `stride_a` …) by the kernel's own name for it. sizes: those that the kernel fixes.
    whole: every size is a multiple of the tile's. dots: how many it has, one for each sparse argument if 0.
    """

    kernel: str
    signature: dict[str, str]
    constexprs: dict[str, Any]
    sparse: dict[str, str] = field(default_factory=lambda: {"a": "2:4"})
    module: str = "kernels"
    oldest: bool = False
    transposed: bool = False
    flat: bool = False
    roles: dict[str, str] = field(default_factory=dict[str, str])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    whole: bool = False
    dots: int = 0

    @property
    def parameters(self) -> tuple[str, ...]:
        """Those of the text, then the constants."""
        return (*self.signature, *self.constexprs)

    def function(self) -> Any:
        """The kernel itself, for which Triton must be installed."""
        return getattr(import_module(f"support.triton.{self.module}"), self.kernel)

    def compile(self) -> Any:
        """Tile IR by way of the Triton that is installed."""
        from louver.frontend.triton import triton_to_tile_ir

        return triton_to_tile_ir(self.function(), self.signature, self.constexprs, sparse=self.sparse)

    def tiles(self) -> tuple[int, int]:
        """Rows of the sparse operand, and of the dense one, in a tile."""
        rows, columns = self.constexprs["BM"], self.constexprs["BN"]
        return (columns, rows) if self.roles.get("M") == "N" else (rows, columns)

    def fitting(self, m: int, n: int, k: int) -> tuple[int, int, int]:
        """Sizes near these that the kernel takes."""
        if self.whole:
            tiles = (*self.tiles(), self.constexprs["BK"])
            m, n, k = (-(-size // tile) * tile for size, tile in zip((m, n, k), tiles, strict=True))
        if len(self.sparse) == 2:
            # Gate and up follow each other 8 rows at a time.
            m = -(-m // 8) * 8
        fixed = self.sizes
        return fixed.get("M", m), fixed.get("N", n), fixed.get("K", k)


LAYER = {"x": "b", "w": "a", "y": "d", "M": "N", "N": "M"} | {
    "stride_x": "stride_b",
    "stride_w": "stride_a",
    "stride_y": "stride_d",
}
"""A layer's names: activations x [M, K], weights w [N, K], y [M, N]."""


def layer(name: str, constexprs: dict[str, int] | None = None, **arguments: Any) -> Case:
    """A layer: 64 tokens times 128 features. Arguments are types of more of them ("" for none), or fields of the case."""
    types = dict.fromkeys(("x", "w", "y"), "*fp16") | {name: t for name, t in arguments.items() if isinstance(t, str)}
    options = {name: value for name, value in arguments.items() if isinstance(value, bool)}
    return Case(
        name,
        {name: t for name, t in types.items() if t}
        | SIZES
        | dict.fromkeys(("stride_x", "stride_w", "stride_y"), "i32"),
        {"BM": 64, "BN": 128, "BK": 64} | (constexprs or {}),
        {"w": "2:4"},
        module="weights",
        transposed=True,
        roles=LAYER,
        **options,
    )


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
        flat=True,
    ),
    "indexed_pointers": Case(
        "indexed_pointers",
        {**pointers("i8", "fp16"), "bias": "*fp32", "scale": "*fp32", **SIZES, **STRIDES},
        {**TILE, "BK": 128},
        transposed=True,
    ),
    "eight_bit_blocks": Case(
        "eight_bit_blocks", {**pointers("fp8e4nv", "fp8e4nv"), **SIZES, **STRIDES}, {**TILE, "BK": 128}, flat=True
    ),
    "weight_descriptors": layer("weight_descriptors", bias="*fp32"),
    "weight_pointers": layer("weight_pointers", {"GROUP": 4}, flat=True),
    "weight_blocks": layer("weight_blocks", oldest=True),
    "gated_layer": replace(
        layer("gated_layer", {"BN": 64}, w="", gate="*fp16", up="*fp16"), sparse={"gate": "2:4", "up": "2:4"}
    ),
    "gated_pointers": Case(
        "gated_pointers",
        {
            **dict.fromkeys(("gate", "up", "x"), "*fp16"),
            "y": "*bf16",
            **SIZES,
            **dict.fromkeys(("stride_gate", "stride_up", "stride_x", "stride_y"), "i32"),
        },
        {**TILE, "BM": 64},
        {"gate": "2:4", "up": "2:4"},
        module="weights",
        roles={"x": "b", "y": "d", "stride_x": "stride_b", "stride_y": "stride_d"}
        | dict.fromkeys(("stride_gate", "stride_up"), "stride_a"),
    ),
    "whole_blocks": Case(
        "whole_blocks",
        pointers("fp16", "fp16"),
        TILE,
        module="weights",
        oldest=True,
        sizes={"M": 128, "N": 64, "K": 64},
    ),
    "whole_k": Case(
        "whole_k",
        {**pointers("fp16", "fp16"), "M": "i32", "K": "i32", "stride_a": "i32"},
        TILE,
        module="weights",
        sizes={"N": 64, "K": 60},
    ),
    "unmasked_pointers": Case(
        "unmasked_pointers",
        {**pointers("fp16", "fp16"), "K": "i32", "stride_a": "i32", "stride_b": "i32", "stride_d": "i32"},
        TILE,
        module="weights",
        whole=True,
    ),
    "counted_pointers": Case(
        "counted_pointers",
        {**pointers("fp16", "fp16"), **SIZES, "stride_a": "i32", "stride_b": "i32", "stride_d": "i32"},
        TILE,
        module="weights",
    ),
    "persistent_groups": Case(
        "persistent_groups",
        {**pointers("fp16", "fp16"), **SIZES, **STRIDES, "limit": "fp32", "mode": "i32"},
        {**TILE, "GROUP": 4},
        module="weights",
        flat=True,
    ),
    "narrow_steps": Case(
        "given_descriptors",
        {
            "d_tiles": "tensordesc<bf16[128,64]>",
            "a_tiles": "tensordesc<bf16[128,32]>",
            "b_tiles": "tensordesc<bf16[32,64]>",
            "K": "i32",
        },
        {**TILE, "BK": 32},
        {"a_tiles": "2:4"},
    ),
    "narrow_gates": replace(
        layer("gated_layer", {"BN": 64, "BK": 32}, w="", gate="*fp16", up="*fp16"), sparse={"gate": "2:4", "up": "2:4"}
    ),
    "narrow_unmasked": Case(
        "unmasked_pointers",
        {**pointers("fp16", "fp16"), "K": "i32", "stride_a": "i32", "stride_b": "i32", "stride_d": "i32"},
        {**TILE, "BK": 16},
        module="weights",
        whole=True,
    ),
    "wide_steps": Case(
        "indexed_pointers",
        {**pointers("i8", "fp16"), "bias": "*fp32", "scale": "*fp32", **SIZES, **STRIDES},
        {**TILE, "BK": 256},
        transposed=True,
    ),
    "rest_of_k": Case(
        "rest_of_k", {**pointers("fp16", "fp16"), **SIZES, **STRIDES}, {**TILE, "BK": 32}, module="sums", dots=2
    ),
    "rest_by_pointers": Case(
        "rest_by_pointers",
        {**pointers("fp16", "fp16"), **SIZES, **dict.fromkeys(STRIDES, "i32")},
        TILE,
        module="sums",
        dots=2,
    ),
    "last_step": Case(
        "last_step",
        {
            **dict.fromkeys(("x", "w", "y"), "*fp8e4nv"),
            **SIZES,
            **dict.fromkeys(("stride_x", "stride_w", "stride_y"), "i32"),
        },
        {"BM": 64, "BN": 128, "BK": 128},
        {"w": "2:4"},
        module="sums",
        transposed=True,
        roles=LAYER,
        dots=2,
    ),
    "unrolled_k": Case(
        "unrolled_k",
        {**pointers("fp16", "fp16"), "M": "i32", "N": "i32", **dict.fromkeys(STRIDES, "i32")},
        {**TILE, "K": 256},
        module="sums",
        sizes={"K": 256},
        dots=4,
    ),
    "counted_offsets": Case("counted_offsets", {**pointers("fp16", "fp16"), **SIZES, **STRIDES}, TILE, module="sums"),
}
"""By name of the kept text."""

BATCHES = {
    "joined_entries": Case("joined_entries", {**pointers("fp16", "fp16"), "E": "i32", **SIZES}, TILE, module="sums"),
}
"""Kernels with a third axis, of entries, by name of the kept text."""


BASE = "3.6"
"""The version of Triton that made a text of every kernel. Of others those are kept whose syntax is another one."""


def kept(name: str, version: str = BASE) -> str:
    """The text that Triton of a version such as "3.6" made of a case."""
    return (KEPT / version / f"{name}.ttir").read_text(encoding="utf-8")


KEPT_CASES = sorted((path.stem, path.parent.name) for path in KEPT.glob("*/*.ttir") if path.stem in CASES)
"""Cases and the version of Triton that made a text of each."""
