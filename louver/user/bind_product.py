"""A call of a compiled product: its sizes and matrices, checked against the given arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from louver.compile.signature import batch_pitch_name, parameter_name, pitch_name
from louver.formats.tensor import SparseTensor
from louver.ir.polynomial import AXES, Numbers, Size, programs, with_grid
from louver.ir.product import Split
from louver.isa.fragments import ROWS
from louver.isa.tensormap import COPY_CHUNK
from louver.library.operand import as_stored
from louver.library.rows import Rows
from louver.runtime.arrays import overlaps, repeats
from louver.user.arguments import Call
from louver.user.facts import MatrixFacts, ProductFacts


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in an argument's memory, in elements: `entries` of a batch, rows of `inner` elements, and the steps between them."""

    argument: str
    rows: int
    inner: int
    pitch: int
    entries: int
    entry_pitch: int

    @property
    def extent(self) -> int:
        """Elements from its first to behind its last one."""
        return (self.rows - 1) * self.pitch + (self.entries - 1) * self.entry_pitch + self.inner

    def at(self, address: int, element_bytes: int, owner: object = None) -> Rows:
        """The matrix in memory as a tensor map has it."""
        # A single row has no neighbours, nor has a single entry: any legal pitch will do.
        pitch = _whole(self.inner * element_bytes) if self.rows == 1 else self.pitch * element_bytes
        batch_pitch = self.entry_pitch * element_bytes if self.entries > 1 else self.rows * pitch
        return Rows(address, self.inner, self.rows, pitch, element_bytes, owner, self.entries, batch_pitch)


@dataclass(frozen=True, slots=True)
class ProductCall:
    """A call's sizes and matrices, which fit its arrays.

    m, n, k: of the product. batch: how often it is computed, entry by entry. entries: of the sparse operand. sparse: the arguments that are the sparse operand. dense, out: the matrices of b and d.
    sizes, numbers: values of size and f32 parameters, by the parameters' names.
    """

    m: int
    n: int
    k: int
    batch: int
    entries: int
    sparse: tuple[str, ...]
    dense: Matrix
    out: Matrix
    sizes: dict[str, int]
    numbers: dict[str, float]


class PartError(ValueError):
    """A call for which the kernel is no product, such as one of part of a sparse tensor: register tiles may run it."""


def bind_product(name: str, facts: ProductFacts, call: Call, grid: Sequence[int]) -> ProductCall:
    """What a launch binds. Raises ValueError, with the rule, where sizes, arrays and grid of the call do not fit together, PartError
    where register tiles may compute it.
    """
    numbers = with_grid(call.numbers, grid)
    _check_conditions(name, facts, numbers)
    _check_positive(name, facts, call)
    m, n, k = (_positive(name, each, numbers) for each in (facts.m, facts.n, facts.k))
    batch = 1 if facts.batch is None else _positive(name, facts.batch, numbers)
    parts = 1 if facts.split is None else _parts(name, facts.split, k, facts.k, numbers)
    _check_grid(name, facts, (m, n, batch), grid, parts)
    rows = m // len(facts.sparse)
    entries = 1 if facts.a.entry_pitch is None else batch
    if facts.index is not None:
        entries = _entries(name, facts, call, numbers, rows)
        tiles = -(-m // facts.tile_m) if facts.index.axis == "m" else -(-n // facts.tile_n)
        check_extent(name, facts.index.argument, tiles, call)
    for argument in facts.sparse:
        _check_sparse(name, facts, call, numbers, argument, (rows, k), entries)
    dense, out = (_matrix(name, matrix, call, numbers) for matrix in (facts.b, facts.d))
    sizes = {
        "M": m,
        "N": n,
        "K": k,
        "pitch": out.pitch,
        "batch": batch,
        "batch_pitch": out.entry_pitch,
        "entries": entries,
    }
    reads = [_matrix(name, matrix, call, numbers) for matrix in facts.matrices]
    for matrix, read in zip(facts.matrices, reads, strict=True):
        sizes |= {pitch_name(matrix.argument): read.pitch, batch_pitch_name(matrix.argument): read.entry_pitch}
    for vector in facts.vectors:
        check_extent(name, vector.argument, vector.size.value(numbers), call)
    _check_output(name, facts, out, reads, call)
    values = {parameter_name(each): float(numbers[each]) for each in facts.numbers}
    return ProductCall(m, n, k, batch, entries, facts.sparse, dense, out, sizes, values)


def _positive(name: str, size: Size, numbers: Numbers) -> int:
    found = size.value(numbers)
    if found < 1:
        raise ValueError(f"{name}'s size {size} is at least 1, got {found}: skip empty products")
    return found


def _check_conditions(name: str, facts: ProductFacts, numbers: Numbers) -> None:
    for one, other in facts.equal:
        if one.value(numbers) != other.value(numbers):
            # Descriptors that disagree are a mistake. Beside an argument, register tiles read each by its own size.
            described = all(".shape." in str(each) for each in (one, other))
            raise (ValueError if described else PartError)(
                f"{name} is a product if {one} and {other} are equal, got {one.value(numbers)} and {other.value(numbers)}"
            )
    for size, most in facts.at_most:
        if size.value(numbers) > most:
            raise ValueError(
                f"{name} goes through {most} of {size} and no further, got {size.value(numbers)}: let a loop or the grid go to {size}, or "
                "pass a part of the tensors"
            )
    for argument, of in facts.multiples:
        if int(numbers[argument]) % of:
            raise ValueError(f"{name} takes {argument} in multiples of {of}, got {numbers[argument]}")


def _check_positive(name: str, facts: ProductFacts, call: Call) -> None:
    for argument in facts.positive:
        array = call.arrays.get(argument)
        value = int(call.numbers[argument]) if array is None else array.address
        if value < 1:
            raise PartError(f"{name} is a product if {argument} is above 0, got {value}")


def _parts(name: str, split: Split, k: int, size: Size, numbers: Numbers) -> int:
    """How many programs sum K together, each step of it once."""
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


def _check_grid(name: str, facts: ProductFacts, sizes: tuple[int, int, int], grid: Sequence[int], parts: int) -> None:
    m, n, batch = sizes
    tiles = -(-m // facts.tile_m) * -(-n // facts.tile_n) * batch
    if facts.programs == 0 or prod(grid) in (tiles * parts, (facts.programs or 0) * parts * batch):
        return
    error = PartError if facts.guarded and prod(grid) > tiles * parts else ValueError
    others = "" if facts.programs is None else f", or {facts.programs} that go from tile to tile"
    raise error(
        f"{name} has a program for each of its tiles of {facts.tile_m}×{facts.tile_n}, {tiles} for M {m} and N {n}"
        f"{f', {batch} times' if facts.batch else ''}{f', and {parts} for each to share K' if parts > 1 else ''}{others}, got a grid of {prod(grid)}: {tuple(grid)}"
    )


def _entries(name: str, facts: ProductFacts, call: Call, numbers: Numbers, rows: int) -> int:
    """How many matrices of so many rows the sparse operand has, of which an array says one for each tile."""
    if facts.a.entries is not None:
        return _positive(name, facts.a.entries, numbers)
    first, *inner = _sparse(name, call, facts.sparse[0]).shape[:-1]
    return first if inner else max(1, first // rows)


def _sparse(name: str, call: Call, argument: str) -> SparseTensor:
    s = call.sparse.get(argument)
    if s is None:
        raise ValueError(f"{name} reads {argument!r} as a sparse tensor, got an array: compress it")
    return as_stored(s)


def _check_sparse(
    name: str,
    facts: ProductFacts,
    call: Call,
    numbers: Numbers,
    argument: str,
    shape: tuple[int, int],
    entries: int,
) -> None:
    s = _sparse(name, call, argument)
    check_rows_apart(name, argument, call.sparse[argument], facts.rows_apart, numbers)
    # An operand that all products of a batch share has no entries.
    expected = shape if facts.a.entry_pitch is None else (entries, *shape)
    below = facts.index is not None and tuple(s.shape) == (entries * shape[0], shape[1])
    # Metadata is prepacked in blocks of rows: where an entry is whole blocks, those of entries below each other are the same.
    if tuple(s.shape) != expected and not (below and (entries == 1 or shape[0] % ROWS == 0)):
        part = ""
        if below:
            part = f": entries below each other have a multiple of {ROWS} rows"
        elif s.shape[-1] != shape[1]:
            # Without a mask along K, the end of the loop is what says how long rows are.
            part = f": rows end at {facts.k}; to sum part of one, mask its columns by their number"
        # A K that is compiled in is meant to be all of it.
        inside = len(s.shape) == len(expected) and facts.k.constant is None
        inside = inside and all(asked <= held for asked, held in zip(expected, s.shape, strict=True))
        raise (PartError if inside else ValueError)(
            f"{name} is given the sizes of the dense tensor for {argument!r}, {list(s.shape)}, got {list(expected)}{part}"
        )
    steps = [("rows", shape[0], shape[1], facts.a.pitch)]
    if facts.a.entry_pitch is not None:
        steps.append(("entries", entries, prod(shape), facts.a.entry_pitch))
    for what, count, apart, stride in steps:
        if count > 1 and stride.value(numbers) != apart:
            raise ValueError(
                f"{name} is given the strides of the dense tensor, contiguous, for {argument!r}: {what} are {apart} elements "
                f"apart, got a stride of {stride.value(numbers)}"
            )


def check_rows_apart(
    name: str, argument: str, s: SparseTensor, apart: Sequence[tuple[str, Size]], numbers: Numbers
) -> None:
    """Raises ValueError where the dense rows of a tensor that is sparse along its last axis but one are elsewhere."""
    for other, stride in apart:
        if other == argument and stride.value(numbers) != s.shape[-1] and s.size > 1:
            raise ValueError(
                f"{name} is given the strides of the dense tensor for {argument!r}, {list(s.shape)}, sparse along axis {s.axis}: "
                f"{[s.shape[-1], 1]}, got {stride.value(numbers)} and 1: for a kernel that walks along the sparse "
                "axis, pass the transpose"
            )


def _matrix(name: str, facts: MatrixFacts, call: Call, numbers: Numbers) -> Matrix:
    matrix = Matrix(
        facts.argument,
        facts.rows.value(numbers),
        facts.inner.value(numbers),
        facts.pitch.value(numbers),
        1 if facts.entries is None else facts.entries.value(numbers),
        0 if facts.entry_pitch is None else facts.entry_pitch.value(numbers),
    )
    if matrix.pitch < 0 or matrix.entry_pitch < 0:
        raise ValueError(
            f"{name} walks {facts.argument!r} upwards, got a stride of {min(matrix.pitch, matrix.entry_pitch)}"
        )
    check_extent(name, facts.argument, matrix.extent, call)
    return matrix


def check_extent(name: str, argument: str, elements: int, call: Call) -> None:
    """Raises ValueError for an array with fewer elements, from its first to its last one in memory."""
    array = call.arrays[argument]
    first, last = array.byte_range
    held = (last - array.address) // array.element.bytes
    if first < array.address:
        raise ValueError(f"{name} walks {argument!r} upwards, got an array with negative strides: copy it first")
    if elements > held:
        raise ValueError(
            f"by its sizes and strides {name} reaches {elements} elements of {argument!r}, got an array of {held}"
        )


def _check_output(name: str, facts: ProductFacts, out: Matrix, reads: Sequence[Matrix], call: Call) -> None:
    array = call.arrays[out.argument]
    if not array.writable:
        raise ValueError(f"{name} stores to {out.argument!r}, got an array that is read only or repeats elements")
    if repeats((out.entries, out.rows, out.inner), (out.entry_pitch, out.pitch, 1)):
        raise ValueError(
            f"{name} stores rows of {out.inner} elements to {out.argument!r}, got strides by which they overlap: {out.pitch} "
            f"between rows, {out.entry_pitch} between matrices"
        )
    # Elements of the epilogue's matrices are read by the program that stores there, if they are where the output's are.
    elsewhere = [read.argument for read in reads if not _same_place(read, out, call)]
    index = [] if facts.index is None else [facts.index.argument]
    inputs = [facts.b.argument, *index, *(vector.argument for vector in facts.vectors), *elsewhere]
    for other in dict.fromkeys(inputs):
        if overlaps(array, call.arrays[other]):
            raise ValueError(
                f"{name} stores to {out.argument!r} while other programs read {other!r}, got arrays that overlap"
            )


def _same_place(read: Matrix, out: Matrix, call: Call) -> bool:
    """Whether an element of the epilogue's is where the output has the same one."""
    one, other = (call.arrays[each.argument] for each in (read, out))
    return read.at(one.address, one.element.bytes) == out.at(other.address, other.element.bytes)


def check_alignment(name: str, bound: ProductCall, dense: Rows) -> None:
    """Raises ValueError unless bulk copies can read the dense operand."""
    if not dense.aligned:
        raise ValueError(
            f"{name} reads {bound.dense.argument!r} by bulk copies, whose address and strides are multiples of {COPY_CHUNK} bytes, "
            f"got address {dense.address:#x} and rows {dense.pitch} bytes apart: pad the rows, or copy the array"
        )


def check_direct(name: str, bound: ProductCall, out: Rows, store: str) -> None:
    """Raises ValueError for bulk stores to an output that bulk copies cannot write, as the user's hints may ask for."""
    if store == "bulk" and not out.bulk_writable:
        raise ValueError(
            f'store="bulk" takes an output whose address, stride and rows are multiples of {COPY_CHUNK} bytes; {name} has '
            f"{bound.out.argument!r}, got address {out.address:#x} and rows of {out.inner * out.element_bytes} bytes, {out.pitch} "
            "apart: pad it, or leave the store open"
        )


def _whole(nbytes: int) -> int:
    return -(-nbytes // COPY_CHUNK) * COPY_CHUNK
