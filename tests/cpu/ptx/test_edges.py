"""Constants at the edges of what the validator takes: ptxas takes them too, for each operand of each instruction."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from louver.isa.async_copy import AsyncWait
from louver.isa.bulk import BulkWait
from louver.isa.instruction import REGISTER_BITS, Effect, Instruction, Operand
from louver.isa.targets import MAX_PENDING_COPIES, MAX_PENDING_PRODUCTS
from louver.isa.wgmma import WgmmaWait
from louver.ptx.module import Module
from louver.ptx.printer import module_lines
from support.forms import constant_kernel, effect_forms, pure_forms
from support.ptxas import assemble_text, find_tool, header, sass

FORMS: list[Instruction] = [*pure_forms(), *effect_forms()]


def edges(operand: Operand) -> tuple[int, ...]:
    """Values at both sides of each limit that an operand may have."""
    bits = REGISTER_BITS[operand.type]
    found = {0, 1, 2, 7, 31, 32, 33, 63, 64, 255, 256, (1 << bits) - 1, 1 << (bits - 1), -(1 << (bits - 1)), -1}
    for limit in () if operand.values is None else (operand.values[0], operand.values[-1]):
        found |= {limit - 1, limit, limit + 1}
    return tuple(sorted(found))


def cases() -> Iterator[tuple[Instruction, int, int]]:
    for form in FORMS:
        for index, operand in enumerate(form.operands):
            if (
                operand.role == "in"
                and operand.kind in ("value", "immediate")
                and operand.type != "f32"
                and not operand.braces
            ):
                yield from ((form, index, value) for value in edges(operand))


def test_ptxas_takes_each_constant_that_the_validator_takes() -> None:
    kernel, taken = constant_kernel("edges", cases())
    assert len(taken) > 500
    lines = module_lines(Module("sm_90a", [kernel]))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "edges.ptx")
        source.write_text("".join(f"{line.text}\n" for line in lines))
        command = [find_tool("ptxas"), "-arch=sm_90a", "-O0", "-o", Path(folder, "out"), source]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    refused = [lines[int(line) - 1] for line in re.findall(r"line (\d+); error", said)]
    assert not [taken[int(line.place.split(":")[1])] if line.place else line.text for line in refused]


WAITS = {
    WgmmaWait: ("wgmma.fence.sync.aligned; wgmma.wait_group.sync.aligned {};", MAX_PENDING_PRODUCTS),
    AsyncWait: ("cp.async.commit_group; cp.async.wait_group {};", MAX_PENDING_COPIES),
    BulkWait: ("cp.async.bulk.commit_group; cp.async.bulk.wait_group {};", MAX_PENDING_COPIES),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("form", WAITS)
def test_a_wait_leaves_as_many_groups_as_the_machine_can_count(form: type[Effect]) -> None:
    """ptxas takes a larger number without a word, and waits for another one."""
    text, most = WAITS[form]  # pyright: ignore

    def waits(pending: int) -> list[str]:
        body = header((8, 3), "sm_90a") + f".visible .entry k() {{ {text.format(pending)} ret; }}\n"
        found = re.findall(r"DEPBAR[.]LE \w+, (0x[0-9a-f]+)", sass(assemble_text(body, "sm_90a")[0]))
        return found[-1:]

    assert waits(most) == [hex(most)] and waits(most - 1) == [hex(most - 1)] and waits(most + 1) == [hex(most)]
    form(most)  # type: ignore[call-arg]
    for wrong in (-1, most + 1, 129):
        with pytest.raises(ValueError, match=f"leaves 0 to {most} groups pending, got {wrong}"):
            form(wrong)  # type: ignore[call-arg]
