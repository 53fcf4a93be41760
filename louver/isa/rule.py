"""The error of a rule that a kernel, a schedule or a call breaks. It needs no xDSL, which a warm start does not import."""

from __future__ import annotations


class RuleError(ValueError):
    """A rule that a kernel or its schedule does not meet: the rule, what was got, what to do.

    Limits of instructions are such rules. In a pass, only this error refuses the kernel. Any other one is a defect of
    Louver (`louver.compile.defect`).
    """
