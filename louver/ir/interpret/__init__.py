"""Runs a kernel of tile IR on NumPy arrays, program by program, before and after any pass, without a GPU."""

from __future__ import annotations

from louver.ir.interpret.run_kernel import Argument, run_kernel
from louver.ir.interpret.values import InterpretationError

__all__ = ["Argument", "InterpretationError", "run_kernel"]
