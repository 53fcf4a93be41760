"""Every form, by name."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from louver.measure.forms import Form

FILES = tuple(sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in ("__init__", "find")))


@cache
def forms(file: str) -> dict[str, Form]:
    """A file's forms. Triton must be installed."""
    found = import_module(f"support.triton.forms.{file}").FORMS
    return {form.name: form for form in found}
