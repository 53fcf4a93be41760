"""Building kernels: registers, emission, structured control flow.

Values are registers, immediates or Python numbers.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

from louver.isa.instruction import Instruction, RegType
from louver.ptx.module import Arg, Block, If, Imm, Inst, Kernel, Param, Reg, While

Number: TypeAlias = Reg | Imm | int | float


class Loop:
    """The handle of a loop under construction: says when to repeat."""

    def __init__(self) -> None:
        self.condition: Reg | None = None
        self.negated = False

    def repeat_if(self, condition: Reg, *, negated: bool = False) -> None:
        """Repeat the body while `condition` holds (or does not, when `negated`)."""
        self.condition = condition
        self.negated = negated


class BuilderCore:
    """Registers, emission and control flow."""

    def __init__(
        self,
        name: str,
        params: tuple[Param, ...],
        *,
        threads: int,
        cluster: int = 1,
        dynamic_shared: int = 0,
    ) -> None:
        self._body = Block()
        self._blocks = [self._body]
        self._counts: dict[RegType, int] = {}
        self._kernel = Kernel(name, params, self._body, threads, cluster=cluster, dynamic_shared=dynamic_shared)

    def finish(self) -> Kernel:
        """The kernel. Raises ValueError inside an open block."""
        if len(self._blocks) != 1:
            raise ValueError("a kernel is finished outside its loops and branches")
        return self._kernel

    @property
    def params(self) -> dict[str, Param]:
        """The kernel's parameters by name."""
        return {param.name: param for param in self._kernel.params}

    def reg(self, kind: RegType) -> Reg:
        """A new register."""
        index = self._counts.get(kind, 0)
        self._counts[kind] = index + 1
        return Reg(kind, index)

    def regs(self, kind: RegType, count: int) -> list[Reg]:
        """New registers, numbered one after the other."""
        return [self.reg(kind) for _ in range(count)]

    def emit(self, op: Instruction, *args: Arg | int | float, guard: Reg | None = None, negated: bool = False) -> None:
        """Append an instruction; Python numbers become immediates."""
        printed = tuple(Imm(arg) if isinstance(arg, int | float) else arg for arg in args)
        self._blocks[-1].nodes.append(Inst(op, printed, guard, negated))

    @contextmanager
    def if_(self, condition: Reg, *, negated: bool = False, uniform: bool = False) -> Generator[None]:
        """The block runs for the lanes where `condition` holds."""
        block = Block()
        self._blocks[-1].nodes.append(If(condition, block, negated=negated, uniform=uniform))
        with self._inside(block):
            yield

    @contextmanager
    def loop(self, *, uniform: bool = False) -> Generator[Loop]:
        """A do-while loop; its handle's `repeat_if` must be called inside."""
        block, handle = Block(), Loop()
        with self._inside(block):
            yield handle
        if handle.condition is None:
            raise ValueError("a loop says when it repeats: call repeat_if inside it")
        self._blocks[-1].nodes.append(While(block, handle.condition, handle.negated, uniform))

    @contextmanager
    def _inside(self, block: Block) -> Generator[None]:
        self._blocks.append(block)
        try:
            yield
        finally:
            self._blocks.pop()
