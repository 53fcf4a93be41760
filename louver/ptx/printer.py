"""PTX text of a module: registers declared by class, control flow as labels and branches.

Deterministic, and fast enough for tens of thousands of instructions.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from louver.isa.instruction import Operand, RegType
from louver.isa.targets import target
from louver.ptx.module import Address, Arg, Block, If, Imm, Inst, Kernel, Module, Node, Param, Reg, While
from louver.ptx.validate import SHARED_SYMBOL, validate

PREFIX: dict[RegType, str] = {"pred": "%p", "b16": "%h", "b32": "%r", "b64": "%rd", "f32": "%f"}
"""Prefix of the register names of each class."""

SHARED_ALIGNMENT = 1024
"""Alignment of dynamic shared memory in bytes: the period of the 128-byte swizzle."""

CLUSTER_PTX = (7, 8)
"""Least PTX ISA version with clusters."""

INDENT = "    "


class Line(NamedTuple):
    """A line of text. place: that of its node."""

    text: str
    place: str | None = None


def print_module(module: Module) -> str:
    """The PTX of `module`, after validation. Raises `ValidationError` (a ValueError) for the first broken rule.

    `.version` is the least that the target and all instructions allow.
    """
    return "".join(f"{line.text}\n" for line in module_lines(module))


def module_lines(module: Module) -> list[Line]:
    """The lines that `print_module` prints."""
    validate(module)
    major, minor = _version(module)
    head = [f".version {major}.{minor}", f".target {module.target}", ".address_size 64"]
    if any(kernel.dynamic_shared for kernel in module.kernels):
        head += ["", f".extern .shared .align {SHARED_ALIGNMENT} .b8 {SHARED_SYMBOL}[];"]
    lines = [Line(text) for text in head]
    for kernel in module.kernels:
        lines += [Line(""), *_Printer(kernel).kernel()]
    return lines


def min_ctas_line(kernel: Kernel) -> str:
    """The line of a kernel's head that states the least number of CTAs on an SM."""
    return f".minnctapersm {kernel.min_ctas}"


def register_name(register: Reg) -> str:
    """The PTX name of a register, such as "%rd3"."""
    return f"{PREFIX[register.type]}{register.index}"


def instruction_text(node: Inst) -> str:
    """A statement with its guard, without the semicolon."""
    printed = node.op.text(*map(_argument, node.op.operands, node.args))
    if node.guard is None:
        return printed
    return f"@{'!' if node.guard_negated else ''}{register_name(node.guard)} {printed}"


def _version(module: Module) -> tuple[int, int]:
    needs = [target(module.target).min_ptx]
    needs += [CLUSTER_PTX for kernel in module.kernels if kernel.cluster > 1]
    needs += [
        node.op.requires.ptx for kernel in module.kernels for node in kernel.body.walk() if isinstance(node, Inst)
    ]
    return max(needs)


def _argument(operand: Operand, arg: Arg) -> str:
    if isinstance(arg, Reg):
        name = register_name(arg)
        return f"{{{name}}}" if operand.braces else name
    if isinstance(arg, Imm):
        return _constant(arg)
    if isinstance(arg, Address):
        base = arg.base if isinstance(arg.base, str) else register_name(arg.base)
        return f"[{base}+{arg.offset}]" if arg.offset else f"[{base}]"
    if isinstance(arg, str):
        return arg
    parts = (register_name(part) if isinstance(part, Reg) else _constant(part) for part in arg)
    return f"{{{', '.join(parts)}}}"


def _constant(constant: Imm) -> str:
    if isinstance(constant.value, float):
        return f"0f{struct.unpack('<I', struct.pack('<f', constant.value))[0]:08X}"
    return str(constant.value)


def _parameter(param: Param) -> str:
    if param.type == "tensormap":
        return f".param .align 64 .b8 {param.name}[128]"
    return f".param .{param.type} {param.name}"


class _Printer:
    """Text of one kernel. Labels are numbered in the order of the branches."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._labels = 0
        self._lines: list[Line] = []

    def kernel(self) -> list[Line]:
        kernel = self._kernel
        self._block(kernel.body, INDENT)
        params = [f"{INDENT}{_parameter(param)}," for param in kernel.params[:-1]]
        params += [f"{INDENT}{_parameter(param)}" for param in kernel.params[-1:]]
        cluster = [".explicitcluster", f".reqnctapercluster {kernel.cluster}, 1, 1"] if kernel.cluster > 1 else []
        head = [
            f".visible .entry {kernel.name}(",
            *params,
            ")",
            f".reqntid {kernel.threads}, 1, 1",
            min_ctas_line(kernel),
            *cluster,
            "{",
            *_declarations(kernel),
        ]
        return [*map(Line, head), *self._lines, Line(f"{INDENT}ret;"), Line("}")]

    def _block(self, block: Block, indent: str) -> None:
        for node in block.nodes:
            if isinstance(node, Inst):
                self._line(indent, f"{instruction_text(node)};", node)
            elif isinstance(node, If):
                self._if(node, indent)
            else:
                self._while(node, indent)

    def _if(self, node: If, indent: str) -> None:
        end = self._label("end")
        skip = end if node.otherwise is None else self._label("else")
        self._branch(node, skip, indent, negated=not node.negated)
        self._block(node.then, indent + INDENT)
        if node.otherwise is not None:
            self._lines.append(Line(f"{indent}bra.uni {end};", node.place))
            self._lines.append(Line(f"{skip}:", node.place))
            self._block(node.otherwise, indent + INDENT)
        self._lines.append(Line(f"{end}:", node.place))

    def _while(self, node: While, indent: str) -> None:
        begin = self._label("loop")
        self._lines.append(Line(f"{begin}:", node.place))
        self._block(node.body, indent + INDENT)
        self._branch(node, begin, indent, negated=node.negated)

    def _branch(self, node: If | While, label: str, indent: str, *, negated: bool) -> None:
        guard = f"@{'!' if negated else ''}{register_name(node.condition)}"
        self._line(indent, f"{guard} bra{'.uni' if node.uniform else ''} {label};", node)

    def _line(self, indent: str, text: str, node: Node) -> None:
        self._lines.append(Line(f"{indent}{text}", node.place))

    def _label(self, kind: str) -> str:
        self._labels += 1
        return f"{kind}_{self._labels}"


def _declarations(kernel: Kernel) -> list[str]:
    """A declaration for each class in use. It covers all numbers up to the greatest."""
    counts: dict[RegType, int] = {}
    for register in kernel.body.registers():
        counts[register.type] = max(counts.get(register.type, 0), register.index + 1)
    return [f"{INDENT}.reg .{kind} {PREFIX[kind]}<{counts[kind]}>;" for kind in PREFIX if kind in counts]
