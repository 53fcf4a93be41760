"""`louver compile FILE.ttir` and `FILE.mlir`: a kernel from IR text, at each level. Needs neither Triton nor a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from louver.cli.commands.kernel_levels import Source, user_source
from louver.frontend.ttir import read_ttir
from louver.ir.refusal import UnsupportedKernelError


def ir_source(file: str, sparse: Mapping[str, str], target: str, files: Sequence[str] = ()) -> Source:
    """The kernel in a file. sparse: patterns by argument, in addition to those of the text. files: see `Source`.

    Raises ValueError for a file without a kernel, and UnsupportedKernelError for operations that tile IR does not have.
    """
    path = Path(file)
    text = _read(path)
    # Read once here, so that a file without IR is refused for every level.
    module = _parse(path, text, sparse)
    ttir = (lambda: text) if path.suffix == ".ttir" else None
    return user_source(path.name, lambda: module, target, ttir, files=tuple(files))


def _read(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"{path} is no file: give the path of a file of TTIR or tile IR")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"TTIR and tile IR are text in UTF-8, got {path}, which is not") from None


def _parse(path: Path, text: str, sparse: Mapping[str, str]) -> ModuleOp:
    if not text.strip():
        raise ValueError(f"{path} is empty: it should hold a kernel as TTIR or tile IR")
    try:
        return read_ttir(text, name=str(path), sparse=sparse)
    except UnsupportedKernelError:
        raise
    except ValueError as error:
        raise ValueError(f"{path} holds no kernel as TTIR or tile IR: {error}") from error
