"""Instructions as PTX text, for errors."""

from __future__ import annotations

from louver.isa.instruction import RegType
from louver.ptx.module import Address, Arg, If, Imm, Inst, Node, Reg

PREFIXES: dict[RegType, str] = {"pred": "%p", "b16": "%h", "b32": "%r", "b64": "%rd", "f32": "%f"}
"""Prefix of the register names of each class."""

_VECTOR_SHOWN = 4


def register_text(register: Reg) -> str:
    """A register as PTX names it."""
    return f"{PREFIXES[register.type]}{register.index}"


def describe(node: Node) -> str:
    """One instruction or branch on one line; long vectors are shortened."""
    note = f" // {node.note}" if node.note else ""
    if isinstance(node, Inst):
        guard = "" if node.guard is None else f"@{'!' if node.guard_negated else ''}{register_text(node.guard)} "
        return f"{guard}{node.op.text(*map(_argument, node.args))};{note}"
    kind = "if" if isinstance(node, If) else "repeat while"
    return f"{kind} {'!' if node.negated else ''}{register_text(node.condition)}{note}"


def _argument(arg: Arg) -> str:
    if isinstance(arg, Reg):
        return register_text(arg)
    if isinstance(arg, Imm):
        return str(arg.value)
    if isinstance(arg, Address):
        base = register_text(arg.base) if isinstance(arg.base, Reg) else arg.base
        return f"[{base}+{arg.offset}]" if arg.offset else f"[{base}]"
    if isinstance(arg, tuple):
        shown = [_argument(part) for part in arg[:_VECTOR_SHOWN]]
        return f"{{{', '.join([*shown, '…'] if len(arg) > _VECTOR_SHOWN else shown)}}}"
    return arg
