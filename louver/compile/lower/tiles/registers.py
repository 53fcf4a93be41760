"""New registers for passes on PTX."""

from __future__ import annotations

from louver.compile.lower.tiles.order import written
from louver.isa.instruction import RegType
from louver.ptx.module import Inst, Kernel, Reg


class Fresh:
    """Gives registers that a kernel does not have yet."""

    __slots__ = ("_last",)

    def __init__(self, kernel: Kernel) -> None:
        self._last: dict[RegType, int] = {}
        for node in kernel.body.walk():
            for register in written(node) if isinstance(node, Inst) else ():
                self._last[register.type] = max(self._last.get(register.type, 0), register.index)

    def __call__(self, kind: RegType) -> Reg:
        """A new register of a class."""
        self._last[kind] = self._last.get(kind, 0) + 1
        return Reg(kind, self._last[kind])
