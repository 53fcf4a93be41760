"""The dialects that Louver accepts, and reading IR text with them."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects import builtin, math, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from louver.ir.arith import ARITH
from louver.ir.llvm import LLVM
from louver.ir.sched import SCHED
from louver.ir.tile import TILE


def make_context() -> Context:
    """A context with tile IR, schedule IR and the MLIR dialects that both use."""
    context = Context()
    for dialect in (builtin.Builtin, ARITH, math.Math, scf.Scf, LLVM, TILE, SCHED):
        context.load_dialect(dialect)
    return context


def parse_ir(text: str, name: str = "<ir>") -> ModuleOp:
    """Parse and verify a module; `name` stands for the text in error messages.

    Raises xDSL's ParseError (with line and column of the text) or VerifyException.
    """
    module = Parser(make_context(), text, name).parse_module()
    module.verify()
    return module
