"""describe-tiles: loads and stores through block pointers and tensors of pointers go through descriptors instead.

A descriptor reads zeros outside of its tensor and drops what is written there. So masks become sizes; what a program reads
beyond the last row (unmasked, or wrapped to the first rows by `%`) becomes zeros, which is the same kernel as long as the
rows that these give are not stored: a store's own mask or shape says its sizes, and `read_nest` takes a kernel only if
they are those of its operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp, i32, i64
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.tile import (
    AtomicRMWOp,
    DescriptorLoadOp,
    DescriptorStoreOp,
    DotOp,
    ExpandDimsOp,
    FuncOp,
    GetProgramIdOp,
    Index,
    LoadOp,
    MakeTensorDescriptorOp,
    ReduceOp,
    StoreOp,
    TransOp,
    sparse_encoding,
)
from louver.ir.tile.types import as_tensor
from louver.passes.access import Access, Dimension, access
from louver.passes.affine import Affine, Iteration
from louver.passes.insert import insert, insert_before, integer
from louver.passes.integers import constant_integer
from louver.passes.masks import read_mask
from louver.passes.polynomial import ONE, Polynomial
from louver.passes.refusal import UnsupportedKernelError, unsupported
from louver.passes.remove_dead import remove_dead
from louver.passes.sparse_views import BATCH_RULE
from louver.passes.tile_sizes import TileSizes

PAD_ZERO = 1
"""A block pointer's `padding` that reads zeros outside the tensor. Source: Triton's PaddingOption."""


def describe_tiles(module: ModuleOp) -> None:
    """Rewrite in place; kernels that use descriptors alone stay as they are.

    Refuses, with operation and source line, what is no tile of a tensor: offsets that are not affine, masks that are no bounds,
    a tensor without a contiguous dimension, and stores that nothing bounds.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        tiles = [op for op in function.body.walk() if isinstance(op, LoadOp | StoreOp) and _shape(op) is not None]
        if tiles:
            _Describer(function, Affine(), TileSizes(function)).rewrite(tiles)
            remove_dead(function)


def describe_sparse_tiles(module: ModuleOp) -> None:
    """The same for loads of sparse tensors through tensors of pointers alone; all other accesses stay as they are.

    Rows beyond the last one, which wrapped indices (%) read as the first ones again, are zeros: refused in kernels that could tell
    the difference, because they reduce, add to memory, have several dots or store without a mask.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        tiles = [op for op in function.body.walk() if isinstance(op, LoadOp | StoreOp) and _shape(op) is not None]
        loads = [op for op in tiles if isinstance(op, LoadOp) and as_tensor(op.ptr.type)]
        sparse = [op for op in loads if sparse_encoding(op.result.type)]
        if sparse:
            _Describer(function, Affine(), TileSizes(function)).rewrite_sparse(tiles, sparse)
            remove_dead(function)


def _shape(op: LoadOp | StoreOp) -> tuple[int, ...] | None:
    tensor = as_tensor(op.result.type if isinstance(op, LoadOp) else op.value.type)
    return None if tensor is None else tensor.get_shape()


@dataclass(slots=True)
class _Describer:
    function: FuncOp
    affine: Affine
    sizes: TileSizes

    def rewrite(self, tiles: Sequence[LoadOp | StoreOp]) -> None:
        found = [(op, self._access(op)) for op in tiles]
        self.sizes.learn(self.affine, [each for _, each in found])
        for op, each in found:
            ordered = _contiguous_last(each, op)
            complete = [self.sizes.of(dimension, op) for dimension in ordered]
            if isinstance(op, LoadOp):
                self._load(op, each, ordered, complete)
            else:
                self._store(op, each, ordered, complete)

    def rewrite_sparse(self, tiles: Sequence[LoadOp | StoreOp], sparse: Sequence[LoadOp]) -> None:
        for op in sparse:
            found = self._access(op)
            if any(each.wrapped for each in found.dimensions):
                self._check_stores(op, [op for op in tiles if isinstance(op, StoreOp)])
            ordered = _contiguous_last(found, op)
            _check_columns(ordered, op)
            self._load(op, found, ordered, [_sparse_size(each, ordered) for each in ordered])

    def _check_stores(self, load: LoadOp, stores: Sequence[StoreOp]) -> None:
        """Refuse a load whose rows beyond the last one could be seen."""
        dots = [op for op in self.function.body.walk() if isinstance(op, DotOp)]
        others = [op for op in self.function.body.walk() if isinstance(op, ReduceOp | AtomicRMWOp)]
        if len(dots) != 1 or others or not all(map(self._is_bounded, stores)):
            rule = "the rows of a sparse tile are masked (rows < M) where more than a masked store sees them"
            raise unsupported(rule, load)

    def _is_bounded(self, op: StoreOp) -> bool:
        try:
            return all(each.size is not None for each in self._access(op).dimensions)
        except UnsupportedKernelError:
            return False

    def _access(self, op: LoadOp | StoreOp) -> Access:
        shape = _shape(op)
        assert shape is not None
        if isinstance(op, LoadOp):
            if op.padding is not None and op.padding.value.data != PAD_ZERO:
                raise unsupported("a block pointer must read zeros outside its tensor", op)
            if op.other is not None and not _is_zero(op.other):
                raise unsupported("a masked load must give zeros where its mask is false", op)
        bounds = [] if op.mask is None else read_mask(self.affine, op.mask, op)
        found = access(self.affine.pointer(op.ptr), shape, bounds, op)
        if found.base not in self.function.body.block.args:
            raise unsupported("a tile is counted from a pointer argument", op)
        if not found.dimensions:
            raise unsupported("a tile has more than one element", op)
        if isinstance(op, LoadOp) and sparse_encoding(op.result.type) and any(map(_is_moved, found.dimensions)):
            raise unsupported(f"a sparse tensor's rows are counted from its first element: {BATCH_RULE}", op)
        return found

    def _load(self, op: LoadOp, found: Access, ordered: Sequence[Dimension], complete: Sequence[Polynomial]) -> None:
        descriptor = self._descriptor(op, found.base, ordered, complete)
        indices = [self._first(each.first, op) for each in ordered]
        value: SSAValue = insert_before(op, DescriptorLoadOp(descriptor, indices))
        numbers = [each.number for each in ordered]
        if numbers != sorted(numbers):
            order = [numbers.index(number) for number in sorted(numbers)]
            value = insert_before(op, TransOp(value, order))
        for number in range(len(_shape(op) or ())):
            if number not in numbers:
                value = insert_before(op, ExpandDimsOp(value, number))
        value.name_hint = op.result.name_hint
        op.result.replace_all_uses_with(value)
        Rewriter.erase_op(op)

    def _store(self, op: StoreOp, found: Access, ordered: Sequence[Dimension], complete: Sequence[Polynomial]) -> None:
        for each in ordered:
            if each.wrapped:
                raise unsupported(
                    f"a store must not wrap (%) along dimension {each.number}: mask it (offsets < size)", op
                )
        numbers = [each.number for each in ordered]
        if len(numbers) != len(_shape(op) or ()):
            raise unsupported("a stored tile has more than one element along each dimension", op)
        descriptor = self._descriptor(op, found.base, ordered, complete)
        indices = [self._first(each.first, op) for each in ordered]
        value = op.value
        if numbers != sorted(numbers):
            value = insert_before(op, TransOp(value, numbers))
        insert(op, DescriptorStoreOp(descriptor, indices, value), op)
        Rewriter.erase_op(op)

    def _descriptor(
        self, op: Operation, base: SSAValue, ordered: Sequence[Dimension], sizes: Sequence[Polynomial]
    ) -> SSAValue:
        """Make it where the kernel starts, of arguments and numbers."""
        start = self.sizes.end()
        steps: list[Index] = []
        for each in ordered:
            step = self.sizes.entry(each.stride, "a stride", op)
            if isinstance(step, SSAValue) and step.type != i64:
                step = insert(start, ExtSIOp(step, i64), op).results[0]
            steps.append(step)
        extents: list[Index] = []
        for size in sizes:
            extent = self.sizes.entry(size, "a size", op)
            if isinstance(extent, SSAValue) and extent.type == i64 and sparse_encoding(base.type):
                # The pitch of a row, as far as a row's length.
                extent = insert(start, TruncIOp(extent, i32), op).results[0]
            if isinstance(extent, SSAValue) and extent.type != i32:
                raise unsupported(f"sizes are 32-bit integers, not {extent.type}", op)
            extents.append(extent)
        made = MakeTensorDescriptorOp(base, extents, steps, [each.extent for each in ordered])
        name = base.name_hint
        made.result.name_hint = None if name is None else f"{name}_tensor"
        return insert(start, made, op).results[0]

    def _first(self, value: Polynomial, op: Operation) -> Index:
        """The index where a tile starts: a value that the kernel has already, or a multiple of a number that it has."""
        for known, polynomial in self.affine.known.items():
            if polynomial == value and known.type == i32 and _dominates(known, op):
                return known
        constant = value.constant
        if constant is not None:
            return integer(op, constant)
        if len(value.terms) == 1:
            ((monomial, factor),) = value.terms
            (atom, power), *others = monomial
            if not others and power == 1:
                number = self._number(atom, factor)
                if number is not None and number[0].type == i32:
                    return _multiple(*number, op)
        raise unsupported("a tile starts at a multiple of a program's number or of a loop's", op)

    def _number(self, atom: object, factor: int) -> tuple[SSAValue, int] | None:
        if isinstance(atom, SSAValue):
            return cast(SSAValue, atom), factor
        if isinstance(atom, Iteration):
            first, step = constant_integer(atom.loop.lb), constant_integer(atom.loop.step)
            if first == 0 and step and factor % step == 0:
                return atom.loop.body.block.args[0], factor // step
        return None


EVERY_ROW = (1 << 31) - 1
"""The size of a dimension that nothing bounds: an unmasked load is inside of its tensor."""


def _sparse_size(dimension: Dimension, ordered: Sequence[Dimension]) -> Polynomial:
    """The size of a sparse tensor's dimension. Its rows have no gaps: where no mask says how long one is, its pitch does."""
    if dimension.size is not None:
        return dimension.size
    return ordered[-2].stride if dimension is ordered[-1] and len(ordered) > 1 else Polynomial.number(EVERY_ROW)


def _check_columns(ordered: Sequence[Dimension], op: Operation) -> None:
    """Refuse a tile that nothing bounds and that may begin behind the end of a row, as one of another matrix does."""
    columns, pitch = ordered[-1], ordered[-2].stride.constant if len(ordered) > 1 else None
    if columns.size is not None:
        return
    for monomial, factor in columns.first:
        if monomial == ONE:
            inside = pitch is not None and factor + columns.extent <= pitch
        else:
            (atom, power), *others = monomial
            # A tile of K for each program, or one for each iteration.
            split = isinstance(atom, SSAValue) and isinstance(atom.owner, GetProgramIdOp) and factor == columns.extent
            inside = not others and power == 1 and (split or isinstance(atom, Iteration))
        if not inside:
            raise unsupported(
                f"a sparse tile is masked along K (columns < K), or begins at a loop's number or at a program's times {columns.extent}; "
                f"for another matrix: {BATCH_RULE}",
                op,
            )


def _is_moved(dimension: Dimension) -> bool:
    """Whether a mask leaves out something that an offset has: the pointer has been moved, to another matrix perhaps."""
    size = Polynomial.number(0) if dimension.size is None else dimension.size
    return any(term in dict(size) and term for term, _ in dimension.first)


def _multiple(value: SSAValue, factor: int, op: Operation) -> SSAValue:
    if factor == 1:
        return value
    constant = integer(op, factor)
    return insert_before(op, arith.MuliOp(value, constant))


def _contiguous_last(found: Access, op: Operation) -> list[Dimension]:
    """The dimensions in the order in which a descriptor has them."""
    contiguous = [each for each in found.dimensions if each.stride == Polynomial.of({ONE: 1})]
    if not contiguous:
        raise unsupported("one dimension of a tile must be contiguous: pass its stride, 1, as a constexpr", op)
    last = contiguous[-1]
    return [*(each for each in found.dimensions if each is not last), last]


def _is_zero(value: SSAValue) -> bool:
    op = value.owner
    if not isinstance(op, arith.ConstantOp):
        return False
    values = getattr(op.value, "iter_values", None)
    return values is not None and not any(values())


def _dominates(value: SSAValue, op: Operation) -> bool:
    """Whether `value` is known wherever `op` runs."""
    home = value.owner if isinstance(value.owner, Block) else value.owner.parent
    inner: Operation | None = op
    while inner is not None and inner.parent is not home:
        inner = inner.parent_op()
    if inner is None:
        return False
    return isinstance(value.owner, Block) or value.owner.is_before_in_block(inner)
