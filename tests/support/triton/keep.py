"""Write what the installed Triton makes of every case: `PYTHONPATH=tests python -m support.triton.keep`.

Run it with Triton 3.6 and with 3.9 after a change to `kernels.py`; tests then parse the texts where Triton is not installed. Cases
have a text of Triton 3.6. Of other versions, and of kernels that people wrote, only those texts are kept that have a line of another syntax.
"""

from __future__ import annotations

import re
from pathlib import Path

import triton

import louver
from louver.frontend.triton import triton_to_ttir
from louver.measure.forms import bind
from louver.user.jit_kernel import JitKernel
from support.triton import has_block_pointers, tile_cases
from support.triton.cases import BASE, BATCHES, CASES, KEPT, Case
from support.triton.grouped import GROUPED
from support.triton.splits import SPLITS
from support.triton.tile_cases import TILE_CASES
from support.triton.tuples import NAME as NAME_OF_TUPLES
from support.triton.tuples import TUPLES
from support.triton.written_cases import KEPT as KEPT_WRITTEN
from support.triton.written_cases import SMALL
from support.triton.written_runs import EVERY, call_of, with_triton

ROOT = Path(__file__).resolve().parents[3]


def text(case: Case) -> str:
    """TTIR with paths from the repository's root, and from where Triton is installed."""
    return _shortened(triton_to_ttir(case.function(), case.signature, case.constexprs, sparse=case.sparse))


def call_text(name: str) -> str:
    """TTIR of a small call of a kernel that is written as people write them, for the types that `louver.jit` finds."""
    function = EVERY[name].function()
    known, _ = bind(call_of(name, SMALL), sparse=True)
    kernel = louver.jit(function)
    assert isinstance(kernel, JitKernel)
    call, _ = kernel._call((), with_triton(known))
    kind = call.kind
    return _shortened(triton_to_ttir(function, dict(kind.signature), dict(kind.constexprs), sparse=dict(kind.sparse)))


def _shortened(text: str) -> str:
    return re.sub(r'"[^"]*/(triton/language/)', r'"\1', text.replace(f"{ROOT}/", ""))


NAME = re.compile(r"%[\w$]+(?::\d+)?(?:#\d+)?")
NUMBER = re.compile(r"#loc\d+|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def syntax(text: str) -> set[str]:
    """The kinds of lines of a text: without names, numbers and how many of them."""
    lines = (re.sub(r'"[^"]*"', '""', NAME.sub("%", line)).strip() for line in text.splitlines())
    kinds = {re.sub(r"(?:%, )+%", "%", NUMBER.sub("0", line)) for line in lines}
    # A function's arguments are kinds of their own.
    heads = {kind for kind in kinds if kind.startswith("tt.func")}
    return (kinds - heads).union(*(re.split(r"@\w+\(|, (?=%)", head) for head in heads))


class Keeper:
    """Writes texts: the base version's cases, and all others that have a line of a syntax that no kept text has."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.known: set[str] = set()
        if version != BASE:
            for folder in (KEPT, tile_cases.KEPT, KEPT_WRITTEN):
                for path in (folder / BASE).glob("*.ttir"):
                    self.known |= syntax(path.read_text(encoding="utf-8"))

    def keep(self, folder: Path, name: str, text: str, *, always: bool = False) -> None:
        path, found = folder / self.version / f"{name}.ttir", syntax(text)
        if found <= self.known and not always:
            path.unlink(missing_ok=True)
            return
        self.known |= found
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.rstrip() + "\n", encoding="utf-8")


def main() -> None:
    keeper = Keeper(".".join(triton.__version__.split(".")[:2]))
    cases: dict[str, Case] = {**CASES, **BATCHES, **GROUPED, NAME_OF_TUPLES: TUPLES, **SPLITS}
    for name, case in cases.items():
        if has_block_pointers() or not case.oldest:
            keeper.keep(KEPT, name, text(case), always=keeper.version == BASE)
    for name, tile_case in TILE_CASES.items():
        keeper.keep(tile_cases.KEPT, name, text(tile_case), always=keeper.version == BASE)
    for name, written in EVERY.items():
        if has_block_pointers() or not written.blocks:
            keeper.keep(KEPT_WRITTEN, name, call_text(name), always=written.blocks)


if __name__ == "__main__":
    main()
