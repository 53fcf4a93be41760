"""The files of `examples/`, imported as modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "examples"

NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if "from places import" in path.read_text(encoding="utf-8"))
"""Those that run a kernel at sizes, by `places`."""

SIZES = {name: [(), (129, 72, 72), (64, 136, 320)] for name in NAMES} | {
    "document_kernel": [(), (16, 16, 64), (64, 32, 128)]
}
"""Sizes that each is run with: its own, and others."""

CASES = [(name, sizes) for name in NAMES for sizes in SIZES[name]]


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An example, or the module `places`. Skips where Triton is missing."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return importlib.import_module(name)
