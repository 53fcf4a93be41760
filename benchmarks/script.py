"""What the scripts that measure have in common: their arguments, and the facts of their records."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from louver.measure.machine import header


def arguments(about: str | None, *, needed: bool = False) -> argparse.ArgumentParser:
    """A parser with the option --out. about: the script's docstring. needed: whether --out must be given."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=needed, help="write the record as JSON")
    return parser


def facts_of(torch: Any, kind: str, about: str | None) -> dict[str, Any]:
    """The beginning of a record. about: the script's docstring, which has the protocol."""
    return {"kind": kind, **header(torch), "protocol": " ".join((about or "").split())}
