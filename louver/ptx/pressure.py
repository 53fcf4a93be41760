"""How many registers a kernel needs, from its PTX: a guess without the assembler, which takes most of a compilation.

The assembler orders instructions anew, computes values again and keeps some in registers that all threads of a warp share, so it
may need fewer or more.
"""

from __future__ import annotations

from collections.abc import Sequence

from louver.isa.instruction import RegType
from louver.ptx.module import Block, If, Inst, Reg

_WORDS: dict[RegType, int] = {"pred": 0, "b16": 1, "b32": 1, "b64": 2, "f32": 1}
"""Registers of 32 bits of each class."""


def most_live(body: Block) -> int:
    """The most registers of 32 bits whose values are needed later at a place of a kernel."""
    live = _Live()
    live.block(body)
    return live.most


class _Live:
    """Goes backwards through a kernel. registers: needed behind the place. words: how many that are. most: so far."""

    def __init__(self) -> None:
        self.registers: set[Reg] = set()
        self.words = self.most = 0

    def block(self, block: Block, *, counted: bool = True) -> None:
        for node in reversed(block.nodes):
            if isinstance(node, Inst):
                self._instruction(node, counted)
                continue
            behind = set(self.registers)
            if isinstance(node, If):
                found = set[Reg]() if node.otherwise is not None else behind
                for inner in node.blocks:
                    self._set(behind)
                    self.block(inner, counted=counted)
                    found = found | self.registers
                self._set(found)
            else:
                self._add((node.condition,))
                # What the next iteration reads is needed behind this one.
                self.block(node.body, counted=False)
                if counted:
                    first = set(self.registers)
                    self._set(behind | first | {node.condition})
                    self.block(node.body)
                    self._set(first)
            self._add((node.condition,))

    def _instruction(self, node: Inst, counted: bool) -> None:
        reads, writes = node.registers()
        if node.guard is None:
            for register in writes:
                if register in self.registers:
                    self.registers.remove(register)
                    self.words -= _WORDS[register.type]
        else:
            self._add((node.guard,))
        self._add(reads)
        if counted and self.words > self.most:
            self.most = self.words

    def _add(self, registers: Sequence[Reg]) -> None:
        for register in registers:
            if register not in self.registers:
                self.registers.add(register)
                self.words += _WORDS[register.type]

    def _set(self, registers: set[Reg]) -> None:
        self.registers = set(registers)
        self.words = sum(_WORDS[each.type] for each in registers)
