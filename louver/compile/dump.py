"""Writes the result of each pass to a folder for each kernel below `LOUVER_DUMP`.

The name of a folder has the kernel's name, made safe, and a hash of its tile IR. The name of a file has the position and the name
of the pass. A file is moved to its name when it is complete, so several processes may compile the same kernel at the
same time.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from xdsl.dialects.builtin import ModuleOp

from louver.formats.regular import file_name
from louver.ir.tile import FuncOp

VARIABLE = "LOUVER_DUMP"


class Watch(Protocol):
    """Receives the result of each pass of a compilation."""

    @property
    def active(self) -> bool:
        """Whether it uses the results. The module is then verified after each pass."""
        ...

    def write(self, name: str, made: object) -> None:
        """Receive the result of the pass `name`: the module, or the object that the pass returned."""
        ...


@dataclass(frozen=True, slots=True)
class Dump:
    """The folder to which the passes of a kernel write.

    folder: None to write nothing.
    passes: the names of all passes, in order.
    prefix: the beginning of each file name.
    """

    folder: Path | None
    passes: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def active(self) -> bool:
        """Whether passes write their results."""
        return self.folder is not None

    @classmethod
    def of(cls, module: ModuleOp, passes: Sequence[str], prefix: str = "") -> Dump:
        """The dump that the environment asks for now."""
        named = os.environ.get(VARIABLE)
        if not named:
            return NOWHERE
        kernels = [op.sym_name.data for op in module.body.ops if isinstance(op, FuncOp) and op.is_public]
        digest = hashlib.sha256(str(module).encode()).hexdigest()[:8]
        return cls(
            Path(named).expanduser() / f"{file_name(kernels[0] if kernels else 'module')}-{digest}",
            tuple(passes),
            prefix,
        )

    def write(self, name: str, made: object) -> None:
        """Write the text of the result of the pass `name`. Raises OSError if the folder cannot be written."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        text = str(made)
        suffix = "ptx" if isinstance(made, str) else "mlir" if isinstance(made, ModuleOp) else "txt"
        path = self.folder / f"{self.prefix}{self.passes.index(name):02}-{name}.{suffix}"
        handle, part = tempfile.mkstemp(dir=self.folder, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text if text.endswith("\n") else text + "\n")
        Path(part).replace(path)


NOWHERE = Dump(None)
"""A dump that writes nothing."""
