"""Writes the result of each pass to a folder for each kernel below `LOUVER_DUMP`.

A folder is named by the kernel and a hash of its tile IR, and its files by the pass's place and name. Each is written whole or not
at all, so that processes may compile the same kernel side by side.
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

from louver.ir.tile import FuncOp

VARIABLE = "LOUVER_DUMP"


class Watch(Protocol):
    """Sees what each pass of a compilation makes."""

    @property
    def active(self) -> bool:
        """Whether it wants to see anything: modules are then verified after each pass."""
        ...

    def write(self, name: str, made: object) -> None:
        """See what the pass `name` made: the module, or what the pass returned."""
        ...


@dataclass(frozen=True, slots=True)
class Dump:
    """The place that a kernel's passes write to. folder: None where they write nothing. passes: all of them, in order. prefix: of files' names."""

    folder: Path | None
    passes: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def active(self) -> bool:
        """Whether passes write at all."""
        return self.folder is not None

    @classmethod
    def of(cls, module: ModuleOp, passes: Sequence[str], prefix: str = "") -> Dump:
        """The dump of a kernel's compilation, as the environment has it now."""
        named = os.environ.get(VARIABLE)
        if not named:
            return NOWHERE
        kernels = [op.sym_name.data for op in module.body.ops if isinstance(op, FuncOp) and op.is_public]
        digest = hashlib.sha256(str(module).encode()).hexdigest()[:8]
        return cls(Path(named).expanduser() / f"{kernels[0] if kernels else 'module'}-{digest}", tuple(passes), prefix)

    def write(self, name: str, made: object) -> None:
        """Write what the pass `name` made, as it prints. Raises OSError where the folder cannot be written."""
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
