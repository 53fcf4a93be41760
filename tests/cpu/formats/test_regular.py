from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NoReturn

import pytest

from louver.formats.regular import Target


def test_a_file_is_replaced_whole_and_a_link_leads_to_its_target(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    Target.of(link).write(b"new\n")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert link.is_symlink() and target.read_bytes() == b"new\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> NoReturn:
        raise OSError("No space left on device")

    path = tmp_path / "x"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        Target.of(path).write(b"new")
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, kind in ((fifo, "a FIFO"), (tmp_path, "a directory"), (Path("/dev/null"), "a character device")):
        with pytest.raises(ValueError, match=f"is {kind}: only a regular file is replaced, choose another name"):
            Target.of(path)
    with pytest.raises(FileNotFoundError, match=r"no such folder: make it first: '.*none'"):
        Target.of(tmp_path / "none" / "x")
