"""ptxas takes every form's text, for the least version and target that the form says it needs."""

from __future__ import annotations

import importlib
import inspect

import pytest

from louver.isa.instruction import Instruction, Requirement
from louver.isa.targets import TARGETS
from louver.ptx.assembler import assemble
from louver.ptx.module import Module
from louver.ptx.printer import print_module
from support.forms import effect_forms, pure_forms, statement_kernel
from support.ptxas import header

ROOMS = ("scalar", "move", "convert", "floating", "packed", "bits", "memory", "matrix", "bytes")
FORMS: list[Instruction] = [*pure_forms(), *effect_forms()]


def grouped() -> dict[Requirement, list[Instruction]]:
    groups: dict[Requirement, list[Instruction]] = {}
    for form in FORMS:
        groups.setdefault(form.requires, []).append(form)
    return groups


@pytest.mark.parametrize("needed", grouped(), ids=str)
def test_each_form_assembles_for_what_it_requires(needed: Requirement) -> None:
    name = next(name for name, each in TARGETS.items() if each.provides(needed.target) and each.setmaxnreg_step)
    text = print_module(Module(name, [statement_kernel("every", grouped()[needed])]))
    body = text[text.index(".extern") :]
    # setmaxnreg wants to be in a warpgroup's own branch; here it only has to be accepted.
    known = TARGETS.get(needed.target)
    version = max(needed.ptx, known.min_ptx) if known else needed.ptx
    assemble(header(version, needed.target) + body, needed.target, options=["-O0"])


def test_the_list_has_every_instruction() -> None:
    listed = {type(form) for form in FORMS}
    for room in (*ROOMS, "bulk", "async_copy", "sync", "mma"):
        module = importlib.import_module(f"louver.isa.{room}")
        for name, member in vars(module).items():
            if isinstance(member, type) and issubclass(member, Instruction) and member.__module__ == module.__name__:
                assert inspect.isabstract(member) or member in listed, f"{room}.{name} is not among the forms"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.mnemonic)
def test_outputs_come_first_and_the_mnemonic_begins_the_text(form: Instruction) -> None:
    roles = [operand.role for operand in form.operands]
    assert roles == sorted(roles, key=lambda role: role == "in")
    assert form.text(*(operand.name for operand in form.operands)).startswith(form.mnemonic)
    assert form == form and hash(form) == hash(form)


def test_each_form_is_listed_once() -> None:
    assert len(set(FORMS)) == len(FORMS)
