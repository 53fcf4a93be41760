"""The one look of all terminal tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

NAME_COLUMNS = 16
"""Least width, in characters, of a column of names, which fold where they must."""


def plain_table(title: str, *, footer: bool = False) -> Table:
    """An empty table without vertical lines; `title` is shown as it is."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    return Table(
        title=escape(title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
        show_footer=footer,
    )
