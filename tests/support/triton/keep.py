"""Write what the installed Triton makes of every case: `PYTHONPATH=tests python -m support.triton.keep`.

Run it with Triton 3.6 and with 3.9 after a change to `kernels.py`; tests then parse the texts where Triton is not installed.
"""

from __future__ import annotations

import re
from pathlib import Path

import triton

from louver.frontend.triton import triton_to_ttir
from support.triton import tile_cases
from support.triton.cases import BATCHES, CASES, KEPT, Case
from support.triton.grouped import GROUPED
from support.triton.tile_cases import TILE_CASES, TileCase
from support.triton.tuples import NAME, TUPLES

ROOT = Path(__file__).resolve().parents[3]


def text(case: Case | TileCase) -> str:
    """TTIR with paths from the repository's root, and from where Triton is installed."""
    found = triton_to_ttir(case.function(), case.signature, case.constexprs, sparse=case.sparse)
    return re.sub(r'"[^"]*/(triton/language/)', r'"\1', found.replace(f"{ROOT}/", ""))


def main() -> None:
    version = ".".join(triton.__version__.split(".")[:2])
    folder = KEPT / version
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in (CASES | BATCHES | GROUPED).items():
        if not case.oldest or version < "3.7":
            (folder / f"{name}.ttir").write_text(text(case).rstrip() + "\n", encoding="utf-8")
    (folder / f"{NAME}.ttir").write_text(text(TUPLES).rstrip() + "\n", encoding="utf-8")
    folder = tile_cases.KEPT / version
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in TILE_CASES.items():
        (folder / f"{name}.ttir").write_text(text(case).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
