"""Forms of a sparse tensor that kernels read, derived from its natural arrays.

Each form is a record. `host` is its definition, in NumPy. `derive` makes the same bytes on a device, of arrays that are there.
"""

from __future__ import annotations

import functools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from louver.compile.plan.layout import metadata_words
from louver.compile.plan.schedule import Schedule, gathers, list_rows
from louver.compile.signature import Part
from louver.formats.dtypes import element_type, multiplied_as, raw_bits
from louver.formats.lists import PICK_BYTES, PICKERS, gathered, list_pitch, picked
from louver.formats.pattern import LIFTED
from louver.formats.tensor import SparseTensor, row_pitch
from louver.ir.product import selection_of
from louver.isa.metadata import PADDING_CODE
from louver.isa.prepack import WORDS, metadata_rows, metadata_rows_shape, prepack, prepacked_shape, split
from louver.isa.product_meaning import f32_to_tf32
from louver.library.boxes import METADATA_SLACK, Held
from louver.library.resident import pitch_of, write_rows
from louver.library.rows import Rows
from louver.library.streaming.derived.launches import lists_into, picks_into, round_into
from louver.library.streaming.launch import Launch
from louver.library.streaming.launches import COUNTER_BYTES, prepack_into
from louver.library.streaming.record import Layout
from louver.runtime.adapters import kind_for
from louver.runtime.arrays import view
from louver.runtime.driver import DriverError, DriverMissingError, device_context, is_capturing
from louver.runtime.memory import DeviceBuffer, fill_bytes, wait_for_device, wait_for_stream, write_bytes

METADATA_ROWS_SLACK = 16
"""Rows of legal codes behind the metadata of register tiles: a tile has 256 rows at most, of 16 for each."""

TILE_PARTS: tuple[Part, ...] = ("values", "metadata")
"""Parts of a sparse tensor that register tiles read."""

DERIVING = 0
"""The stream that forms are made on, the default one: their memory is given back in its order, so it must outlive them."""


class Form(ABC):
    """A form of a sparse tensor. Equal forms are the same bytes of a tensor.

    of_values: whether it is made of the values and follows them; else it is made of the indices, which never change.
    """

    __slots__ = ()
    of_values: ClassVar[bool] = False

    @abstractmethod
    def nbytes(self, s: SparseTensor) -> int:
        """Bytes of the form."""

    @abstractmethod
    def host(self, s: SparseTensor) -> NDArray[Any]:
        """The form of a tensor on the host, C-contiguous. Raises ValueError for indices that are not legal."""

    def derive(self, s: SparseTensor, to: int, stream: int) -> None:
        """Write the form of a tensor on a device to an address there, in the order of `stream`. Raises as `host`.

        Through the host, unless a form has a kernel of its own.
        """
        _derive_on_host(self, s, to, stream)


@dataclass(frozen=True, slots=True)
class Values(Form):
    """The stored values [rows, kept] as raw bits, those of a batch's entries one after the other.

    packed: rows follow each other without gaps. Otherwise they are as in the tensor, on the host with zeros between them.
    """

    of_values = True

    packed: bool = False

    def pitch(self, s: SparseTensor) -> int:
        """Bytes from one row to the next."""
        if self.packed:
            return s.kept * s.dtype.bytes
        return row_pitch(s.kept, s.dtype) if s.device is None else pitch_of(view(s.values))

    def kept(self, s: SparseTensor) -> int:
        """Values of a row."""
        return s.kept

    def nbytes(self, s: SparseTensor) -> int:
        return s.rows * self.pitch(s)

    def host(self, s: SparseTensor) -> NDArray[Any]:
        return pitched(s.values, self.pitch(s))

    def derive(self, s: SparseTensor, to: int, stream: int) -> None:
        write_rows(to, self.pitch(s), view(s.values), stream)


@dataclass(frozen=True, slots=True)
class RoundedValues(Form):
    """The stored values of f32 as products multiply them: rounded to tf32, where the tensor cores would cut them. Rows as `Values`."""

    of_values = True

    def pitch(self, s: SparseTensor) -> int:
        """Bytes from one row to the next."""
        return row_pitch(s.kept, s.dtype)

    def kept(self, s: SparseTensor) -> int:
        """Values of a row."""
        return s.kept

    def nbytes(self, s: SparseTensor) -> int:
        return s.rows * self.pitch(s)

    def host(self, s: SparseTensor) -> NDArray[Any]:
        return pitched(f32_to_tf32(s.values))

    def derive(self, s: SparseTensor, to: int, stream: int) -> None:
        values = view(s.values)
        round_into(values, pitch_of(values), (to, self.pitch(s))).send(s.device or 0, stream)


@dataclass(frozen=True, slots=True)
class Metadata(Form):
    """The metadata of [..., M, K] as products load it, `words` words at a time: prepacked (`louver.isa.prepack`) entry by entry, the
    rows of each padded to whole blocks.

    rows: of V:N:M those that share a list, whose columns metadata places values among; 0 where it is all columns.
    """

    words: int = WORDS
    rows: int = 0

    def nbytes(self, s: SparseTensor) -> int:
        m, k = as_stored(s).shape[-2:]
        columns = GatheredValues(self.rows).kept(s) * LIFTED[1] // LIFTED[0] if self.rows else k
        return 4 * (s.rows // m) * prod(prepacked_shape(m, columns, s.dtype))

    def host(self, s: SparseTensor) -> NDArray[np.uint32]:
        m, columns = as_stored(s).shape[-2:]
        codes = s.indices
        if self.rows:
            made = gathered(as_stored(s), self.rows)
            assert made.codes is not None
            codes, columns = made.codes, made.kept * LIFTED[1] // LIFTED[0]
        entries = np.split(codes, s.rows // m)
        return np.concatenate([split(prepack(entry, m, columns, s.dtype), self.words) for entry in entries])

    def derive(self, s: SparseTensor, to: int, stream: int) -> None:
        if self.rows:
            _derive_on_host(self, s, to, stream)
            return
        _prepack(self, s, s.dtype.name, (cast("Layout", self.words), to), stream)


@dataclass(frozen=True, slots=True)
class TileMetadata(Form):
    """The metadata of each matrix, one after the other, for register tiles: `louver.isa.prepack.metadata_rows` of `element`, uint16.

    Legal codes follow, as far as a box that begins in the tensor may reach.
    """

    element: str

    def nbytes(self, s: SparseTensor) -> int:
        m, k = as_stored(s).shape[-2:]
        rows, pitch = metadata_rows_shape(m, k, self.element)
        return 2 * ((s.rows // m * rows + METADATA_ROWS_SLACK) * pitch + METADATA_SLACK)

    def host(self, s: SparseTensor) -> NDArray[np.uint16]:
        m, k = as_stored(s).shape[-2:]
        rows = [metadata_rows(entry, m, k, self.element).reshape(-1) for entry in _entries(s, m)]
        _, pitch = metadata_rows_shape(m, k, self.element)
        behind = np.full(METADATA_ROWS_SLACK * pitch + METADATA_SLACK, PADDING_CODE * 0x1111, np.uint16)
        return np.concatenate([*rows, behind])

    def derive(self, s: SparseTensor, to: int, stream: int) -> None:
        fill_bytes(to, PADDING_CODE * 0x11, self.nbytes(s), ordinal=s.device or 0, stream=stream)
        _prepack(self, s, self.element, ("rows", to), stream)


@dataclass(frozen=True, slots=True)
class GatheredValues(Form):
    """The values for products whose lists name rows of K for so many rows at a time (`louver.formats.lists`), as raw bits with zeros up to
    the row pitch.
    """

    of_values = True

    rows: int

    def kept(self, s: SparseTensor) -> int:
        """Values of a row."""
        return gathered(as_stored(s.to("cpu")), self.rows).kept

    def pitch(self, s: SparseTensor) -> int:
        """Bytes from one row to the next."""
        return row_pitch(self.kept(s), s.dtype)

    def nbytes(self, s: SparseTensor) -> int:
        return s.rows * self.pitch(s)

    def host(self, s: SparseTensor) -> NDArray[Any]:
        return pitched(gathered(as_stored(s), self.rows).values)


@dataclass(frozen=True, slots=True)
class RowLists(Form):
    """The lists of rows of K, int32, each for so many rows (`louver.formats.lists`)."""

    rows: int

    def nbytes(self, s: SparseTensor) -> int:
        if self._by_host(s):
            return self.host(s.to("cpu")).nbytes
        entries, m, _ = _matrices(s)
        return 4 * entries * -(-m // self.rows) * list_pitch(s.kept)

    def host(self, s: SparseTensor) -> NDArray[np.int32]:
        return gathered(as_stored(s), self.rows).lists

    def derive(self, s: SparseTensor, to: int, stream: int) -> None:
        if self._by_host(s):
            _derive_on_host(self, s, to, stream)
            return
        place, indices = (to, list_pitch(s.kept)), view(s.indices).address
        _derive_checked(
            self,
            s,
            to,
            stream,
            lambda counters: lists_into(indices, s.pattern, _matrices(s), self.rows, place, counters),
        )

    def _by_host(self, s: SparseTensor) -> bool:
        """Whether NumPy makes the lists. It sorts those of several windows, without what repeats, and reads the indices of V:N:M."""
        return s.pattern.length % self.rows != 0 or len(s.pattern.levels) > 1


@dataclass(frozen=True, slots=True)
class Picks(Form):
    """The rows of K that 16 rows pick in each step of so many stored columns, uint32 (`louver.formats.lists`)."""

    step: int

    def nbytes(self, s: SparseTensor) -> int:
        entries, m, _ = _matrices(s)
        return PICK_BYTES * entries * (-(-m // 64) * 64 // PICKERS) * -(-s.kept // self.step) * self.step

    def host(self, s: SparseTensor) -> NDArray[np.uint32]:
        return picked(as_stored(s), self.step)

    def derive(self, s: SparseTensor, to: int, stream: int) -> None:
        indices = view(s.indices).address
        _derive_checked(
            self,
            s,
            to,
            stream,
            lambda counters: picks_into(indices, s.pattern, _matrices(s), self.step, to, counters),
        )


FORMS: tuple[type[Form], ...] = (Values, RoundedValues, Metadata, TileMetadata, GatheredValues, RowLists, Picks)
"""All forms there are."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceForm:
    """A form on a device, complete. memory: what it lies in, a buffer or an array of its own, or the tensor's array.

    Kernels on any stream may read it until the end: the device is waited for before its memory is given back.
    """

    form: Form
    address: int
    nbytes: int
    ordinal: int
    memory: Any

    @property
    def held(self) -> Held:
        """Its memory."""
        return Held(self.address, self.nbytes)

    def refresh(self, s: SparseTensor) -> None:
        """Follow the values that `s` has now, after every kernel that reads the present ones."""
        if not self.form.of_values or self.memory is s.values:
            return
        wait_for_device(self.ordinal, "waiting for the products of a sparse tensor")
        _write(self.form, s, self.memory)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            _kept()[self.ordinal, object()] = self.memory
            give_back(self.ordinal)


def give_back(ordinal: int) -> None:
    """Let go of the memory of forms that are gone, once no kernel on any stream reads it. Waiting would end a capture of the default stream or of
    PyTorch's current one: during it nothing is given back, and a later call does it. So it does after a wait that fails.
    """
    # A garbage collection may add some between any two steps, and another thread may take some.
    released = [key for key in list(_kept()) if key[0] == ordinal]
    if not released:
        return
    try:
        with device_context(ordinal):
            if is_capturing(0) or is_capturing(kind_for(ordinal)[1]):
                return
        wait_for_device(ordinal, "waiting for the products of a sparse tensor")
    except DriverError:
        return
    except DriverMissingError:
        # No kernel was ever sent.
        pass
    for key in released:
        _kept().pop(key, None)


@functools.cache
def _kept() -> dict[tuple[int, object], Any]:
    """Memory of forms that are gone, by device and a key of its own."""
    return {}


class Operand(NamedTuple):
    """The sparse operand of a product in the memory of a device, or the emulator's. values: keep what all of it lies in. depth: the rows of
    K that a row is multiplied with. metadata: the address of metadata, or of picks. lists: that of lists.
    """

    values: Rows
    depth: int
    metadata: int = 0
    lists: int = 0


class ProductForms(NamedTuple):
    """The arrays that products read of a sparse tensor: values, metadata or picks, and lists."""

    values: Values | RoundedValues | GatheredValues = Values()
    metadata: Metadata | Picks | None = Metadata()
    lists: RowLists | None = None

    @property
    def made(self) -> list[Form]:
        """Those that there are."""
        return [form for form in self if form is not None]


def forms_of(schedule: Schedule, s: SparseTensor) -> ProductForms:
    """The arrays that a product of `s` with that schedule reads."""
    pattern = str(s.pattern)
    selection = selection_of(pattern)
    rows = list_rows(pattern, schedule) if selection.indexed else 0
    metadata = Metadata(metadata_words(schedule, s.dtype.name), rows) if selection.lifted else None
    if not selection.indexed:
        return ProductForms(RoundedValues() if multiplied_as(s.dtype.name) == "tf32" else Values(), metadata)
    if not gathers(pattern, schedule.ring.metadata):
        return ProductForms(Values(), Picks(schedule.tile.k))
    # Lists of single windows are multiplied with the values as they are.
    return ProductForms(Values() if s.pattern.length % rows == 0 else GatheredValues(rows), metadata, RowLists(rows))


def on_device(form: Form, s: SparseTensor, ordinal: int) -> DeviceForm:
    """The form of a tensor on device `ordinal`, where its arrays are if they are on any; complete when this returns.

    The values of a tensor on a device are where they are. Anything else is made once all work is done that the library of the
    tensor's arrays has sent to its current stream.
    """
    if s.device is not None and form == Values():
        values = view(s.values)
        return DeviceForm(form, values.address, form.nbytes(s), ordinal, s.values)
    if s.device is not None:
        wait_for_stream(ordinal, view(s.indices).stream or 0, "waiting for the arrays of a sparse tensor")
    give_back(ordinal)
    buffer = DeviceBuffer(form.nbytes(s), ordinal=ordinal, stream=DERIVING)
    _write(form, s, buffer)
    return DeviceForm(form, buffer.address, buffer.nbytes, ordinal, buffer)


def tile_values(s: SparseTensor) -> Values:
    """The form of values that register tiles read, without gaps between rows. Raises ValueError for a K that is not whole groups."""
    if s.size % s.pattern.m:
        raise ValueError(f"K of a sparse argument is a multiple of {s.pattern.m}, got {s.size}: pad it with zeros")
    packed = Values(packed=True)
    # Where the tensor's own rows have no gaps, one copy serves products and register tiles.
    return Values() if Values().pitch(s) == packed.pitch(s) else packed


def tile_form(s: SparseTensor, part: Part, element: str) -> Form:
    """The array that register tiles read as a part of a sparse tensor, with metadata for products of `element`. Raises as `tile_values`."""
    return tile_values(s) if part == "values" else TileMetadata(element)


def as_stored(s: SparseTensor) -> SparseTensor:
    """The tensor, or its transpose, that is sparse along its last axis."""
    return s if s.axis == s.ndim - 1 else s.mT


def operand_of(
    s: SparseTensor, forms: ProductForms, places: Mapping[Form | None, int], entries: int, memory: object
) -> Operand:
    """The operand in these forms, as so many matrices. places: their addresses. memory: keeps all of them."""
    m, pitch, kept = s.rows // entries, forms.values.pitch(s), forms.values.kept(s)
    values = Rows(places[forms.values], kept, m, pitch, s.dtype.bytes, memory, entries, m * pitch)
    depth = s.size
    if selection_of(str(s.pattern)).indexed:
        depth = kept * s.pattern.shared // s.pattern.n
    return Operand(values, depth, places.get(forms.metadata, 0), places.get(forms.lists, 0))


def pitched(values: NDArray[Any], pitch: int | None = None) -> NDArray[Any]:
    """Raw bits of values [rows, kept], with zeros up to the pitch, by default `row_pitch`."""
    element = element_type(values.dtype)
    width = (pitch or row_pitch(values.shape[1], element)) // element.bytes
    whole = np.zeros((len(values), width), element.bits_dtype)
    whole[:, : values.shape[1]] = raw_bits(values)
    return whole


def _write(form: Form, s: SparseTensor, buffer: DeviceBuffer) -> None:
    if s.device is None:
        buffer.write(form.host(s))
    else:
        form.derive(s, buffer.address, buffer.stream)
        wait_for_stream(buffer.ordinal, buffer.stream, "deriving a form of a sparse tensor")


def _entries(s: SparseTensor, m: int) -> list[NDArray[np.uint8]]:
    """The indices of each matrix of `m` rows."""
    return np.split(s.indices, s.rows // m)


def _prepack(form: Form, s: SparseTensor, element: str, words: tuple[Layout, int], stream: int) -> None:
    """Write the metadata of a tensor on a device by a streaming kernel, and wait for it."""
    indices = view(s.indices).address
    _derive_checked(
        form, s, words[1], stream, lambda counters: prepack_into(indices, _matrices(s), element, words, counters)
    )


def _matrices(s: SparseTensor) -> tuple[int, int, int]:
    """How many matrices a tensor has, their rows, and their elements along the sparse axis."""
    m, k = as_stored(s).shape[-2:]
    return prod(s.shape[:-2]), m, k


def _derive_checked(form: Form, s: SparseTensor, to: int, stream: int, launch: Callable[[int], Launch]) -> None:
    """Write a form by a kernel that counts illegal indices at an address, and wait for it. They are the host's to name."""
    counters = DeviceBuffer(COUNTER_BYTES, ordinal=s.device or 0, stream=stream)
    counters.fill(0)
    launch(counters.address).send(counters.ordinal, stream)
    if counters.read().any():
        _derive_on_host(form, s, to, stream)


def _derive_on_host(form: Form, s: SparseTensor, to: int, stream: int) -> None:
    write_bytes(to, form.host(s.to("cpu")), ordinal=s.device or 0, stream=stream)
