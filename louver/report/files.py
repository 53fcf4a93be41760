"""Text files, written whole or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def check_replaceable(path: Path) -> None:
    """Refuse a path that no regular file can be written to: its folder is missing, or it is a folder, device or FIFO."""
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is no folder: make it first")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no regular file: choose another name")


def write_text(path: Path, text: str) -> Path:
    """Write text in UTF-8; returns `path`. Replaces a regular file, whose mode it keeps, and the target of a symbolic link.

    Raises ValueError for any other kind of file, and OSError.
    """
    check_replaceable(path)
    target = path.resolve()
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return path
