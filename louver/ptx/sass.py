"""Machine code of a cubin as text."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from louver.ptx.assembler import TIMEOUT, memory_file, path_of, tool_in_wheel

WHEEL = "nvidia-cuda-nvdisasm"
"""The distribution that carries the disassembler."""

_PRODUCT = re.compile(r"[A-Z]*MMA(?:\.SP)?\b")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")


class DisassemblerMissingError(RuntimeError):
    """There is no nvdisasm on this machine."""


def find_nvdisasm() -> Path:
    """The pinned wheel's nvdisasm, else the one on the PATH. Raises DisassemblerMissingError, saying what to install."""
    found = tool_in_wheel(WHEEL, "nvdisasm")
    if found is not None:
        return found
    on_path = shutil.which("nvdisasm")
    if on_path is None:
        raise DisassemblerMissingError(f"disassembling needs nvdisasm, got none: pip install {WHEEL}")
    return Path(on_path)


def disassemble(cubin: bytes) -> str:
    """The SASS of a cubin. Raises ValueError when nvdisasm cannot read it."""
    nvdisasm = find_nvdisasm()
    with memory_file(cubin) as file:
        done = subprocess.run(
            [str(nvdisasm), "-c", path_of(file)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT,
            check=False,
            pass_fds=[file],
        )
    if done.returncode:
        raise ValueError(f"nvdisasm cannot read the cubin: {done.stderr.strip()}")
    return done.stdout


def opcodes(sass: str) -> Counter[str]:
    """How often each opcode stands in the text, qualifiers included (`HGMMA.SP.64x256x32.F32`, `USETMAXREG…`)."""
    return Counter(_INSTRUCTION.findall(sass))


def count_opcode(sass: str, name: str) -> int:
    """How many instructions have the opcode `name`, whatever their qualifiers: "USETMAXREG", "LDL", "HGMMA"."""
    return sum(number for opcode, number in opcodes(sass).items() if opcode.split(".")[0] == name)


def count_products(sass: str) -> Counter[str]:
    """How many matrix products there are, by unit: `HGMMA`, `HGMMA.SP`, `QGMMA.SP`, `HMMA` and their like."""
    found: Counter[str] = Counter()
    for opcode, number in opcodes(sass).items():
        if unit := _PRODUCT.match(opcode):
            found[unit.group()] += number
    return found


def count_sparse_products(sass: str) -> int:
    """How many of them are sparse."""
    return sum(number for unit, number in count_products(sass).items() if unit.endswith(".SP"))
