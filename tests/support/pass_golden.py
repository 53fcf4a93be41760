"""Golden files of passes: a small kernel with what a pass takes away and what it adds, line by line."""

from __future__ import annotations

import difflib

from xdsl.dialects.builtin import ModuleOp

from louver.compile import pipeline
from louver.compile.canonical.canonicalize import CANONICAL
from louver.compile.passes import Pass, State, passes_of
from support.compiled import read_copy
from support.golden import Golden
from support.triton.cases import kept

TILES = [
    each
    for each in passes_of(pipeline.TILES)
    if each.name in ("shape-loads", "halve-pairs", "fold-sums", "join-choices", "load-before-branches", "widen-steps")
]
"""Passes of register tiles that rewrite kernels into such forms too."""

PASSES: dict[str, Pass[State]] = {each.name: each for each in (*CANONICAL, *TILES)}
"""Passes that a module is enough for, by name."""


def before(name: str, case: str) -> ModuleOp:
    """A kept kernel as it comes to a canonical pass."""
    module = read_copy(kept(case))
    for each in CANONICAL:
        if each.name == name:
            return module
        each.run(State(module))
    raise ValueError(f"canonical passes are {', '.join(each.name for each in CANONICAL)}, got {name!r}")


def check_pass(golden: Golden, name: str, module: ModuleOp) -> None:
    """The changes of a pass to a module are the golden file `canonical/passes/NAME.diff`; the result is valid, and made once."""
    module.verify()
    old = str(module)
    PASSES[name].run(State(module))
    module.verify()
    new = str(module)
    assert new != old
    PASSES[name].run(State(module))
    assert str(module) == new, "a pass leaves alone what is in order already"
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=len(old), lineterm="")
    # Behind the names and numbers that a patch begins with.
    golden.check(f"canonical/passes/{name}.diff", "\n".join([*lines][3:]))
