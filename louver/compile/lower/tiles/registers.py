"""Registers of a kernel, for passes on PTX."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from louver.compile.lower.tiles.order import written
from louver.isa.instruction import RegType
from louver.ptx.module import Inst, Kernel, Reg


def writes_of(kernel: Kernel) -> Counter[Reg]:
    """The number of instructions that write each register."""
    return Counter(register for node in kernel.body.walk() if isinstance(node, Inst) for register in written(node))


class Fresh:
    """Gives registers that a kernel does not have yet. used: those that it has."""

    __slots__ = ("_last",)

    def __init__(self, used: Iterable[Reg]) -> None:
        self._last: dict[RegType, int] = {}
        for register in used:
            self._last[register.type] = max(self._last.get(register.type, 0), register.index)

    def __call__(self, kind: RegType) -> Reg:
        """A new register of a class."""
        self._last[kind] = self._last.get(kind, 0) + 1
        return Reg(kind, self._last[kind])
