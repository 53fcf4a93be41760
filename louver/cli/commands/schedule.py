"""`louver plot --schedule`: draws a product's kernel over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from louver.cli.commands.compile import compile_for, parse_sizes
from louver.compile.pipeline import compile_tile_ir
from louver.compile.plan.schedule import FIELDS
from louver.formats.regular import Target
from louver.isa.targets import SM_90A
from louver.measure.report.schedule_plot import Life, draw_schedule
from louver.user.retile import SM_COUNT


def draw(problem: str, dtype: str, fields: Sequence[str], picture: Path) -> Path:
    """Draw the library's kernel for `linear` of M, N, K, with changed fields of its schedule. Returns `picture`.

    fields: texts such as "stages=3". Raises ValueError if the picture is no SVG, or the schedule cannot be compiled.
    """
    if picture.suffix != ".svg":
        raise ValueError(f"a schedule is drawn as SVG, got {picture}: name a file that ends in .svg")
    sizes = parse_sizes(problem)
    product = compile_for(sizes, dtype, "linear", SM_90A.name, bias=False)
    given = dict(map(_field, fields))
    if given:
        # The staging follows the tile.
        schedule = product.schedule.changed(**({"staging": None} | given))
        product = compile_tile_ir(product.tile, schedule, SM_90A.name)
    Target.of(picture).write(draw_schedule(Life(product, sizes, SM_COUNT)).encode())
    return picture


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or name not in FIELDS:
        raise ValueError(f"--schedule takes FIELD=VALUE, where FIELD is one of {', '.join(FIELDS)}, got {text!r}")
    return name, {"True": True, "False": False}.get(value, int(value) if value.isdecimal() else value)
