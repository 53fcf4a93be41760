"""Which arguments a refusal is about, so that the tiles of these alone are addressed at run time."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.ir import SSAValue

from louver.analysis.passages import roots_of
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import FuncOp


@contextmanager
def naming_arguments(function: FuncOp, pointer: SSAValue) -> Generator[None]:
    """Errors inside name the arguments of which a pointer, descriptor or tile may be made."""
    try:
        yield
    except UnsupportedKernelError as error:
        names, roots = function.argument_names, roots_of(pointer)
        error.arguments |= {name for argument, name in names.items() if argument in roots}
        raise
