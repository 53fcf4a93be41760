"""The dialects that Louver accepts, and a parser of IR text with them."""

from __future__ import annotations

import re

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


_HEXADECIMAL = re.compile(r"dense<0x([0-9A-Fa-f]+)>(?=\s*:\s*tensor<(?:\d+x)*b?f\d)")


def spell_for_xdsl(text: str) -> str:
    """`dense<0xFF800000>` of floats as `dense<"0x000080FF">`: xDSL takes the first for the number 4286578688, not for its bits.

    A loop that carries nothing gets the parentheses that xDSL wants.
    """

    def spelled(found: re.Match[str]) -> str:
        return f'dense<"0x{bytes.fromhex(found[1])[::-1].hex().upper()}">'

    return _HEXADECIMAL.sub(spelled, text).replace("scf.while :", "scf.while () :")


def parse_ir(text: str, name: str = "<ir>") -> ModuleOp:
    """Parse and verify a module; `name` stands for the text in error messages.

    Raises xDSL's ParseError (with line and column of the text) or VerifyException.
    """
    module = Parser(make_context(), spell_for_xdsl(text), name).parse_module()
    module.verify()
    return module
