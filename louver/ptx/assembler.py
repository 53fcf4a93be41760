"""`ptxas` as the assembler: cubin, registers, spills and every warning as data.

The assembler comes from the pinned wheel `nvidia-cuda-nvcc`; it needs neither a GPU nor a driver. nvJitLink is not used:
it ignores `setmaxnreg`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

WHEEL = "nvidia-cuda-nvcc"
"""The distribution that carries the pinned assembler."""

TIMEOUT = 600
"""Seconds after which an assembly is given up."""

_MESSAGE = re.compile(
    r"ptxas (?:<macro util>, )?(?:\S+, line (?P<line>\d+); )?(?P<kind>warning|error|fatal)\s*: (?P<text>.*)"
)
_CODE = re.compile(r"\((C\d+)\)")
_COMPILING = re.compile(r"Compiling entry function '(\S+)' for")
_USED = re.compile(r"Used (\d+) registers")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


class AssemblerMissingError(RuntimeError):
    """There is no ptxas on this machine."""


class AssemblyError(ValueError):
    """ptxas refused the text. The message shows its reasons with the PTX lines."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One warning. code: such as "C7510", or "". line: of the PTX text, or None. performance_loss: ptxas says so."""

    code: str
    text: str
    line: int | None
    performance_loss: bool


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What a kernel uses: registers per thread at entry; bytes of stack, and of registers spilled and read back."""

    name: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass(frozen=True, slots=True)
class Assembly:
    """An assembled module. seconds: spent in ptxas. version: the assembler's."""

    cubin: bytes
    kernels: tuple[KernelResources, ...]
    warnings: tuple[Remark, ...]
    version: str
    seconds: float

    @property
    def clean(self) -> bool:
        """No performance-loss warning, no stack frame and no spill: what a shipped kernel must be."""
        lost = any(warning.performance_loss for warning in self.warnings)
        spilled = any(k.stack_bytes or k.spill_store_bytes or k.spill_load_bytes for k in self.kernels)
        return not lost and not spilled


@functools.cache
def find_ptxas() -> Path:
    """The pinned wheel's ptxas, else the one on the PATH. Raises AssemblerMissingError, saying what to install."""
    found = tool_in_wheel(WHEEL, "ptxas")
    if found is not None:
        return found
    on_path = shutil.which("ptxas")
    if on_path is None:
        raise AssemblerMissingError(f"assembling needs ptxas, got none: pip install {WHEEL}")
    return Path(on_path)


def tool_in_wheel(wheel: str, name: str) -> Path | None:
    """A program that an installed distribution carries, or None."""
    try:
        files = importlib.metadata.files(wheel) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == name and file.parent.name == "bin":
            return Path(str(file.locate()))
    return None


@functools.cache
def ptxas_version() -> str:
    """The assembler's version, such as "13.5.37"; the wheel's where it comes from there, which costs no process."""
    if tool_in_wheel(WHEEL, "ptxas") is not None:
        return importlib.metadata.version(WHEEL)
    printed = subprocess.run([find_ptxas(), "--version"], capture_output=True, text=True, timeout=TIMEOUT, check=True)
    match = re.search(r"V(\d+\.\d+\.\d+)", printed.stdout)
    return match.group(1) if match else printed.stdout.strip().splitlines()[-1]


def assemble(ptx: str, target: str = "sm_90a") -> Assembly:
    """Assemble PTX text for `target`. Raises AssemblyError when ptxas refuses it."""
    with tempfile.TemporaryDirectory(prefix="louver-") as folder:
        source, result = Path(folder) / "module.ptx", Path(folder) / "module.cubin"
        source.write_text(ptx)
        started = time.perf_counter()
        command = [str(find_ptxas()), f"-arch={target}", "-v", "-o", str(result), str(source)]
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT, check=False
        )
        seconds = time.perf_counter() - started
        log = done.stdout + done.stderr
        if done.returncode or not result.exists():
            raise AssemblyError(_explain(log, ptx, target))
        return Assembly(result.read_bytes(), _resources(log), _warnings(log), ptxas_version(), seconds)


def _resources(log: str) -> tuple[KernelResources, ...]:
    found: list[KernelResources] = []
    name, frame = "", (0, 0, 0)
    for line in log.splitlines():
        if match := _COMPILING.search(line):
            name, frame = match.group(1), (0, 0, 0)
        elif match := _FRAME.search(line):
            stack, stores, loads = (int(part) for part in match.groups())
            frame = (stack, stores, loads)
        elif match := _USED.search(line):
            found.append(KernelResources(name, int(match.group(1)), *frame))
    return tuple(found)


def _warnings(log: str) -> tuple[Remark, ...]:
    found: list[Remark] = []
    for line in log.splitlines():
        match = _MESSAGE.search(line)
        lost = "Potential Performance Loss" in line
        if not lost and (match is None or match["kind"] != "warning"):
            continue
        text = match["text"] if match else line
        code = _CODE.search(line)
        number = int(match["line"]) if match and match["line"] else None
        found.append(Remark(code.group(1) if code else "", text.strip(), number, lost))
    return tuple(found)


def _explain(log: str, ptx: str, target: str) -> str:
    """ptxas' messages, each with the PTX line that it names."""
    lines = ptx.splitlines()
    shown = [f"ptxas refuses the module for {target}:"]
    for message in log.splitlines():
        match = _MESSAGE.search(message)
        if match is None or match["kind"] == "warning":
            continue
        shown.append(f"  {match['text'].strip()}")
        if match["line"] and int(match["line"]) <= len(lines):
            shown.append(f"    line {match['line']}: {lines[int(match['line']) - 1].strip()}")
    return "\n".join(shown) if len(shown) > 1 else f"{shown[0]}\n{log.strip()}"
