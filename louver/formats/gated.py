"""The two weights of a gated layer as one sparse tensor. Its product is activation(gate · x) · (up · x)."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import raw_bits
from louver.formats.dynamo import opaque
from louver.formats.pattern import KERNELS, kind_of
from louver.formats.tensor import SparseTensor, empty_rows, frozen, memory_text, resident, row_pitch

GATE_ROWS: Final = 8
"""Rows of a block: 8 rows of the gate alternate with 8 of the up projection. A tensor core lane holds the sums of rows
r and r + 8 of 16 rows: both factors of an output.
"""


@opaque
class GatedTensor(SparseTensor):
    """The sparse tensor [2·F, K] of a gated pair [F, K]: 8 rows of the gate, 8 of the up projection, and so on.
    `louver.gated` makes it; `louver.linear` and `matmul` give F outputs. `parts` gives the pair.
    """

    __slots__ = ()

    def parts(self) -> tuple[SparseTensor, SparseTensor]:
        """The gate and the up projection, [F, K] each."""
        rows, size = self.shape
        shape = (rows // 2, size)
        pitches = row_pitch(self.kept, self.dtype), self.indices.shape[1]
        arrays = zip((self.values, self.indices), pitches, strict=True)
        values, indices = (self._divided(array, pitch) for array, pitch in arrays)
        gate, up = (
            SparseTensor(self.pattern, self.dtype, shape, 1, values[part], indices[part], library=self.library)
            for part in (0, 1)
        )
        return gate, up

    def _divided(self, array: Any, pitch: int) -> tuple[Any, Any]:
        """The rows of the gate and of the up projection. pitch: bytes from row to row, on a device."""
        if self.device is not None:
            return resident().divided(array, GATE_ROWS, pitch)
        blocks = raw_bits(array).reshape(-1, 2, GATE_ROWS, array.shape[1])
        gate, up = (np.ascontiguousarray(blocks[:, part]).reshape(-1, array.shape[1]) for part in (0, 1))
        return gate.view(array.dtype), up.view(array.dtype)

    @property
    def mT(self) -> NoReturn:
        """Raises TypeError: the rows belong to two matrices."""
        raise _no_matrix()

    def __matmul__(self, b: object) -> NoReturn:
        raise _no_matrix()

    def __rmatmul__(self, x: object) -> NoReturn:
        raise _no_matrix()

    def __repr__(self) -> str:
        rows, size = self.shape
        return f"GatedTensor({self.pattern} {self.dtype} 2 × [{rows // 2}, {size}], {memory_text(self)})"


def _no_matrix() -> TypeError:
    return TypeError(
        "a gated pair is two matrices, without a transpose or an operator @: use louver.linear(x, pair, activation=…), or "
        "its parts()"
    )


@opaque
def gated(gate: SparseTensor, up: SparseTensor) -> GatedTensor:
    """Both weights of a gated layer as one tensor.

    `louver.linear(x, louver.gated(gate, up), activation="silu")` is silu(x @ gate.T) · (x @ up.T), [..., F].
    gate, up: [F, K], sparse along the last axis, of the same pattern, element type and device; F is a multiple of 8.

    Both are copied, on their device. Raises TypeError or ValueError for other tensors.
    """
    pair: dict[str, object] = {"gate": gate, "up": up}
    for name, s in pair.items():
        if not isinstance(s, SparseTensor) or isinstance(s, GatedTensor):
            raise TypeError(
                f"{name} must be a louver.SparseTensor, got {type(s).__name__}: use louver.compress(w, '2:4')"
            )
        if len(s.shape) != 2 or s.axis != 1:
            raise ValueError(f"{name} must be a matrix that is sparse along its last axis, got {s!r}")
    if (gate.shape, gate.dtype, gate.pattern) != (up.shape, up.dtype, up.pattern):
        raise ValueError(f"gate and up must have one shape, element type and pattern, got {gate!r} and {up!r}")
    if kind_of(gate.pattern) not in KERNELS["gated products"]:
        raise ValueError(
            f"a gated pair has a pattern of elements, N:M, for its rows are of two weights by turns, got {gate.pattern}: multiply by both"
        )
    rows, size = gate.shape
    if rows % GATE_ROWS:
        raise ValueError(
            f"gate and up must have a multiple of {GATE_ROWS} rows, got {rows}: append rows of zeros, whose outputs are act(0) · 0"
        )
    if gate.device != up.device:
        raise ValueError(f"gate and up must be in one place, got {gate!r} and {up!r}: move one with to(…)")
    if gate.device is None:
        values = empty_rows(2 * rows, gate.kept, gate.dtype)
        raw_bits(values)[...] = interleaved(raw_bits(gate.values), raw_bits(up.values))
        values, indices = frozen(values), frozen(interleaved(gate.indices, up.indices))
    else:
        join, pitch = resident().interleaved, row_pitch(gate.kept, gate.dtype)
        values = join(gate.values, up.values, GATE_ROWS, pitch)
        indices = join(gate.indices, up.indices, GATE_ROWS, gate.indices.shape[1])
    dropped = gate.negative_zeros_dropped + up.negative_zeros_dropped
    return GatedTensor(gate.pattern, gate.dtype, (2 * rows, size), 1, values, indices, dropped, gate.library)


def interleaved(gate: NDArray[Any], up: NDArray[Any]) -> NDArray[Any]:
    """The rows of two arrays [F, columns] by turns of `GATE_ROWS`, as a gated pair has them: [2·F, columns]."""
    rows, columns = gate.shape
    blocks = [np.ascontiguousarray(part).reshape(-1, GATE_ROWS, columns) for part in (gate, up)]
    return np.stack(blocks, axis=1).reshape(2 * rows, columns)
