"""Errors in passes that are no refusals: defects of Louver, with what a report of them needs."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from louver.compile.dump import Dump, Watch
from louver.ir.tile import FuncOp


class DefectError(RuntimeError):
    """A pass of the compiler failed. The kernel is not at fault, so no other way of compiling it is tried.

    step: the pass. kernel: the name of the kernel, or "" if it was not read.
    folder: holds the kernel and the error for a report; None if it could not be written.
    """

    def __init__(self, step: str, kernel: str, folder: Path | None, error: Exception) -> None:
        self.step, self.kernel, self.folder = step, kernel, folder
        what = f"the kernel {kernel}" if kernel else "a kernel"
        files = "" if folder is None else f" with the folder {folder}, which holds the kernel and this error"
        super().__init__(
            f"Louver's pass {step} failed on {what}, got {type(error).__name__}: {error}. This is a defect of Louver, not of the kernel: "
            f"please report it{files}"
        )


def is_foreign(error: Exception) -> bool:
    """Whether an error in a pass is neither a refusal nor Louver's: Triton's, of the machine, or of what is installed."""
    # By name: Triton may not be imported.
    return isinstance(error, ImportError | MemoryError) or type(error).__module__.partition(".")[0] == "triton"


def defect(step: str, tile: ModuleOp | None, module: ModuleOp, watch: Watch, error: Exception) -> DefectError:
    """The error for a report, with its folder: that of the dump if there is one.

    tile: the kernel as it was given, if a pass has kept it. module: as the pass `step` left it.
    """
    given = module if tile is None else tile
    kernels = [op.sym_name.data for op in given.body.ops if isinstance(op, FuncOp) and op.is_public]
    texts = {
        "kernel.mlir": _text(given),
        f"{step}.mlir": _text(module),
        "error.txt": "".join(traceback.format_exception(error)),
    }
    return DefectError(step, kernels[0] if kernels else "", _written(watch, texts), error)


def _written(watch: Watch, texts: Mapping[str, str]) -> Path | None:
    try:
        folder = watch.folder if isinstance(watch, Dump) else None
        folder = folder or Path(tempfile.mkdtemp(prefix="louver-"))
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError:
        return None
    return folder


def _text(module: ModuleOp) -> str:
    try:
        return f"{module}\n"
    except Exception as error:
        # What a pass leaves when it fails may not be printable.
        return f"// not printable: {type(error).__name__}: {error}\n"
