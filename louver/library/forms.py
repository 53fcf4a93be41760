"""Forms of a sparse tensor: arrays that kernels read, derived from the tensor's values and indices.

Each form is a record. `host` defines its contents, in NumPy. `derive` makes the same bytes on a device, from arrays on
that device.
"""

from __future__ import annotations

import functools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from louver.compile.plan.register_tiles import AnySchedule, RegisterTiles
from louver.compile.plan.schedule import gathers, list_rows
from louver.compile.signature import Part
from louver.formats.dtypes import element_type, multiplied_as, raw_bits
from louver.formats.lists import PICK_BYTES, PICKERS, gathered, list_pitch, picked
from louver.formats.pattern import LIFTED
from louver.formats.tensor import SparseTensor, row_pitch
from louver.ir.product import selection_of
from louver.isa.metadata import ENTRY_CODES, PADDING_CODE, metadata_rows, metadata_rows_shape, prepack, prepacked_shape
from louver.isa.product_meaning import f32_to_tf32
from louver.library.deleted_forms import give_back
from louver.library.resident import pitch_of, write_rows
from louver.library.rows import METADATA_SLACK, Held, Rows
from louver.library.streaming.derived.launches import lists_into, picks_into, round_into
from louver.library.streaming.launch import Launch
from louver.library.streaming.launches import COUNTER_BYTES, prepack_into
from louver.library.streaming.record import Layout
from louver.runtime.arrays import ArrayView, view
from louver.runtime.copy2d import check_copies
from louver.runtime.memory import DeviceBuffer, fill_bytes, wait_for_device, wait_for_stream, write_bytes

METADATA_ROWS_SLACK = 16
"""Rows of legal codes after the metadata of register tiles. A tile has at most 256 rows, and 16 of them share a row of
metadata.
"""

TILE_PARTS: tuple[Part, ...] = ("values", "metadata")
"""Parts of a sparse tensor that register tiles read."""

DERIVING = 0
"""The stream on which forms are made: the default stream. Their memory is freed in the order of this stream, so the
stream must outlive them.
"""


class Form(ABC):
    """A form of a sparse tensor. For one tensor, equal forms have equal bytes.

    of_values: True if the form depends on the values, and so changes with them. False if it depends only on the
        indices, which only `louver.sparsify` changes.
    """

    __slots__ = ()
    of_values: ClassVar[bool] = False

    def follow(self, s: SparseTensor, to: int, stream: int) -> Callable[[], None]:
        """What writes the form anew, after a kernel on `stream` has written the values and legal indices of a tensor on a
        device. It neither waits nor allocates, and its kernels are loaded.

        Raises ValueError for a form that has no such kernels, RuntimeError if they are not loaded during a capture.
        """
        raise ValueError(
            f"louver.sparsify writes what 2:4 products read, got a tensor of which a kernel reads {type(self).__name__}: give "
            "another tensor"
        )

    @abstractmethod
    def nbytes(self, s: SparseTensor) -> int:
        """Bytes of the form."""

    @abstractmethod
    def host(self, s: SparseTensor) -> NDArray[Any]:
        """The form of a tensor on the host, C-contiguous. Raises ValueError for illegal indices."""

    def derive(self, s: SparseTensor, to: int, stream: int) -> None:
        """Write the form of a tensor on a device to an address on that device, in the order of `stream`. Raises as
        `host`.

        By default the host computes the form. Forms that have a kernel override this method.
        """
        _derive_on_host(self, s, to, stream)


class RowsOfValues(Form):
    """A form that holds the values, in rows."""

    __slots__ = ()
    of_values: ClassVar[bool] = True

    def kept(self, s: SparseTensor) -> int:
        """Values of a row."""
        return s.kept

    def pitch(self, s: SparseTensor) -> int:
        """Bytes from one row to the next."""
        return row_pitch(self.kept(s), s.dtype)

    def nbytes(self, s: SparseTensor) -> int:
        return s.rows * self.pitch(s)


@dataclass(frozen=True, slots=True)
class Values(RowsOfValues):
    """The stored values [rows, kept] as raw bits. The entries of a batch follow each other.

    packed: True for rows without gaps. Otherwise rows have the pitch of the tensor's rows; for a tensor on the host,
        that is `row_pitch`, with zeros in the gaps.
    """

    packed: bool = False

    def pitch(self, s: SparseTensor) -> int:
        """Bytes from one row to the next."""
        if self.packed:
            return s.kept * s.dtype.bytes
        return row_pitch(s.kept, s.dtype) if s.device is None else pitch_of(view(s.values))

    def host(self, s: SparseTensor) -> NDArray[Any]:
        return pitched(s.values, self.pitch(s))

    def derive(self, s: SparseTensor, to: int, stream: int) -> None:
        write_rows(to, self.pitch(s), view(s.values), stream)

    def follow(self, s: SparseTensor, to: int, stream: int) -> Callable[[], None]:
        values = view(s.values)
        check_copies(s.device or 0, s.dtype.bytes, values.strides, stream)
        return functools.partial(write_rows, to, self.pitch(s), values, stream)


@dataclass(frozen=True, slots=True)
class RoundedValues(RowsOfValues):
    """The stored values of f32, rounded to tf32. Tensor cores would truncate them instead.

    Rows are `row_pitch` bytes apart.
    """

    def host(self, s: SparseTensor) -> NDArray[Any]:
        return pitched(f32_to_tf32(s.values))

    def derive(self, s: SparseTensor, to: int, stream: int) -> None:
        values = view(s.values)
        round_into(values, pitch_of(values), (to, self.pitch(s))).send(s.device or 0, stream)


@dataclass(frozen=True, slots=True)
class Metadata(Form):
    """The metadata of [..., M, K] in the order in which products load it (`louver.isa.metadata`), uint32. Each entry of
    a batch is prepacked separately, with its rows padded to whole blocks. All schedules read it.

    rows: for V:N:M, the number of rows that share a list. Codes then select among the columns of the list. 0: codes
        select among all columns.
    """

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
        return np.concatenate([prepack(entry, m, columns, s.dtype) for entry in entries])

    def derive(self, s: SparseTensor, to: int, stream: int) -> None:
        if self.rows:
            _derive_on_host(self, s, to, stream)
            return
        _prepack(self, s, s.dtype.name, ("words", to), stream)


@dataclass(frozen=True, slots=True)
class TileMetadata(Form):
    """The metadata for register tiles, uint16: `louver.isa.metadata.metadata_rows` of each matrix, one matrix after the
    other.

    Legal codes follow, as far as a box that begins inside the tensor can reach.

    element: name of the element type that the products multiply.
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

    def follow(self, s: SparseTensor, to: int, stream: int) -> Callable[[], None]:
        # Legal codes follow the rows already.
        launch = prepack_into(view(s.indices).address, _matrices(s), self.element, ("rows", to))
        launch.ready(s.device or 0, stream)
        return functools.partial(launch.send, s.device or 0, stream)


@dataclass(frozen=True, slots=True)
class Codes(Form):
    """The codes of all groups, one row after the other without gaps, 4 bits each, as uint16.

    Kernels that compute the addresses of tiles read them. Two words of legal codes follow.
    """

    def nbytes(self, s: SparseTensor) -> int:
        return 2 * (-(-s.rows * self._groups(s) // ENTRY_CODES) + 2)

    def host(self, s: SparseTensor) -> NDArray[np.uint16]:
        groups = self._groups(s)
        each = np.stack([s.indices & 15, s.indices >> 4], -1).reshape(s.rows, -1)[:, :groups].reshape(-1)
        whole = np.full(2 * self.nbytes(s), PADDING_CODE, np.uint8)
        whole[: each.size] = each
        return (whole[::2] | whole[1::2] << 4).view("<u2")

    def derive(self, s: SparseTensor, to: int, stream: int) -> None:
        if self._groups(s) % 2:
            _derive_on_host(self, s, to, stream)
            return
        # Rows of whole bytes are stored in this order already.
        fill_bytes(to, PADDING_CODE * 0x11, self.nbytes(s), ordinal=s.device or 0, stream=stream)
        write_rows(to, self._groups(s) // 2, view(s.indices), stream)

    @staticmethod
    def _groups(s: SparseTensor) -> int:
        """Groups of a row."""
        return s.size // s.pattern.m


@dataclass(frozen=True, slots=True)
class GatheredValues(RowsOfValues):
    """The values in the order of lists of rows of K (`louver.formats.lists`), as raw bits with zeros up to the row
    pitch.

    rows: the number of rows that share a list.
    """

    rows: int

    def kept(self, s: SparseTensor) -> int:
        """Values of a row."""
        return gathered(as_stored(s.to("cpu")), self.rows).kept

    def host(self, s: SparseTensor) -> NDArray[Any]:
        return pitched(gathered(as_stored(s), self.rows).values)


@dataclass(frozen=True, slots=True)
class RowLists(Form):
    """The lists of rows of K (`louver.formats.lists`), int32.

    rows: the number of rows that share a list.
    """

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
        place, indices = (to, list_pitch(s.kept)), view(s.indices)
        _derive_checked(
            self,
            s,
            to,
            stream,
            lambda counters: lists_into(indices.address, s.pattern, _matrices(s), self.rows, place, counters),
        )

    def _by_host(self, s: SparseTensor) -> bool:
        """Whether NumPy makes the lists. It makes the sorted unions of several windows, and the lists of V:N:M."""
        return s.pattern.length % self.rows != 0 or len(s.pattern.levels) > 1


@dataclass(frozen=True, slots=True)
class Picks(Form):
    """The rows of K that each group of 16 rows picks (`louver.formats.lists`), uint32.

    step: stored columns of a K step.
    """

    step: int

    def nbytes(self, s: SparseTensor) -> int:
        entries, m, _ = _matrices(s)
        return PICK_BYTES * entries * (-(-m // 64) * 64 // PICKERS) * -(-s.kept // self.step) * self.step

    def host(self, s: SparseTensor) -> NDArray[np.uint32]:
        return picked(as_stored(s), self.step)

    def derive(self, s: SparseTensor, to: int, stream: int) -> None:
        indices = view(s.indices)
        _derive_checked(
            self,
            s,
            to,
            stream,
            lambda counters: picks_into(indices.address, s.pattern, _matrices(s), self.step, to, counters),
        )


FORMS: tuple[type[Form], ...] = (Values, RoundedValues, Metadata, TileMetadata, GatheredValues, RowLists, Picks)
"""All forms."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceForm:
    """A complete form on a device.

    memory: owner of the memory: a buffer, an array made for the form, or the tensor's array. A view without an owner
        is memory that the caller keeps, and frees.

    Kernels on any stream may read the form as long as this object exists. Louver waits for the device before it frees
    the memory.
    """

    form: Form
    address: int
    nbytes: int
    ordinal: int
    memory: Any

    @property
    def held(self) -> Held:
        """The memory of the form."""
        return Held(self.address, self.nbytes)

    def refresh(self, s: SparseTensor) -> None:
        """Write the present values of `s` to the form, after all kernels that read the old ones."""
        if not self.form.of_values or self.memory is s.values:
            return
        wait_for_device(self.ordinal, "waiting for the products of a sparse tensor")
        _write(self.form, s, self.memory)

    def rewrite(self, s: SparseTensor) -> None:
        """The same for a tensor on the host or on this device whose indices have changed too. Raises ValueError if the
        form then has another size.
        """
        if self.memory is s.values:
            return
        if self.form.nbytes(s) != self.nbytes:
            raise ValueError(
                f"a form of {s.pattern} has {self.nbytes} bytes, got {self.form.nbytes(s)} for other indices"
            )
        wait_for_device(self.ordinal, "waiting for the products of a sparse tensor")
        if s.device is None:
            write_bytes(self.address, self.form.host(s), ordinal=self.ordinal, stream=DERIVING)
        else:
            self.form.derive(s, self.address, DERIVING)
        wait_for_stream(self.ordinal, DERIVING, "deriving a form of a sparse tensor")

    def __del__(self) -> None:
        borrowed = isinstance(self.memory, ArrayView) and self.memory.owner is None
        if not borrowed and not sys.is_finalizing():
            give_back(self.ordinal, self.memory)


class Operand(NamedTuple):
    """The sparse operand of a product in the memory of a device or of the emulator.

    values: the stored values. Their owner keeps the memory of all parts.
    depth: rows of the dense operand that each row is multiplied with.
    metadata: address of the metadata, or of the picks.
    lists: address of the lists.
    """

    values: Rows
    depth: int
    metadata: int = 0
    lists: int = 0


class ProductForms(NamedTuple):
    """The forms of a sparse tensor that a product reads: values, metadata or picks, and lists."""

    values: RowsOfValues = Values()
    metadata: Metadata | TileMetadata | Picks | None = Metadata()
    lists: RowLists | None = None

    @property
    def made(self) -> list[Form]:
        """The forms that are not None."""
        return [form for form in self if form is not None]


def forms_of(schedule: AnySchedule, s: SparseTensor) -> ProductForms:
    """The forms that a product of `s` with this schedule reads."""
    pattern = str(s.pattern)
    if isinstance(schedule, RegisterTiles):
        rounded = multiplied_as(s.dtype.name) == "tf32"
        return ProductForms(RoundedValues() if rounded else Values(), TileMetadata(s.dtype.name))
    selection = selection_of(pattern)
    rows = list_rows(pattern, schedule) if selection.indexed else 0
    metadata = Metadata(rows) if selection.lifted else None
    if not selection.indexed:
        return ProductForms(RoundedValues() if multiplied_as(s.dtype.name) == "tf32" else Values(), metadata)
    if not gathers(pattern, schedule.ring.metadata):
        return ProductForms(Values(), Picks(schedule.tile.k))
    # If a list is that of a single window, the stored values are already in its order.
    return ProductForms(Values() if s.pattern.length % rows == 0 else GatheredValues(rows), metadata, RowLists(rows))


def on_device(form: Form, s: SparseTensor, ordinal: int) -> DeviceForm:
    """The form of a tensor on device `ordinal`, complete when this returns. A tensor on a device must be on this one.

    `Values()` of a tensor on a device is the tensor's own array. Every other form is made in new memory. Louver first
    waits for the current stream of the library of the tensor's arrays.
    """
    if s.device is not None and form == Values():
        values = view(s.values)
        return DeviceForm(form, values.address, form.nbytes(s), ordinal, s.values)
    if s.device is not None:
        for array in (s.values, s.indices):
            wait_for_stream(ordinal, view(array).stream or 0, "waiting for the arrays of a sparse tensor")
    give_back(ordinal)
    buffer = DeviceBuffer(form.nbytes(s), ordinal=ordinal, stream=DERIVING)
    _write(form, s, buffer)
    return DeviceForm(form, buffer.address, buffer.nbytes, ordinal, buffer)


def room(form: Form, s: SparseTensor, ordinal: int) -> DeviceForm:
    """Memory for the form of a tensor on device `ordinal`, with undefined contents. Any stream may use it."""
    give_back(ordinal)
    buffer = DeviceBuffer(form.nbytes(s), ordinal=ordinal, stream=DERIVING)
    wait_for_stream(ordinal, DERIVING, "allocating a form of a sparse tensor")
    return DeviceForm(form, buffer.address, buffer.nbytes, ordinal, buffer)


def tile_values(s: SparseTensor) -> Values:
    """The form of values that register tiles read, without gaps between rows. Raises ValueError if K is not a multiple
    of M.
    """
    if s.size % s.pattern.m:
        raise ValueError(f"K of a sparse argument is a multiple of {s.pattern.m}, got {s.size}: pad it with zeros")
    packed = Values(packed=True)
    # If the tensor's rows have no gaps, products and register tiles share one form.
    return Values() if Values().pitch(s) == packed.pitch(s) else packed


def tile_form(s: SparseTensor, part: Part, element: str) -> Form:
    """The form that register tiles read as this part of a sparse tensor. Raises as `tile_values`.

    element: name of the element type that the products multiply.
    """
    return tile_values(s) if part == "values" else TileMetadata(element)


def computed_forms(s: SparseTensor) -> tuple[Form, Form]:
    """The forms that a kernel reads at computed addresses: values, and codes. Raises as `tile_values`."""
    return tile_values(s), Codes()


def as_stored(s: SparseTensor) -> SparseTensor:
    """The tensor if it is sparse along its last axis, else its transpose."""
    return s if s.axis == s.ndim - 1 else s.mT


def operand_of(
    s: SparseTensor, forms: ProductForms, places: Mapping[Form | None, int], entries: int, memory: object
) -> Operand:
    """The operand of a product that reads these forms.

    places: address of each form.
    entries: the number of matrices.
    memory: owner of the memory of all forms.
    """
    m, pitch, kept = s.rows // entries, forms.values.pitch(s), forms.values.kept(s)
    values = Rows(places[forms.values], kept, m, pitch, s.dtype.bytes, memory, entries, m * pitch)
    depth = s.size
    if selection_of(str(s.pattern)).indexed:
        depth = kept * s.pattern.shared // s.pattern.n
    return Operand(values, depth, places.get(forms.metadata, 0), places.get(forms.lists, 0))


def pitched(values: NDArray[Any], pitch: int | None = None) -> NDArray[Any]:
    """The raw bits of values [rows, kept], with zeros up to the pitch.

    pitch: bytes from one row to the next, by default `row_pitch`.
    """
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
    """Write the metadata of a tensor on a device by a streaming kernel, and wait for the kernel."""
    # The view keeps indices alive that are made for it.
    indices = view(s.indices)
    _derive_checked(
        form,
        s,
        words[1],
        stream,
        lambda counters: prepack_into(indices.address, _matrices(s), element, words, counters),
    )


def _matrices(s: SparseTensor) -> tuple[int, int, int]:
    """The number of matrices of a tensor, the rows of each, and the elements of a row along the sparse axis."""
    m, k = as_stored(s).shape[-2:]
    return prod(s.shape[:-2]), m, k


def _derive_checked(form: Form, s: SparseTensor, to: int, stream: int, launch: Callable[[int], Launch]) -> None:
    """Write a form by a kernel, and wait for it. The kernel counts illegal indices. If there are any, the host repeats
    the work, so that its error names the index.

    launch: makes the launch, from the address of the counters.
    """
    counters = DeviceBuffer(COUNTER_BYTES, ordinal=s.device or 0, stream=stream)
    counters.fill(0)
    launch(counters.address).send(counters.ordinal, stream)
    if counters.read().any():
        _derive_on_host(form, s, to, stream)


def _derive_on_host(form: Form, s: SparseTensor, to: int, stream: int) -> None:
    write_bytes(to, form.host(s.to("cpu")), ordinal=s.device or 0, stream=stream)
