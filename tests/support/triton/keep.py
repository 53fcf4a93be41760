"""Write what the installed Triton makes of every case: `PYTHONPATH=tests python -m support.triton.keep`.

Run it with Triton 3.6 and with 3.9 after a change to `kernels.py`; tests then parse the texts where Triton is not installed.
"""

from __future__ import annotations

import re
from pathlib import Path

import triton

import louver
from louver.frontend.triton import triton_to_ttir
from louver.user.kernel import JitKernel
from support.triton import has_block_pointers, tile_cases
from support.triton.cases import BATCHES, CASES, KEPT, Case
from support.triton.grouped import GROUPED
from support.triton.splits import SPLITS
from support.triton.tile_cases import TILE_CASES, TileCase
from support.triton.tuples import NAME, TUPLES
from support.triton.written_cases import KEPT as KEPT_WRITTEN
from support.triton.written_cases import SMALL
from support.triton.written_runs import EVERY, call_of, with_triton

ROOT = Path(__file__).resolve().parents[3]


def text(case: Case | TileCase) -> str:
    """TTIR with paths from the repository's root, and from where Triton is installed."""
    return _shortened(triton_to_ttir(case.function(), case.signature, case.constexprs, sparse=case.sparse))


def call_text(name: str) -> str:
    """TTIR of a small call of a kernel that is written as people write them, for the types that `louver.jit` finds."""
    function = EVERY[name].function()
    known, _ = call_of(name, SMALL).bound(EVERY[name].pattern)
    kernel = louver.jit(function)
    assert isinstance(kernel, JitKernel)
    call, _ = kernel._call((), with_triton(known))
    kind = call.kind
    return _shortened(triton_to_ttir(function, dict(kind.signature), dict(kind.constexprs), sparse=dict(kind.sparse)))


def _shortened(text: str) -> str:
    return re.sub(r'"[^"]*/(triton/language/)', r'"\1', text.replace(f"{ROOT}/", ""))


def main() -> None:
    version = ".".join(triton.__version__.split(".")[:2])
    folder = KEPT_WRITTEN / version
    folder.mkdir(parents=True, exist_ok=True)
    for name, written in EVERY.items():
        if written.kept and (has_block_pointers() or not written.blocks):
            (folder / f"{name}.ttir").write_text(call_text(name).rstrip() + "\n", encoding="utf-8")
    folder = KEPT / version
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in (CASES | BATCHES | GROUPED).items():
        if has_block_pointers() or not case.oldest:
            (folder / f"{name}.ttir").write_text(text(case).rstrip() + "\n", encoding="utf-8")
    (folder / f"{NAME}.ttir").write_text(text(TUPLES).rstrip() + "\n", encoding="utf-8")
    for name, case in SPLITS.items():
        (folder / f"{name}.ttir").write_text(text(case).rstrip() + "\n", encoding="utf-8")
    folder = tile_cases.KEPT / version
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in TILE_CASES.items():
        (folder / f"{name}.ttir").write_text(text(case).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
