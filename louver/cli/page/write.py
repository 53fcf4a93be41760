"""The text of the page: the levels as JSON, with style and program. The page loads nothing."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from louver.cli.commands.kernel_levels import reason
from louver.cli.page.levels import Level, Levels
from louver.cli.page.source import line_of
from louver.compile.compiled import CompiledProduct, CompiledTiles
from louver.measure.report.table import shown
from louver.ptx.sass import count_products, opcodes


def page_text(levels: Levels) -> str:
    """The page as HTML, in UTF-8."""
    name = levels.kernel.made.kernel.name
    data = {
        "facts": [[name, shown(value, "utf-8")] for name, value in facts_of(levels)],
        "levels": list(_levels(levels.levels)),
    }
    payload = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # In any case of letters, "</script" ends a script, and "<!--" with "<script" hides its end.
    payload = re.sub("<(?=[/!s])", r"\\u003c", payload, flags=re.IGNORECASE)
    parts = files("louver.cli.page")
    text = parts.joinpath("page.html").read_text(encoding="utf-8")
    for mark, value in (
        ("@NAME@", html.escape(name)),
        ("@STYLE@", parts.joinpath("page.css").read_text(encoding="utf-8")),
        ("@PROGRAM@", parts.joinpath("page.js").read_text(encoding="utf-8")),
        # Last, because a kernel's text may contain a mark.
        ("@DATA@", payload),
    ):
        text = text.replace(mark, value)
    return text


def facts_of(levels: Levels) -> Iterator[tuple[str, str]]:
    """Names and values of the kernel's facts, shown above the levels."""
    made, assembly = levels.kernel.made, levels.assembly
    used = assembly.kernels[0]
    if isinstance(made, CompiledProduct):
        yield "family", "warpgroup product"
        yield from _schedule(made)
    else:
        yield "family", reason(levels.kernel)
        yield from _tiles(made)
    yield "target", f"{made.target.name}, ptxas {assembly.version}"
    yield "threads", f"{made.kernel.threads:,}"
    yield "registers", f"{used.registers} a thread at entry"
    spilled = used.spill_store_bytes + used.spill_load_bytes
    yield "spills", f"{spilled} bytes" if spilled else "none"
    yield "shared memory", f"{made.kernel.dynamic_shared + used.shared_bytes:,} bytes"
    for warning in assembly.warnings:
        yield "ptxas", str(warning)
    sass = next(each for each in levels.levels if each.group == "SASS")
    if sass.kind == "sass":
        text = "\n".join(sass.lines)
        found = opcodes(text)
        products = ", ".join(f"{count} {unit}" for unit, count in count_products(text).items())
        yield "SASS", f"{found.total():,} instructions{f', of them {products}' if products else ''}"
        yield "most frequent", ", ".join(f"{name} {count}" for name, count in _families(found).most_common(8))


def _families(found: Any) -> Any:
    """Count opcodes without their qualifiers."""
    counted = type(found)()
    for opcode, count in found.items():
        counted[opcode.split(".")[0]] += count
    return counted


def _schedule(made: CompiledProduct) -> Iterator[tuple[str, str]]:
    nest, schedule = made.nest, made.schedule
    sums = (
        f"{nest.a.element} {nest.a.pattern} · {nest.b.element}, sums in {nest.accumulator}, output {nest.store.element}"
    )
    yield "product", sums
    tile, ring, roles = schedule.tile, schedule.ring, schedule.roles
    yield (
        "tile",
        f"{tile.m}×{tile.n}×{tile.k}, {ring.stages} stages, {roles.consumers} consumers, {schedule.store.way} stores",
    )


def _tiles(made: CompiledTiles) -> Iterator[tuple[str, str]]:
    for text in made.dense:
        yield "dense products", text


def _levels(levels: tuple[Level, ...]) -> Iterator[dict[str, Any]]:
    source = levels[0]
    used = {line_of(place) for level in levels[1:] for place in level.places if place is not None}
    index: dict[tuple[str, int], int] = {}
    for at, place in enumerate(source.places):
        if place is not None and line_of(place) in used:
            index.setdefault(line_of(place), at)
    for level in levels:
        yield {
            "group": level.group,
            "name": level.name,
            "kind": level.kind,
            "changed": level.changed,
            "lines": [shown(line, "utf-8", keep="\t") for line in level.lines],
            "at": [-1 if place is None else index.get(line_of(place), -1) for place in level.places],
            "ptx": level.ptx,
            "numbers": level.numbers,
        }
