"""Atomic operations on memory."""

from __future__ import annotations

from typing import TypeAlias

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_operand_def, prop_def, result_def, traits_def
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile import syntax
from louver.ir.tile.types import loaded_type

KINDS = ("and", "or", "xor", "add", "fadd", "max", "min", "umax", "umin", "exch")
"""The kinds of changes by an atomic operation. Source: Triton's RMWOp."""


class _Atomic(IRDLOperation):
    """Reads, changes and writes memory, element by element. The result is the old contents."""

    sem = prop_def(StringAttr)
    scope = prop_def(StringAttr)
    result = result_def()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    custom_directives = (syntax.Word,)

    def verify_(self) -> None:
        pointer, value = self.operands[:2]
        stored = loaded_type(pointer.type)
        for each in (value, self.result):
            if each.type != stored:
                raise VerifyException(f"an atomic operation through {pointer.type} is on {stored}, got {each.type}")


@irdl_op_definition
class AtomicRMWOp(_Atomic):
    """Changes memory by `value` where the mask is true."""

    name = "tt.atomic_rmw"
    kind = prop_def(StringAttr)
    ptr = operand_def()
    value = operand_def()
    mask = opt_operand_def()
    assembly_format = (
        "custom<Word>($kind) `,` custom<Word>($sem) `,` custom<Word>($scope) `,` $ptr `,` $value (`,` $mask^)? attr-dict"
        " `:` `(` type($ptr) `,` type($value) (`,` type($mask)^)? `)` `->` type($result)"
    )

    def verify_(self) -> None:
        if self.kind.data not in KINDS:
            raise VerifyException(f"an atomic operation is one of {', '.join(KINDS)}, got {self.kind.data}")
        super().verify_()
        stored = loaded_type(self.ptr.type)
        mask: SSAValue | None = self.mask
        if mask is not None and mask.type != syntax.mask_type(stored):
            raise VerifyException(f"the mask of {self.name} must be {syntax.mask_type(stored)}, got {mask.type}")


@irdl_op_definition
class AtomicCASOp(_Atomic):
    """Writes `value` where memory contains `expected`. The comparison is of bits."""

    name = "tt.atomic_cas"
    ptr = operand_def()
    expected = operand_def()
    value = operand_def()
    assembly_format = (
        "custom<Word>($sem) `,` custom<Word>($scope) `,` $ptr `,` $expected `,` $value attr-dict"
        " `:` `(` type($ptr) `,` type($expected) `,` type($value) `)` `->` type($result)"
    )

    def verify_(self) -> None:
        super().verify_()
        if self.expected.type != self.value.type:
            raise VerifyException(f"{self.name} compares with {self.value.type}, got {self.expected.type}")


AtomicOp: TypeAlias = AtomicRMWOp | AtomicCASOp
"""An operation that reads and writes memory at `ptr` atomically, with `value`."""
