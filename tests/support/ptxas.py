"""Bare PTX text through ptxas, for tests of instructions on their own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from louver.isa.instruction import Instruction, Operand
from louver.ptx.sass import opcodes


def find_tool(name: str) -> Path:
    """A program of the CUDA wheels (`ptxas`, `nvdisasm`)."""
    import nvidia.cu13

    for root in nvidia.cu13.__path__:
        if (path := Path(root, "bin", name)).exists():
            return path
    raise FileNotFoundError(f"{name} is not installed: pip install -e '.[test]'")


def assemble_text(ptx: str, target: str) -> tuple[bytes, str]:
    """The cubin and what ptxas said. Raises AssertionError with the messages when it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "text.ptx"), Path(folder, "text.cubin")
        source.write_text(ptx)
        command = [find_tool("ptxas"), f"-arch={target}", "-O1", "-o", cubin, source]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return cubin.read_bytes(), done.stdout + done.stderr


def sass(cubin: bytes) -> str:
    """The disassembly of a cubin."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([find_tool("nvdisasm"), "-c", file.name], capture_output=True, text=True, check=True)
        return done.stdout


def count_opcode(sass: str, name: str) -> int:
    """The number of instructions with the opcode `name`, whatever their qualifiers: "USETMAXREG", "LDL", "HGMMA"."""
    return sum(number for opcode, number in opcodes(sass).items() if opcode.split(".")[0] == name)


def header(version: tuple[int, int], target: str) -> str:
    """The first lines of a module."""
    return f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n"


def chain(name: str, products: Iterable[Instruction]) -> str:
    """A kernel that issues the products one after the other on the same accumulators and stores them.

    Accumulators are the operands with role "inout"; all products must have as many of the same type.
    """
    counts: dict[str, tuple[int, str]] = {}
    lines: list[str] = []
    for product in products:
        taken: dict[str, int] = {}
        args: list[str] = []
        for operand in product.operands:
            kind = "acc" if operand.role == "inout" else operand.type
            first = taken.get(kind, 0)
            taken[kind] = first + operand.count
            counts[kind] = (max(counts.get(kind, (0, ""))[0], taken[kind]), operand.type)
            args.append(_printed(operand, kind, first))
        lines.append(f"{product.text(*args)};")
    count, kind = counts["acc"]
    return "\n".join(
        [
            f".visible .entry {name}(.param .u64 out) {{",
            *(f".reg .{kind} %{label}_<{number}>;" for label, (number, kind) in counts.items()),
            ".reg .b64 %out;",
            "ld.param.u64 %out, [out];",
            "wgmma.fence.sync.aligned;",
            *lines,
            "wgmma.commit_group.sync.aligned;",
            "wgmma.wait_group.sync.aligned 0;",
            *(f"st.global.{kind} [%out+{4 * i}], %acc_{i};" for i in range(count)),
            "ret;",
            "}\n",
        ]
    )


def _printed(operand: Operand, kind: str, first: int) -> str:
    names = ", ".join(f"%{kind}_{first + i}" for i in range(operand.count))
    return f"{{{names}}}" if operand.braces else names
