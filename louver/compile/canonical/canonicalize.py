"""canonicalize-kernel: a user's kernel, however it is written, as the library would have written it.

count-loops, propagate-sparsity, require-multiplied, drop-assumptions, make-host-descriptors, turn-across, open-branches, unroll-programs, select-branches,
join-equal-integers, describe-batches, describe-tiles, join-stores, drop-counters, join-splits, join-tails, count-elements, roll-sums, turn-right-sparse,
fuse-gated-pair, number-tiles:
each takes valid tile IR and gives valid tile IR, and leaves alone what is in order already.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import Rewriter

from louver.compile.canonical.across import turn_across
from louver.compile.canonical.count_elements import count_elements
from louver.compile.canonical.count_loops import count_loops
from louver.compile.canonical.describe_batches import describe_batches
from louver.compile.canonical.describe_tiles import describe_tiles
from louver.compile.canonical.drop_counters import drop_counters
from louver.compile.canonical.fuse_gated_pair import fuse_gated_pair
from louver.compile.canonical.host_descriptors import make_host_descriptors
from louver.compile.canonical.join_equal_integers import join_equal_integers
from louver.compile.canonical.join_splits import join_splits
from louver.compile.canonical.join_stores import join_stores
from louver.compile.canonical.join_tails import join_tails
from louver.compile.canonical.number_tiles import number_tiles
from louver.compile.canonical.open_branches import open_branches
from louver.compile.canonical.propagate_sparsity import propagate_sparsity, require_multiplied
from louver.compile.canonical.roll_sums import roll_sums
from louver.compile.canonical.select_branches import select_branches
from louver.compile.canonical.turn_right_sparse import turn_right_sparse
from louver.compile.canonical.unroll_programs import unroll_programs
from louver.ir.llvm import AssumeOp

_PROMISES = tuple(f"tt.{name}" for name in ("divisibility", "contiguity", "constancy"))
"""Attributes of what is computed. Source: Triton. For a block's argument they are its loop's, with the argument's number behind."""


def drop_assumptions(module: ModuleOp) -> None:
    """Remove what the user promises of computed values (`tl.assume`, `tl.multiple_of`, `tl.max_contiguous`, `tl.max_constancy`):
    nothing here relies on it. What arguments are multiples of stays.
    """
    for op in list(module.walk()):
        if isinstance(op, AssumeOp):
            Rewriter.erase_op(op)
        for name in [name for name in op.attributes if name.startswith(_PROMISES)]:
            del op.attributes[name]


PASSES: tuple[Callable[[ModuleOp], None], ...] = (
    count_loops,
    propagate_sparsity,
    require_multiplied,
    drop_assumptions,
    make_host_descriptors,
    turn_across,
    open_branches,
    unroll_programs,
    select_branches,
    join_equal_integers,
    describe_batches,
    describe_tiles,
    join_stores,
    drop_counters,
    join_splits,
    join_tails,
    count_elements,
    roll_sums,
    turn_right_sparse,
    fuse_gated_pair,
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
