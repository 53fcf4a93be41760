"""canonicalize-kernel: rewrites a user's kernel into the form that `frontend/builder.py` emits.

Input and output of each pass are valid tile IR. A kernel that has the form already does not change.
"""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import Rewriter

from louver.analysis.runs import CONTIGUITY
from louver.compile.canonical.branch_on_tensors import branch_on_tensors
from louver.compile.canonical.count_elements import count_elements
from louver.compile.canonical.count_loops import count_loops
from louver.compile.canonical.describe_batches import describe_batches
from louver.compile.canonical.describe_tiles import describe_tiles
from louver.compile.canonical.drop_branches import drop_branches
from louver.compile.canonical.drop_carried import drop_carried
from louver.compile.canonical.drop_choices import drop_choices
from louver.compile.canonical.drop_counters import drop_counters
from louver.compile.canonical.fold_sums import add_in_place
from louver.compile.canonical.fuse_gated_pair import fuse_gated_pair
from louver.compile.canonical.join_arms import join_arms
from louver.compile.canonical.join_equal_integers import join_equal_integers
from louver.compile.canonical.join_splits import join_splits
from louver.compile.canonical.join_stores import join_stores
from louver.compile.canonical.join_tails import join_tails
from louver.compile.canonical.load_once import load_once
from louver.compile.canonical.make_host_descriptors import make_host_descriptors
from louver.compile.canonical.narrow_operands import narrow_operands
from louver.compile.canonical.nest_loops import nest_loops
from louver.compile.canonical.number_tiles import number_tiles
from louver.compile.canonical.open_branches import open_branches
from louver.compile.canonical.propagate_sparsity import propagate_sparsity, require_multiplied
from louver.compile.canonical.roll_sums import roll_sums
from louver.compile.canonical.select_branches import select_branches
from louver.compile.canonical.split_loops import split_loops
from louver.compile.canonical.turn_across import turn_across
from louver.compile.canonical.turn_right_sparse import turn_right_sparse
from louver.compile.canonical.unroll_programs import unroll_programs
from louver.compile.passes import Pass, State, on_module, run_passes
from louver.ir.llvm import AssumeOp

_PROMISES = tuple(f"tt.{name}" for name in ("divisibility", "contiguity", "constancy"))
"""Attributes with promises about computed values.

Source: Triton. A loop has those of its arguments, with the argument's number after the name.
"""


def drop_assumptions(module: ModuleOp) -> None:
    """drop-assumptions: removes the user's promises about computed values, but for the neighbours of a remainder.

    The kernel may not tell the sign of what is divided (`wraps_whole`). A promise in a branch is only made there, and does not stay.
    Multiples of arguments stay, too. No later pass relies on other promises.

    Promises are `tl.assume`, `tl.multiple_of`, `tl.max_contiguous` and `tl.max_constancy`.
    """
    for op in list(module.walk()):
        if isinstance(op, AssumeOp):
            Rewriter.erase_op(op)
        for name in [name for name in op.attributes if name.startswith(_PROMISES)]:
            if not (name == CONTIGUITY and isinstance(op, arith.RemSIOp) and not isinstance(op.parent_op(), scf.IfOp)):
                del op.attributes[name]


COUNT_LOOPS = on_module(count_loops)
DROP_BRANCHES = on_module(drop_branches)
JOIN_ARMS = on_module(join_arms)
NARROW_OPERANDS = on_module(narrow_operands)
NEST_LOOPS = on_module(nest_loops)
DROP_CHOICES = on_module(drop_choices)
SPLIT_LOOPS = on_module(split_loops)
BRANCH_ON_TENSORS = on_module(branch_on_tensors)
PROPAGATE_SPARSITY = on_module(propagate_sparsity)
DROP_ASSUMPTIONS = on_module(drop_assumptions)
JOIN_EQUAL_INTEGERS = on_module(join_equal_integers)
MAKE_HOST_DESCRIPTORS = on_module(make_host_descriptors)
TURN_ACROSS = on_module(turn_across)
DROP_CARRIED = on_module(drop_carried)
DROP_COUNTERS = on_module(drop_counters)
LOAD_ONCE = on_module(load_once)
"""These passes run on kernels of register tiles too."""

CANONICAL: tuple[Pass[State], ...] = (
    COUNT_LOOPS,
    DROP_BRANCHES,
    NARROW_OPERANDS,
    DROP_ASSUMPTIONS,
    JOIN_ARMS,
    NEST_LOOPS,
    DROP_CARRIED,
    DROP_CHOICES,
    SPLIT_LOOPS,
    BRANCH_ON_TENSORS,
    PROPAGATE_SPARSITY,
    on_module(require_multiplied),
    MAKE_HOST_DESCRIPTORS,
    TURN_ACROSS,
    on_module(open_branches),
    on_module(unroll_programs),
    on_module(select_branches),
    JOIN_EQUAL_INTEGERS,
    LOAD_ONCE,
    on_module(describe_batches),
    on_module(describe_tiles),
    on_module(join_stores),
    DROP_COUNTERS,
    on_module(join_splits),
    on_module(add_in_place),
    on_module(join_tails),
    on_module(count_elements),
    on_module(roll_sums),
    on_module(turn_right_sparse),
    on_module(fuse_gated_pair),
    on_module(number_tiles),
)
"""The passes, in order. Each rewrites the module in place."""


def canonicalize(module: ModuleOp) -> ModuleOp:
    """Returns a verified copy in canonical form. Raises UnsupportedKernelError, which names operation and source line."""
    state = State(module.clone())
    run_passes(CANONICAL, state)
    return state.module
