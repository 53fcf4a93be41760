"""A kernel at every level as lines of text, with the origin of each line."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from pprint import pformat
from typing import Literal

from xdsl.dialects.builtin import ModuleOp

from louver.cli.commands.kernel_levels import Source
from louver.cli.page.source import SourceLine, user_lines
from louver.compile.compiled import CompiledKernel, CompiledProduct, CompiledTiles
from louver.compile.pipeline import compile_tile_ir, compile_tiles
from louver.frontend.ttir.locations import resolve_locations
from louver.ir.refusal import adopt_places, number_places, text_places
from louver.ir.tile.aliases import text_with_aliases
from louver.ptx.assembler import Assembly, assemble
from louver.ptx.printer import module_lines
from louver.ptx.sass import DisassemblerMissingError, disassemble_lines

OWN = "tile IR"
"""The file name in locations without a user's text: the kernel's tile IR."""

Kind = Literal["source", "ir", "ptx", "sass", "text"]

_LOCATION = re.compile(r' loc\("((?:[^"\\]|\\.)*)":(\d+):(\d+)\)')
_LAST = re.compile(rf"{_LOCATION.pattern}\s*$")


@dataclass(frozen=True, slots=True)
class Level:
    """A kernel's text at one level. group: the heading. name: the pass that made the level, or "".

    places: "file:line:column" of the user's text by line, None if unknown. ptx: for SASS, the line of PTX by line.
    numbers: line numbers of the user's text. changed: whether it differs from the previous level.
    """

    group: str
    name: str
    kind: Kind
    lines: tuple[str, ...]
    places: tuple[str | None, ...]
    ptx: tuple[int | None, ...] = ()
    numbers: tuple[int, ...] = ()
    changed: bool = True

    def __post_init__(self) -> None:
        if len(self.lines) != len(self.places):
            raise ValueError(
                f"each line has a place, got {len(self.places)} for {len(self.lines)} lines of {self.group}"
            )


@dataclass(frozen=True, slots=True)
class Levels:
    """A launched kernel at all levels, the user's text first."""

    kernel: CompiledKernel
    assembly: Assembly
    levels: tuple[Level, ...]


@dataclass(slots=True)
class Recorder:
    """Records the result of each pass. When a pass runs again, the results from that pass on are replaced."""

    made: dict[str, Level] = field(default_factory=dict[str, Level])
    active: bool = True

    def write(self, name: str, made: object) -> None:
        again = list(self.made).index(name) if name in self.made else len(self.made)
        self.made = dict(list(self.made.items())[:again])
        if isinstance(made, ModuleOp):
            adopt_places(made)
            level = _of_module(made, "", name)
            before = next((each for each in reversed(self.made.values()) if each.kind == "ir"), None)
            level = replace(level, changed=before is None or before.lines != level.lines)
        else:
            text = (made if isinstance(made, str) else pformat(made, width=100)).splitlines()
            level = Level("", name, "text", tuple(text), (None,) * len(text))
        self.made[name] = level


def levels_of(source: Source) -> Levels:
    """The kernel of `louver compile` at every level. Raises errors of compiling and assembling."""
    compiled = source.compiled()
    made = compiled.made
    tile = made.tile.clone()
    adopt_places(tile)
    user = user_lines(sorted({place for place in text_places(tile) if place is not None}), source.files)
    if not user:
        number_places(tile, OWN)
    recorder, again = _again(made, tile)
    if again.ptx != made.ptx:
        raise AssertionError("a kernel that is compiled again for its page has the same PTX")
    ptx = module_lines(again.module)
    assembly = assemble(made.ptx, made.target.name, options=("-lineinfo",))
    found = [_source_level(user) if user else _of_module(tile, "Source", "the kernel's tile IR")]
    if source.ttir is not None:
        found.append(_of_ttir(source.ttir()))
    found += [replace(each, group=_group(each)) for name, each in recorder.made.items() if name not in _LEFT_OUT]
    found.append(Level("PTX", "", "ptx", tuple(line.text for line in ptx), tuple(line.place for line in ptx)))
    found.append(_sass(assembly.cubin, found[-1]))
    return Levels(compiled, assembly, tuple(found))


_LEFT_OUT = ("lower-to-ptx", "lower-tiles", "place-shared")
"""Passes that make PTX, which has a separate level, and a pass without a readable result."""

_SCHEDULE_PASSES = ("generate-schedule", "assign-shared-memory", "check-protocol")


def _group(level: Level) -> str:
    if level.kind == "text":
        return "Facts"
    return "Schedule IR" if level.name in _SCHEDULE_PASSES else "Tile IR"


def _again(made: CompiledProduct | CompiledTiles, tile: ModuleOp) -> tuple[Recorder, CompiledProduct | CompiledTiles]:
    """Compile the same kernel again from `tile`, and record the passes."""
    recorder = Recorder()
    if isinstance(made, CompiledProduct):
        return recorder, compile_tile_ir(tile, made.schedule, made.target.name, watch=recorder)
    warps = made.signature.warps
    again = compile_tiles(tile, made.target.name, watch=recorder, **{**asdict(made.options), "warps": warps})
    return recorder, again.with_ctas(made.kernel.min_ctas)


def _source_level(user: list[SourceLine]) -> Level:
    places = tuple(f"{line.file}:{line.number}:1" if line.number else None for line in user)
    numbers = tuple(line.number for line in user)
    return Level("Source", "", "source", tuple(line.text for line in user), places, numbers=numbers)


def _of_module(module: ModuleOp, group: str, name: str) -> Level:
    lines = text_with_aliases(module).split("\n")
    places = text_places(module)
    # Names of encodings are above the module and have no places.
    return Level(group, name, "ir", tuple(lines), (*[None] * (len(lines) - len(places)), *places))


def _of_ttir(text: str) -> Level:
    """Triton IR with its locations removed from the text and returned as places."""
    lines: list[str] = []
    places: list[str | None] = []
    opened: list[int] = []
    for line in resolve_locations(text).rstrip("\n").splitlines():
        last = _LAST.search(line)
        place = None if last is None else ":".join(last.groups())
        plain = _LOCATION.sub("", line)
        if plain.lstrip().startswith("}") and opened:
            # The location of an operation with a region follows the region.
            places[opened.pop()] = place
        if plain.endswith("{"):
            opened.append(len(lines))
        lines.append(plain)
        places.append(place)
    return Level("Triton IR", "", "ir", tuple(lines), tuple(places))


def _sass(cubin: bytes, ptx: Level) -> Level:
    try:
        lines = disassemble_lines(cubin, ptx.lines)
    except DisassemblerMissingError as error:
        return Level("SASS", "", "text", (str(error),), (None,))
    places = tuple(None if line.ptx is None else ptx.places[line.ptx - 1] for line in lines)
    return Level("SASS", "", "sass", tuple(line.text for line in lines), places, tuple(line.ptx for line in lines))
