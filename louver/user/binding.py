"""A call's kernel and the values of its parameters, for a device or the emulator."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Generic, Protocol, TypeVar

from louver.compile.plan.schedule import Schedule
from louver.compile.signature import BoxParameter, Part, parameter_name
from louver.formats.tensor import SparseTensor
from louver.ir.computed import CODES, COLUMNS, COUNT, LENGTH, MOST_DIVIDED, NAN, ROWS, VIOLATIONS, Divisor
from louver.ir.conditions import Conditions
from louver.ir.polynomial import Numbers, with_grid
from louver.ir.product import ProductNest
from louver.isa.targets import Target
from louver.library import launch
from louver.library.compiled import BuiltKernel
from louver.library.forms import Operand, ProductForms, forms_of
from louver.library.fused import Bound
from louver.library.rows import Held, Rows
from louver.runtime.driver import DriverError
from louver.runtime.violations import NAN_PLACE
from louver.user.arguments import Call, Kind
from louver.user.bind_product import Matrix, ProductCall, bind_product, check_alignment, check_direct
from louver.user.bind_tiles import ViewError, check_tiles
from louver.user.checked_call import MultipleError, PartError
from louver.user.compiled import UNALIGNED, Variant
from louver.user.hints import Hints
from louver.user.retile import is_decided, schedule_of

MOST_ACROSS = MOST_DIVIDED
"""Most elements of a tensor that is sparse along its last axis but one, if addresses are computed."""

K = TypeVar("K")
M = TypeVar("M", covariant=True)


class Machine(Protocol[K]):
    """The kernels and arrays of a call."""

    @property
    def target(self) -> Target: ...

    @property
    def sm_count(self) -> int:
        """SMs that share a product's tiles."""
        ...

    def kernel(self, variant: Variant, schedule: Schedule | None = None, kind: Kind | None = None) -> BuiltKernel[K]:
        """The call's kernel. schedule: of a product; None: Louver's choice. kind: to compile; None: the call's own."""
        ...

    def held(self, argument: str) -> Held:
        """The memory of a dense array."""
        ...


class Memory(Machine[K], Protocol[K, M]):
    """A machine that runs kernels."""

    def product_operand(self, parts: Sequence[SparseTensor], forms: ProductForms, entries: int) -> Operand:
        """The sparse operand of a product in these forms, as `entries` matrices."""
        ...

    def tile_operand(self, argument: str, element: str) -> Mapping[Part, Held]:
        """The values of a sparse argument, and its metadata for products of `element`."""
        ...

    def computed_operand(self, argument: str) -> tuple[Held, Held]:
        """The values and the codes of a sparse argument whose tiles are addressed at run time."""
        ...

    def violations(self) -> Held:
        """The page of violations, see `louver.runtime.violations`."""
        ...

    def tensor_map(self, box: BoxParameter, place: Held, numbers: Numbers) -> M:
        """A tensor map in the form of kernel parameters."""
        ...


class UnmappableError(ValueError):
    """An array that bulk copies cannot read. It needs the kernel without boxes."""


@dataclass(frozen=True, slots=True)
class Chosen(Generic[K]):
    """The kernel that runs a call. product: None for register tiles. refused: why the call is not a product.
    slower: why the call's arrays prevent a faster kernel. decided: see `is_decided`.
    """

    kernel: BuiltKernel[K]
    product: ProductCall | None = None
    refused: PartError | None = None
    slower: str | None = None
    decided: bool = False


@dataclass(frozen=True, slots=True)
class BoundKernel(Generic[K, M]):
    """A kernel with its grid and the values of its parameters, in order. slower, decided: as in `Chosen`."""

    kernel: BuiltKernel[K]
    grid: tuple[int, int, int]
    values: dict[str, M | int | float]
    slower: str | None = None
    decided: bool = False


def choose(name: str, hints: Hints, call: Call, grid: Sequence[int], machine: Machine[K]) -> Chosen[K]:
    """The kernel that fits the call's sizes and the alignment of its arrays. Raises ValueError for sizes, arrays and
    grid that do not match, and the errors of `machine.kernel`.
    """
    kernel = machine.kernel("bulk")
    nest = kernel.launch.checked
    if not isinstance(nest, ProductNest):
        return Chosen(kernel)
    try:
        product = bind_product(name, nest, call, grid)
    except PartError as error:
        if hints.schedule:
            raise
        try:
            return Chosen(machine.kernel("tiles"), refused=error)
        except ValueError:
            raise error from None
    out = _rows(product.out, call, machine)
    read = [(matrix, _rows(matrix, call, machine)) for matrix in product.read]
    if not all(rows.aligned for _, rows in read):
        if hints.schedule or nest.a.selection.indexed:
            for matrix, rows in read:
                check_alignment(name, matrix, rows)
        return Chosen(machine.kernel("tiles"), slower=UNALIGNED)
    schedule, sizes = None, (product.m, product.n, product.k, product.batch)
    if not hints.schedule:
        schedule = schedule_of(nest, sizes, machine.target, machine.sm_count, aligned_output=out.bulk_writable)
    if schedule not in (None, kernel.launch.schedule):
        kernel = machine.kernel("bulk" if out.bulk_writable else "direct", schedule)
    elif _stores_in_bulk(kernel) and not out.bulk_writable:
        kernel = machine.kernel("direct")
        check_direct(name, product, out, "bulk" if _stores_in_bulk(kernel) else "direct")
    taken = None if schedule != kernel.launch.schedule else schedule
    decided = taken is not None and is_decided(nest, taken, sizes, machine.sm_count)
    return Chosen(kernel, product, decided=decided)


def bind_call(name: str, hints: Hints, call: Call, grid: Sequence[int], memory: Memory[K, M]) -> BoundKernel[K, M]:
    """The call, ready to run. Raises as `choose` does."""
    chosen = choose(name, hints, call, grid, memory)
    if chosen.product is not None:
        return replace(_bind_product(chosen.kernel, chosen.product, call, memory), decided=chosen.decided)
    try:
        found = _bind_mapped(name, chosen.kernel, call, grid, memory)
    except (ViewError, MultipleError) as error:
        # A 1 may hide a stride of a view. It hides no multiple, and given, it may be between neighbours of a tile: such
        # kernels compute addresses, in pieces of one group.
        described = functools.partial(_with_one_given, computed=False)
        ways = functools.partial(_with_addresses, error=error), functools.partial(_with_one_given, computed=True)
        ways = (described, *ways) if isinstance(error, ViewError) else ways
        found = next((made for way in ways if (made := way(name, call, grid, memory))), None)
        if found is None:
            raise chosen.refused or error from None
    except ValueError:
        if chosen.refused is None:
            raise
        raise chosen.refused from None
    return replace(found, slower=found.slower or chosen.slower)


def _with_one_given(
    name: str, call: Call, grid: Sequence[int], memory: Memory[K, M], *, computed: bool
) -> BoundKernel[K, M] | None:
    """The call by register tiles, with an integer 1 passed at the launch: 1 hides the stride in `layer * stride`.

    computed: whether the kernel may compute addresses of sparse tiles.
    """
    for one in call.kind.ones:
        kind = call.kind.without_one(one)
        try:
            kernel = memory.kernel("bulk", kind=kind)
            if computed or not kernel.signature.computed:
                return _bind_mapped(name, kernel, call, grid, memory, kind)
        except ValueError:
            continue
    return None


def _with_addresses(
    name: str, call: Call, grid: Sequence[int], memory: Memory[K, M], *, error: ViewError | MultipleError
) -> BoundKernel[K, M] | None:
    """The call by register tiles that compute the addresses of sparse tiles, if only the description of tiles is wrong."""
    if not error.described:
        return None
    try:
        return _bind_mapped(name, memory.kernel("computed"), call, grid, memory)
    except ValueError:
        return None


def _bind_mapped(
    name: str,
    kernel: BuiltKernel[K],
    call: Call,
    grid: Sequence[int],
    memory: Memory[K, M],
    kind: Kind | None = None,
) -> BoundKernel[K, M]:
    """The call by register tiles, without boxes if bulk copies cannot read the arrays. kind: see `Machine.kernel`."""
    try:
        return _bind_tiles(name, kernel, call, grid, memory)
    except UnmappableError as error:
        found = _bind_tiles(name, memory.kernel("tiles", kind=kind), call, grid, memory)
        return replace(found, slower=f"no bulk copies: {error}")


def _bind_product(kernel: BuiltKernel[K], product: ProductCall, call: Call, memory: Memory[K, M]) -> BoundKernel[K, M]:
    schedule = kernel.launch.schedule
    assert schedule is not None, "products have one"
    if product.left is not None:
        operand = Operand(_rows(product.left, call, memory), product.k)
    else:
        parts = [call.sparse[argument] for argument in product.sparse]
        operand = memory.product_operand(parts, forms_of(schedule, parts[0]), product.entries)
    dense, out = (_rows(matrix, call, memory) for matrix in (product.dense, product.out))
    maps = {"a": operand.values, "b": dense, "d": out}
    pointers = {parameter_name(argument): memory.held(argument).address for argument in call.arrays}
    bound = Bound(pointers, product.numbers)
    sizes = product.m, product.n, product.k
    sized = launch.Sized.of(kernel.signature, sizes, operand.depth, maps, memory.sm_count)
    places = {name: rows.held for name, rows in maps.items()}
    arguments = launch.bind_product(kernel.signature, sized, places, operand, bound, memory.tensor_map)
    return BoundKernel(kernel, (sized.ctas, 1, 1), arguments)


def _bind_tiles(
    name: str, kernel: BuiltKernel[K], call: Call, grid: Sequence[int], memory: Memory[K, M]
) -> BoundKernel[K, M]:
    signature, taken = kernel.signature, kernel.launch.checked
    assert isinstance(taken, Conditions), "products are bound as such"
    sparse = [argument for argument, _ in signature.metadata]
    check_tiles(name, taken, [*sparse, *signature.computed], call, grid)
    held: dict[tuple[str, str], Held] = {(argument, "address"): memory.held(argument) for argument in call.arrays}
    for argument, element in signature.metadata:
        held |= {(argument, part): each for part, each in memory.tile_operand(argument, element).items()}

    numbers = dict(with_grid(call.numbers, grid))
    if signature.computed:
        page = held[VIOLATIONS, "address"] = memory.violations()
        for argument in signature.computed:
            s = call.sparse[argument]
            if s.axis != s.ndim - 1 and s.rows * s.size > MOST_ACROSS:
                raise ValueError(
                    f"{name} computes addresses of {argument!r}, sparse along axis {s.axis}, in 32 bits, for {MOST_ACROSS:,} elements at "
                    f"most, got {s.rows * s.size:,}: pass the tensor in parts, or its transpose"
                )
            values, codes = memory.computed_operand(argument)
            held |= {(argument, "address"): values, (argument + CODES, "address"): codes}
            numbers |= {
                argument + COUNT: s.rows * s.size,
                argument + NAN: (page.address + NAN_PLACE - values.address) // s.dtype.bytes,
            }
            if s.axis != s.ndim - 1:
                numbers |= {argument + COLUMNS: s.shape[-1], argument + ROWS: prod(s.shape[:-1])}
                numbers |= Divisor(max(1, s.shape[-1])).numbers(argument + COLUMNS)
                numbers |= Divisor(max(1, s.size)).numbers(argument + LENGTH)

    def made(box: BoxParameter, place: Held, numbers: Numbers) -> M:
        try:
            return memory.tensor_map(box, place, numbers)
        except (ValueError, DriverError) as error:
            raise UnmappableError(str(error)) from error

    arguments = launch.bind_arguments(signature, numbers, held, made)
    x, y, z = (*grid, 1, 1)[:3]
    return BoundKernel(kernel, (x, y, z), arguments)


def _stores_in_bulk(kernel: BuiltKernel[K]) -> bool:
    """Whether bulk copies write the output of a product."""
    return any(each.argument == "d" and each.part == "matrix" for each in kernel.signature.parameters)


def _rows(matrix: Matrix, call: Call, machine: Machine[K]) -> Rows:
    return matrix.at(machine.held(matrix.argument).address, call.arrays[matrix.argument].element.bytes)
