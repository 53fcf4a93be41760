"""Flattens a kernel's structured body into steps whose operands are bound once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any, Literal, TypeAlias

import numpy as np

from louver.emulator.errors import LaunchError
from louver.isa.instruction import LANES, REGISTER_BITS, STORAGE, Bits, Instruction, Operand, Pure, RegType
from louver.isa.wgmma import Wgmma
from louver.ptx.module import Address, Arg, Block, If, Imm, Inst, Kernel, Reg, While

Registers: TypeAlias = list[Any]
"""A warp's registers by slot: arrays of 32 lanes, or None before the first write."""

Getter: TypeAlias = Callable[[Registers], Any]
"""Reads an operand; None if a register was never written."""

Kind = Literal["pure", "effect", "if", "else", "endif", "loop", "repeat"]


@dataclass(frozen=True, slots=True, eq=False)
class ProductRegisters:
    """Register slots of one wgmma.

    fenced: slots that need a `wgmma.fence` after other uses: accumulators and A fragments. The PTX ISA does not name
    metadata. inputs: A fragments and metadata, which the product reads until it completes.
    """

    accumulators: tuple[int, ...]
    accumulator_set: frozenset[int]
    fenced: frozenset[int]
    inputs: frozenset[int]
    shape: str

    @property
    def count(self) -> int:
        return len(self.accumulator_set | self.inputs)


@dataclass(slots=True, eq=False)
class Step:
    """A step of the flat program.

    position: index of the node in program order. inputs: a getter for each input operand. ranged: the inputs that have
    values of their own. sources: register slots that each input reads. outputs: slots written, in operand order, vectors grouped. product: of a wgmma. compute: of a pure
    instruction. result: the only slot written, if it is one scalar register. plain: a pure instruction without a guard,
    with a `result`, and with no register of a wgmma. watched_reads, watched_writes: slots that some wgmma uses; see
    `warpgroup.py`. target: where "if", "else" and "repeat" jump to. condition: predicate slot of a guard or branch.
    """

    kind: Kind
    position: int
    node: Inst | If | While
    op: Instruction | None = None
    name: str = ""
    aligned: bool = False
    uniform: bool = False
    condition: int | None = None
    negated: bool = False
    inputs: tuple[Getter, ...] = ()
    ranged: tuple[tuple[int, Operand], ...] = ()
    sources: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    compute: Callable[..., tuple[Any, ...]] | None = None
    result: int | None = None
    watched_reads: tuple[int, ...] = ()
    watched_writes: tuple[int, ...] = ()
    target: int = 0
    product: ProductRegisters | None = None
    plain: bool = False


@dataclass(eq=False)
class Program:
    """A decoded kernel. registers: the register of each slot."""

    steps: list[Step] = field(default_factory=list[Step])
    slots: dict[Reg, int] = field(default_factory=dict[Reg, int])

    @cached_property
    def registers(self) -> list[Reg]:
        return list(self.slots)


def decode(kernel: Kernel, symbols: Mapping[str, int]) -> Program:
    """Flatten `kernel`. symbols: addresses of the parameters and of `smem`."""
    decoder = _Decoder(symbols)
    decoder.block(kernel.body)
    _watch(decoder.program)
    return decoder.program


def immediate(value: int | float, type: RegType) -> Bits:
    """A constant's bits over the lanes."""
    if type == "pred":
        return np.full(LANES, bool(value))
    if isinstance(value, float):
        if type != "f32":
            raise LaunchError(f"a float immediate needs an f32 operand, got {value} for {type}")
        return np.full(LANES, np.float32(value)).view(np.uint32)
    return np.full(LANES, value & ((1 << REGISTER_BITS[type]) - 1), STORAGE[type])


class _Decoder:
    def __init__(self, symbols: Mapping[str, int]) -> None:
        self.program = Program()
        self.symbols = symbols
        self.position = 0

    def block(self, block: Block) -> None:
        for node in block.nodes:
            position, self.position = self.position, self.position + 1
            if isinstance(node, Inst):
                self.program.steps.append(self.instruction(node, position))
            elif isinstance(node, If):
                self.branch(node, position)
            else:
                self.loop(node, position)

    def branch(self, node: If, position: int) -> None:
        steps = self.program.steps
        begin = Step(
            "if", position, node, uniform=node.uniform, condition=self.slot(node.condition), negated=node.negated
        )
        steps.append(begin)
        self.block(node.then)
        begin.target = len(steps)
        if node.otherwise is not None:
            other = Step("else", position, node)
            steps.append(other)
            self.block(node.otherwise)
            other.target = len(steps)
        steps.append(Step("endif", position, node))

    def loop(self, node: While, position: int) -> None:
        steps = self.program.steps
        steps.append(Step("loop", position, node))
        start = len(steps)
        self.block(node.body)
        steps.append(
            Step(
                "repeat",
                position,
                node,
                uniform=node.uniform,
                condition=self.slot(node.condition),
                negated=node.negated,
                target=start,
            )
        )

    def instruction(self, node: Inst, position: int) -> Step:
        operands = node.op.operands
        if len(operands) != len(node.args):
            raise LaunchError(
                f"{node.op.mnemonic} takes {len(operands)} operands, got {len(node.args)} (instruction {position})"
            )
        pairs = list(zip(operands, node.args, strict=True))
        ins = [(o, a) for o, a in pairs if o.role != "out"]
        outs = [(o, a) for o, a in pairs if o.role != "in"]
        scalar = len(outs) == 1 and outs[0][0].count == 1 and not outs[0][0].braces
        return Step(
            kind="pure" if isinstance(node.op, Pure) else "effect",
            position=position,
            node=node,
            op=node.op,
            name=node.op.mnemonic,
            aligned=node.op.aligned,
            condition=None if node.guard is None else self.slot(node.guard),
            negated=node.guard_negated,
            inputs=tuple(self.getter(node.op, o, a) for o, a in ins),
            ranged=tuple((index, o) for index, (o, _) in enumerate(ins) if o.values is not None),
            sources=tuple(self.registers(a) for _, a in ins),
            outputs=tuple(self.registers(a) for _, a in outs),
            compute=node.op.compute if isinstance(node.op, Pure) else None,
            result=self.registers(outs[0][1])[0] if scalar else None,
        )

    def slot(self, register: Reg) -> int:
        return self.program.slots.setdefault(register, len(self.program.slots))

    def registers(self, arg: Arg) -> tuple[int, ...]:
        if isinstance(arg, Reg):
            return (self.slot(arg),)
        if isinstance(arg, tuple):
            return tuple(self.slot(part) for part in arg if isinstance(part, Reg))
        if isinstance(arg, Address) and isinstance(arg.base, Reg):
            return (self.slot(arg.base),)
        return ()

    def getter(self, op: Instruction, operand: Operand, arg: Arg) -> Getter:
        if isinstance(op, Wgmma) and operand.role == "inout":
            # The product reads its accumulators when it completes, not at issue.
            return _constant(np.zeros((operand.count, LANES), STORAGE[operand.type]))
        if isinstance(arg, Address):
            return self.address(arg)
        if isinstance(arg, tuple):
            return _vector([self.scalar(operand.type, part) for part in arg])
        value = self.scalar(operand.type, arg)
        if operand.count > 1 or operand.braces:
            return _vector([value])
        return value

    def scalar(self, type: RegType, arg: Reg | Imm | str) -> Getter:
        if isinstance(arg, Reg):
            return itemgetter(self.slot(arg))
        if isinstance(arg, str):
            return _constant(immediate(self.symbol(arg), type))
        return _constant(immediate(arg.value, type))

    def address(self, arg: Address) -> Getter:
        if isinstance(arg.base, str):
            return _constant(np.full(LANES, self.symbol(arg.base) + arg.offset, np.uint64))
        slot, offset = self.slot(arg.base), arg.offset
        if REGISTER_BITS[arg.base.type] == 64:
            wrapped = np.uint64(offset & ((1 << 64) - 1))
            return lambda registers: None if registers[slot] is None else registers[slot] + wrapped
        narrow = np.uint32(offset & ((1 << 32) - 1))
        return lambda registers: None if registers[slot] is None else (registers[slot] + narrow).astype(np.uint64)

    def symbol(self, name: str) -> int:
        if name not in self.symbols:
            raise LaunchError(f"the kernel names {name!r}; it has only {', '.join(sorted(self.symbols))}")
        return self.symbols[name]


def _constant(value: Bits) -> Getter:
    return lambda _registers: value


def _vector(parts: Sequence[Getter]) -> Getter:
    def get(registers: Registers) -> Any:
        values = [part(registers) for part in parts]
        for value in values:
            if value is None:
                return None
        return np.array(values)

    return get


def _watch(program: Program) -> None:
    """Mark, on each step, the registers that some wgmma uses."""
    delicate: set[int] = set()
    for step in program.steps:
        if isinstance(step.op, Wgmma):
            step.product = _product_registers(step, step.op)
            delicate |= step.product.accumulator_set | step.product.inputs
    for step in program.steps:
        if step.op is not None and step.product is None:
            step.watched_reads = _among(step.sources, delicate)
            step.watched_writes = _among(step.outputs, delicate)
        watched = step.watched_reads or step.watched_writes
        step.plain = (
            not (step.compute is None or step.result is None or step.aligned or watched) and step.condition is None
        )


def _among(groups: tuple[tuple[int, ...], ...], slots: set[int]) -> tuple[int, ...]:
    return tuple(sorted({slot for group in groups for slot in group} & slots))


def _product_registers(step: Step, op: Wgmma) -> ProductRegisters:
    by_name = dict(zip((o.name for o in op.operands if o.role != "out"), step.sources, strict=True))
    accumulators = step.outputs[0]
    fragment = by_name["a"] if op.a_source == "registers" else ()
    metadata = by_name["sp-meta"] if op.sparse else ()
    fenced = frozenset((*accumulators, *fragment))
    inputs = frozenset((*fragment, *metadata))
    return ProductRegisters(accumulators, frozenset(accumulators), fenced, inputs, f"m64n{op.n} {op.d}")
