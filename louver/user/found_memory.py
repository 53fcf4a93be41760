"""Device memory into which a call compresses its dense arguments before each launch."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from louver.compile.signature import Part
from louver.formats.dtypes import element_type, multiplied_as
from louver.formats.tensor import SparseTensor
from louver.isa.metadata import PADDING_CODE
from louver.library.forms import (
    TILE_PARTS,
    Form,
    Metadata,
    Operand,
    ProductForms,
    RoundedValues,
    TileMetadata,
    Values,
    as_stored,
    operand_of,
    tile_form,
)
from louver.library.resident import pitch_of
from louver.library.rows import Held
from louver.library.streamed import empty_sparse
from louver.library.streaming.derived.launches import round_into
from louver.library.streaming.launch import Launch
from louver.library.streaming.launches import COUNTER_BYTES, Stored, compress_into, prepack_into
from louver.library.streaming.record import Layout
from louver.runtime.arrays import ArrayView, empty_like_kind, view
from louver.runtime.driver import capture_of
from louver.runtime.memory import fill_bytes
from louver.runtime.workspace import PER_THREAD_STREAM
from louver.user.dense_argument import DenseArgument, NotFoundError
from louver.user.launch import DeviceMemory

_BYTE = element_type("u8")


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """The sparse tensor of one argument, rewritten before each launch, with the forms that kernels read of it.

    s: its values and indices; contents undefined before the first launch. forms: other arrays, by form.
    """

    s: SparseTensor
    stored: Stored
    forms: dict[Form, ArrayView] = field(default_factory=dict[Form, ArrayView])

    @classmethod
    def of(cls, argument: DenseArgument) -> Room:
        array, axis = argument.array, argument.axis + len(argument.array.shape)
        return cls(*empty_sparse(array, argument.pattern, axis))

    def address(self, form: Form, stream: int) -> int:
        """The address of a form, whose memory is allocated the first time. Raises NotFoundError for a form that needs a copy."""
        if form == Values():
            return self.stored.values
        if not isinstance(form, RoundedValues | Metadata | TileMetadata):
            raise NotFoundError(
                f"register tiles read rows of values without gaps, and those of {list(self.s.shape)} are no multiples of 16 bytes: pad K"
            )
        found = self.forms.get(form)
        if found is None:
            nbytes = form.nbytes(self.s)
            found = self.forms[form] = view(empty_like_kind(view(self.s.indices), (nbytes,), _BYTE))
            if isinstance(form, TileMetadata):
                # Copies of boxes may read codes behind the rows, which must be legal.
                fill_bytes(found.address, PADDING_CODE * 0x11, nbytes, ordinal=found.device or 0, stream=stream)
        return found.address

    def launches(self, array: ArrayView, axis: int, forms: Sequence[Form], counters: int) -> list[Launch]:
        """The kernels that compress an array to these forms. counters: of the check, then one pair for the metadata."""
        s, first = self.s, None
        later: list[Launch] = []
        for form in forms:
            if isinstance(form, RoundedValues):
                values = view(s.values)
                later.append(round_into(values, pitch_of(values), (self.forms[form].address, form.pitch(s))))
            elif isinstance(form, Metadata | TileMetadata):
                layout: Layout = "words" if isinstance(form, Metadata) else "rows"
                element = s.dtype.name if isinstance(form, Metadata) else form.element
                place = layout, self.forms[form].address
                if first is None and element in (s.dtype.name, multiplied_as(s.dtype.name)):
                    first = place
                else:
                    later.append(
                        prepack_into(self.stored.indices, _matrices(s), element, place, counters + COUNTER_BYTES)
                    )
        compress = compress_into(array, self.stored, s.pattern, axis=axis, words=first, counters=counters)
        return [compress, *later]


def _matrices(s: SparseTensor) -> tuple[int, int, int]:
    *batch, rows, size = as_stored(s).shape
    return prod(batch), rows, size


@dataclass(frozen=True, slots=True, eq=False)
class Rooms:
    """The rooms of one stream, or of one capture: a graph may be replayed beside the stream. counters: two pairs of u64.

    Launches of a stream follow each other, so calls with equal shapes share a room.
    """

    counters: ArrayView
    kept: dict[tuple[Any, ...], Room] = field(default_factory=dict[tuple[Any, ...], Room])

    @property
    def flag(self) -> ArrayView:
        """The word that is not zero if an argument breaks its pattern: the low half of the first counter."""
        c = self.counters
        return ArrayView(element_type("s32"), (1,), (1,), c.address, c.device, c.owner, c.kind, c.stream)

    def of(self, argument: DenseArgument) -> Room:
        """The room of an argument, made the first time."""
        array = argument.array
        key = argument.name, array.shape, array.element.name, argument.axis
        found = self.kept.get(key)
        if found is None:
            found = self.kept[key] = Room.of(argument)
        return found


class AllRooms:
    """The rooms of a kernel by device and stream. lock: held while the launches of a call are sent, because the launches
    of two threads on one stream use the same memory.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._kept: dict[tuple[int, ...], Rooms] = {}

    def of(self, like: ArrayView, key: tuple[int, ...]) -> Rooms:
        """like: an array of the library that allocates. key: see `room_key`. Raises RuntimeError for a capture of another
        library than PyTorch, whose allocations the graph would make again at each replay.
        """
        with self.lock:
            found = self._kept.get(key)
            if found is None:
                if key[2] and like.kind != "torch":
                    raise RuntimeError(
                        f"a captured call compresses into memory that PyTorch allocates, got arrays of {like.kind}: name the argument in "
                        "frozen, or pass PyTorch's tensors"
                    )
                found = self._kept[key] = Rooms(view(empty_like_kind(like, (2 * COUNTER_BYTES,), _BYTE)))
            return found


def room_key(ordinal: int, stream: int) -> tuple[int, ...]:
    """Device, stream, capture, and thread for a stream handle that is another stream in each thread."""
    return ordinal, stream, capture_of(stream), threading.get_ident() if stream == PER_THREAD_STREAM else 0


@dataclass(frozen=True, slots=True)
class FoundMemory(DeviceMemory):
    """A device's memory for a call whose found arguments are compressed first. rooms: by argument. forms: those that the
    call's kernel reads, filled while it is bound.
    """

    rooms: Mapping[str, Room] = field(default_factory=dict[str, Room])
    forms: dict[str, list[Form]] = field(default_factory=dict[str, "list[Form]"])

    def product_operand(self, parts: Sequence[SparseTensor], forms: ProductForms, entries: int) -> Operand:
        names = [name for name, room in self.rooms.items() if any(room.s is part for part in parts)]
        if not names:
            return DeviceMemory.product_operand(self, parts, forms, entries)
        if len(parts) > 1:
            raise NotFoundError(
                "a gated product reads gate and up as one operand, which is made once: name both in frozen"
            )
        places: dict[Form | None, int] = {form: self._address(names[0], form) for form in forms.made}
        return operand_of(parts[0], forms, places, entries, self.rooms[names[0]])

    def tile_operand(self, argument: str, s: SparseTensor, element: str) -> Mapping[Part, Held]:
        room = self.rooms.get(argument)
        if room is None:
            return DeviceMemory.tile_operand(self, argument, s, element)
        if room.s is not s:
            raise NotFoundError(
                f"the kernel reads {argument}, {list(room.s.shape)}, as {list(s.shape)}: pass it in this shape, or name it in frozen"
            )
        forms: dict[Part, Form] = {part: tile_form(room.s, part, element) for part in TILE_PARTS}
        return {part: Held(self._address(argument, form), form.nbytes(room.s)) for part, form in forms.items()}

    def computed_operand(self, argument: str, s: SparseTensor) -> tuple[Held, Held]:
        if argument in self.rooms:
            raise NotFoundError(
                f"the kernel addresses {argument} by computed offsets, and the codes for them are made once: name it in frozen"
            )
        return DeviceMemory.computed_operand(self, argument, s)

    def _address(self, argument: str, form: Form) -> int:
        self.forms.setdefault(argument, []).append(form)
        return self.rooms[argument].address(form, self.stream)
