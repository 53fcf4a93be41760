"""PTX text from modules: deterministic, registers declared by class, structured control flow as labels and branches."""

from __future__ import annotations

import struct
from collections import Counter

from louver.isa.instruction import Operand, RegType
from louver.isa.targets import target
from louver.ptx.module import Address, Arg, Block, If, Imm, Inst, Kernel, Module, Node, Param, Reg, While

PREFIX: dict[RegType, str] = {"pred": "%p", "b16": "%h", "b32": "%r", "b64": "%rd", "f32": "%f"}
"""How registers of each class are named."""


def print_module(module: Module) -> str:
    """The module's PTX. `.version` is the least that the target and all instructions allow."""
    version = target(module.target).min_ptx
    for kernel in module.kernels:
        for node in kernel.body.walk():
            if isinstance(node, Inst):
                version = max(version, node.op.requires.ptx)
    lines = [f".version {version[0]}.{version[1]}", f".target {module.target}", ".address_size 64", ""]
    if any(kernel.dynamic_shared for kernel in module.kernels):
        lines += [".extern .shared .align 1024 .b8 smem[];", ""]
    for kernel in module.kernels:
        lines += _Printer(kernel).kernel()
    return "\n".join(lines) + "\n"


def register_name(register: Reg) -> str:
    """A register's name in PTX."""
    return f"{PREFIX[register.type]}{register.index}"


def argument_text(argument: Arg, operand: Operand) -> str:
    """An operand as PTX prints it."""
    match argument:
        case Reg():
            name = register_name(argument)
            return f"[{name}]" if operand.kind == "address" else name
        case Imm(value):
            if isinstance(value, float):
                return f"0f{struct.unpack('<I', struct.pack('<f', value))[0]:08X}"
            return str(value)
        case Address(base, offset):
            name = base if isinstance(base, str) else register_name(base)
            return f"[{name}]" if not offset else f"[{name}{offset:+d}]"
        case str():
            return f"[{argument}]" if operand.kind == "address" else argument
        case _:
            return "{" + ", ".join(argument_text(each, operand) for each in argument) + "}"


def instruction_text(instruction: Inst) -> str:
    """One statement with its guard, without the semicolon."""
    operands = instruction.op.operands
    if len(operands) != len(instruction.args):
        raise ValueError(
            f"{instruction.op.mnemonic} takes {len(operands)} operands, got {len(instruction.args)}: {instruction.args}"
        )
    printed = instruction.op.text(*map(argument_text, instruction.args, operands))
    if instruction.guard is None:
        return printed
    return f"@{'!' if instruction.guard_negated else ''}{register_name(instruction.guard)} {printed}"


class _Printer:
    """One kernel's text."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._labels = 0
        self._lines: list[str] = []

    def kernel(self) -> list[str]:
        kernel = self._kernel
        self._block(kernel.body)
        cluster = [f".explicitcluster\n.reqnctapercluster {kernel.cluster}, 1, 1"] if kernel.cluster > 1 else []
        return [
            f".visible .entry {kernel.name}(",
            ",\n".join(f"    {_parameter(param)}" for param in kernel.params),
            ")",
            f".reqntid {kernel.threads}, 1, 1",
            f".minnctapersm {kernel.min_ctas}",
            *cluster,
            "{",
            *(f"    .reg .{kind} {PREFIX[kind]}<{count}>;" for kind, count in sorted(_registers(kernel).items())),
            *self._lines,
            "    ret;",
            "}",
        ]

    def _block(self, block: Block) -> None:
        for node in block.nodes:
            self._node(node)

    def _node(self, node: Node) -> None:
        if node.note:
            self._lines.append(f"    // {node.note}")
        match node:
            case Inst():
                self._lines.append(f"    {instruction_text(node)};")
            case If():
                self._if(node)
            case While():
                label = self._label()
                self._lines.append(f"{label}:")
                self._block(node.body)
                self._branch(label, node.condition, negated=node.negated, uniform=node.uniform)

    def _if(self, node: If) -> None:
        end = self._label()
        skip = end if node.otherwise is None else self._label()
        self._branch(skip, node.condition, negated=not node.negated, uniform=node.uniform)
        self._block(node.then)
        if node.otherwise is not None:
            self._lines.append(f"    bra.uni {end};")
            self._lines.append(f"{skip}:")
            self._block(node.otherwise)
        self._lines.append(f"{end}:")

    def _branch(self, label: str, condition: Reg, *, negated: bool, uniform: bool) -> None:
        guard = f"@{'!' if negated else ''}{register_name(condition)}"
        self._lines.append(f"    {guard} bra{'.uni' if uniform else ''} {label};")

    def _label(self) -> str:
        self._labels += 1
        return f"L{self._labels}"


def _parameter(param: Param) -> str:
    if param.type == "tensormap":
        return f".param .align 64 .b8 {param.name}[128]"
    return f".param .{param.type} {param.name}"


def _registers(kernel: Kernel) -> dict[RegType, int]:
    """Registers to declare of each class: one more than the greatest number in use."""
    counts: Counter[RegType] = Counter()

    def see(argument: Arg | Reg | None) -> None:
        if isinstance(argument, Reg):
            counts[argument.type] = max(counts[argument.type], argument.index + 1)
        elif isinstance(argument, Address):
            see(argument.base if isinstance(argument.base, Reg) else None)
        elif isinstance(argument, tuple):
            for each in argument:
                see(each)

    for node in kernel.body.walk():
        if isinstance(node, Inst):
            see(node.guard)
            for argument in node.args:
                see(argument)
        else:
            see(node.condition)
    return dict(counts)
