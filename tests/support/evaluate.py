"""Instructions run on arrays, one after the other: what a lowering of `louver.isa.elementwise` computes."""

from __future__ import annotations

from typing import Any

import numpy as np

from louver.isa.floating import Approximate, approximation_error
from louver.isa.instruction import STORAGE, Instruction, Operand, Pure


def evaluator(off: float = 0.0) -> Any:
    """Emits nothing, but gives results: of f32 as float32 arrays, of other types as bits. off: part of their allowed error that
    approximations have.
    """

    def emit(op: Instruction, *args: Any) -> np.ndarray:
        assert isinstance(op, Pure)
        inputs = [each for each in op.operands if each.role == "in"]
        registers = np.broadcast_arrays(*map(_register, args, inputs))
        (found,) = op.compute(*map(np.ascontiguousarray, registers))
        if op.operands[0].type != "f32":
            return found
        result = found.view(np.float32)
        if isinstance(op, Approximate) and off:
            exact = result.astype(np.float64)
            with np.errstate(all="ignore"):
                moved = exact + off * approximation_error(op.op, exact)
            result = np.where(np.isfinite(exact), moved, exact).astype(np.float32)
        return result

    return emit


def _register(given: Any, operand: Operand) -> np.ndarray:
    """An operand's bits."""
    if operand.type == "f32":
        return np.asarray(given, np.float32).view(np.uint32)
    return given if isinstance(given, np.ndarray) else np.asarray(int(given) % (1 << 32), STORAGE[operand.type])
