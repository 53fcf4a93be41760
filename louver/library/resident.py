"""Sparse tensors with arrays on a GPU: adopting, moving and updating the arrays. `SparseTensor` reaches this module
through the package name.

Arrays of every library are used as `ArrayView`. Copies are made on the device, in the order of the current stream of
the arrays' library.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementTypeError, shown
from louver.formats.tensor import (
    ROW_ALIGNMENT,
    SparseTensor,
    check_arrays,
    check_new_type,
    frozen,
    row_pitch,
)
from louver.formats.torch_tensors import data_of, is_torch_tensor
from louver.runtime.adapters import alias, empty_rows, kind_for
from louver.runtime.arrays import ArrayView, overlaps, view
from louver.runtime.copy2d import bound_copy, check_copies
from louver.runtime.device import device as device_of
from louver.runtime.device import require_device
from louver.runtime.memory import DeviceArray, wait_for_device, wait_for_stream, write_bytes


def adopted(s: SparseTensor) -> tuple[Any, Any, int]:
    """The values, the indices and the device of `s`. Arrays with a suitable layout stay in place; others are copied on
    the device.

    Raises TypeError if they are not arrays on a GPU, ValueError if they are in two places, and as `check_arrays`.
    """
    values, indices = _seen("values", s.values), _seen("indices", s.indices)
    if values.device != indices.device:
        raise ValueError(
            f"values and indices are in one place, got values {_where(values)} and indices {_where(indices)}: move one"
        )
    check_arrays(s, values.element, values.shape, indices.element.numpy, indices.shape)
    if values.device is None:
        raise TypeError(
            f"values and indices on the host are NumPy arrays, got {type(s.values).__name__} and {type(s.indices).__name__}: "
            "convert them"
        )
    in_place = pitch_of(values) % ROW_ALIGNMENT == 0 and values.address % ROW_ALIGNMENT == 0 and _has_rows(values)
    whole = _has_rows(indices) and (indices.shape[0] < 2 or indices.strides[0] == indices.shape[1])
    return (
        alias(s.values) if in_place else _copy(values, row_pitch(s.kept, s.dtype)),
        alias(s.indices) if whole else _copy(indices, indices.shape[1]),
        values.device,
    )


def pitch_of(rows: ArrayView) -> int:
    """Bytes from one row of [rows, columns] to the next. For a single row the result is `row_pitch`."""
    if rows.shape[0] < 2:
        return row_pitch(rows.shape[1], rows.element)
    return rows.strides[0] * rows.element.bytes


def moved(s: SparseTensor, device: object) -> SparseTensor:
    """See `SparseTensor.to`."""
    to = _ordinal(device)
    if to == s.device:
        return s
    if s.device is not None:
        s = replace(s, values=frozen(view(s.values).to_numpy()), indices=frozen(view(s.indices).to_numpy()))
    if to is None:
        return s
    values, indices = s.values, s.indices
    return replace(
        s, values=_uploaded(values, row_pitch(s.kept, s.dtype), to), indices=_uploaded(indices, indices.shape[1], to)
    )


def copied(rows: Any, pitch: int) -> Any:
    """A copy of rows, on their device and of their library. pitch: bytes from one row of the copy to the next."""
    return _copy(view(rows), pitch)


def update(s: SparseTensor, values: Any) -> None:
    """Write new values to the memory of the values of `s`, after all kernels that read the old ones. Then refresh the
    derived forms.

    See `SparseTensor.update_`.
    """
    new, mine = _new_values(s, values), view(s.values)
    same = (new.address, pitch_of(new)) == (mine.address, pitch_of(mine))
    if overlaps(new, mine) and not same:
        raise ValueError("new values must not overlap those of the tensor: copy them first")
    ordinal, stream = mine.device or 0, mine.stream or 0
    wait_for_device(ordinal, "waiting for the products of a sparse tensor")
    if not same:
        write_rows(mine.address, pitch_of(mine), new, stream)
        wait_for_stream(ordinal, stream, "changing the values of a sparse tensor")
    s.derived.refresh(s)


def interleaved(first: Any, second: Any, block: int, pitch: int) -> Any:
    """The rows of two arrays [rows, columns], alternating in blocks of `block` rows: [2 · rows, columns]. Complete when
    this returns.

    pitch: bytes from one row of the result to the next.
    """
    parts = view(first), view(second)
    (rows, columns), like = parts[0].shape, parts[0]
    made = _empty(like, (2 * rows, columns), pitch)
    for number, part in enumerate(parts):
        to = view(made).address + number * block * pitch
        write_rows(to, pitch, part, like.stream or 0, block=block, apart=2 * block)
    wait_for_stream(like.device or 0, like.stream or 0, "joining the weights of a gated pair")
    return made


def divided(rows: Any, block: int, pitch: int) -> tuple[Any, Any]:
    """The two arrays that `interleaved` joined. pitch: bytes from one row of each array to the next."""
    both = view(rows)
    count, columns = both.shape
    first, second = (_empty(both, (count // 2, columns), pitch) for _ in range(2))
    for number, part in enumerate((first, second)):
        start = both.address + number * block * both.strides[0] * both.element.bytes
        source = replace(both, address=start, shape=(count // 2, columns))
        write_rows(view(part).address, pitch, source, both.stream or 0, block=block, step=2 * block)
    wait_for_stream(both.device or 0, both.stream or 0, "dividing a gated pair")
    return first, second


def write_rows(
    to: int,
    pitch: int,
    source: ArrayView,
    stream: int,
    *,
    block: int | None = None,
    step: int | None = None,
    apart: int | None = None,
) -> None:
    """Copy rows [rows, columns] on their device, in the order of `stream`.

    to, pitch: address of the first copied row, and bytes from one copied row to the next.
    block: rows of a block. By default there is a single block.
    step: rows from the start of a block to the start of the next, in the source; by default `block`.
    apart: the same distance in the copy; by default `block`.
    """
    rows, columns = source.shape
    if not source.size:
        return
    block = block or rows
    bound_copy(
        source=source.address,
        shape=(block, columns),
        strides=(source.strides[0], source.strides[1]),
        element_bytes=source.element.bytes,
        destination=to,
        pitch=pitch,
        entries=rows // block,
        entry_stride=(step or block) * source.strides[0],
        entry_pitch=(apart or block) * pitch,
        ordinal=source.device or 0,
        stream=stream,
    )()


def _seen(name: str, array: Any) -> ArrayView:
    try:
        return view(data_of(array))
    except TypeError as error:
        if is_torch_tensor(array):
            raise TypeError(f"{name}: {error}") from None
        raise TypeError(
            f"{name} are a NumPy array or an array on a GPU, got {type(array).__name__}: convert them"
        ) from error
    except ElementTypeError:
        raise
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _new_values(s: SparseTensor, values: Any) -> ArrayView:
    """The checked new values for `s`, on the device of `s`."""
    seen, ordinal = _seen("values", values), s.device or 0
    check_new_type(s, seen.element)
    check_arrays(s, seen.element, seen.shape, np.uint8, view(s.indices).shape)
    if seen.device is None:
        seen = view(DeviceArray.of(seen.to_numpy(), ordinal=ordinal))
    if seen.device != ordinal:
        raise ValueError(f"new values are {_where(seen)}, the tensor on cuda:{ordinal}: move one")
    if s.size % s.pattern.m:
        replace(s.to("cpu"), values=seen.to_numpy()).validate()
    return seen


def _where(array: ArrayView) -> str:
    return "on the host" if array.device is None else f"on cuda:{array.device}"


def _has_rows(array: ArrayView) -> bool:
    """Whether the elements of each row are contiguous, and rows do not overlap."""
    rows, columns = array.shape
    return not array.size or ((columns < 2 or array.strides[1] == 1) and (rows < 2 or array.strides[0] >= columns))


def _empty(like: ArrayView, shape: tuple[int, int], pitch: int) -> Any:
    return empty_rows(like.kind, shape, like.element, pitch, like.device or 0, like.stream or 0)


def _copy(source: ArrayView, pitch: int) -> Any:
    if source.size:
        check_copies(source.device or 0, source.element.bytes, source.strides, source.stream or 0)
    made = _empty(source, (source.shape[0], source.shape[1]), pitch)
    write_rows(view(made).address, pitch, source, source.stream or 0)
    return made


def _uploaded(rows: NDArray[Any], pitch: int, ordinal: int) -> Any:
    """A copy of a host array on a device, with zeros in the gaps between rows."""
    seen, (count, columns) = view(rows), rows.shape
    kind, stream = kind_for(ordinal)
    made = empty_rows(kind, (count, columns), seen.element, pitch, ordinal, stream)
    whole = np.zeros((count, pitch // seen.element.bytes), seen.element.bits_dtype)
    whole[:, :columns] = rows.view(seen.element.bits_dtype)
    write_bytes(view(made).address, whole, ordinal=ordinal, stream=stream)
    return made


def _ordinal(device: object) -> int | None:
    """The ordinal of a device that the caller gave to `SparseTensor.to`; None for the host."""
    rule = 'a device is "cpu", "cuda", "cuda:1", an ordinal or a torch.device'
    if device is None:
        return None
    name: Any = device
    if hasattr(device, "type") and hasattr(device, "index"):
        name = name.type if name.index is None or name.type == "cpu" else f"{name.type}:{name.index}"
    if type(name) is int:
        name = f"cuda:{name}"
    if not isinstance(name, str):
        raise TypeError(f"{rule}, got {type(device).__name__}")
    if name == "cpu":
        return None
    found = re.fullmatch(r"cuda(?::(\d+))?", name)
    if found is None:
        raise ValueError(f"{rule}, got {shown(name)}")
    current = require_device().ordinal
    return current if found[1] is None else device_of(int(found[1])).ordinal
