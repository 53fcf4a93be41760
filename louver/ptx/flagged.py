"""Kernels that run only if a word in memory allows it. Each thread reads the word before it does anything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from louver.isa.instruction import RegType
from louver.isa.memory import Load, LoadParameter
from louver.isa.scalar import Compare
from louver.ptx.module import Address, Block, If, Imm, Inst, Kernel, Param, Reg

RunsIf: TypeAlias = Literal["zero", "not zero"]
"""The words with which a kernel runs."""


def flagged(kernel: Kernel, flag: str, runs_if: RunsIf) -> Kernel:
    """The kernel with one more parameter `flag`, the address of a u32. It ends at once unless the word there is as
    `runs_if` says.

    All threads of a launch must read the same word, so that no thread waits at a barrier for one that has ended, and no
    CTA of a cluster for another one. An earlier kernel of the stream may write the word. The launch must not be a
    dependent one, which may begin before that kernel ends.
    """
    place = _new(kernel.body, "b64")
    word, wanted = _new(kernel.body, "b32"), _new(kernel.body, "pred")
    body = Block(
        [
            Inst(LoadParameter("u64"), (place, Address(flag))),
            Inst(Load("global", "b32"), (word, Address(place))),
            Inst(Compare("eq" if runs_if == "zero" else "ne", "u32"), (wanted, word, Imm(0))),
            If(wanted, kernel.body, uniform=True),
        ]
    )
    return replace(kernel, params=(*kernel.params, Param(flag, "u64")), body=body)


def _new(body: Block, kind: RegType) -> Reg:
    """A register of a class that the body does not use."""
    return Reg(kind, 1 + max((each.index for each in body.registers() if each.type == kind), default=-1))
