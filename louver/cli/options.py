"""Options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from louver.commands.selection import EMBEDDINGS

PatternOption = Annotated[str, typer.Option("--pattern", help="Pattern, such as 2:4.")]
IncludeOption = Annotated[list[str] | None, typer.Option("--include", metavar="GLOB", help="Only these tensors.")]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="GLOB", help=f"Not these tensors. Default: {' '.join(EMBEDDINGS)}."),
]


class Product(StrEnum):
    """The library's products."""

    linear = "linear"
    matmul = "matmul"
