"""A kernel's call, checked against the kernel's assumptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from louver.formats.tensor import SparseTensor
from louver.ir.conditions import Conditions
from louver.ir.polynomial import Numbers, Size, with_grid
from louver.library.longer_rows import has_longer_rows
from louver.runtime.dlpack import row_major
from louver.user.arguments import Call

ADDRESSES = 1 << 64
"""Bytes that an address can name. Addresses wrap there."""


class ViewError(ValueError):
    """A kernel's sizes and strides of a sparse tensor differ from the tensor's.

    described: whether only the description is wrong, so that a kernel that computes addresses may read the tensor.
    rows: an argument, and the length of the rows as which the kernel reads it, in elements, if several of its own are one.
    """

    def __init__(self, text: str, *, described: bool = False, rows: tuple[str, int] | None = None) -> None:
        super().__init__(text)
        self.described, self.rows = described, rows


class MultipleError(ValueError):
    """A number is not the multiple that tiles of a sparse tensor need where a kernel describes them.

    described: as in `ViewError`.
    """

    def __init__(self, text: str, *, described: bool) -> None:
        super().__init__(text)
        self.described = described


class DivisorError(ValueError):
    """Another kernel is better for the call: one that knows that the integer `argument` is a multiple of `of`."""

    def __init__(self, argument: str, of: int) -> None:
        super().__init__(f"{argument} is a multiple of {of}")
        self.argument, self.of = argument, of


class PartError(ValueError):
    """The kernel is not a product for this call, such as for a part of a sparse tensor. Register tiles may run it."""


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A call under check. name: of the kernel. grid: empty if unknown. numbers: of the call and its grid."""

    name: str
    call: Call
    grid: tuple[int, ...]
    numbers: Numbers

    @classmethod
    def of(cls, name: str, call: Call, grid: Sequence[int]) -> CheckedCall:
        return cls(name, call, tuple(grid), with_grid(call.numbers, grid) if grid else call.numbers)

    def positive(self, size: Size) -> int:
        """The value of a product's size. Raises ValueError below 1."""
        found = size.value(self.numbers)
        if found < 1:
            raise ValueError(f"{self.name}'s size {size} must be at least 1, got {found}: skip empty products")
        return found

    def sparse(self, argument: str) -> SparseTensor:
        """A sparse argument. Raises ValueError for an array."""
        found = self.call.sparse.get(argument)
        if found is None:
            raise ValueError(f"{self.name} reads {argument!r} as a sparse tensor, got an array: compress it")
        return found

    def check_rows(self, argument: str, s: SparseTensor, stride: int) -> None:
        """Raises ViewError if a kernel whose rows are `stride` elements apart reads several rows of `s` as one."""
        if has_longer_rows(s, stride):
            raise ViewError(
                f"{self.name} must be given the strides of the dense tensor, contiguous, for {argument!r}: rows are {s.size} elements "
                f"apart, got a stride of {stride}",
                described=True,
                rows=(argument, stride),
            )

    def check(self, conditions: Conditions) -> None:
        """Raises ValueError where the call violates a condition, PartError where register tiles may run it."""
        name, numbers = self.name, self.numbers
        for one, other in conditions.equal:
            if one.value(numbers) != other.value(numbers):
                # Descriptors that disagree are a mistake. With an argument in place of one, register tiles can use each
                # size separately.
                described = all(each.name is not None and ".shape." in each.name for each in (one, other))
                raise (ValueError if described else PartError)(
                    f"{name} runs as a product only if {one} and {other} are equal, got {one.value(numbers)} "
                    f"and {other.value(numbers)}"
                )
        for size, most in conditions.at_most:
            if size.value(numbers) > most:
                raise ValueError(
                    f"{name} reads at most {most} of {size}, got {size.value(numbers)}: let a loop or the grid "
                    f"go to {size}, or pass a part of the tensors"
                )
        self._check_multiples(conditions)
        for size, step in conditions.steps:
            found = size.value(numbers)
            if found > step and found % step:
                raise PartError(
                    f"{name} moves pointers by {step} in a loop to {size}, whose mask stays, so {size} is at most {step} or a multiple, "
                    f"got {found}: compare with the index of each step"
                )
        for argument in conditions.positive:
            array = self.call.arrays.get(argument)
            value = int(numbers[argument]) if array is None else array.address
            if value < 1:
                raise PartError(f"{name} runs as a product only if {argument} is above 0, got {value}")
        for argument, stride in conditions.rows_apart:
            s = self.sparse(argument)
            if stride.value(numbers) != s.shape[-1] and s.size > 1:
                raise ValueError(
                    f"{name} must be given the strides of the dense tensor for {argument!r}, {list(s.shape)}, "
                    f"sparse along axis {s.axis}: {[s.shape[-1], 1]}, got {stride.value(numbers)} and 1: for a "
                    "kernel that walks along the sparse axis, pass the transpose"
                )

        for argument, stride, least in conditions.whole:
            given, apart = stride.value(numbers), least.value(numbers)
            if apart < 1 or given % apart:
                s = self.sparse(argument)
                row = max(1, s.size)
                raise ViewError(
                    f"{name} must be given the strides of the dense tensor for {argument!r}, {list(row_major(s.shape))}: those "
                    f"between matrices are multiples of the least one, got {given} and {apart}",
                    # Whole rows apart, matrices overlap, or lie in another order.
                    described=s.axis != s.ndim - 1 or not (given % row or apart % row),
                )

    def _check_multiples(self, conditions: Conditions) -> None:
        name, numbers = self.name, self.numbers
        for argument, of in conditions.multiples:
            if int(numbers[argument]) % of:
                raise MultipleError(
                    f"{name} takes {argument} in multiples of {of}, got {numbers[argument]}: its tiles are whole, and sparse tiles begin "
                    "with whole rows and words of metadata: pad the tensors, or mask their loads",
                    described=not any(int(numbers[argument]) % s.pattern.m for s in self.call.sparse.values()),
                )
        for size, rows in conditions.whole_rows:
            found = size.value(numbers)
            if found < 0 or found % rows:
                raise MultipleError(
                    f"{name} reads {rows} rows or columns of a sparse tensor at a time, which wrap (%) at {size}, or move by it, a "
                    f"multiple of {rows}, got {found}: mask them (rows < {size}) instead",
                    described=True,
                )
        for argument, of in conditions.divisors:
            if int(numbers[argument]) % of == 0:
                raise DivisorError(argument, of)

    def check_extent(self, argument: str, elements: int) -> None:
        """Raises ValueError if the array has fewer elements of memory from its first to its last element."""
        array = self.call.arrays[argument]
        first, last = array.byte_range
        held = (last - array.address) // array.element.bytes
        if first < array.address:
            raise ValueError(
                f"{self.name} walks {argument!r} upwards, got an array with negative strides: copy it first"
            )
        # The 64-bit addresses of a ragged descriptor wrap (triton.tools.ragged_tma). They reach every array.
        if held < elements < ADDRESSES // array.element.bytes:
            raise ValueError(
                f"by its sizes and strides {self.name} reaches {elements} elements of {argument!r}, got an array of {held}"
            )
