"""Every form, by name: of this folder, and of `support.triton.public`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from louver.measure.forms import Form

FOLDERS = ("forms", "public")
FILES = {
    path.stem: f"support.triton.{folder}.{path.stem}"
    for folder in FOLDERS
    for path in sorted((Path(__file__).parents[1] / folder).glob("*.py"))
    if path.stem not in ("__init__", "find", "common")
}
"""Modules by the names of their files."""


@cache
def forms(file: str) -> dict[str, Form]:
    """A file's forms. Triton must be installed."""
    return {form.name: form for form in import_module(FILES[file]).FORMS}
