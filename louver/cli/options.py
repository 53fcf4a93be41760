"""Options of several commands."""

from __future__ import annotations

from typing import Final

import click

PRODUCTS: Final = click.Choice(["linear", "matmul"])
PRODUCTS_HELP: Final = "Which product: linear or matmul."
FLOATS: Final = click.Choice(["f16", "bf16", "e4m3", "e5m2", "f32"])

ACCUMULATE_HELP: Final = "auto, f32, f16, fast, promoted or s32."

pattern_option = click.option("--pattern", default="2:4", help="Pattern, such as 2:4, 2:8@32 in vectors, or 2:8@V64.")
include_option = click.option(
    "--include", metavar="GLOB", multiple=True, help="These tensors too, beside the default ones. May be repeated."
)
exclude_option = click.option("--exclude", metavar="GLOB", multiple=True, help="Not these tensors. May be repeated.")
only_option = click.option(
    "--only", metavar="GLOB", multiple=True, help="These tensors instead of the default ones. May be repeated."
)
axis_option = click.option(
    "--axis", type=int, metavar="AXIS", help="Sparse axis of the tensors that --include or --only names."
)
workers_option = click.option(
    "--workers",
    metavar="N|ray|URL",
    default="1",
    help="Processes of this machine, or a cluster: ray, or ray://HOST:PORT. Each writes a file, or runs a text, at a time. Default: 1.",
)
