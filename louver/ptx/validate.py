"""Checks of PTX modules before printing: operands, symbols, convergence, definite assignment, target, limits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from louver.isa.instruction import REGISTER_BITS, Instruction, Operand
from louver.isa.memory import LoadParameter
from louver.isa.rule import RuleError
from louver.isa.targets import Target, target
from louver.ptx.module import Address, Arg, Block, If, Imm, Inst, Kernel, Module, Reg

SHARED_SYMBOL = "smem"
"""The name of a kernel's dynamic shared memory."""

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*|_[A-Za-z0-9_]+")


class ValidationError(RuleError):
    """A module breaks a rule of PTX or its target. The message names kernel, instruction and index in program order."""


def validate(module: Module) -> None:
    """Raise `ValidationError` for the first broken rule. The index is the node's place in `Block.walk`."""
    machine = target(module.target)
    counts = Counter(kernel.name for kernel in module.kernels)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValidationError(f"kernels of a module have different names, got several of {', '.join(twice)}")
    for kernel in module.kernels:
        _check_kernel(kernel, machine)
        _Instructions(kernel, machine).check()
        _Flow(kernel).check()


def check_arguments(op: Instruction, args: tuple[Arg, ...]) -> None:
    """Raise ValueError unless number, classes and constants of `args` fit the operands of `op`."""
    operands = op.operands
    if len(operands) != len(args):
        names = ", ".join(operand.name for operand in operands) or "none"
        raise ValueError(f"{op.mnemonic} takes {len(operands)} operands ({names}), got {len(args)}")
    for operand, arg in zip(operands, args, strict=True):
        if isinstance(arg, Reg) and arg.type == operand.register:
            # Shortcut for most arguments: a kernel has thousands of instructions.
            continue
        problem = _problem(operand, arg)
        if problem:
            raise ValueError(f"{op.mnemonic}: operand {operand.name} {problem}")


def _problem(operand: Operand, arg: Arg) -> str:
    """The error of an argument, or an empty string."""
    if operand.kind == "address":
        return _address_problem(operand, arg)
    if isinstance(arg, tuple):
        if not operand.braces or len(arg) != operand.count:
            return f"is {operand.count} registers, got {len(arg)} in braces"
        return next(filter(None, (_scalar_problem(operand, part) for part in arg)), "")
    if operand.count > 1:
        return f"is a vector of {operand.count} registers, got {_shown(arg)}"
    return _scalar_problem(operand, arg)


def _address_problem(operand: Operand, arg: Arg) -> str:
    if not isinstance(arg, Address):
        return f"is an address, got {_shown(arg)}"
    if isinstance(arg.base, Reg) and arg.base.type != operand.type:
        return f"is addressed by a {operand.type} register, got {_shown(arg.base)}"
    return ""


def _scalar_problem(operand: Operand, arg: Reg | Imm | Address | str) -> str:
    if isinstance(arg, Reg):
        if operand.kind == "immediate":
            return f"is a constant, got {_shown(arg)}"
        return "" if arg.type == operand.type else f"is a {operand.type} register, got {_shown(arg)}"
    if not isinstance(arg, Imm):
        return f"is a {operand.type} {operand.kind}, got {_shown(arg)}"
    if operand.role != "in" or operand.kind == "register":
        return f"must be a register, got the constant {arg.value}"
    return _immediate_problem(operand, arg.value)


def _immediate_problem(operand: Operand, value: int | float) -> str:
    if isinstance(value, float) != (operand.type == "f32"):
        return f"takes {'a float' if operand.type == 'f32' else 'an int'}, got {value!r}"
    if isinstance(value, float):
        return ""
    if operand.values is not None:
        return "" if value in operand.values else f"{operand.rule}, got {value}"
    bits = REGISTER_BITS[operand.type]
    low = 0 if bits == 1 else -(1 << (bits - 1))
    return "" if low <= value < 1 << bits else f"holds {bits} bits, got {value}"


def _shown(arg: Arg) -> str:
    if isinstance(arg, Reg):
        return f"a {arg.type} register"
    if isinstance(arg, Imm):
        return f"the constant {arg.value}"
    if isinstance(arg, tuple):
        return f"{len(arg)} registers in braces"
    return f"the address [{arg.base}]" if isinstance(arg, Address) else f"the symbol {arg!r}"


def _check_kernel(kernel: Kernel, machine: Target) -> None:
    names = [kernel.name, *(param.name for param in kernel.params)]
    for name in names:
        if not IDENTIFIER.fullmatch(name):
            raise ValidationError(
                f"a name is a letter, or _ and another character, followed by letters, digits and _, got {name!r}"
            )
    if len(set(names)) != len(names) or SHARED_SYMBOL in names:
        raise ValidationError(
            f"{kernel.name}: kernel, parameters and {SHARED_SYMBOL} have different names, got {names}"
        )
    limits = (
        ("threads", kernel.threads, 1, machine.max_threads),
        ("CTAs a cluster", kernel.cluster, 1, machine.max_cluster),
        ("bytes of dynamic shared memory", kernel.dynamic_shared, 0, machine.max_shared_bytes),
        ("CTAs an SM", kernel.min_ctas, 1, machine.sm_ctas),
    )
    for what, value, low, high in limits:
        if not low <= value <= high:
            raise ValidationError(f"{kernel.name}: {machine.name} has {low} to {high} {what}, got {value}")


class _Instructions:
    """Checks each instruction on its own."""

    def __init__(self, kernel: Kernel, machine: Target) -> None:
        self._kernel = kernel
        self._machine = machine
        self._provided: set[str] = set()
        self._params = {param.name: param.type for param in kernel.params}
        self._symbols = set(self._params)
        if kernel.dynamic_shared:
            self._symbols.add(SHARED_SYMBOL)

    def check(self) -> None:
        for index, node in enumerate(self._kernel.body.walk()):
            what = node.op.mnemonic if isinstance(node, Inst) else type(node).__name__.lower()
            try:
                if isinstance(node, Inst):
                    self._instruction(node)
                else:
                    _check_predicate(node.condition)
            except ValueError as error:
                at = f" at {node.place}" if node.place else ""
                raise ValidationError(f"{self._kernel.name}, instruction {index} ({what}){at}: {error}") from None

    def _instruction(self, node: Inst) -> None:
        check_arguments(node.op, node.args)
        if node.guard is not None:
            _check_predicate(node.guard)
        needed = node.op.requires.target
        if needed not in self._provided:
            if not self._machine.provides(needed):
                raise ValueError(f"needs {needed}, got the target {self._machine.name}")
            self._provided.add(needed)
        for arg in node.args:
            symbol = arg.base if isinstance(arg, Address) else arg
            if isinstance(symbol, str) and symbol not in self._symbols:
                known = ", ".join(sorted(self._symbols)) or "none"
                raise ValueError(f"the kernel's symbols are {known}, got {symbol!r}")
        if isinstance(node.op, LoadParameter):
            self._parameter(node.op, node.args[1])

    def _parameter(self, op: LoadParameter, arg: Arg) -> None:
        """ptxas does not report reads past the end of a parameter."""
        if isinstance(arg, Address) and (arg.offset or self._params.get(str(arg.base)) != op.type):
            declared = self._params.get(str(arg.base), "no parameter")
            raise ValueError(f"reads the whole of a {op.type} parameter, got {arg.base} ({declared}) + {arg.offset}")


def _check_predicate(register: Reg) -> None:
    if register.type != "pred":
        raise ValueError(f"a condition is a pred register, got {_shown(register)}")


class _Flow:
    """Follows the paths through a kernel.

    On every path, a register is written before it is read. A guarded write counts, because tails are loaded and used
    under one guard. Instructions for the whole warp have no guard and are in no branch that may divide it.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._index = 0

    def check(self) -> None:
        self._block(self._kernel.body, set(), whole=True)

    def _block(self, block: Block, written: set[Reg], *, whole: bool) -> None:
        """Extend `written` by what `block` writes on every path. whole: no branch around it divides a warp."""
        for node in block.nodes:
            index, self._index = self._index, self._index + 1
            if isinstance(node, Inst):
                self._instruction(node, written, index, whole)
            elif isinstance(node, If):
                self._read((node.condition,), written, index, "if")
                then, otherwise = set(written), set(written)
                self._block(node.then, then, whole=whole and node.uniform)
                if node.otherwise is not None:
                    self._block(node.otherwise, otherwise, whole=whole and node.uniform)
                written.update(then & otherwise)
            else:
                self._block(node.body, written, whole=whole and node.uniform)
                self._read((node.condition,), written, index, "while")

    def _instruction(self, node: Inst, written: set[Reg], index: int, whole: bool) -> None:
        if node.op.aligned and (node.guard is not None or not whole):
            raise ValidationError(
                f"{self._kernel.name}, instruction {index} ({node.op.mnemonic}): needs all lanes of the warp, got a guard or a "
                "branch that may divide them: mark the branch uniform if its condition is, or move the instruction out"
            )
        reads, writes = node.registers()
        self._read(reads if node.guard is None else (node.guard, *reads), written, index, node.op.mnemonic)
        written.update(writes)

    def _read(self, registers: Iterable[Reg], written: set[Reg], index: int, what: str) -> None:
        for register in registers:
            if register not in written:
                raise ValidationError(
                    f"{self._kernel.name}, instruction {index} ({what}): {register.type} register {register.index} may be "
                    "read before it is written: initialise it where all paths meet"
                )
