"""The first passes of register tiles: each sparse tile is described or addressed at run time, then becomes dense tiles."""

from __future__ import annotations

from dataclasses import replace

from louver.compile.canonical.canonicalize import (
    BRANCH_ON_TENSORS,
    COUNT_LOOPS,
    DROP_ASSUMPTIONS,
    DROP_BRANCHES,
    DROP_CARRIED,
    DROP_CHOICES,
    DROP_COUNTERS,
    JOIN_ARMS,
    JOIN_EQUAL_INTEGERS,
    MAKE_HOST_DESCRIPTORS,
    NARROW_OPERANDS,
    NEST_LOOPS,
    PROPAGATE_SPARSITY,
    SPLIT_LOOPS,
    TURN_ACROSS,
)
from louver.compile.canonical.fold_sums import fold_sums
from louver.compile.canonical.halve_pairs import halve_pairs
from louver.compile.canonical.propagate_sparsity import marked_sparse
from louver.compile.canonical.shape_loads import shape_loads
from louver.compile.condition_attributes import conditions
from louver.compile.decompose.address_sparse_tiles import address_sparse_tiles
from louver.compile.decompose.decompose_sparse_tensors import decompose_sparse_tensors
from louver.compile.decompose.dense_views import read_dense_views
from louver.compile.decompose.describe_sparse_tiles import describe_sparse_tiles
from louver.compile.decompose.mask_behind_loads import mask_behind_loads
from louver.compile.decompose.multiply_kept import multiply_kept
from louver.compile.decompose.sparse_views import read_views
from louver.compile.decompose.widen_steps import widen_steps
from louver.compile.dump import NOWHERE
from louver.compile.kernel_state import KernelState
from louver.compile.needs import Needs
from louver.compile.passes import COPY, First, Pass, Way, attempt, on_module
from louver.compile.plan.feeds.equal_elements import divisors_of
from louver.compile.read_signature import Group, argument_groups, read_parameters
from louver.compile.signature import Part
from louver.ir.refusal import Refusal
from louver.ir.tile import PointerType, element_name


def _read_arguments(state: KernelState) -> object:
    """read-arguments: records the arguments as the user passes them."""
    state.arguments = argument_groups(state.kernel)
    return state.arguments


def _read_parameters(state: KernelState) -> object:
    """read-parameters: records the parameters of a launch, and the sizes and strides that the kernel uses."""
    state.parameters = tuple(read_parameters(state.kernel, state.arguments))
    state.views, state.dense_views = read_views(state.kernel), read_dense_views(state.kernel)
    return state.parameters, state.views, state.dense_views


def _mask_behind_loads(state: KernelState) -> None:
    sparse = marked_sparse(state.kernel)
    mask_behind_loads(state.kernel, [each for each, name in state.kernel.argument_names.items() if name in sparse])


def _address_sparse_tiles(state: KernelState) -> None:
    found_at, groups = address_sparse_tiles(state.kernel, state.computed), iter(state.arguments)
    state.pieces = found_at.pieces
    found: list[Group] = []
    for argument, name in state.kernel.argument_names.items():
        part: Part = "address" if isinstance(argument.type, PointerType) else "value"
        found.append((name, part, None) if name in found_at.added else next(groups))
    state.arguments = found


def _describe_sparse_tiles(state: KernelState) -> None:
    describe_sparse_tiles(state.module, parted=state.options.parted)
    names = list(state.kernel.argument_names.values())
    # The flag of violations may be new. It is the last one.
    state.arguments = [*state.arguments, *((name, "address", None) for name in names[len(state.arguments) :])]


def _decompose(state: KernelState) -> None:
    state.module = decompose_sparse_tensors(state.module, whole_rows=not state.options.gaps)


def _multiply_kept(state: KernelState) -> None:
    multiplied = multiply_kept(state.kernel)
    state.dense = (*multiplied.dense, *state.read_by_groups)
    layouts = [multiplied.layouts.get(argument) for argument in state.kernel.body.block.args]
    state.parameters = tuple(
        each if layout is None else replace(each, element=element_name(layout))
        for each, layout in zip(state.parameters, layouts, strict=True)
    )


DECOMPOSE: tuple[Pass[KernelState], ...] = (
    COPY,
    COUNT_LOOPS,
    DROP_BRANCHES,
    NARROW_OPERANDS,
    DROP_ASSUMPTIONS,
    JOIN_ARMS,
    NEST_LOOPS,
    DROP_CARRIED,
    DROP_COUNTERS,
    on_module(shape_loads),
    on_module(halve_pairs),
    on_module(fold_sums),
    DROP_CHOICES,
    Pass("mask-behind-loads", _mask_behind_loads),
    SPLIT_LOOPS,
    BRANCH_ON_TENSORS,
    PROPAGATE_SPARSITY,
    JOIN_EQUAL_INTEGERS,
    on_module(widen_steps),
    Pass("read-arguments", _read_arguments),
    MAKE_HOST_DESCRIPTORS,
    Pass("address-sparse-tiles", _address_sparse_tiles),
    TURN_ACROSS,
    Pass("describe-sparse-tiles", _describe_sparse_tiles),
    Pass("read-parameters", _read_parameters),
    Pass("decompose-sparse-tensors", _decompose),
    Pass("multiply-kept", _multiply_kept),
)
"""Passes that lower to tile IR without sparse types."""


def _describe(state: KernelState) -> None:
    state.computed = state.options.computed or frozenset()


def _compute_addresses(state: KernelState) -> Refusal | None:
    """Chooses the sparse arguments whose tiles are addressed at run time: those that cannot be described, as refusals name them.

    Another refusal may stand behind the first one. If none names an argument, it is all of them.
    """
    described = refusal = state.refusals[-1]
    sparse = frozenset(marked_sparse(state.kernel))
    if state.options.computed is not None or state.options.gaps or not sparse:
        return described
    computed = frozenset[str]()
    while named := refusal.arguments & (sparse - computed):
        computed |= named
        found = None if computed == sparse else attempt(DECOMPOSE, replace(state, computed=computed, watch=NOWHERE))
        if not isinstance(found, Refusal):
            break
        refusal = found
    state.computed, state.undescribed = computed or sparse, str(described)
    return None


DESCRIBED: First[KernelState] = First(
    # A tile that is not described may be addressed at run time, so that this way's refusal is the obstacle.
    (Way(DECOMPOSE, _describe, "Its tiles are not described because"), Way(DECOMPOSE, _compute_addresses))
)
"""`DECOMPOSE`, for tiles that are described, or else addressed at run time."""


def _ask_tiles(state: KernelState) -> Needs:
    found = conditions(state.kernel)
    state.conditions = replace(
        found,
        divisors=tuple(dict.fromkeys((*found.divisors, *divisors_of(state.kernel)))),
        views=state.views,
        dense_views=state.dense_views,
    )
    return state.ask(Needs.of(state.conditions, state.parameters))


ASK_TILES: Pass[KernelState] = Pass("ask-call", _ask_tiles)
