from __future__ import annotations

import numpy as np
import pytest

from louver.measure.launches import rows_of


@pytest.mark.parametrize(
    ("shape", "kept", "expected"),
    [
        ((6, 16), np.s_[:, :12], (12, 6, 64, 4, 1, 0)),
        ((1, 16), np.s_[:, :], (16, 1, 64, 4, 1, 0)),
        ((2, 6, 16), np.s_[:, :5, :12], (12, 5, 64, 4, 2, 384)),
    ],
)
def test_rows_of_a_matrix_and_of_a_batch(shape: tuple[int, ...], kept: object, expected: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.float32)[kept]
    rows = rows_of(array)
    assert (rows.inner, rows.rows, rows.pitch, rows.element_bytes, rows.batch, rows.batch_pitch) == expected
    assert rows.address == array.ctypes.data and rows.owner is array
