"""Draw the pictures of the documents: `python docs/draw.py`; with `--check`, only say which are stale.

`rooms.svg` is the whole, from the tables below; a test compares them with the imports. `kernel.svg` is what
`louver plot --problem 4096,4096,4096` draws. `fragment.svg` is computed from the layouts of `louver/isa`, `patterns.svg`
by `louver.prune`, `decision.svg` from the tables of kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fragment_plot import draw_fragment
from louver.cli.commands.compile import SM_COUNT, compile_for
from louver.isa.metadata import PAIR_CODES
from louver.isa.wgmma import Wgmma
from louver.measure.report.schedule_plot import Life, draw_schedule
from louver.measure.report.svg import INK, MUTED, Drawing
from pattern_plot import draw_patterns
from way_plot import draw_decision, draw_way

DOCUMENTS = Path(__file__).resolve().parent

SIZES = (4096, 4096, 4096)


@dataclass(frozen=True)
class Room:
    """A folder of `louver/`, or something outside of it: where its box stands, and what it says."""

    x: float
    y: float
    width: float
    lines: tuple[str, ...]
    height: float = 72


ROOMS: Mapping[str, Room] = {
    "formats": Room(20, 112, 152, ("prune, compress,", "files")),
    "library": Room(232, 112, 168, ("products: operands,", "plans, launches")),
    "user": Room(470, 112, 150, ("louver.jit: bind,", "launch, interpret")),
    "models": Room(668, 112, 140, ("checkpoints: what", "each tensor is")),
    "measure": Room(868, 112, 130, ("benchmarks,", "tuning, reports")),
    "cli": Room(1064, 112, 100, ("louver …",)),
    "torch": Room(1068, 296, 104, ("operators,", "modules")),
    "frontend": Room(20, 296, 112, ("problem or", "TTIR read")),
    "ir": Room(190, 296, 104, ("tile IR,", "schedule IR")),
    "analysis": Room(350, 296, 96, ("facts", "of a kernel")),
    "compile": Room(500, 262, 350, ("a list of passes for each family",), 140),
    "ptx": Room(896, 296, 128, ("modules, text,", "ptxas, SASS")),
    "isa": Room(500, 462, 190, ("instructions: text and", "meaning; layouts")),
    "choose": Room(20, 462, 124, ("schedules by", "predicted times")),
    "advice": Room(190, 462, 200, ("which format: rates,", "times, losses")),
    "emulator": Room(750, 462, 110, ("runs PTX", "on the CPU")),
    "runtime": Room(896, 462, 128, ("device, cache,", "launch")),
}

OUTSIDE: Mapping[str, Room] = {
    "dense weight": Room(20, 54, 152, (), 28),
    "Python call": Room(232, 54, 168, (), 28),
    "Triton kernel": Room(470, 54, 150, (), 28),
}
"""What comes from outside, above the room that takes it."""

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "product": ("canonical", "plan", "generate", "check", "lower"),
    "general": ("canonical", "decompose", "plan", "lower"),
}
"""The rooms of the compiler that a kernel of each family goes through, in order."""

Side = Literal["left", "right", "top", "bottom"]

Style = Literal["data", "use"]

STYLES: Mapping[Style, tuple[str, str]] = {
    "data": ("", "data: tensors, kernels, IR, modules, results"),
    "use": ("5 4", "control: the target uses the source’s code"),
}
"""The dashes of an arrow, and its words in the legend."""


@dataclass(frozen=True)
class Flow:
    """An arrow between two rooms. Each end: a side, and how far along it (0 to 1). lane: where the arrow turns.

    at: the middle of its label's base line. style: data of a call goes to the target; or the target uses the source.
    """

    source: str
    target: str
    label: str
    begin: tuple[Side, float]
    end: tuple[Side, float]
    at: tuple[float, float]
    lane: float | None = None
    style: Style = "data"


FLOWS = (
    Flow("formats", "library", "tensors", ("right", 0.5), ("left", 0.5), (202, 140)),
    Flow("library", "user", "operands", ("right", 0.5), ("left", 0.5), (435, 140)),
    Flow("formats", "models", "files", ("bottom", 0.75), ("bottom", 0.5), (640, 200), 206),
    Flow("models", "measure", "rows", ("right", 0.5), ("left", 0.5), (838, 140)),
    Flow("models", "torch", "roles", ("bottom", 0.8), ("top", 0.5), (1094, 242), 248),
    Flow("measure", "cli", "reports", ("right", 0.5), ("left", 0.5), (1031, 140)),
    Flow("library", "frontend", "problem", ("bottom", 0.25), ("top", 0.4), (150, 220), 226),
    Flow("user", "frontend", "kernel and types", ("bottom", 0.25), ("top", 0.75), (310, 248), 254),
    Flow("frontend", "ir", "reads", ("right", 0.5), ("left", 0.5), (161, 324)),
    Flow("ir", "analysis", "tile IR", ("right", 0.3), ("left", 0.3), (323, 310)),
    Flow("analysis", "compile", "facts", ("right", 0.5), ("left", 0.5), (472, 324)),
    Flow("ir", "compile", "tile IR in, schedule IR within", ("bottom", 0.5), ("left", 0.88), (372, 380.5), 385.2),
    Flow("choose", "compile", "schedule", ("top", 0.7), ("left", 0.96), (200, 411), 396.4),
    Flow("compile", "ptx", "PTX", ("right", 0.5), ("left", 0.5), (873, 326)),
    Flow("isa", "compile", "layouts", ("top", 0.5), ("bottom", 0.27), (622, 440), style="use"),
    Flow("isa", "emulator", "meaning", ("right", 0.5), ("left", 0.5), (720, 492), style="use"),
    Flow("isa", "ptx", "instructions", ("top", 0.85), ("bottom", 0.2), (800, 418), 424, "use"),
    Flow("choose", "advice", "times", ("right", 0.5), ("left", 0.5), (167, 490), style="use"),
    Flow("ptx", "emulator", "modules", ("bottom", 0.4), ("top", 0.6), (850, 444), 448),
    Flow("ptx", "runtime", "cubin", ("bottom", 0.75), ("top", 0.75), (1014, 420)),
    Flow("runtime", "user", "results", ("right", 0.5), ("bottom", 0.75), (940, 220), 226),
)

_HUES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("formats", "isa", "ptx", "emulator", "runtime"), ("#e6f0fa", "#2f6fae")),
    **dict.fromkeys(("frontend", "ir", "analysis", "compile"), ("#eaf5e4", "#3f8a3a")),
    **dict.fromkeys(
        ("choose", "library", "user", "advice", "models", "torch", "measure", "cli"), ("#fbf0e0", "#b3651b")
    ),
}


def draw_rooms() -> str:
    """The whole as SVG."""
    drawing = Drawing(
        1184,
        604,
        "Louver: data and control between the rooms",
        "Boxes are folders of louver/. Solid arrows are data, dashed ones control.",
    )
    drawing.text(20, 32, "louver/: data and control between the rooms", size=15, bold=True)
    for name, place in OUTSIDE.items():
        drawing.box(place.x, place.y, place.width, place.height, "#ffffff", edge=MUTED, radius=14, dashes="4 3")
        drawing.text(place.x + place.width / 2, place.y + 18, name, anchor="middle")
        drawing.arrow((place.x + place.width / 2, place.y + place.height), (place.x + place.width / 2, 111))
    for name, room in ROOMS.items():
        fill, edge = _HUES[name]
        drawing.box(room.x, room.y, room.width, room.height, fill, edge=edge, radius=6)
        drawing.text(room.x + 10, room.y + 21, f"{name}/", size=14, bold=True)
        for number, line in enumerate(room.lines):
            drawing.text(room.x + 10, room.y + 40 + 16 * number, line, fill=MUTED, room=room.width - 12)
    _draw_families(drawing, ROOMS["compile"])
    for flow in FLOWS:
        drawing.arrow(*_route(flow), dashes=STYLES[flow.style][0])
        drawing.text(*flow.at, flow.label, size=11, anchor="middle", fill=INK)
    y = 568
    for label, name in (
        ("called by users", "library"),
        ("the compiler", "compile"),
        ("formats, instructions, machine", "formats"),
    ):
        fill, edge = _HUES[name]
        x = 20 + 190 * ("library", "compile", "formats").index(name)
        drawing.box(x, y, 16, 16, fill, edge=edge, radius=3)
        drawing.text(x + 24, y + 13, label)
    for row, (dashes, label) in enumerate(STYLES.values()):
        y = 562 + 20 * row
        drawing.arrow((620, y + 4), (664, y + 4), dashes=dashes)
        drawing.text(674, y + 8, label)
    return drawing.svg()


def _draw_families(drawing: Drawing, room: Room) -> None:
    for row, (family, names) in enumerate(FAMILIES.items()):
        y, x = room.y + 52 + 42 * row, room.x + 10
        drawing.text(x, y + 10, family, size=11, fill=MUTED)
        y += 14
        for number, name in enumerate(names):
            width = 7.4 * len(name) + 6
            drawing.box(x, y, width, 21, "#ffffff", edge="#3f8a3a", radius=4)
            drawing.text(x + width / 2, y + 15, name, size=11, anchor="middle", room=width)
            if number < len(names) - 1:
                drawing.arrow((x + width, y + 10.5), (x + width + 10, y + 10.5))
            x += width + 10


def _route(flow: Flow) -> list[tuple[float, float]]:
    """The corners of an arrow."""
    (x1, y1), (x2, y2) = (_anchor(*each) for each in ((flow.source, flow.begin), (flow.target, flow.end)))
    if flow.lane is None:
        return [(x1, y1), (x2, y2)]
    if flow.begin[0] == "right":
        return [(x1, y1), (x1 + 12, y1), (x1 + 12, flow.lane), (x2, flow.lane), (x2, y2)]
    if flow.end[0] == "left":
        return [(x1, y1), (x1, y2), (x2, y2)]
    return [(x1, y1), (x1, flow.lane), (x2, flow.lane), (x2, y2)]


def _anchor(name: str, end: tuple[Side, float]) -> tuple[float, float]:
    room, (side, share) = ROOMS[name], end
    x, y = room.x + share * room.width, room.y + share * room.height
    return {
        "left": (room.x, y),
        "right": (room.x + room.width, y),
        "top": (x, room.y),
        "bottom": (x, room.y + room.height),
    }[side]


def draw_kernel() -> str:
    """The library's kernel for 4096³ in f16, in time."""
    return draw_schedule(Life(compile_for(SIZES, "f16", "linear", "sm_90a", bias=False), SIZES, SM_COUNT))


def draw_lanes() -> str:
    """The elements of a product in f16 that the lanes of a warp hold."""
    return draw_fragment(Wgmma(256, "f16", "f16", "f32", sparse=True, a_source="registers"), PAIR_CODES)


PICTURES: Mapping[str, Callable[[], str]] = {
    "way.svg": draw_way,
    "patterns.svg": draw_patterns,
    "decision.svg": draw_decision,
    "rooms.svg": draw_rooms,
    "kernel.svg": draw_kernel,
    "fragment.svg": draw_lanes,
}


def main(arguments: list[str]) -> int:
    """0, or 1 where `--check` finds a stale picture."""
    if arguments not in ([], ["--check"]):
        raise SystemExit(f"usage: python docs/draw.py [--check], got {' '.join(arguments)}")
    status = 0
    for name, draw in PICTURES.items():
        path, text = DOCUMENTS / name, draw()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if arguments:
            print(f"docs/{name} is stale: run python docs/draw.py")
            status = 1
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote docs/{name}")
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
