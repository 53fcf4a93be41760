"""Draws two pictures of the README: the way from a dense weight to a served model, and what runs for a pattern and a type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from louver.formats.dtypes import element_type
from louver.formats.pattern import KERNELS, PatternKind
from louver.ir.product import selection_of, turns, unit_of
from louver.isa.wgmma import TRANSPOSABLE
from louver.measure.report.svg import MUTED, Drawing

STEPS = ("you have", "prune", "compress", "run", "serve")

WAYS: tuple[tuple[str, ...], ...] = (
    ("arrays", "louver.prune", "louver.compress", "louver.linear, matmul", "plan, CUDA graphs"),
    ("PyTorch model", "louver.torch.prune_", "compress_, quantize_", "model(x)", "torch.compile"),
    ("checkpoint", "louver prune IN OUT", "on load: LouverConfig", "from_pretrained", "Transformers, vLLM"),
    ("Triton kernel", "any of these", "any of these", "louver.jit(kernel)", "CUDA graphs"),
)
"""The calls or commands of each step, for what a user has."""

BETWEEN = ("dense", "dense with zeros", "values + indices", "one kernel a product")
"""What goes from one step to the next."""

_FILLS = ("#ffffff", "#fbf0e0", "#eaf5e4", "#e6f0fa", "#f3eaf5")
_EDGES = (MUTED, "#b3651b", "#3f8a3a", "#2f6fae", "#8d3f96")


def draw_way() -> str:
    """The way from a weight to a served model, as SVG."""
    drawing = Drawing(
        1040,
        270,
        "From a dense weight to a served model",
        "Columns: what you have, prune, compress, run, serve. Rows: arrays, a PyTorch model, a checkpoint, a kernel.",
    )
    lefts, widths = (20, 176, 384, 604, 826), (120, 172, 184, 186, 194)
    for step, left, width in zip(STEPS, lefts, widths, strict=True):
        drawing.text(left + width / 2, 30, step, size=15, bold=True, anchor="middle")
    for text, left, width in zip(BETWEEN, lefts, widths, strict=False):
        drawing.text(left + width + 16, 52, text, size=11, anchor="middle", fill=MUTED)
    for row, calls in enumerate(WAYS):
        y = 66 + 50 * row
        for column, (call, left, width) in enumerate(zip(calls, lefts, widths, strict=True)):
            drawing.box(left, y, width, 34, _FILLS[column], edge=_EDGES[column], radius=6)
            drawing.text(left + width / 2, y + 22, call, anchor="middle", room=width - 8, bold=column == 0)
            if column:
                drawing.arrow((lefts[column - 1] + widths[column - 1], y + 17), (left, y + 17))
    return drawing.svg()


@dataclass(frozen=True, slots=True)
class Leaf:
    """What runs on a GPU for a kind of pattern and some element types."""

    kind: str
    types: str
    layout: str
    unit: str


NOTES = (
    "A dense operand with another layout is copied or transposed first: one pass over it, part of the same call.",
    "This is Hopper. Other GPUs from compute capability 8.0 on run 2:4 and 1:2 as register tiles, by mma.sp.",
    "A Triton kernel under louver.jit that is one product runs in the same way.",
    "Every other kernel with 2:4 or 1:2 runs as register tiles: wgmma.sp from 64 rows on, else mma.sp.",
    "Without a GPU the NumPy reference path runs, and the emulator on request.",
)

_EXAMPLES: dict[PatternKind, str] = {"2:4": "2:4", "1:2": "1:2", "V:N:M": "2:8@V64", "N:M": "4:8", "N:M@L": "4:8@64"}
"""A pattern of each kind. N:M and N:M@L run alike; `leaves` checks that."""

_BITS = {32: "f32", 16: "f16, bf16", 8: "e4m3, e5m2, s8, u8"}


def leaves() -> list[Leaf]:
    """The rows of the decision, from the tables that the compiler reads. Raises ValueError if N:M and N:M@L differ."""
    rows = {kind: tuple(_rows(kind, pattern)) for kind, pattern in _EXAMPLES.items()}
    if rows["N:M"] != rows["N:M@L"]:
        raise ValueError("N:M and N:M@L run alike in the picture: give each its own rows")
    kinds = {"2:4": "2:4", "1:2": "1:2", "V:N:M": "V:N:M, as 2:8@V64", "N:M@L": "any other N:M, N:M@L"}
    return [Leaf(name, *row) for kind, name in kinds.items() for row in rows[kind]]  # pyright: ignore[reportArgumentType]


def _rows(kind: PatternKind, pattern: str) -> Iterable[tuple[str, str, str]]:
    types = KERNELS["products"][kind]
    for bits, elements in groupby(types, key=lambda name: element_type(name).bits):
        element = next(elements)
        chosen, unit = selection_of(pattern), unit_of(pattern, element)
        layout = "N" if chosen.indexed else "K or N" if element in TRANSPOSABLE else "K"
        if unit == "fma":
            words = "fma on CUDA cores, exact f32"
        else:
            words = "sparse tensor cores: wgmma.sp" if chosen.lifted else "dense tensor cores: wgmma"
            words += ", rows of K gathered" * chosen.indexed + " and turned" * turns(pattern, element)
            words += ", f32 read as tf32" * (bits == 32)
        yield _BITS[bits], layout, words


def draw_decision() -> str:
    """The decision from pattern, element type and layout to what runs, as SVG."""
    rows = leaves()
    drawing = Drawing(
        1040,
        84 + 40 * len(rows) + 20 * len(NOTES),
        "What runs on a Hopper GPU",
        "Columns: the pattern, the element type, the contiguous axis of the dense operand, and the unit that multiplies.",
    )
    lefts, widths = (20, 232, 434, 578), (180, 170, 112, 442)
    for head, left, width in zip(
        ("pattern", "element type", "dense operand", "what multiplies"), lefts, widths, strict=True
    ):
        drawing.text(left + width / 2, 30, head, size=15, bold=True, anchor="middle")
    drawing.text(lefts[2] + widths[2] / 2, 50, "contiguous in", size=11, fill=MUTED, anchor="middle")
    y = 64
    for kind, same in groupby(rows, key=lambda leaf: leaf.kind):
        group = list(same)
        height = 40 * len(group) - 8
        drawing.box(lefts[0], y, widths[0], height, _FILLS[1], edge=_EDGES[1], radius=6)
        drawing.text(lefts[0] + widths[0] / 2, y + height / 2 + 5, kind, anchor="middle", bold=True, room=widths[0] - 8)
        for leaf in group:
            middle = y + 16
            for column, text in enumerate((leaf.types, leaf.layout, leaf.unit), 1):
                drawing.arrow((lefts[column - 1] + widths[column - 1], middle), (lefts[column], middle))
                drawing.box(lefts[column], y, widths[column], 32, _FILLS[column + 1], edge=_EDGES[column + 1], radius=6)
                drawing.text(lefts[column] + widths[column] / 2, middle + 5, text, anchor="middle", room=widths[column])
            y += 40
    for line, note in enumerate(NOTES):
        drawing.text(20, y + 22 + 20 * line, note)
    return drawing.svg()
