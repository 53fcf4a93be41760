"""canonicalize-kernel: a user's kernel, however it is written, as the library would have written it.

propagate-sparsity, drop-assumptions, make-host-descriptors, describe-tiles, count-elements, number-tiles: each takes valid tile
IR and gives valid tile IR, and leaves alone what is in order already.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import Rewriter

from louver.ir.llvm import AssumeOp
from louver.passes.count_elements import count_elements
from louver.passes.describe_tiles import describe_tiles
from louver.passes.host_descriptors import make_host_descriptors
from louver.passes.number_tiles import number_tiles
from louver.passes.propagate_sparsity import propagate_sparsity


def drop_assumptions(module: ModuleOp) -> None:
    """Remove what the user promises (`tl.assume`): nothing here relies on it."""
    for op in [op for op in module.walk() if isinstance(op, AssumeOp)]:
        Rewriter.erase_op(op)


PASSES: tuple[Callable[[ModuleOp], None], ...] = (
    propagate_sparsity,
    drop_assumptions,
    make_host_descriptors,
    describe_tiles,
    count_elements,
    number_tiles,
)
"""The passes in order; each rewrites the module in place."""


CANONICAL = tuple(each.__name__.replace("_", "-") for each in PASSES)
"""Their names."""


def canonicalize(module: ModuleOp, seen: Callable[[str, ModuleOp], None] | None = None) -> ModuleOp:
    """A rewritten copy, verified. seen: is shown the module after each pass. Raises UnsupportedKernelError, which names operation
    and source line.
    """
    copy = module.clone()
    for name, each in zip(CANONICAL, PASSES, strict=True):
        each(copy)
        if seen is not None:
            seen(name, copy)
    copy.verify()
    return copy
