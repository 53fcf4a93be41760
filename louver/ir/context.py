"""The dialects that Louver accepts, and a parser of IR text."""

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


_SPLAT = re.compile(
    r"dense<(true|false|-?\d+|0\.0+e\+00)>(?=\s*:\s*tensor<(?:\d+x)+(i(?:1|8|16|32|64)|bf16|f8\w+)[,>])"
)


def spell_for_xdsl(text: str) -> str:
    """Rewrites text so that xDSL reads it correctly and fast.

    - `dense<0xFF800000>` of floats becomes `dense<"0x000080FF">`. xDSL reads the first form as the number 4286578688 in
      place of its bits.
    - A constant tile with one integer or zero for all elements gets the form with bytes too. Otherwise xDSL makes a
      number for each element, which takes most of the time to read a kernel.
    - A loop that carries nothing gets the parentheses that xDSL requires.
    """

    def spelled(found: re.Match[str]) -> str:
        return f'dense<"0x{bytes.fromhex(found[1])[::-1].hex().upper()}">'

    return _SPLAT.sub(_in_bytes, _HEXADECIMAL.sub(spelled, text)).replace("scf.while :", "scf.while () :")


def _in_bytes(found: re.Match[str]) -> str:
    """The bytes of a constant in the form of xDSL."""
    text, type_ = found[1], found[2]
    if not type_.startswith("i"):
        return f'dense<"0x{"0000" if type_ == "bf16" else "00"}">' if "." in text else found[0]
    bits = int(type_[1:])
    value = {"true": 1, "false": 0}.get(text) if text.isalpha() else int(text) if "." not in text else None
    if value is None or not -(1 << (bits - 1)) <= value < 1 << bits:
        # The parser reports the error.
        return found[0]
    signed = value - (1 << bits) if value >> (bits - 1) > 0 else value
    return f'dense<"0x{signed.to_bytes(-(-bits // 8), "little", signed=True).hex().upper()}">'


def parse_ir(text: str, name: str = "<ir>") -> ModuleOp:
    """Parse and verify a module. name: the name of the text in error messages.

    Raises xDSL's ParseError (with line and column of the text) or VerifyException.
    """
    module = Parser(make_context(), spell_for_xdsl(text), name).parse_module()
    module.verify()
    return module
