"""The assembler `ptxas`: cubin, registers, spills and every warning as data.

ptxas comes from the pinned wheel `nvidia-cuda-nvcc` and needs neither a GPU nor a driver. nvJitLink is not used,
because it ignores `setmaxnreg`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

WHEEL = "nvidia-cuda-nvcc"
"""The distribution with the pinned assembler."""

TIMEOUT = 600
"""Seconds after which an assembly is stopped."""

CONTEXT = 2
"""Lines of PTX shown before and after the line of an error."""

LOSSES = ("Potential Performance Loss", "injected")
"""Marks of ptxas warnings that the machine code waits more, or has fewer registers, than the PTX asks for."""

_MESSAGE = re.compile(
    r"ptxas (?:<macro util>, )?(?:\S+, line (?P<line>\d+); )?(?P<kind>info|warning|error|fatal)\s*: (?P<text>.*)"
)
_CODE = re.compile(r"\((C\d+)\) *")
_COMPILING = re.compile(r"Compiling entry function '(\S+)' for")
_USED = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


class AssemblerMissingError(RuntimeError):
    """ptxas is not installed."""


class AssemblyError(ValueError):
    """ptxas rejects the text, or takes too long. The message shows its reasons with the PTX lines."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A warning, or a remark with a code. code: such as "C7510", or "". line: of the PTX text, or None.

    performance_loss: the machine code is slower than the PTX asks for (serialized products, injected waits).
    """

    code: str
    text: str
    line: int | None
    performance_loss: bool

    def __str__(self) -> str:
        place = "" if self.line is None else f" (line {self.line} of the PTX)"
        return f"{self.code}{': ' if self.code else ''}{self.text}{place}"


@dataclass(frozen=True, slots=True)
class KernelResources:
    """Resources of a kernel. registers: of a thread at entry. stack_bytes, spill_store_bytes, spill_load_bytes: of a
    thread. barriers: named ones. shared_bytes: static shared memory.
    """

    name: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    barriers: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Assembly:
    """An assembled module. seconds: time in ptxas. version: of ptxas."""

    cubin: bytes
    kernels: tuple[KernelResources, ...]
    warnings: tuple[Remark, ...]
    version: str
    seconds: float

    @property
    def clean(self) -> bool:
        """No performance-loss warning, no stack frame and no spill: the rule for shipped kernels."""
        return not self.faults

    @property
    def faults(self) -> tuple[str, ...]:
        """The reasons why it is not clean: stack and spilled bytes of a thread in each kernel, and remarks of ptxas."""
        on_stack = [k for k in self.kernels if k.stack_bytes or k.spill_store_bytes or k.spill_load_bytes]
        frames = (
            f"a thread spills {k.spill_store_bytes} bytes of registers and reads {k.spill_load_bytes} back, in {k.stack_bytes} bytes "
            "of stack"
            for k in on_stack
        )
        return (*frames, *(str(warning) for warning in self.warnings if warning.performance_loss))


@functools.cache
def find_ptxas() -> Path:
    """ptxas of the pinned wheel, else from the PATH. Raises AssemblerMissingError with the package to install."""
    found = tool_in_wheel(WHEEL, "ptxas")
    if found is not None:
        return found
    on_path = shutil.which("ptxas")
    if on_path is None:
        raise AssemblerMissingError(f"assembling needs ptxas, got none: pip install {WHEEL}")
    return Path(on_path)


def tool_in_wheel(wheel: str, name: str) -> Path | None:
    """A program of an installed distribution, or None."""
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
    """Version of ptxas, such as "13.5.37". That of the wheel needs no process."""
    if tool_in_wheel(WHEEL, "ptxas") is not None:
        return importlib.metadata.version(WHEEL)
    printed = subprocess.run([find_ptxas(), "--version"], capture_output=True, text=True, timeout=TIMEOUT, check=True)
    match = re.search(r"V(\d+\.\d+\.\d+)", printed.stdout)
    return match.group(1) if match else printed.stdout.strip().splitlines()[-1]


class Assembling:
    """An assembly of PTX text that has begun in its own process. Leaving its context ends the process."""

    __slots__ = ("_files", "_process", "_ptx", "_result", "_started", "_target")

    def __init__(self, ptx: str, target: str = "sm_90a", *, options: Sequence[str] = ()) -> None:
        """As `assemble`."""
        ptxas = find_ptxas()
        self._ptx, self._target = ptx, target
        self._files = ExitStack()
        self._result = self._files.enter_context(memory_file())
        with memory_file(ptx.encode()) as source:
            self._started = time.perf_counter()
            # ptxas copies the input "-" to the temporary folder, but reads a path in place.
            self._process = subprocess.Popen(
                [str(ptxas), f"-arch={target}", "-v", *options, "-o", path_of(self._result), path_of(source)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                stdin=subprocess.DEVNULL,
                pass_fds=(source, self._result),
            )

    def __enter__(self) -> Assembling:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._files.close()

    def takes(self, seconds: float) -> bool:
        """Whether it still runs `seconds` from now."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def assembly(self) -> Assembly:
        """Wait for the assembly, once. Raises as `assemble`."""
        try:
            log, _ = self._process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            raise AssemblyError(f"ptxas must end within {TIMEOUT} s, got no result: make the kernel smaller") from None
        seconds = time.perf_counter() - self._started
        cubin = os.pread(self._result, os.fstat(self._result).st_size, 0)
        if self._process.returncode or not cubin:
            raise AssemblyError(_explain(log, self._ptx, self._target))
        return Assembly(cubin, _resources(log), _warnings(log), ptxas_version(), seconds)


def assemble(ptx: str, target: str = "sm_90a", *, options: Sequence[str] = ()) -> Assembly:
    """Assemble PTX text for `target`. options: more options of ptxas, such as "-O1".

    Raises AssemblyError if ptxas rejects the text or takes longer than `TIMEOUT`.
    """
    with Assembling(ptx, target, options=options) as begun:
        return begun.assembly()


@contextmanager
def memory_file(content: bytes = b"") -> Generator[int]:
    """The descriptor of a file in memory without a name. It ends with its processes, however they end."""
    handle = os.memfd_create("louver")
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(content)
        yield handle
    finally:
        os.close(handle)


def path_of(handle: int) -> str:
    """The path of the descriptor `handle` for a program that inherits it (`pass_fds`)."""
    return f"/proc/self/fd/{handle}"


def _resources(log: str) -> tuple[KernelResources, ...]:
    """A record for each "Compiling entry function" and the lines up to the next. ptxas omits zeros."""
    names_and_texts = _COMPILING.split(log)[1:]
    return tuple(
        KernelResources(
            name,
            *_numbers(_USED, text, 1),
            *_numbers(_FRAME, text, 3),
            *_numbers(_BARRIERS, text, 1),
            *_numbers(_SHARED, text, 1),
        )
        for name, text in zip(names_and_texts[::2], names_and_texts[1::2], strict=True)
    )


def _numbers(pattern: re.Pattern[str], text: str, count: int) -> tuple[int, ...]:
    match = pattern.search(text)
    return (0,) * count if match is None else tuple(int(group) for group in match.groups())


def _warnings(log: str) -> tuple[Remark, ...]:
    """All warnings, and all remarks with a code: ptxas reports lost performance in both."""
    found: list[Remark] = []
    for match in filter(None, map(_MESSAGE.search, log.splitlines())):
        code = _CODE.search(match["text"])
        if match["kind"] != "warning" and code is None:
            continue
        text = _CODE.sub("", match["text"], count=1).strip()
        number = int(match["line"]) if match["line"] else None
        found.append(Remark(code.group(1) if code else "", text, number, any(loss in text for loss in LOSSES)))
    return tuple(found)


def _explain(log: str, ptx: str, target: str) -> str:
    """Errors of ptxas, each with the PTX lines around it."""
    lines = ptx.splitlines()
    shown = [f"ptxas refuses the module for {target}:"]
    for match in filter(None, map(_MESSAGE.search, log.splitlines())):
        if match["kind"] not in ("error", "fatal"):
            continue
        shown.append(f"  {match['text'].strip()}")
        if match["line"] and int(match["line"]) <= len(lines):
            shown += _around(lines, int(match["line"]))
    return "\n".join(shown) if len(shown) > 1 else f"{shown[0]}\n{log.strip()}"


def _around(lines: list[str], number: int) -> list[str]:
    near = range(max(1, number - CONTEXT), min(len(lines), number + CONTEXT) + 1)
    return [f"  {'>' if each == number else ' '} line {each}: {lines[each - 1]}" for each in near]
