"""Checks that a benchmark can run on this machine, and gives facts about the machine for the record."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import louver
from louver.formats.extras import explained
from louver.isa.targets import SM_90A
from louver.ptx.assembler import ptxas_version
from louver.runtime.device import NoDevice, current_device


class CannotMeasureError(OSError):
    """A benchmark cannot run on this machine."""


def require_torch(targets: Collection[str] = (SM_90A.name,)) -> Any:
    """Import PyTorch, with a GPU of one of these targets. Raises CannotMeasureError with the missing part."""
    found = current_device()
    if isinstance(found, NoDevice):
        raise CannotMeasureError(f"benchmarks need a GPU, got none: {found.reason}")
    if found.target not in targets:
        raise CannotMeasureError(f"this needs a GPU with target {' or '.join(targets)}, got {found}")
    try:
        torch: Any = import_module("torch")
    except ImportError as error:
        raise CannotMeasureError(
            f"benchmarks call the vendor's libraries through PyTorch ({explained(error)})"
        ) from error
    if not torch.cuda.is_available():
        raise CannotMeasureError("benchmarks need a PyTorch that sees the GPU, got one built without CUDA or a driver")
    return torch


def forbid_short_sums(torch: Any) -> None:
    """Forbid 16-bit partial sums, which make PyTorch's dense product less exact than the sparse ones."""
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


@contextmanager
def tf32_products(torch: Any, *, allowed: bool = True) -> Generator[None]:
    """Within the context, PyTorch multiplies f32 as tf32, like Louver's tensor cores and cuSPARSELt, or as f32."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def header(torch: Any) -> dict[str, Any]:
    """Device, versions and date for a record."""
    versions = {
        "louver": louver.__version__,
        "commit": commit(),
        "driver": _output(nvidia_smi(("driver_version",), gpu_uuid(torch))),
        "CUDA": torch.version.cuda,
        "torch": torch.__version__,
        "cuSPARSELt": _cusparselt(torch),
        "ptxas": ptxas_version(),
    }
    return {
        "device": torch.cuda.get_device_name(),
        "versions": {name: str(version) for name, version in versions.items() if version is not None},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def host_header(torch: Any) -> dict[str, Any]:
    """The header of host times, with the processor and the versions of Python and NumPy."""
    facts = header(torch)
    versions = {**facts["versions"], "python": platform.python_version(), "numpy": np.__version__}
    return {**facts, "cpu": f"{processor()}, {os.cpu_count()} cores", "versions": versions}


def processor(path: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name in Linux's `path`, else its architecture."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def gpu_uuid(torch: Any) -> str:
    """The name of the current device for nvidia-smi."""
    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"


def nvidia_smi(fields: Sequence[str], gpu: str) -> list[str]:
    """The command that prints the fields of a GPU on one line, separated by commas.

    Unlike NVML, it comes with every driver, can be killed if the driver hangs, and takes no time from a measured
    thread.
    """
    return ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "-i", gpu]


def commit() -> str | None:
    """The git commit of this checkout, with "+" if tracked files differ; None outside a checkout."""
    root = Path(louver.__file__).parent.parent
    git = ["git", "-C", str(root)]
    # Louver may lie inside the checkout of another project.
    if _output([*git, "ls-files", "--error-unmatch", "louver/__init__.py"]) is None:
        return None
    name = _output([*git, "rev-parse", "--short=12", "HEAD"])
    changed = _output([*git, "status", "--porcelain", "--untracked-files=no", "--", "louver"])
    return f"{name}+" if name and changed else name


def _cusparselt(torch: Any) -> int | None:
    library = torch.backends.cusparselt
    return library.version() if library.is_available() else None


def _output(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
