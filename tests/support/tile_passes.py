"""Kernels of register tiles up to one of their passes, as `compile_tiles` runs these."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.common_subexpression_elimination import cse

from louver.compile.canonical.canonicalize import drop_assumptions
from louver.compile.canonical.count_loops import count_loops
from louver.compile.canonical.make_host_descriptors import make_host_descriptors
from louver.compile.decompose.expand_blocks import expand_blocks
from louver.compile.plan.feeds.split_addresses import split_addresses


def split_dense(module: ModuleOp) -> ModuleOp:
    """A kernel without sparse arguments after split-addresses; the module itself is left as it is."""
    dense = module.clone()
    count_loops(dense)
    drop_assumptions(dense)
    make_host_descriptors(dense)
    plain = expand_blocks(dense)
    cse(plain)
    split_addresses(plain)
    return plain
