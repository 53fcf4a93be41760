"""What one kind of evidence says about a tensor."""

from __future__ import annotations

from dataclasses import dataclass

from louver.formats.schema import DenseForm, Form
from louver.models.roles import Evidence, Role

FLOATS = frozenset(("F16", "BF16", "F32", "F64"))
"""The container's names of element types whose elements are numbers by themselves."""


@dataclass(frozen=True, slots=True)
class Found:
    """A role, and why. axis: the contracted axis as stored, if a product or a convolution reads the tensor."""

    role: Role
    evidence: Evidence
    reason: str
    axis: int | None = None


def is_float(form: Form) -> bool:
    """Whether the tensor is stored dense, in a type of at least 16 bits whose elements are numbers by themselves."""
    return isinstance(form, DenseForm) and form.dtype in FLOATS


def is_fp8(form: Form) -> bool:
    """Whether the tensor is stored dense in an 8-bit type with a sign: a weight that usually has scales."""
    return isinstance(form, DenseForm) and form.dtype.startswith(("F8_E4M3", "F8_E5M2"))


def words(name: str) -> frozenset[str]:
    """The words of a tensor's name in lower case: `h.0.attn.c_proj` has h, 0, attn, c, proj."""
    return frozenset(name.lower().replace(".", "_").replace("/", "_").split("_"))


def module_of(name: str) -> str:
    """The name without its last part: the module that holds a parameter."""
    return name.rpartition(".")[0]


def in_block(name: str) -> bool:
    """Whether the tensor belongs to a repeated block: a part of its name is a number."""
    return any(part.isdecimal() for part in name.split("."))
