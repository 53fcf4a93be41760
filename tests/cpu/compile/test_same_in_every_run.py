"""Two runs of one commit write the same text in each pass, the same PTX and the same record of a launch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from louver.compile.dump import VARIABLE

FORMS = ("structures/convolution", "plain/masked product")
"""Rings and boxes with conditions of the launch, and a product."""


def _run(seed: int, folder: Path) -> tuple[str, dict[str, str]]:
    """What the launches are told, and the texts of the passes by file."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), VARIABLE: str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "support.compile_again", str(seed), *FORMS],
        env=environment | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    texts = {str(each.relative_to(folder)): each.read_text() for each in sorted(folder.rglob("*.*"))}
    return done.stdout, texts


def test_two_runs_make_the_same(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (one, texts), (other, again) = (_run(seed, tmp_path / str(seed)) for seed in (1, 2))
    assert one == other
    assert list(texts) == list(again)
    assert len(texts) > 40
    assert [name for name, text in texts.items() if text != again[name]] == []
