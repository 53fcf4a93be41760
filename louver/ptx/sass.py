"""Machine code of a cubin as text (SASS)."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from louver.ptx.assembler import TIMEOUT, memory_file, path_of, tool_in_wheel

WHEEL = "nvidia-cuda-nvdisasm"
"""The distribution with the disassembler."""

_PRODUCT = re.compile(r"[A-Z]*MMA(?:\.SP)?\b")
_LINE_MARK = re.compile(r'\s*//## File "\.nv_debug_ptx_txt", line (\d+)')
_WARPGROUP_PRODUCT = re.compile(r"\b[A-Z]GMMA\b")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")


class DisassemblerMissingError(RuntimeError):
    """nvdisasm is not installed."""


def find_nvdisasm() -> Path:
    """nvdisasm of the pinned wheel, else from the PATH. Raises DisassemblerMissingError with the package to install."""
    found = tool_in_wheel(WHEEL, "nvdisasm")
    if found is not None:
        return found
    on_path = shutil.which("nvdisasm")
    if on_path is None:
        raise DisassemblerMissingError(f"disassembling needs nvdisasm, got none: pip install {WHEEL}")
    return Path(on_path)


class SassLine(NamedTuple):
    """A line of SASS. ptx: the PTX line, from 1, of its instruction; None for other lines and padding."""

    text: str
    ptx: int | None


def disassemble_lines(cubin: bytes, ptx: Sequence[str]) -> list[SassLine]:
    """The lines of `disassemble` with their PTX lines. cubin: assembled from the lines `ptx` with "-lineinfo"."""
    found = _placed_lines(cubin)
    # ptxas 13.5 gives warpgroup products no lines of their own, but keeps their order.
    products = [number for number, line in enumerate(ptx, 1) if "wgmma.mma_async" in line]
    places = [index for index, line in enumerate(found) if _WARPGROUP_PRODUCT.search(line.text)]
    known = products if len(products) == len(places) else [None] * len(places)
    for index, number in zip(places, known, strict=True):
        found[index] = SassLine(found[index].text, number)
    return found


def _placed_lines(cubin: bytes) -> list[SassLine]:
    """The lines by the assembler's line table. Instructions without an entry have the line of the one before."""
    found: list[SassLine] = []
    line: int | None = None
    for text in disassemble(cubin, "-gp").splitlines():
        mark = _LINE_MARK.match(text)
        if mark is not None:
            line = int(mark[1])
        else:
            opcode = _INSTRUCTION.search(text)
            found.append(SassLine(text, None if opcode is None or opcode[1] == "NOP" else line))
    return found


def disassemble(cubin: bytes, *options: str) -> str:
    """The SASS of a cubin. options: of nvdisasm. Raises ValueError when nvdisasm cannot read the cubin."""
    nvdisasm = find_nvdisasm()
    with memory_file(cubin) as file:
        done = subprocess.run(
            [str(nvdisasm), "-c", *options, path_of(file)],
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
    """Number of each opcode in the text, with qualifiers (`HGMMA.SP.64x256x32.F32`, `USETMAXREG…`)."""
    return Counter(_INSTRUCTION.findall(sass))


def count_products(sass: str) -> Counter[str]:
    """Number of matrix products by unit: `HGMMA`, `HGMMA.SP`, `QGMMA.SP`, `HMMA` and their like."""
    found: Counter[str] = Counter()
    for opcode, number in opcodes(sass).items():
        if unit := _PRODUCT.match(opcode):
            found[unit.group()] += number
    return found
