"""A call of a compiled product: its sizes and matrices, checked against the given arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from louver.compile.signature import batch_pitch_name, parameter_name, pitch_name
from louver.ir.conditions import Split
from louver.ir.polynomial import AXES, Size, programs
from louver.ir.product import Batch, LoadMatrix, LoadScalar, LoadVector, Number, ProductNest, Store, walk
from louver.isa.bulk import COPY_CHUNK
from louver.isa.fragments import ROWS
from louver.library.forms import as_stored
from louver.library.rows import Rows
from louver.runtime.arrays import overlaps, repeats
from louver.user.arguments import Call
from louver.user.checked_call import CheckedCall, PartError, ViewError


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in an argument's memory, in elements: `entries` of a batch, rows of `inner` elements, and their pitches."""

    argument: str
    rows: int
    inner: int
    pitch: int
    entries: int
    entry_pitch: int

    @property
    def extent(self) -> int:
        """Elements from the first to the last one, inclusive."""
        return (self.rows - 1) * self.pitch + (self.entries - 1) * self.entry_pitch + self.inner

    def at(self, address: int, element_bytes: int, owner: object = None) -> Rows:
        """The matrix in memory, in the form of a tensor map."""
        sizes, entries = (self.rows, self.inner), (self.entries, self.entry_pitch)
        found = Rows.of_elements(address, sizes, self.pitch, element_bytes, owner, *entries)
        return found if self.entries > 1 else replace(found, batch_pitch=self.rows * found.pitch)


@dataclass(frozen=True, slots=True)
class ProductCall:
    """A call's sizes and matrices, which fit its arrays.

    m, n, k: of the product. batch: number of products. entries: of the left operand. sparse: the arguments of a sparse
    one. left: the matrix of a dense one. dense, out: the matrices of b and d. numbers: of parameters, by name.
    """

    m: int
    n: int
    k: int
    batch: int
    entries: int
    sparse: tuple[str, ...]
    dense: Matrix
    out: Matrix
    numbers: dict[str, int | float]
    left: Matrix | None = None

    @property
    def read(self) -> list[Matrix]:
        """The dense matrices that bulk copies read."""
        return [self.dense, *([] if self.left is None else [self.left])]


def bind_product(name: str, nest: ProductNest, call: Call, grid: Sequence[int]) -> ProductCall:
    """The bound arguments of a launch. Raises ValueError for sizes, arrays and grid that do not match, PartError if
    register tiles may compute the call.
    """
    return _Product(CheckedCall.of(name, call, grid), nest).bound()


@dataclass(frozen=True, slots=True)
class _Product:
    """A call of a product under check."""

    checked: CheckedCall
    nest: ProductNest

    def bound(self) -> ProductCall:
        checked, nest = self.checked, self.nest
        sparse = () if nest.a.pattern is None else nest.a.arguments
        for argument in sparse:
            checked.sparse(argument)
        checked.check(nest.conditions)
        m, n, k = (checked.positive(each) for each in (nest.m, nest.n, nest.k))
        batch = 1 if nest.batch is None else checked.positive(nest.batch)
        self._check_grid(m, n, k, batch)
        rows, index = m // len(nest.a.arguments), nest.a.index
        entries = 1 if nest.a.batch is None else batch
        if index is not None:
            entries = self._entries(rows)
            checked.check_extent(index.argument, -(-m // nest.tile_m) if index.axis == "m" else -(-n // nest.tile_n))
        for argument in sparse:
            self._check_sparse(argument, (rows, k), entries)
        left = None if sparse else self._matrix(nest.a.argument, (nest.m, nest.k), nest.a.stride, nest.a.batch)
        b_sizes = (nest.n, nest.k) if nest.b.k_major else (nest.k, nest.n)
        dense, out = self._matrix(nest.b.argument, b_sizes, nest.b.stride, nest.b.batch), self._stored(nest.store)
        numbers: dict[str, int | float] = {"entries": entries}
        inputs, reads = [nest.b.argument, *([] if index is None else [index.argument])], list[Matrix]()
        inputs += [] if left is None else [left.argument]
        sizes = {"m": out.inner, "n": out.rows} if nest.store.transposed else {"m": out.rows, "n": out.inner}
        for node in dict.fromkeys(walk(nest.epilogue)):
            match node:
                case LoadMatrix(argument):
                    reads.append(self._stored(node))
                    numbers |= {
                        pitch_name(argument): reads[-1].pitch,
                        batch_pitch_name(argument): reads[-1].entry_pitch,
                    }
                case LoadVector(argument, _, axis):
                    checked.check_extent(argument, sizes[axis])
                    inputs.append(argument)
                case LoadScalar(argument):
                    checked.check_extent(argument, 1)
                    inputs.append(argument)
                case Number(argument):
                    numbers[parameter_name(argument)] = float(checked.numbers[argument])
                case _:
                    pass
        check_output(checked, out, inputs, reads)
        return ProductCall(m, n, k, batch, entries, sparse, dense, out, numbers, left)

    def _check_grid(self, m: int, n: int, k: int, batch: int) -> None:
        nest, grid, taken = self.nest, self.checked.grid, self.nest.conditions
        parts = 1 if taken.split is None else self._parts(taken.split, k)
        tiles = -(-m // nest.tile_m) * -(-n // nest.tile_n) * batch
        in_turn = (taken.programs or 0) * parts * (1 if taken.whole_batch else batch)
        if not grid or taken.programs == 0 or prod(grid) in (tiles * parts, in_turn):
            return
        error = PartError if taken.guarded and prod(grid) > tiles * parts else ValueError
        others = "" if taken.programs is None else f", or {taken.programs} that go from tile to tile"
        times = "" if nest.batch is None else f", {batch} times"
        shares = f", and {parts} for each to share K" if parts > 1 else ""
        raise error(
            f"{self.checked.name} has a program for each of its tiles of {nest.tile_m}×{nest.tile_n}, {tiles} for M {m} and N {n}"
            f"{times}{shares}{others}, got a grid of {prod(grid)}: {grid}"
        )

    def _parts(self, split: Split, k: int) -> int:
        """The number of programs that sum K together, where each step of K belongs to one program."""
        name, numbers, size = self.checked.name, self.checked.numbers, self.nest.k
        axis, parts = AXES[split.axis], int(numbers[programs(split.axis)])
        if split.programs is not None:
            expected = split.programs.value(numbers)
            if parts != expected:
                raise ValueError(
                    f"{name} shares {size} among {expected} programs along {axis} of its grid, whose sums it adds, got {parts}: some of "
                    "K would be left out, or added twice"
                )
            return parts
        assert split.chunk is not None
        chunk = split.chunk.value(numbers)
        if chunk < 1 or chunk % split.multiple:
            raise ValueError(
                f"{name} sums {size} in chunks of {split.chunk}, a multiple of {split.multiple}, got {chunk}: a step would go on into "
                "the next chunk, and be added twice"
            )
        if chunk * parts < k:
            raise ValueError(
                f"{name} sums {size} in chunks of {split.chunk}, one a program along {axis} of its grid, got {parts} programs and chunks "
                f"of {chunk} for {k}: some of K would be left out"
            )
        return parts

    def _entries(self, rows: int) -> int:
        """The number of matrices of `rows` rows in the sparse operand. An array selects one of them for each tile."""
        a = self.nest.a
        if a.batch is not None and a.batch.extent is not None:
            return self.checked.positive(a.batch.extent)
        first, *inner = as_stored(self.checked.sparse(a.arguments[0])).shape[:-1]
        return first if inner else max(1, first // rows)

    def _check_sparse(self, argument: str, shape: tuple[int, int], entries: int) -> None:
        name, a, k = self.checked.name, self.nest.a, self.nest.k
        s = as_stored(self.checked.sparse(argument))
        # An operand that all products of a batch share has no entries. A batch of one matrix is that matrix.
        alone = a.batch is None and len(s.shape) > len(shape) and s.shape[0] == 1
        expected = (1, *shape) if alone else shape if a.batch is None else (entries, *shape)
        below = a.index is not None and tuple(s.shape) == (entries * shape[0], shape[1])
        # Metadata is prepacked in blocks of rows. Entries below each other have the same blocks if an entry is whole
        # blocks. Lists of rows of the dense operand are made for each matrix.
        whole = shape[0] % ROWS == 0 and not a.selection.indexed
        if tuple(s.shape) != expected and not (below and (entries == 1 or whole)):
            if prod(expected) == prod(s.shape) and (a.batch is None or s.size != shape[1]):
                self.checked.check_rows(argument, self.checked.sparse(argument), shape[1])
            part = ""
            if below and a.selection.indexed:
                part = f": matrices of {a.pattern} have an axis of their own"
            elif below:
                part = f": matrices stored below each other need a multiple of {ROWS} rows"
            elif s.shape[-1] != shape[1]:
                # Without a mask along K, the end of the loop gives the row length.
                part = f": rows end at {k}; to sum part of one, mask its columns by their number"
            # A compiled-in K is meant to be the whole K.
            inside = k.constant is None and prod(expected) <= prod(s.shape)
            raise (PartError if inside else ValueError)(
                f"{name} must be given the sizes of the dense tensor for {argument!r}, {list(s.shape)}, got "
                f"{list(expected)}{part}"
            )
        steps = [("rows", shape[0], shape[1], a.stride)]
        if a.batch is not None:
            steps.append(("entries", entries, prod(shape), a.batch.stride))
        for what, count, apart, size in steps:
            stride = size.value(self.checked.numbers)
            if count > 1 and stride != apart:
                # Rows that overlap are no product, but register tiles may compute their addresses.
                raise (ViewError if what == "rows" else ValueError)(
                    f"{name} must be given the strides of the dense tensor, contiguous, for {argument!r}: "
                    f"{what} are {apart} elements apart, got a stride of {stride}"
                )

    def _stored(self, array: Store | LoadMatrix) -> Matrix:
        """A matrix with the output's sizes."""
        m = self.nest.m // 2 if self.nest.gated else self.nest.m
        sizes = (self.nest.n, m) if array.transposed else (m, self.nest.n)
        return self._matrix(array.argument, sizes, array.stride, array.batch)

    def _matrix(self, argument: str, sizes: tuple[Size, Size], stride: Size, batch: Batch | None) -> Matrix:
        numbers = self.checked.numbers
        rows, inner, pitch = (each.value(numbers) for each in (*sizes, stride))
        entries = 1 if batch is None or batch.extent is None else batch.extent.value(numbers)
        matrix = Matrix(argument, rows, inner, pitch, entries, 0 if batch is None else batch.stride.value(numbers))
        if matrix.pitch < 0 or matrix.entry_pitch < 0:
            least = min(matrix.pitch, matrix.entry_pitch)
            raise ValueError(f"{self.checked.name} walks {argument!r} upwards, got a stride of {least}")
        self.checked.check_extent(argument, matrix.extent)
        return matrix


def check_output(checked: CheckedCall, out: Matrix, inputs: Sequence[str], reads: Sequence[Matrix]) -> None:
    """Raises ValueError for an output that repeats elements, is read-only, or overlaps arrays that other programs read."""
    name, arrays = checked.name, checked.call.arrays
    array = arrays[out.argument]
    if not array.writable:
        raise ValueError(f"{name} stores to {out.argument!r}, got an array that is read only or repeats elements")
    if repeats((out.entries, out.rows, out.inner), (out.entry_pitch, out.pitch, 1)):
        raise ValueError(
            f"{name} stores rows of {out.inner} elements to {out.argument!r}, got strides by which they overlap: {out.pitch} "
            f"between rows, {out.entry_pitch} between matrices"
        )

    def place(matrix: Matrix) -> Rows:
        return matrix.at(arrays[matrix.argument].address, arrays[matrix.argument].element.bytes)

    # The program that stores an element reads the same element of the epilogue's matrices, if they lie exactly on the
    # output.
    elsewhere = [read.argument for read in reads if place(read) != place(out)]
    for other in dict.fromkeys((*inputs, *elsewhere)):
        if overlaps(array, arrays[other]):
            raise ValueError(
                f"{name} stores to {out.argument!r} while other programs read {other!r}, got arrays that overlap"
            )


def check_alignment(name: str, matrix: Matrix, dense: Rows) -> None:
    """Raises ValueError unless copies of 16 bytes can read a dense operand."""
    if not dense.aligned:
        raise ValueError(
            f"{name} copies {matrix.argument!r} in pieces of {COPY_CHUNK} bytes, and its address and strides must be multiples of {COPY_CHUNK} bytes, "
            f"got address {dense.address:#x} and rows {dense.pitch} bytes apart: pad the rows, or copy the array"
        )


def check_direct(name: str, bound: ProductCall, out: Rows, store: str) -> None:
    """Raises ValueError for bulk stores, which a user's hint may request, to an output that bulk copies cannot write."""
    if store == "bulk" and not out.bulk_writable:
        raise ValueError(
            f'store="bulk" takes an output whose address, stride and rows are multiples of {COPY_CHUNK} bytes; {name} has '
            f"{bound.out.argument!r}, got address {out.address:#x} and rows of {out.inner * out.element_bytes} bytes, {out.pitch} "
            "apart: pad it, or leave the store open"
        )
