"""expand-blocks: changes accesses through block pointers and descriptors to accesses through tensors of pointers and
masks.

The input is valid tile IR without sparse types (after decompose-sparse-tensors). In the output, loads and stores use
tensors of pointers, and pointers to scalars. Indices have 64 bits. Elements outside of the tensor are masked. A load
gives zero there, or NaN if the kernel asks for it. Metadata gives its padding, a legal code, which is never 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    StringAttr,
    TensorType,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.passages import came_from, end_of, root_of
from louver.compile.rewrite.insert import begin_with, end_with, insert, insert_before
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp
from louver.ir.comparisons import CmpiOp
from louver.ir.refusal import unsupported
from louver.ir.tile.memory import checked
from louver.ir.tile.syntax import join_indices
from louver.ir.tile.types import as_tensor, tensor_of
from louver.ir.walk import each_once
from louver.isa.metadata import PADDING_CODE

NAN_PADDING = 2
"""The `padding` that reads NaN outside of a tensor. Source: Triton's PaddingOption."""

METADATA_PADDING = PADDING_CODE * 0x1111
"""The value of a metadata entry outside of its tensor."""


def expand_blocks(module: ModuleOp) -> ModuleOp:
    """Returns a rewritten copy.

    Rejects, with operation and line, block pointers that a branch chooses or a loop replaces.
    """
    copy = module.clone()
    for function in [op for op in copy.body.ops if isinstance(op, tt.FuncOp)]:
        _Expansion(function).run()
        remove_dead(function)
    return copy


def expand_views(function: tt.FuncOp, roots: Collection[SSAValue]) -> None:
    """Expand, in place, the block pointers and descriptors of these arguments alone. Rejects the same."""
    _Expansion(function, roots).run()
    remove_dead(function)


@dataclass(frozen=True, slots=True)
class View:
    """A tensor in memory, and the place of a block in it. sizes, steps, first: i64 values, one for each dimension."""

    base: SSAValue
    sizes: tuple[SSAValue, ...]
    steps: tuple[SSAValue, ...]
    first: tuple[SSAValue, ...]
    block: tt.AnyTensor
    nan: bool = False


def _is_block(type_: Attribute) -> bool:
    return isinstance(type_, tt.PointerType) and as_tensor(type_.pointee) is not None


class _Expansion:
    """Expands one function. views: the views of its block pointers and descriptors. roots: their arguments; None for all."""

    def __init__(self, function: tt.FuncOp, roots: Collection[SSAValue] | None = None) -> None:
        self.function, self.roots = function, roots
        self.views: dict[SSAValue, View] = {}
        self.replaced: list[Operation] = []
        self.metadata = metadata_loads(function)

    def run(self) -> None:
        """Rewrite the function in place."""
        self._block(self.function.body.block)
        for op in reversed(self.replaced):
            Rewriter.erase_op(op)

    def _block(self, block: Block) -> None:
        for op in list(block.ops):
            self._operation(op)

    def _operation(self, op: Operation) -> None:
        match op:
            case tt.MakeTensorPtrOp() | tt.MakeTensorDescriptorOp() if not self._is_expanded(op.base):
                return
            case _ if self.roots is not None and self._is_of_others(op):
                return
            case tt.MakeTensorPtrOp():
                self._point(op)
            case tt.MakeTensorDescriptorOp():
                self._describe(op)
            case tt.AdvanceOp():
                view, make = self.views[op.ptr], Make(op)
                moves = [make.wide(each) for each in join_indices(op.offsets, op.static_offsets)]
                first = tuple(make.add(a, b) for a, b in zip(view.first, moves, strict=True))
                self._known(op, replace(view, first=first))
            case tt.DescriptorLoadOp():
                view = self._moved(op, self.views.get(op.desc), op.offsets)
                self._load(op, view, range(len(view.first)))
            case tt.DescriptorStoreOp():
                view = self._moved(op, self.views.get(op.desc), op.offsets)
                self._store(op, view, range(len(view.first)), op.src)
            case tt.DescriptorReduceOp():
                view = self._moved(op, self.views.get(op.desc), op.offsets)
                self._reduce(op, view)
            case tt.LoadOp() if _is_block(op.ptr.type):
                nan = op.padding is not None and op.padding.value.data == NAN_PADDING
                self._load(op, replace(self.views[op.ptr], nan=nan), checked(op))
            case tt.StoreOp() if _is_block(op.ptr.type):
                self._store(op, self.views[op.ptr], checked(op), op.value)
            case scf.ForOp() if any(_is_block(value.type) for value in op.iter_args):
                self._loop(op)
            case scf.YieldOp() if isinstance(op.parent_op(), scf.ForOp):
                return
            case _:
                if any(_is_block(value.type) or isinstance(value.type, tt.DescriptorType) for value in op.operands):
                    raise unsupported(
                        "block pointers and descriptors may only be made, moved, loaded and stored through", op
                    )
                for region in op.regions:
                    for block in region.blocks:
                        self._block(block)

    def _is_expanded(self, base: SSAValue) -> bool:
        return self.roots is None or root_of(base) in self.roots

    def _is_of_others(self, op: Operation) -> bool:
        """Whether an operation moves or reads a block of an argument that is not expanded."""
        described = [
            value for value in op.operands if _is_block(value.type) or isinstance(value.type, tt.DescriptorType)
        ]
        return not op.regions and bool(described) and not any(value in self.views for value in described)

    def _known(self, op: Operation, view: View) -> None:
        self.views[op.results[0]] = view
        self.replaced.append(op)

    def _point(self, op: tt.MakeTensorPtrOp) -> None:
        make = Make(op)
        lists = (
            (op.shape, op.static_shape),
            (op.strides, op.static_strides),
            (op.offsets, op.static_offsets),
        )
        sizes, steps, first = (tuple(map(make.wide, join_indices(*each))) for each in lists)
        self._known(op, View(op.base, sizes, steps, first, op.block))

    def _describe(self, op: tt.MakeTensorDescriptorOp) -> None:
        make = Make(op)
        sizes, steps = tuple(map(make.wide, op.sizes)), tuple(map(make.wide, op.steps))
        nan = op.padding is not None and op.padding.value.data == NAN_PADDING
        self._known(op, View(op.base, sizes, steps, (), op.block, nan))

    def _moved(self, op: Operation, view: View | None, indices: Sequence[tt.Index]) -> View:
        if view is None:
            raise unsupported("a descriptor must be made in the kernel, or be an argument of it", op)
        return replace(view, first=tuple(map(Make(op).wide, indices)))

    def _load(self, op: tt.LoadOp | tt.DescriptorLoadOp, view: View, checked: Iterable[int]) -> None:
        make = Make(op)
        pointers, mask = make.pointers(view, checked)
        other: SSAValue | None = None
        if mask is not None:
            fill = METADATA_PADDING if op in self.metadata else float("nan") if view.nan else 0
            other = make.constant(fill, TensorType(view.block.element_type, tensor_of(pointers).get_shape()))
        load = tt.LoadOp(pointers, mask, other)
        load.properties |= {
            name: op.properties[name] for name in ("cache", "evict", "isVolatile") if name in op.properties
        }
        load.result.name_hint = op.result.name_hint
        found = make.placed(load)
        _reshape_first(op.result, found)
        op.result.replace_all_uses_with(make.shaped(found, view.block.get_shape()))
        self.replaced.append(op)

    def _store(
        self, op: tt.StoreOp | tt.DescriptorStoreOp, view: View, checked: Iterable[int], value: SSAValue
    ) -> None:
        make = Make(op)
        pointers, mask = make.pointers(view, checked)
        store = tt.StoreOp(operands=[pointers, make.shaped(value, tensor_of(pointers).get_shape()), mask])
        insert(op, store, op)
        self.replaced.append(op)

    def _reduce(self, op: tt.DescriptorReduceOp, view: View) -> None:
        kind = op.kind.data
        if kind == "add" and not isinstance(view.block.element_type, IntegerType):
            kind = "fadd"
        if kind not in ("add", "fadd", "and", "or", "xor"):
            raise unsupported(
                f"a descriptor reduces by atomic_add, atomic_and, atomic_or and atomic_xor, not by {kind}",
                op,
                "use one of these, or tl.atomic_max on pointers",
            )
        make = Make(op)
        pointers, mask = make.pointers(view, range(len(view.first)))
        properties = {"kind": StringAttr(kind), "sem": StringAttr("relaxed"), "scope": StringAttr("gpu")}
        make.placed(
            tt.AtomicRMWOp.build(
                operands=[
                    pointers,
                    (source := make.shaped(op.src, tensor_of(pointers).get_shape())),
                    [] if mask is None else [mask],
                ],
                properties=properties,
                result_types=[source.type],
            )
        )
        self.replaced.append(op)

    def _loop(self, loop: scf.ForOp) -> None:
        """Carry the first elements of each block pointer instead of the pointer.

        Its tensor does not change in the loop.
        """
        block, given = loop.body.block, [self.views.get(value) for value in loop.iter_args]
        for index in reversed(range(len(given))):
            view, argument = given[index], block.args[index + 1]
            if view is not None:
                first = tuple(block.insert_arg(i64, index + 2 + number) for number in range(len(view.first)))
                self.views[argument] = replace(view, first=first)
        before = [argument for argument in block.args if argument in self.views]
        self._block(block)
        end = end_of(block)
        for view, after in zip(given, [self.views.get(value) for value in end.operands], strict=True):
            if view is not None and (
                after is None or (after.base, after.sizes, after.steps) != (view.base, view.sizes, view.steps)
            ):
                raise unsupported(
                    "a block pointer that a loop moves must stay in one tensor",
                    loop,
                    "make another block pointer for another tensor",
                )
        end_with(block, self._spread(end.operands))
        for op in [op for op in self.replaced if op.parent is block]:
            # The block pointers of this body have no users left, so they and the arguments that they use are erased.
            self.replaced.remove(op)
            op.detach()
            op.drop_all_references()
        for argument in reversed(before):
            block.erase_arg(argument)
        new = begin_with(loop, self._spread(loop.iter_args))
        results = iter(new.results)
        for result, view in zip(loop.results, given, strict=True):
            if view is not None:
                self.views[result] = replace(view, first=tuple(next(results) for _ in view.first))
                continue
            result.replace_all_uses_with(next(results))
        self.replaced.append(loop)

    def _spread(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        found = [(value, self.views.get(value)) for value in values]
        return [each for value, view in found for each in ((value,) if view is None else view.first)]


def _reshape_first(value: SSAValue, tile: SSAValue) -> None:
    """Replaces transpositions of `value` that lose its dimensions of one element later by those of `tile`, which lacks them."""
    shape = tensor_of(value).get_shape()
    kept = [each for each, size in enumerate(shape) if size > 1]
    for op in [use.operation for use in value.uses]:
        if isinstance(op, tt.ReshapeOp) and op.result.type == tile.type:
            op.result.replace_all_uses_with(tile)
        elif isinstance(op, tt.TransOp) and [shape[each] for each in kept] == list(tensor_of(tile).get_shape()):
            turned = tt.TransOp(tile, [kept.index(each) for each in op.order.get_values() if each in kept])
            Make(op).placed(turned)
            _reshape_first(op.result, turned.result)
            if turned.result.first_use is None:
                Rewriter.erase_op(turned)


def metadata_loads(function: tt.FuncOp) -> frozenset[Operation]:
    """The loads whose result is metadata, directly or through moves and loops."""
    pending = [
        op.metadata
        for op in function.body.walk()
        if isinstance(op, tt.DotOp | tt.DecompressOp | tt.CompressOp) and op.metadata is not None
    ]
    found: set[Operation] = set()
    for value in each_once(pending):
        match value.owner:
            case tt.LoadOp() | tt.DescriptorLoadOp():
                found.add(value.owner)
            case tt.TransOp() | tt.ReshapeOp():
                pending.append(value.owner.src)
            case _:
                pending += came_from(value)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Make:
    """Inserts operations before `op`, with its source line."""

    op: Operation

    def placed(self, made: Operation) -> SSAValue:
        """Insert an operation, and return its first result."""
        return insert_before(self.op, made)

    def constant(self, number: float, tensor: tt.AnyTensor) -> SSAValue:
        """A tensor in which all elements are `number`."""
        return self.placed(arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(cast(Any, tensor), [cast(Any, number)])))

    def wide(self, entry: tt.Index) -> SSAValue:
        """An entry of an index list as a 64-bit value."""
        if isinstance(entry, int):
            return self.placed(arith.ConstantOp(IntegerAttr(entry, i64)))
        return entry if entry.type == i64 else self.placed(ExtSIOp(entry, i64))

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The sum of two values."""
        return self.placed(arith.AddiOp(a, b))

    def shaped(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        """The tile with dimensions of one element added or removed."""
        return value if tuple(tensor_of(value).get_shape()) == tuple(shape) else self.placed(tt.ReshapeOp(value, shape))

    def pointers(self, view: View, checked: Iterable[int]) -> tuple[SSAValue, SSAValue | None]:
        """Pointers to the elements of a block, and the mask of the elements that are inside along the dimensions
        `checked`.

        For a block of more than two dimensions, leading dimensions of one element are removed. Its place in them is a
        scalar offset.
        """
        sizes = view.block.get_shape()
        single = [dimension for dimension, size in enumerate(sizes) if size == 1][: max(0, len(sizes) - 2)]
        kept = [dimension for dimension in range(len(sizes)) if dimension not in single]
        shape = [sizes[dimension] for dimension in kept]
        base, total = view.base, None
        mask: SSAValue | None = None
        for dimension in single:
            first = view.first[dimension]
            base = self.placed(tt.AddPtrOp(base, self.placed(arith.MuliOp(first, view.steps[dimension]))))
            if dimension in checked:
                inside = self.placed(CmpiOp(first, view.sizes[dimension], "ult"))
                mask = inside if mask is None else self.placed(arith.AndIOp(mask, inside))
        if mask is not None:
            mask = self.placed(tt.SplatOp(mask, shape))
        for axis, dimension in enumerate(kept):
            size = sizes[dimension]
            ones = self.placed(ExtSIOp(self.placed(tt.MakeRangeOp(0, size)), TensorType(i64, [size])))
            index = self.add(self.placed(tt.SplatOp(view.first[dimension], [size])), ones)
            if dimension in checked:
                # As unsigned, an index below 0 is above every size.
                limit = self.placed(tt.SplatOp(view.sizes[dimension], [size]))
                inside = self._whole(self.placed(CmpiOp(index, limit, "ult")), axis, shape)
                mask = inside if mask is None else self.placed(arith.AndIOp(mask, inside))
            step = self.placed(tt.SplatOp(view.steps[dimension], [size]))
            offset = self._whole(self.placed(arith.MuliOp(index, step)), axis, shape)
            total = offset if total is None else self.add(total, offset)
        assert total is not None
        return self.placed(tt.AddPtrOp(self.placed(tt.SplatOp(base, shape)), total)), mask

    def _whole(self, vector: SSAValue, dimension: int, shape: Sequence[int]) -> SSAValue:
        """Broadcast a vector along `dimension` to a tile."""
        for axis in range(len(shape)):
            if axis != dimension:
                vector = self.placed(tt.ExpandDimsOp(vector, axis))
        return self.placed(tt.BroadcastOp(vector, shape)) if len(shape) > 1 else vector
