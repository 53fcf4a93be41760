"""Kernel builder: registers, emission, structured control flow. Values are registers, constants or Python numbers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from louver.isa.instruction import Instruction, Operand, RegType
from louver.ptx.module import Arg, Block, If, Imm, Inst, Kernel, Node, Param, Reg, While
from louver.ptx.validate import check_arguments

Number: TypeAlias = Reg | Imm | int | float


class Loop:
    """The handle of a loop under construction."""

    def __init__(self) -> None:
        self.condition: Reg | None = None
        self.negated = False

    def repeat_if(self, condition: Reg, *, negated: bool = False) -> None:
        """Repeat the body while `condition` holds, or with `negated` does not hold."""
        self.condition = condition
        self.negated = negated


class Branch:
    """The handle of a branch under construction."""

    def __init__(self, builder: BuilderCore, node: If) -> None:
        self._builder = builder
        self._node = node

    @contextmanager
    def otherwise(self) -> Generator[None]:
        """The block for lanes where the condition fails. Raises ValueError unless it directly follows the branch."""
        if not self._builder.is_last(self._node) or self._node.otherwise is not None:
            raise ValueError("otherwise must directly follow its branch, once: join the blocks or branch again")
        self._node.otherwise = Block()
        with self._builder.inside(self._node.otherwise):
            yield


class BuilderCore:
    """Registers, emission and control flow. Arguments: see `Kernel`."""

    def __init__(
        self,
        name: str,
        params: tuple[Param, ...],
        *,
        threads: int,
        min_ctas: int = 1,
        cluster: int = 1,
        dynamic_shared: int = 0,
    ) -> None:
        body = Block()
        self._blocks = [body]
        self._counts: dict[RegType, int] = {}
        self._place: str | None = None
        self._kernel = Kernel(name, params, body, threads, min_ctas, cluster, dynamic_shared)

    def finish(self) -> Kernel:
        """The kernel. Raises ValueError inside an open block."""
        if len(self._blocks) != 1:
            raise ValueError("a kernel must be finished outside of its loops and branches")
        return self._kernel

    @property
    def params(self) -> dict[str, Param]:
        return {param.name: param for param in self._kernel.params}

    def reg(self, kind: RegType) -> Reg:
        index = self._counts.get(kind, 0)
        self._counts[kind] = index + 1
        return Reg(kind, index)

    def regs(self, kind: RegType, count: int) -> list[Reg]:
        """New registers with consecutive numbers."""
        return [self.reg(kind) for _ in range(count)]

    @contextmanager
    def at(self, place: str | None) -> Generator[None]:
        """Nodes of this context come from `place` in the user's text. None keeps the current place."""
        outer, self._place = self._place, place or self._place
        try:
            yield
        finally:
            self._place = outer

    def emit(self, op: Instruction, *args: Arg | int | float, guard: Reg | None = None, negated: bool = False) -> None:
        """Append an instruction for lanes where `guard` holds, or with `negated` does not hold.

        Python numbers become constants. Raises ValueError if the arguments do not fit the operands.
        """
        operands = op.operands
        given = tuple(
            _immediate(operands[index] if index < len(operands) else None, arg) if isinstance(arg, int | float) else arg
            for index, arg in enumerate(args)
        )
        check_arguments(op, given)
        self._append(Inst(op, given, guard, negated))

    @contextmanager
    def if_(self, condition: Reg, *, negated: bool = False, uniform: bool = False) -> Generator[Branch]:
        """The block runs in lanes where `condition` holds. uniform: promises that all lanes of a warp agree."""
        node = If(condition, Block(), negated=negated, uniform=uniform)
        self._append(node)
        with self.inside(node.then):
            yield Branch(self, node)

    @contextmanager
    def loop(self, *, uniform: bool = False) -> Generator[Loop]:
        """A do-while loop. `repeat_if` of its handle must be called inside."""
        block, handle = Block(), Loop()
        with self.inside(block):
            yield handle
        if handle.condition is None:
            raise ValueError("a loop needs a condition to repeat: call repeat_if inside it")
        self._append(While(block, handle.condition, handle.negated, uniform))

    @contextmanager
    def while_(self, condition: Callable[[], Reg], *, uniform: bool = False) -> Generator[None]:
        """A loop that tests first. condition: emits the test, before the loop and at its end."""
        with self.if_(condition(), uniform=uniform), self.loop(uniform=uniform) as handle:
            yield
            handle.repeat_if(condition())

    @contextmanager
    def inside(self, block: Block) -> Generator[None]:
        """Append to `block` in this context."""
        self._blocks.append(block)
        try:
            yield
        finally:
            self._blocks.pop()

    def is_last(self, node: Node) -> bool:
        """Whether `node` is the last one of the current block."""
        nodes = self._blocks[-1].nodes
        return bool(nodes) and nodes[-1] is node

    def _append(self, node: Node) -> None:
        node.place = self._place
        self._blocks[-1].nodes.append(node)


def _immediate(operand: Operand | None, number: int | float) -> Imm:
    return Imm(float(number)) if operand is not None and operand.type == "f32" else Imm(number)
