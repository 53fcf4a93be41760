"""A call's kernel and the values of its parameters, for a device or the emulator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Generic, Literal, Protocol, TypeVar

from louver.compile.needs import Fits, Needs
from louver.compile.plan.schedule import Schedule
from louver.compile.signature import BoxParameter, Part, parameter_name
from louver.formats.tensor import SparseTensor
from louver.ir.computed import CODES, COLUMNS, COUNT, LENGTH, MOST_DIVIDED, NAN, ROWS, VIOLATIONS, Divisor
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
from louver.user.bind_tiles import check_tiles
from louver.user.checked_call import DivisorError, MultipleError, PartError, ViewError
from louver.user.compiled import UNALIGNED, AddressIntegers, Variant
from louver.user.hints import Hints
from louver.user.retile import is_decided, leaves_idle, schedule_of

MOST_ACROSS = MOST_DIVIDED
"""Most elements of a tensor that is sparse along its last axis but one, if addresses are computed."""

MOST_ZEROS = 3
"""Most zeros of a call that are tried one by one. A call with more has unused operands, such as parts of K of 0 columns."""

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

    def kernel(
        self, variant: Variant, fits: Fits, schedule: Schedule | None = None, kind: Kind | None = None
    ) -> BuiltKernel[K]:
        """The call's kernel. schedule: of a product; None: Louver's choice. kind: to compile; None: the call's own.

        fits: raises an error if the call does not fit the kernel. A kernel that must be compiled is not lowered then. For
            others it may not be asked.
        """
        ...

    def address_integers(self, kind: Kind) -> AddressIntegers:
        """The integers that decide where sparse tiles are."""
        ...

    def held(self, argument: str) -> Held:
        """The memory of a dense array."""
        ...


class Memory(Machine[K], Protocol[K, M]):
    """A machine that runs kernels."""

    def product_operand(self, parts: Sequence[SparseTensor], forms: ProductForms, entries: int) -> Operand:
        """The sparse operand of a product in these forms, as `entries` matrices."""
        ...

    def tile_operand(self, argument: str, s: SparseTensor, element: str) -> Mapping[Part, Held]:
        """The values of a sparse argument, and its metadata for products of `element`."""
        ...

    def computed_operand(self, argument: str, s: SparseTensor) -> tuple[Held, Held]:
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


class _ProductError(Exception):
    """A call does not fit the product. error: why; None: bulk copies cannot read its arrays. by_tiles: whether register tiles may
    run it.
    """

    def __init__(self, error: ValueError | None = None, *, by_tiles: bool = True) -> None:
        super().__init__(error)
        self.error, self.by_tiles = error, by_tiles


@dataclass(frozen=True, slots=True)
class Chosen(Generic[K]):
    """The kernel that runs a call. product: None for register tiles. refused: why another kernel, which is tried first, does not
    run it: the error if this one cannot be bound. slower: why the call's arrays prevent a faster kernel. decided: see
    `is_decided`.
    """

    kernel: BuiltKernel[K]
    product: ProductCall | None = None
    refused: ValueError | None = None
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


@dataclass(frozen=True, slots=True)
class _Chooser(Generic[K]):
    """The choice of a kernel for a call. A kernel that the call does not fit is not lowered: the next one is tried.

    grid: empty if unknown. Then a call fits whatever depends on it, and a product has the schedule with which it was compiled.
    kind: to compile; None: the call's own.
    """

    name: str
    hints: Hints
    call: Call
    grid: Sequence[int]
    machine: Machine[K]
    kind: Kind | None = None

    def kinds(self, *, described: bool) -> list[Kind]:
        """The kind, with each integer 1 in turn passed at the launch that decides where sparse tiles are. described: only those that may
        hide how they are described.
        """
        kind = self.kind or self.call.kind
        found = self.machine.address_integers(kind)
        return [kind.without_one(one) for one in kind.ones if one in (found.hidden if described else found.all)]

    def with_rows(self) -> _Chooser[K]:
        """The choice for sparse tensors with rows as long as the kernel's, if it describes their tiles."""
        try:
            self.kernel("bulk", self.fits)
        except (ViewError, _ProductError) as error:
            known = error.error if isinstance(error, _ProductError) else error
            if isinstance(known, ViewError) and known.rows is not None:
                longer = replace(self, call=self.call.with_rows(*known.rows)).with_rows()
                described = longer.describes() or next(longer.described("bulk"), None) is not None
                return longer if described else self
        except ValueError as error:
            # Zeros that are compiled in may make it another kernel. What is refused is not read again.
            if not (self.call.zeros or isinstance(error, MultipleError)):
                raise
        return self

    def describes(self, kinds: Iterable[Kind | None] = (None,)) -> bool:
        """Whether a kernel of these kinds describes the call's sparse tiles."""
        for kind in kinds:
            with suppress(ValueError, _ProductError):
                self.kernel("bulk", self.fits_best, kind=kind)
                return True
        return False

    def kernel(
        self, variant: Variant, fits: Fits, *, schedule: Schedule | None = None, kind: Kind | None = None
    ) -> BuiltKernel[K]:
        """A kernel that the call fits. Raises the errors of `fits` and of `Machine.kernel`."""
        kind = kind or self.kind
        try:
            found = self.machine.kernel(variant, fits, schedule, kind)
            fits(found.launch.needs)
        except DivisorError as known:
            kind = kind or self.call.kind
            divisors = {**dict(kind.divisors), known.argument: known.of}
            return self.kernel(variant, fits, schedule=schedule, kind=replace(kind, divisors=tuple(divisors.items())))
        return found

    def either(self) -> Chosen[K]:
        """A product, or register tiles if the kernel or the call is none."""
        try:
            found = self.tiles("bulk", self.fits)
        except _ProductError as unfit:
            if unfit.error is not None and not unfit.by_tiles:
                raise unfit.error from None
            try:
                found = self.tiles("tiles" if unfit.error is None else "boxed", self.fits_tiles)
            except ValueError as other:
                # What only a product needs is no obstacle of the call.
                raise (other if isinstance(unfit.error, PartError) else unfit.error or other) from None
            slower = UNALIGNED if unfit.error is None else None
            return replace(found, refused=unfit.error or found.refused, slower=slower)
        nest = found.kernel.launch.checked
        return self.scheduled(found.kernel, nest) if isinstance(nest, ProductNest) and self.grid else found

    def tiles(
        self, variant: Literal["bulk", "boxed", "shared", "tiles"], fits: Fits, *, copies: bool = True
    ) -> Chosen[K]:
        """Register tiles, or what else of a variant `fits` accepts. If only the description of sparse tiles does not fit, an
        integer 1 is passed at the launch, or tiles are addressed at run time. copies: whether such a kernel may have bulk copies.
        """
        try:
            return Chosen(self.kernel(variant, fits))
        except (ViewError, MultipleError) as error:
            found = next(self.others(error, copies=copies), None)
            if found is None:
                raise
            return Chosen(found, refused=error)

    def others(self, error: ViewError | MultipleError, *, copies: bool) -> Iterator[BuiltKernel[K]]:
        """Kernels that fit the call, best first. error: why the kernel of its own kind does not.

        A 1 may hide a stride of a view: that in `layer * stride`. It hides no multiple, and given, it may be between neighbours
        of a tile: such kernels compute addresses, in pieces of one group.
        """
        variant: Variant = "bulk" if copies else "tiles"
        if isinstance(error, ViewError):
            yield from self.described(variant)
        if error.described and copies:
            yield from self.tried("computed", self.fits_tiles)
        for kind in self.kinds(described=False):
            yield from self.tried(variant, self.fits_tiles, kind)

    def described(self, variant: Variant) -> Iterator[BuiltKernel[K]]:
        """Those of `others` that describe sparse tiles."""
        for kind in self.kinds(described=True):
            yield from self.tried(variant, self.fits_described, kind)
        if variant == "bulk":
            yield from self.tried("parted", self.fits_described)

    def tried(self, variant: Variant, fits: Fits, kind: Kind | None = None) -> Iterator[BuiltKernel[K]]:
        """The kernel if there is one that the call fits."""
        with suppress(ValueError):
            yield self.kernel(variant, fits, kind=kind)

    def fits(self, needs: Needs) -> None:
        """Raises ValueError for a call that does not fit register tiles, _ProductError for one that does not fit a product."""
        if not isinstance(needs.checked, ProductNest):
            self.fits_tiles(needs)
            return
        try:
            product = bind_product(self.name, needs.checked, self.call, self.grid)
        except KeyError:
            if self.grid:
                raise
            return
        except ValueError as error:
            parts = isinstance(error, PartError | ViewError)
            raise _ProductError(error, by_tiles=parts and not self.hints.schedule) from None
        read = [(matrix, self.rows(matrix)) for matrix in product.read]
        if not all(rows.aligned for _, rows in read):
            if self.hints.schedule or needs.checked.a.selection.indexed:
                for matrix, rows in read:
                    check_alignment(self.name, matrix, rows)
            raise _ProductError

    def fits_best(self, needs: Needs) -> None:
        """The same, of kernels that compute no addresses of sparse tiles."""
        self.fits(needs)
        _check_described(self.name, needs)

    def fits_tiles(self, needs: Needs) -> None:
        """Raises ValueError for a call that does not fit register tiles, and for a product."""
        if isinstance(needs.checked, ProductNest):
            raise ValueError(f"{self.name} is to run by register tiles, got a product")
        with nullcontext() if self.grid else suppress(KeyError):
            check_tiles(self.name, needs.checked, needs.sparse, self.call, self.grid)
        for argument in needs.computed:
            s = self.call.sparse[argument]
            if s.axis != s.ndim - 1 and s.rows * s.size > MOST_ACROSS:
                raise ValueError(
                    f"{self.name} computes addresses of {argument!r}, sparse along axis {s.axis}, in 32 bits, for {MOST_ACROSS:,} elements at "
                    f"most, got {s.rows * s.size:,}: pass the tensor in parts, or its transpose"
                )

    def fits_described(self, needs: Needs) -> None:
        """The same, of kernels that compute no addresses of sparse tiles."""
        _check_described(self.name, needs)
        self.fits_tiles(needs)

    def scheduled(self, kernel: BuiltKernel[K], nest: ProductNest) -> Chosen[K]:
        """The product by the schedule of the call's sizes, for the alignment of its output; or register tiles where it would leave SMs idle."""
        machine = self.machine
        product = bind_product(self.name, nest, self.call, self.grid)
        out = self.rows(product.out)
        schedule, sizes = None, (product.m, product.n, product.k, product.batch)
        if not self.hints.schedule:
            schedule = schedule_of(nest, sizes, machine.target, machine.sm_count, aligned_output=out.bulk_writable)
            if schedule is not None and leaves_idle(nest, schedule, sizes, prod(self.grid), machine.sm_count):
                with suppress(ValueError):
                    return self.tiles("shared", self.fits_tiles)
        if schedule not in (None, kernel.launch.schedule):
            kernel = self.kernel("bulk" if out.bulk_writable else "direct", self.fits, schedule=schedule)
        elif _stores_in_bulk(kernel) and not out.bulk_writable:
            kernel = self.kernel("direct", self.fits)
            check_direct(self.name, product, out, "bulk" if _stores_in_bulk(kernel) else "direct")
        taken = None if schedule != kernel.launch.schedule else schedule
        decided = taken is not None and is_decided(nest, taken, sizes, machine.sm_count)
        return Chosen(kernel, product, decided=decided)

    def rows(self, matrix: Matrix) -> Rows:
        return _rows(matrix, self.call, self.machine)


def _chooser(name: str, hints: Hints, call: Call, grid: Sequence[int], machine: Machine[K]) -> _Chooser[K]:
    """The choice, for longer rows of the call's sparse tensors if that are the kernel's. Zeros of the call are compiled in, if only then a kernel describes its sparse tiles: a stride of 0 says that
    all matrices of a batch share a weight. One zero at most is the number of a matrix.
    """
    own = _Chooser(name, hints, call, grid, machine).with_rows()
    if not call.zeros or own.describes():
        return own
    used = machine.address_integers(replace(call.kind, zeros=call.zeros)).all
    zeros = tuple(each for each in call.zeros if each in used)
    if not zeros:
        return own
    few = len(zeros) <= MOST_ZEROS
    sets = [zeros, *(tuple(each for each in zeros if each != one) for one in zeros if few and len(zeros) > 1)]
    others = [replace(own, kind=replace(call.kind, zeros=each)) for each in sets]
    described = next((each for each in others if each.describes()), None)
    return described or next(
        (each for each in (own, *others) if few and each.describes(each.kinds(described=True))), own
    )


def _check_described(name: str, needs: Needs) -> None:
    if needs.computed:
        raise ValueError(f"{name} is to describe its sparse tiles, got computed addresses of {needs.computed}")


def choose(name: str, hints: Hints, call: Call, grid: Sequence[int], machine: Machine[K]) -> Chosen[K]:
    """The kernel that fits the call's sizes and the alignment of its arrays. grid: empty if unknown. Raises ValueError for
    sizes, arrays and grid that do not match, and the errors of `machine.kernel`.
    """
    return _chooser(name, hints, call, grid, machine).either()


def bind_call(name: str, hints: Hints, call: Call, grid: Sequence[int], memory: Memory[K, M]) -> BoundKernel[K, M]:
    """The call, ready to run. Raises as `choose` does."""
    chooser = _chooser(name, hints, call, grid, memory)
    call, chosen = chooser.call, chooser.either()
    if chosen.product is not None:
        return replace(_bind_product(chosen.kernel, chosen.product, call, memory), decided=chosen.decided)
    try:
        try:
            found = _bind_tiles(chosen.kernel, call, grid, memory)
        except UnmappableError as error:
            without = chooser.tiles("tiles", chooser.fits_tiles, copies=False)
            found = replace(_bind_tiles(without.kernel, call, grid, memory), slower=f"no bulk copies: {error}")
    except ValueError as error:
        raise chosen.refused or error from None
    return replace(found, slower=found.slower or chosen.slower)


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


def _bind_tiles(kernel: BuiltKernel[K], call: Call, grid: Sequence[int], memory: Memory[K, M]) -> BoundKernel[K, M]:
    """The call by register tiles that it fits."""
    signature = kernel.signature
    held: dict[tuple[str, str], Held] = {(argument, "address"): memory.held(argument) for argument in call.arrays}
    for argument, element in signature.metadata:
        held |= {
            (argument, part): each
            for part, each in memory.tile_operand(argument, call.sparse[argument], element).items()
        }

    numbers = dict(with_grid(call.numbers, grid))
    if signature.reports:
        page = held[VIOLATIONS, "address"] = memory.violations()
        for argument in signature.computed:
            s = call.sparse[argument]
            values, codes = memory.computed_operand(argument, s)
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
