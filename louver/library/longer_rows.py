"""Sparse tensors with several of their rows as one: the weight [OUT·9, IN] of a convolution as [OUT, 9·IN]. Also matrices of few
rows as one matrix: the weight [OUT, 1, 1, IN] as [OUT, IN].
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from louver.formats.codes import index_bytes
from louver.formats.tensor import SparseTensor, frozen, set_fields
from louver.library.resident import pitch_of
from louver.runtime.arrays import view


class LongerRows:
    """The views of a tensor with longer rows, `s.derived.of(LongerRows)`, by the length of a row in elements. They have forms of
    their own, because metadata covers 16 rows.
    """

    def __init__(self) -> None:
        self._kept: dict[int, SparseTensor] = {}

    def refresh(self, s: SparseTensor) -> None:
        """Give the views the present values of `s`. Those of a tensor on a device are the same memory."""
        for viewed in self._kept.values():
            if s.device is None:
                set_fields(viewed, values=_reshaped(s.values, (viewed.rows, viewed.kept)))
            viewed.derived.refresh(viewed)

    def of(self, s: SparseTensor, size: int) -> SparseTensor:
        """The tensor as [elements / size, size]. Raises ValueError unless `has_longer_rows`."""
        if not has_longer_rows(s, size):
            raise ValueError(f"rows of {s.shape} follow one another to rows of their multiples, got {size}")
        with s.derived.lock:
            found = self._kept.get(size)
            if found is None:
                shape = (s.rows * s.size // size, size)
                groups = size // s.pattern.m
                parts = (shape[0], groups * s.pattern.n), (shape[0], index_bytes(s.pattern, groups))
                values, indices = map(_reshaped, (s.values, s.indices), parts)
                found = self._kept[size] = replace(s, shape=shape, axis=1, values=values, indices=indices)
            return found


def has_longer_rows(s: SparseTensor, size: int) -> bool:
    """Whether rows of the tensor, which is sparse along its last axis, are rows of `size` elements without gaps. Rows of matrices
    may be as long as they are: those of one matrix then.
    """
    if (
        s.axis != s.ndim - 1
        or not s.size
        or size < s.size + (s.ndim == 2)
        or size % s.size
        or s.size % s.pattern.m
        or s.windows.height > 1
    ):
        return False
    together = size // s.size
    whole = together * index_bytes(s.pattern, s.groups) == index_bytes(s.pattern, together * s.groups)
    return whole and s.rows % together == 0 and pitch_of(view(s.values)) == s.kept * s.dtype.bytes


def _reshaped(rows: Any, shape: tuple[int, int]) -> Any:
    seen = view(rows)
    if seen.device is None:
        return frozen(rows.reshape(shape))
    return replace(seen, shape=shape, strides=(shape[1], 1))
