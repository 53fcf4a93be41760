"""describe-tiles: changes loads, stores and atomic additions through pointers and block pointers to accesses through
descriptors.

A descriptor reads zeros outside of its tensor and drops stores there, so masks become sizes. Elements that a program
reads beyond the last row (without a mask, or wrapped to the first rows by `%`) become zeros. The result is the same if
the kernel does not store rows that are computed from these elements. This is the case: the mask or shape of a store
gives its sizes, and `read_nest` requires that they are the sizes of its operands.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeAlias, TypeGuard, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.access import Access, Dimension, access
from louver.analysis.affine import Affine, BlockPointer, Elements, Pointer, launch_size
from louver.analysis.atoms import Lane, lanes
from louver.analysis.batch import Entry
from louver.analysis.integers import is_zero
from louver.analysis.masks import Bound, moving, read_mask, some_bounds
from louver.analysis.moves import without_moves
from louver.analysis.wrapped_rows import Writing, check_wrapped_rows
from louver.compile.canonical.turn_across import lengths_across
from louver.compile.condition_attributes import (
    require_equal,
    require_positive,
    require_rows_apart,
    require_steps,
    require_whole,
)
from louver.compile.rewrite.descriptors import Descriptors, contiguous_last
from louver.compile.rewrite.insert import insert, insert_before
from louver.compile.rewrite.materialize import places
from louver.compile.rewrite.remove_dead import remove_dead
from louver.compile.rewrite.tile_sizes import TileSizes
from louver.ir import tile as tt
from louver.ir.polynomial import Polynomial
from louver.ir.refusal import UnsupportedKernelError, unsupported
from louver.ir.tile.types import as_tensor

PAD_ZERO = 1
"""The `padding` of a block pointer that reads zeros outside the tensor. Source: Triton's PaddingOption."""


ADDS = ("add", "fadd")
"""Kinds of atomic additions: of integers and of floating-point numbers."""

TileAccess: TypeAlias = tt.LoadOp | tt.StoreOp | tt.AtomicRMWOp


def describe_tiles(module: ModuleOp) -> None:
    """Rewrite in place. Kernels that use only descriptors do not change.

    Rejects, with operation and source line, an access that is not a tile of a tensor: offsets that are not affine,
    masks that are not bounds, a tensor without a contiguous dimension, and stores without bounds.
    """
    for function in [op for op in module.body.ops if isinstance(op, tt.FuncOp)]:
        tiles = [op for op in function.body.walk() if is_access(op) and tile_shape(op) is not None]
        if tiles:
            Describer.of(function).rewrite(tiles)
            remove_dead(function)


def is_access(op: Operation) -> TypeGuard[TileAccess]:
    """Whether an operation may use a descriptor: a load, a store, or an atomic addition with an unused result."""
    if isinstance(op, tt.AtomicRMWOp):
        return op.kind.data in ADDS and op.result.first_use is None
    return isinstance(op, tt.LoadOp | tt.StoreOp)


def tile_shape(op: TileAccess) -> tuple[int, ...] | None:
    """The shape of the tile that an operation loads, stores or adds; None for a scalar."""
    tensor = as_tensor(op.result.type if isinstance(op, tt.LoadOp) else op.value.type)
    return None if tensor is None else tensor.get_shape()


@dataclass(slots=True)
class Describer:
    """Rewrites accesses of one kernel.

    across: arguments that are sparse along their second to last axis, each with its length along that axis.
    """

    function: tt.FuncOp
    affine: Affine
    sizes: TileSizes
    descriptors: Descriptors
    across: Mapping[SSAValue, SSAValue]

    @classmethod
    def of(cls, function: tt.FuncOp) -> Describer:
        """The describer of a function."""
        affine = Affine()
        sizes = TileSizes(function, affine)
        return cls(function, affine, sizes, Descriptors(affine, sizes, places(function)), lengths_across(function))

    def rewrite(self, tiles: Sequence[TileAccess]) -> None:
        """Rewrite all accesses of the kernel."""
        self.affine.positive = set()
        found = [(op, self.described(op)) for op in tiles]
        for op, each in found:
            if isinstance(op, tt.LoadOp):
                # `read_nest` compares the rows that the store excludes with the operands.
                self._check_rows(op, each, lambda op, dimension, beyond: True)
                self._check_repeated(op, each)
        self.sizes.learn([each for _, each in found])
        self._check_whole_steps(found)
        for op, each in found:
            ordered = self.ordered(op, each)
            complete = [self.sizes.of(dimension, op) for dimension in ordered]
            if isinstance(op, tt.LoadOp):
                self.load(op, each, ordered, complete)
            else:
                self._store(op, each, ordered, complete)
        for argument, name in self.function.argument_names.items():
            if argument in self.affine.positive:
                require_positive(self.function, name)

    def _check_whole_steps(self, found: Sequence[tuple[TileAccess, Access]]) -> None:
        """Make the launch check that K is whole steps, where no mask of K bounds what is read behind a selected matrix.

        The next matrix is there, and a product reads no further than its rows. If programs take all matrices in turn, the
        last one has no next one, so a kernel that reads it is wrong anyway.
        """
        for op, each in found:
            if not isinstance(op, tt.LoadOp) or tt.sparse_encoding(op.result.type) is None or each.entry is None:
                continue
            columns = self.ordered(op, each)[-1]
            in_turn = any(
                isinstance(atom, SSAValue)
                and isinstance(atom.owner, tt.GetProgramIdOp)
                and Polynomial.atom(cast(Hashable, atom)) == each.entry.index
                for atom in each.entry.index.atoms
            )
            masked = any(
                other.first == columns.first and other.size is not None for _, one in found for other in one.dimensions
            )
            if masked or in_turn:
                continue
            size = self.sizes.of(columns, op)
            if size.quotient(Polynomial.number(columns.extent)) is None:
                self.sizes.require_whole_tiles(size, columns, op)

    def ordered(self, op: Operation, found: Access) -> list[Dimension]:
        """The dimensions of a tile in the order of the tensor's arrays.

        The contiguous or the sparse dimension comes last.
        """
        ordered = contiguous_last(found, op)
        length = self.across.get(found.base)
        if length is None:
            return ordered
        if len(ordered) != 2:
            raise unsupported(
                "a tile of a tensor that is sparse along its last axis but one must have two dimensions",
                op,
                "load [rows, columns], and reshape behind the load",
            )
        k, n = ordered
        names = self.function.argument_names
        apart = launch_size(k.stride, names)
        if apart is None or len(apart.terms) > 1:
            raise unsupported(
                "a stride of a sparse tensor must be an argument, a number, or a product of these",
                op,
                "pass the stride as an argument",
            )
        require_rows_apart(self.function, names[found.base], apart)
        return [replace(n, stride=Polynomial.atom(length)), replace(k, stride=Polynomial.number(1))]

    def check_rows(self, load: tt.LoadOp, found: Access) -> None:
        """Reject a load if a store could write results of rows beyond the last one."""
        self._check_rows(load, found, self._drops)

    def _check_rows(self, load: tt.LoadOp, found: Access, drops: _Drops) -> None:
        for each in found.dimensions:
            if each.wrapped:
                assert each.size is not None
                self._check_beyond(load, each.number, each.first - each.size, drops)

    def check_beyond(self, load: tt.LoadOp, dimension: int, beyond: Polynomial) -> None:
        """Reject a load whose rows can affect results, from where `beyond` plus a tile's row is at least 0."""
        self._check_beyond(load, dimension, beyond, self._drops)

    def _check_beyond(self, load: tt.LoadOp, dimension: int, beyond: Polynomial, drops: _Drops) -> None:
        excludes = partial(self.excludes, beyond=beyond)
        check_wrapped_rows(load, dimension, partial(drops, beyond=beyond), excludes, beyond)

    def _check_repeated(self, load: tt.LoadOp, found: Access) -> None:
        """Reject a load whose mask excludes repeated elements, if a store could write them.

        The descriptor reads these elements too.
        """
        for bound in found.within:
            (number,) = lanes(bound)
            beyond = bound - Polynomial.atom(Lane(number))
            if lanes(beyond):
                raise unsupported(
                    "a mask must compare the index along a dimension with a size",
                    load,
                    "write (rows[:, None] < M) & (columns[None, :] < K)",
                )
            self._check_beyond(load, number, beyond, self._drops)

    def _drops(self, op: Writing, dimension: int, beyond: Polynomial) -> bool:
        """Whether a store excludes the rows beyond the last one.

        beyond: minus the number of a tile's rows that are inside.
        """
        if isinstance(op, tt.StoreOp | tt.AtomicRMWOp) and op.mask is not None:
            return self.excludes(op.mask, dimension, op, beyond=beyond)
        return (dimension, beyond) in [(number, first - size) for number, first, size in self._limits(op)]

    def excludes(
        self, mask: SSAValue, dimension: int, op: Operation, holds: bool = True, *, beyond: Polynomial
    ) -> bool:
        """Whether a mask of `op`, or the opposite of it, is false for the rows beyond the last one."""
        rows = Polynomial.atom(Lane(dimension)) + beyond
        bounds = some_bounds(self.affine, mask, op, holds=holds)
        # A mask may end earlier, by a number of rows.
        further = [(each - rows).constant for bound in bounds for each in (bound.value, *bound.each)]
        return any(each is not None and each >= 0 for each in further)

    def _limits(self, op: Writing) -> list[tuple[int, Polynomial, Polynomial]]:
        """For each dimension of a store through a descriptor or block pointer: its number, the start of the tile, and
        the size.
        """
        if isinstance(op, tt.DescriptorStoreOp | tt.DescriptorReduceOp):
            made = op.desc.owner
            sizes = made.sizes if isinstance(made, tt.MakeTensorDescriptorOp) else ()
            pairs = [
                (self.affine.index(first), self.affine.index(size))
                for first, size in zip(op.offsets, sizes, strict=True)
            ]
        elif as_tensor(op.ptr.type) is None and isinstance(tile := self.affine.pointer(op.ptr), BlockPointer):
            pairs = list(zip(tile.first, tile.sizes, strict=True))
        else:
            pairs = []
        return [(each, *pair) for each, pair in enumerate(pairs)]

    def described(self, op: TileAccess) -> Access:
        """The same, to be described. Rejects a mask that bounds the matrices of a batch, too."""
        found = self.access(op, follow=True)
        if found.entry is not None and found.entry.size is not None:
            raise unsupported(
                "a mask bounds one dimension at a time", op, "write (rows[:, None] < M) & (columns[None, :] < K)"
            )
        return found

    def access(self, op: TileAccess, *, follow: bool = False, sparse: bool = False) -> Access:
        """The tile that an operation accesses. Rejects accesses that are not a tile of a matrix, alone or in a batch.

        follow: whether the launch checks that a mask which stays in a loop is the one that moves with the pointer. sparse: whether
        the tile is sparse, though its type does not say so yet.
        """
        shape = tile_shape(op)
        assert shape is not None
        if isinstance(op, tt.LoadOp):
            if op.padding is not None and op.padding.value.data != PAD_ZERO:
                raise unsupported(
                    "a block pointer must read zeros outside its tensor", op, "pass padding_option='zero'"
                )
            if op.other is not None and not is_zero(op.other):
                rule = "a masked load must give zeros where its mask is false"
                raise unsupported(rule, op, "pass other=0.0", always=True)
        dense = not sparse and (not isinstance(op, tt.LoadOp) or tt.sparse_encoding(op.result.type) is None)
        repeats = isinstance(op, tt.LoadOp) and dense
        bounds, pointer = self._recombined(op) if follow and not dense and not sparse else _read(self.affine, op)
        if follow and isinstance(pointer, Elements):
            bounds = self._moving(pointer, shape, bounds)
        found = access(pointer, shape, bounds, op, repeats=repeats, gapless=not dense)
        if found.base not in self.function.body.block.args:
            raise unsupported(
                "the pointers of a tile must be computed from a pointer argument", op, "pass each array as an argument"
            )
        if not found.dimensions:
            raise unsupported("a tile needs more than one element", op)
        across = not dense and found.base in self.across
        found = without_moves(found, op, self.affine, sparse=not dense and not across)
        return without_moves(found, op, self.affine, sparse=True, across=True) if across else found

    def _recombined(self, op: TileAccess) -> tuple[Sequence[Bound], Pointer]:
        """The mask and the pointers of an access, where the launch checks that what divides its columns does not move them."""
        try:
            return _read(self.affine, op)
        except UnsupportedKernelError as refusal:
            with suppress(UnsupportedKernelError):
                bounds, found = _read(Affine(positive=self.affine.positive, divides=True), op)
                names = self.function.argument_names
                zeros = [launch_size(each, names) for each in found.zeros] if isinstance(found, Elements) else [None]
                if all(each is not None and not each.constant for each in zeros):
                    for each in filter(None, zeros):
                        require_equal(self.function, each, Polynomial.number(0))
                    return bounds, replace(found, zeros=())
            raise refusal

    def _moving(self, pointer: Elements, shape: Sequence[int], bounds: Sequence[Bound]) -> Sequence[Bound]:
        """The bounds of indices, for the bounds of lanes in a loop."""
        found, stepped = moving(bounds, pointer, shape, self.affine)
        sizes = [(launch_size(size, self.function.argument_names), step) for size, step in stepped]
        known = [(size, step) for size, step in sizes if size is not None]
        if len(known) < len(sizes):
            return bounds
        for each in known:
            require_steps(self.function, *each)
        return found

    def require_one_row(self, base: SSAValue, entry: Entry, op: Operation) -> None:
        """Make the launch check that a batch of several dimensions is one sequence of matrices, `entry.stride` apart."""
        names = self.function.argument_names
        unit = launch_size(entry.stride, names)
        for _, each in entry.several:
            stride = launch_size(each, names)
            if unit is None or stride is None:
                raise unsupported(
                    "a stride of a sparse tensor must be an argument, a number, or a product of these",
                    op,
                    "pass the stride as an argument",
                )
            require_whole(self.function, names[base], stride, unit)

    def load(self, op: tt.LoadOp, found: Access, ordered: Sequence[Dimension], complete: Sequence[Polynomial]) -> None:
        """Replace a load by a load through a descriptor. complete: the sizes of the tensor."""
        if found.entry is not None:
            self.require_one_row(found.base, found.entry, op)
        descriptor = self.descriptors.make(op, found, ordered, complete)
        value: SSAValue = insert_before(
            op, tt.DescriptorLoadOp(descriptor, self.descriptors.indices(op, found, ordered))
        )
        if found.entry is not None:
            value = insert_before(op, tt.ReshapeOp(value, [each.extent for each in ordered]))
        numbers = [each.number for each in ordered]
        if numbers != sorted(numbers):
            order = [numbers.index(number) for number in sorted(numbers)]
            value = insert_before(op, tt.TransOp(value, order))
        for number in range(len(tile_shape(op) or ())):
            if number not in numbers:
                value = insert_before(op, tt.ExpandDimsOp(value, number))
        if found.repeated:
            value = insert_before(op, tt.BroadcastOp.build(operands=[value], result_types=[op.result.type]))
        Rewriter.replace_op(op, [], [value])

    def _store(
        self,
        op: tt.StoreOp | tt.AtomicRMWOp,
        found: Access,
        ordered: Sequence[Dimension],
        complete: Sequence[Polynomial],
    ) -> None:
        for each in ordered:
            if each.wrapped:
                # It wraps at a size that is not 1.
                rule = f"a store must not wrap (%) along dimension {each.number}"
                raise unsupported(rule, op, "mask it (offsets < size)", always=True)
        numbers = [each.number for each in ordered]
        if len(numbers) != len(tile_shape(op) or ()):
            raise unsupported("a stored tile needs more than one element along each dimension", op)
        descriptor = self.descriptors.make(op, found, ordered, complete)
        value = op.value
        if numbers != sorted(numbers):
            value = insert_before(op, tt.TransOp(value, numbers))
        if found.entry is not None:
            value = insert_before(op, tt.ReshapeOp(value, [1, *(each.extent for each in ordered)]))
        indices = self.descriptors.indices(op, found, ordered)
        if isinstance(op, tt.StoreOp):
            insert(op, tt.DescriptorStoreOp(descriptor, indices, value), op)
        else:
            insert(op, tt.DescriptorReduceOp("add", descriptor, indices, value), op)
        Rewriter.erase_op(op)


def _read(affine: Affine, op: TileAccess) -> tuple[Sequence[Bound], Pointer]:
    return [] if op.mask is None else read_mask(affine, op.mask, op), affine.recombined(op.ptr)


class _Drops(Protocol):
    def __call__(self, op: Writing, dimension: int, beyond: Polynomial) -> bool: ...
