"""Reads the product nest from tile IR: follows values backwards from the store.

Names and the order of operations do not matter. Any other kernel is rejected, with the operation and its source line.
No operation with an effect is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue

from louver.analysis.integers import is_zero
from louver.analysis.passages import end_of
from louver.compile.canonical.fuse_gated_pair import GATED_MARK
from louver.compile.condition_attributes import conditions
from louver.compile.plan.read_epilogue import Axes, Axis, EpilogueReader, Writing, find_sum
from louver.compile.plan.trace import ONLY, Block, Chosen, Position, Trace
from louver.ir import tile as tt
from louver.ir.conditions import Split
from louver.ir.polynomial import Polynomial, Size
from louver.ir.product import (
    ADDED,
    Accumulator,
    Apply,
    Cast,
    EntryIndex,
    Expression,
    Load,
    ProductNest,
    Store,
    unit_of,
    walk,
)
from louver.ir.refusal import UnsupportedKernelError, unsupported
from louver.ir.tile.dot import promotion
from louver.ir.tile.function import text_of
from louver.ir.tile.types import tensor_of


def read_nest(module: ModuleOp) -> ProductNest:
    """The product that the only kernel of the module computes.

    The kernel must have this form:

    - One descriptor store writes an epilogue of a sum of products.
    - The sum is a loop over all of K that begins at zeros. A step adds a dot of two descriptor loads, transposed or
      not.
    - The left operand of the dot may be sparse.
    - A program computes the tile at its program number times the tile size, along two axes of the grid.
    - Arrays may have a first dimension for the entries of a batch. A third axis of the grid then numbers the entries.
    - Instead, an array may hold the left operand's entry of each tile, by the tile's number along one axis. No other
      array then has entries.

    Raises UnsupportedKernelError, which names the operation, for any other kernel.
    """
    function = _kernel(module)
    _refuse_decomposed(function)
    trace = Trace(function)
    store = _only_store(function)
    trace.explained.add(store)
    trace.places |= {"kernel": function.location, "store": store.location}
    total, transposed, gated = find_sum(store)
    product = _read_sum(trace, total)
    rows, m = product.a.extent, product.m
    if gated:
        # Two rows of the sum give one row of the output.
        rows //= 2
        m = replace(m, scale=m.scale // 2)
    positions: dict[Axis, Position] = {"m": m, "n": product.n}
    extents: dict[Axis, Size] = {"m": rows, "n": product.b.extent}
    axes: Axes = ("n", "m") if transposed else ("m", "n")
    entry: Axes = (None,) * (len(store.offsets) - len(axes))
    place = trace.block(store.desc, store.offsets, store)
    if isinstance(place.entry, Chosen):
        raise unsupported(
            f"{place.entry.argument} may select matrices of the sparse operand only, not of the output",
            store,
            "store the tile at its own matrix, row and column",
        )
    epilogue = EpilogueReader(trace, total, positions, extents, place.entry, place.batch).read(
        store.src, (*entry, *axes), store
    )
    product = _in_batch(trace, product, place, store)
    target = place.view
    stored = [extents[axis] for axis in axes if axis]
    if not all(trace.same(size, extent) for size, extent in zip(target.sizes, stored, strict=True)):
        raise unsupported(
            "the stored tensor must have the product's sizes",
            store,
            "mask the store with the sizes that bound the loads",
        )
    if [trace.position(offset, store) for offset in place.offsets] != [positions[axis] for axis in axes if axis]:
        raise unsupported(
            "a tile must be stored at the row and column where its operands were read",
            store,
            "store with the row and column numbers of the loads",
        )
    trace.require_all_explained()
    tile_m, tile_n = tensor_of(total).get_shape()
    stated = conditions(function)
    _check_split(stated.split, store, epilogue)
    return ProductNest(
        name=function.sym_name.data,
        arguments=trace.arguments,
        a=replace(product.a, gated=_gated_pair(function, trace, product.a)),
        b=product.b,
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=product.tile_k,
        promoted=product.promoted,
        accumulator=tt.element_name(tensor_of(total).element_type),
        epilogue=epilogue,
        store=Store(target.argument, target.element, target.strides[0], transposed, place.batch, _adds(store)),
        gated=gated,
        conditions=replace(
            stated,
            equal=tuple(sorted({*trace.equal, *stated.equal}, key=_texts)),
            at_most=tuple(sorted(trace.at_most, key=_texts)),
        ),
        places=trace.places,
    )


def _texts(pair: tuple[object, object]) -> tuple[str, str]:
    return str(pair[0]), str(pair[1])


def _check_split(split: Split | None, store: Writing, epilogue: Expression) -> None:
    """Rejects a split of K unless the results of the parts add up to the whole result."""
    if split is None or (split.programs is not None and split.programs.constant == 1):
        return
    if isinstance(store, tt.DescriptorStoreOp):
        raise unsupported(
            "programs that share K must add their sums to memory (tl.atomic_add), not store them",
            store,
            "use tl.atomic_add on zeros",
        )
    if not adds_up(epilogue):
        raise unsupported(
            "programs that share K may only scale and convert their sums before they add them",
            store,
            "other steps of an epilogue need the whole sum",
        )


def adds_up(epilogue: Expression) -> bool:
    """Whether epilogue(x) + epilogue(y) equals epilogue(x + y) except for rounding.

    Such an epilogue only scales, negates, adds and converts sums.
    """
    match epilogue:
        case Accumulator():
            return True
        case Apply("multiply", operands):
            whole = [each for each in operands if any(isinstance(node, Accumulator) for node in walk(each))]
            return len(whole) == 1 and adds_up(whole[0])
        case Apply("negate", (operand,)):
            return adds_up(operand)
        case Apply("add" | "subtract", operands):
            return all(map(adds_up, operands))
        case Cast(operand, to):
            # The sum of two rounded numbers is not the rounded sum.
            return to != "s32" and adds_up(operand)
        case _:
            return False


def _kernel(module: ModuleOp) -> tt.FuncOp:
    ops = list(module.body.ops)
    kernels = [op for op in ops if isinstance(op, tt.FuncOp) and op.is_public]
    others = [op for op in ops if op not in kernels]
    if others:
        raise unsupported("a module must hold one public kernel and nothing else", others[0])
    if len(kernels) != 1:
        raise unsupported(
            f"a module holds one public kernel; there are {len(kernels)}", kernels[1] if kernels else module
        )
    if len(kernels[0].body.blocks) != 1:
        raise unsupported("a kernel has one block, and structured control flow in it", kernels[0])
    return kernels[0]


def _only_store(function: tt.FuncOp) -> Writing:
    stores = [op for op in function.body.walk() if isinstance(op, Writing | tt.StoreOp)]
    if len(stores) != 1:
        raise unsupported(
            f"a kernel must store once; there are {len(stores)} stores",
            stores[1] if stores else function,
            "store each further output in a kernel of its own",
            always=len(stores) > 1,
        )
    store = stores[0]
    if isinstance(store, tt.StoreOp):
        raise unsupported(
            "a kernel must store through a descriptor (tt.descriptor_store)",
            store,
            "store to y + rows[:, None] * stride + columns[None, :] under a mask",
        )
    if store.parent_op() is not function:
        raise unsupported(
            "the store must stand outside of loops and branches", store, "store once, behind the loop over K"
        )
    return store


def _adds(store: Writing) -> bool:
    if isinstance(store, tt.DescriptorStoreOp):
        return False
    if store.kind.data != "add":
        raise unsupported(
            f"a product must be stored or added to memory, not combined with it by {store.kind.data}",
            store,
            "use tl.store or tl.atomic_add",
        )
    element = tt.element_name(tensor_of(store.src).element_type)
    if element not in ADDED:
        raise unsupported(
            f"sums in memory are of {', '.join(ADDED)}, not {element}", store, "convert the tile before it is added"
        )
    return True


def _in_batch(trace: Trace, product: _Sum, place: Block, store: Operation) -> _Sum:
    """The sum, whose operands have the batch size of the output.

    Requires one entry number for the output and all operands that are batches.
    """
    if product.a.index is not None and (product.b.batch or place.batch):
        raise unsupported(
            f"{product.a.index.argument} selects matrices of the sparse operand, so no other operand may be a batch",
            store,
        )
    if place.entry is not None and place.entry in (product.m.axis, product.n.axis):
        raise unsupported(
            "matrices of a batch and tiles must be numbered by different axes of the grid",
            store,
            "take tl.program_id(2) for matrices",
        )
    size = None if place.batch is None else place.batch.extent
    own = [(each.batch, entry) for each, entry in ((product.a, product.a_entry), (product.b, product.b_entry))]
    numbered = [(batch.extent, entry) for batch, entry in own if batch is not None and batch.index is None]
    if bool(numbered) is (place.batch is None) or not all(
        entry == place.entry and trace.same(extent, size) for extent, entry in numbered
    ):
        raise unsupported(
            "operands and output must have one batch size, and one index in the batch",
            store,
            "number matrices of all of them by one tl.program_id",
        )

    def sized(load: Load) -> Load:
        batch = load.batch
        return load if batch is None or batch.index is not None else replace(load, batch=replace(batch, extent=size))

    return replace(product, a=sized(product.a), b=sized(product.b))


@dataclass(frozen=True, slots=True)
class _Sum:
    """The sum of products.

    m, n: where a tile starts along the rows of a and the columns of b.
    tile_k: elements of K in a step.
    a_entry, b_entry: the axis of the grid that numbers the entries of a batch.
    """

    a: Load
    b: Load
    m: Position
    n: Position
    tile_k: int
    a_entry: int | None
    b_entry: int | None
    promoted: int | None


def _read_sum(trace: Trace, total: SSAValue) -> _Sum:
    loop = trace.definition(total, trace.function)
    assert isinstance(loop, scf.ForOp)
    if len(loop.iter_args) != 1:
        raise unsupported(
            "the loop over K may carry the accumulator only",
            loop,
            "compute other values from the loop's number, or behind the loop",
        )
    if not is_zero(loop.iter_args[0]):
        raise unsupported(
            "the sum of products must start at a constant of zeros",
            loop,
            "start at tl.zeros, and add other terms behind the loop",
            always=True,
        )
    dot = _read_step(trace, loop)
    if dot.pairs is not None:
        raise unsupported("warpgroups multiply no pairs of 4-bit integers", dot)
    if dot.scales:
        raise unsupported("warpgroups scale no blocks of K", dot)
    trace.places |= {"loop": loop.location, "dot": dot.location}
    (tile_m, tile_k), (_, tile_n) = tensor_of(dot.a).get_shape(), tensor_of(dot.b).get_shape()
    a, m, a_entry = _read_operand(trace, loop, dot.a, dot, k_dimension=1)
    b, n, b_entry = _read_operand(trace, loop, dot.b, dot, k_dimension=0)
    if b.pattern is not None:
        raise unsupported("the sparse operand of a dot must be the left one", dot)
    precision = "tf32" if dot.input_precision is None else dot.input_precision.data
    if a.element == "f32" and precision != "tf32" and unit_of(a.pattern, a.element) == "wgmma":
        raise unsupported("a product of f32 multiplies as tf32", dot, "pass input_precision='tf32'")
    _check_starts(trace, dot, (m, a.extent, tile_m), (n, b.extent, tile_n))
    if m.axis is not None and m.axis == n.axis:
        raise unsupported(
            "rows and columns of tiles must be numbered by different axes of the grid",
            dot,
            "take tl.program_id(0) for rows and tl.program_id(1) for columns",
        )
    if isinstance(b_entry, Chosen):
        raise unsupported(f"{b_entry.argument} may select matrices of a sparse operand, not of a dense one", dot)
    if isinstance(a_entry, Chosen):
        a, a_entry = _numbered(a, a_entry, m, n, dot), None
    if not trace.same(a.depth, b.depth):
        raise unsupported(
            f"both operands must have the same K, not {a.depth} and {b.depth}", dot, "bound both loads by one size"
        )
    _check_loop(trace, loop, a.depth, tile_k)
    return _Sum(a, replace(b, depth=a.depth), m, n, tile_k, a_entry, b_entry, promotion(dot, a.element))


def _numbered(a: Load, entry: Chosen, m: Position, n: Position, dot: tt.DotOp) -> Load:
    """The operand with the array that holds the entry of each tile along one axis."""
    axes: dict[int | None, Axis] = {m.axis: "m", n.axis: "n"}
    along = axes.get(entry.axis)
    if along is None or a.batch is None:
        raise unsupported(
            f"{entry.argument} must hold the index of a matrix for each tile along one axis of the product", dot
        )
    return replace(a, batch=replace(a.batch, index=EntryIndex(entry.argument, entry.element, along)))


def _check_starts(trace: Trace, dot: tt.DotOp, *axes: tuple[Position, Size, int]) -> None:
    """Requires that tiles follow each other without a gap, or that a single tile covers the axis."""
    for start, extent, tile in axes:
        if start == ONLY and not trace.within(extent, tile):
            raise unsupported(
                f"a single tile along an axis must cover it, at most {tile} elements, not {extent}",
                dot,
                "start a program for each tile",
            )
    scales, tiles = ("×".join(map(str, sizes)) for sizes in zip(*((s.scale or t, t) for s, _, t in axes), strict=True))
    if scales != tiles:
        raise unsupported(
            f"tiles of {tiles} must start at multiples of {tiles}, not of {scales}",
            dot,
            "number rows as program * BLOCK + tl.arange(0, BLOCK)",
        )


def _check_loop(trace: Trace, loop: scf.ForOp, depth: Size, tile_k: int) -> None:
    first, end, step = (_described(trace, each, loop) for each in (loop.lb, loop.ub, loop.step))
    if (
        (first, step) == (Polynomial.number(0), Polynomial.number(tile_k))
        and end is not None
        and _ends_at(trace, end, depth, tile_k)
    ):
        return
    given = ["a number that is computed" if each is None else str(each) for each in (first, end, step)]
    raise unsupported(
        f"the loop over K must run from 0 to {depth} in steps of {tile_k}, not from {given[0]} to {given[1]} in steps of {given[2]}",
        loop,
        "a warpgroup product sums all of K, and register tiles sum part of it",
    )


def _described(trace: Trace, value: SSAValue, loop: scf.ForOp) -> Size | None:
    """The bound of a loop as a size; None if a launch cannot compute it."""
    try:
        return trace.size(value, loop)
    except UnsupportedKernelError:
        return None


def _ends_at(trace: Trace, end: Size, depth: Size, step: int) -> bool:
    """Whether a loop to `end` covers all of K. The last step may extend beyond K, where it reads zeros."""
    if end.constant is None:
        return trace.same(end, depth)
    steps = -(-end.constant // step)
    if depth.constant is not None:
        return steps == -(-depth.constant // step)
    return trace.within(depth, steps * step)


def _gated_pair(function: tt.FuncOp, trace: Trace, a: Load) -> tuple[str, str] | None:
    """The two arguments of the user that `fuse_gated_pair` joined to the sparse operand; None if it did not."""
    for name, attributes in zip(trace.names.values(), function.argument_attributes, strict=True):
        pair = attributes.get(GATED_MARK)
        if name == a.argument and isinstance(pair, ArrayAttr):
            gate, up = map(text_of, cast("ArrayAttr[Attribute]", pair))
            return gate, up
    return None


def _refuse_decomposed(function: tt.FuncOp) -> None:
    for op in function.body.walk():
        if isinstance(op, tt.DotOp) and op.metadata is not None:
            raise unsupported(
                "a kernel is compiled from sparse types, not from values and metadata",
                op,
                "pass the module from before decompose-sparse-tensors",
            )


def _read_step(trace: Trace, loop: scf.ForOp) -> tt.DotOp:
    """The dot of the loop. It has the accumulator as an operand, or is added to the accumulator."""
    partial = loop.body.block.args[1]
    end = end_of(loop.body.block)
    trace.explained.add(end)
    step = trace.definition(end.operands[0], end)
    if isinstance(step, tt.DotOp) and step.c is partial:
        return step
    if isinstance(step, arith.AddfOp | arith.AddiOp) and partial in (step.lhs, step.rhs):
        dot = trace.definition(step.rhs if step.lhs is partial else step.lhs, step)
        if isinstance(dot, tt.DotOp) and is_zero(dot.c):
            return dot
    raise unsupported(
        "a step of the loop over K must add one dot to the accumulator",
        step,
        "write total = tl.dot(a, b, total), and scale the sums behind the loop",
        always=True,
    )


def _read_operand(
    trace: Trace, loop: scf.ForOp, value: SSAValue, user: Operation, k_dimension: int
) -> tuple[Load, Position, int | Chosen | None]:
    """An operand of the dot, the start of its tile along the dimension that is not summed, and the number of its entry.

    k_dimension: the dimension that is summed. The entry's number is an axis of the grid, an element of an array, or
    None.
    """
    part = "a" if k_dimension else "b"
    op = trace.without_entry(value, user)
    while isinstance(op, tt.TransOp):
        k_dimension = 1 - k_dimension
        op = trace.without_entry(op.src, op)
    if not isinstance(op, tt.DescriptorLoadOp):
        raise unsupported(
            "an operand of a dot must be loaded through a descriptor",
            op,
            "load it from x + rows[:, None] * stride + columns[None, :], with rows that the program's number gives",
        )
    if op.parent_op() is not loop:
        raise unsupported("an operand of a dot must be loaded in the loop over K", op, "load it in each step")
    block = trace.block(op.desc, op.offsets, op)
    if block.offsets[k_dimension] is not loop.body.block.args[0]:
        raise unsupported(
            "an operand of a dot must be read at the loop's position along K",
            op,
            "read both operands at k + tl.arange(0, BLOCK_K)",
        )
    position = trace.position(block.offsets[1 - k_dimension], op)
    trace.places[part] = op.location
    return _load(block, k_dimension), position, block.entry


def _load(block: Block, k_dimension: int) -> Load:
    view = block.view
    return Load(
        argument=view.argument,
        element=view.element,
        pattern=view.pattern,
        extent=view.sizes[1 - k_dimension],
        depth=view.sizes[k_dimension],
        stride=view.strides[0],
        k_major=k_dimension == 1,
        batch=block.batch,
    )
