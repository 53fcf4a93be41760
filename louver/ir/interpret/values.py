"""Values of a running kernel: NumPy arrays (scalars have no dimensions), pointers into arrays, and views of tensors. An error
of a run has the broken rule, the operation, and the user's line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import Float64Type, IndexType, IntegerType
from xdsl.ir import Attribute, Operation

from louver.formats.dtypes import element_type
from louver.ir.refusal import unsupported
from louver.ir.tile import element_name
from louver.ir.tile.types import as_tensor, element_of


class Fault(Exception):
    """A rule that an operation breaks with the given values.

    The program that runs the operation adds its name and line.
    """


class InterpretationError(RuntimeError):
    """An operation of a kernel is undefined. operation: its text. location: "file:line:column" or None."""

    def __init__(self, rule: str, op: Operation) -> None:
        refused = unsupported(rule, op)
        self.operation = refused.operation
        self.location = refused.location
        super().__init__(str(refused))


Array: TypeAlias = NDArray[Any]
Offsets: TypeAlias = NDArray[np.int64]
Truths: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """An array that is an argument of the kernel.

    name: the name of the argument.
    elements: the elements, flat and in memory order.
    stored: which elements a sparse tensor stores; None for a dense array.
    """

    name: str
    elements: Array
    stored: Truths | None = None

    def load(self, offsets: Offsets, inside: Truths, fill: Array) -> Array | Shaded:
        """The elements at `offsets`, or `fill` if not `inside`. Raises Fault for an offset outside the array."""
        self._check(offsets[inside])
        loaded = _taken(self.elements, offsets, inside, fill)
        if self.stored is None:
            return loaded
        return Shaded(loaded, _taken(self.stored, offsets, inside, np.False_))

    def store(self, offsets: Offsets, inside: Truths | None, value: Array) -> None:
        """Write `value` if `inside`. Raises Fault for an offset outside the array, and for an array that is read only."""
        if not self.elements.flags.writeable:
            raise Fault(f"a kernel stores to writable arrays only, not to {self.name!r}")
        if inside is not None:
            offsets, value = offsets[inside], value[inside]
        self._check(offsets)
        self.elements[offsets] = value

    def _check(self, offsets: Offsets) -> None:
        outside = offsets[(offsets < 0) | (offsets >= self.elements.size)]
        if outside.size:
            raise Fault(
                f"an access to {self.name!r} stays inside its {self.elements.size} elements, not at "
                f"{int(outside.flat[0])}: mask elements outside"
            )


def _taken(elements: Array, offsets: Offsets, inside: Truths, fill: Any) -> Array:
    loaded = np.array(np.broadcast_to(fill, offsets.shape), elements.dtype)
    loaded[inside] = elements[offsets[inside]]
    return loaded


PART = 1 << 44
"""The distance between the beginnings of two arrays in `Memories`, in elements."""


@dataclass(frozen=True, slots=True, eq=False)
class Memories:
    """Several dense arrays of one element type, for pointers that a select chooses.

    Each array begins at a multiple of `PART`.
    """

    parts: tuple[Memory, ...]

    def load(self, offsets: Offsets, inside: Truths, fill: Array) -> Array:
        """The same as `Memory.load`."""
        found = np.broadcast_to(fill, offsets.shape).astype(self.parts[0].elements.dtype)
        for memory, mine, local in self._shares(offsets, inside):
            found[mine] = plain(memory.load(local, mine, fill))[mine]
        return found

    def store(self, offsets: Offsets, inside: Truths | None, value: Array) -> None:
        """The same as `Memory.store`."""
        for memory, mine, local in self._shares(offsets, np.asarray(True) if inside is None else inside):
            memory.store(local, mine, np.broadcast_to(value, offsets.shape))

    def _shares(self, offsets: Offsets, inside: Truths) -> list[tuple[Memory, Truths, Offsets]]:
        """For each array, the accesses to it, and their offsets in it."""
        number = (offsets + PART // 2) // PART
        shares = [inside & (number == index) for index in range(len(self.parts))]
        return [
            (memory, np.asarray(mine), np.where(mine, offsets - index * PART, 0))
            for index, (memory, mine) in enumerate(zip(self.parts, shares, strict=True))
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Pointers:
    """A pointer, or a tensor of pointers, into one or several arrays.

    offsets: elements from the start, int64 in the shape of the tensor.
    """

    memory: Memory | Memories
    offsets: Offsets

    @property
    def single(self) -> Memory:
        """The array. Raises Fault if there are several."""
        if isinstance(self.memory, Memories):
            names = " and ".join(each.name for each in self.memory.parts)
            raise Fault(f"pointers that are chosen from several arrays, {names}, may only be loaded from and stored to")
        return self.memory

    def chosen(self, condition: Truths, other: Pointers) -> Pointers:
        """These pointers where the condition is true, else the other ones."""
        if self.memory is other.memory:
            return self.reshaped(np.where(condition, self.offsets, other.offsets))
        parts = [each.memory.parts if isinstance(each.memory, Memories) else (each.single,) for each in (self, other)]
        if any(part.stored is not None for part in (*parts[0], *parts[1])):
            raise Fault("a choice between pointers takes pointers into dense arrays")
        behind = other.offsets + len(parts[0]) * PART
        return Pointers(Memories((*parts[0], *parts[1])), np.where(condition, self.offsets, behind))

    def reshaped(self, offsets: Offsets) -> Pointers:
        """Pointers into the same array with other offsets."""
        return Pointers(self.memory, offsets)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A tensor in an array, and a block of it: a descriptor, whose block begins at 0, or a block pointer.

    base: the element of the array at which the tensor begins.
    sizes: elements along each dimension.
    steps: elements of the array between neighbours along each dimension.
    block: the shape of the block.
    first: the first element of the block.
    fill: the value that is read outside of the tensor.
    """

    memory: Memory
    base: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    block: tuple[int, ...]
    first: tuple[int, ...]
    fill: float = 0.0

    def moved(self, by: Sequence[int]) -> View:
        """The view with its block moved by `by` elements."""
        return replace(self, first=tuple(one + more for one, more in zip(self.first, by, strict=True)))

    def load(self, checked: Sequence[int]) -> Array | Shaded:
        """The elements of the block, with `fill` outside of the tensor along the dimensions `checked`."""
        offsets, inside = self._places(checked)
        return self.memory.load(offsets, inside, np.asarray(self.fill).astype(self.memory.elements.dtype))

    def store(self, checked: Sequence[int], value: Array) -> None:
        """Write the block. Elements outside of the tensor along the dimensions `checked` are dropped."""
        self.memory.store(*self._places(checked), value)

    def inside(self, checked: Sequence[int]) -> Truths:
        """The elements of the block that are inside of the tensor along the dimensions `checked`."""
        return self._places(checked)[1]

    def _places(self, checked: Sequence[int]) -> tuple[Offsets, Truths]:
        offsets = np.full(self.block, self.base, np.int64)
        inside = np.ones(self.block, np.bool_)
        rank = len(self.block)
        for axis, (size, step, length, first) in enumerate(
            zip(self.sizes, self.steps, self.block, self.first, strict=True)
        ):
            index = np.arange(first, first + length, dtype=np.int64).reshape(
                [-1 if a == axis else 1 for a in range(rank)]
            )
            offsets += index * step
            if axis in checked:
                inside &= (index >= 0) & (index < size)
        return offsets, inside


@dataclass(frozen=True, slots=True, eq=False)
class Shaded:
    """A value with marks of its elements, see `shades.py`.

    stored: elements that a sparse tensor stores; None for a dense tensor.
    undefined: elements that are undefined in Triton; None without any.
    loads: the loads of the undefined elements.
    """

    value: Array | Pointers
    stored: Truths | None = None
    undefined: Truths | None = None
    loads: frozenset[Operation] = frozenset()


Value: TypeAlias = Array | Pointers | View | Shaded


def plain(value: Any) -> Any:
    """The value without marks."""
    return value.value if isinstance(value, Shaded) else value


def undefined_of(value: Any) -> Truths:
    """Which elements of a value are undefined, in its shape or as one value for all."""
    return (
        np.asarray(value.undefined) if isinstance(value, Shaded) and value.undefined is not None else np.asarray(False)
    )


def shaded(value: Value, undefined: Truths, loads: frozenset[Operation]) -> Value:
    """The value with further undefined elements."""
    if isinstance(value, View) or not undefined.any():
        return value
    known = value if isinstance(value, Shaded) else Shaded(value)
    shape = known.value.offsets.shape if isinstance(known.value, Pointers) else known.value.shape
    return replace(known, undefined=np.broadcast_to(undefined | undefined_of(known), shape), loads=known.loads | loads)


def dtype_of(type_: Attribute) -> np.dtype[Any]:
    """The NumPy dtype of a scalar type, or of the elements of a tensor type.

    Raises Fault for types without a dtype in NumPy.
    """
    match element := element_of(type_):
        case IntegerType() if element.width.data == 1:
            return np.dtype(np.bool_)
        case IntegerType() if element.width.data in (16, 64):
            return np.dtype(f"i{element.width.data // 8}")
        case IndexType():
            return np.dtype(np.int64)
        case Float64Type():
            return np.dtype(np.float64)
        case _:
            pass
    try:
        return element_type(element_name(element)).numpy
    except ValueError as error:
        raise Fault(str(error)) from None


def shape_of(type_: Attribute) -> tuple[int, ...]:
    """The shape of a tensor type; no dimensions for other types."""
    tensor = as_tensor(type_)
    return () if tensor is None else tensor.get_shape()
