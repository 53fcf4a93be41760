from __future__ import annotations

import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import louver


def weight(
    rng: np.random.Generator, rows: int = 24, columns: int = 37, dtype: object = np.float16
) -> louver.SparseTensor:
    w = rng.standard_normal((rows, columns)).astype(np.float32).astype(dtype)
    return louver.compress(louver.prune(w, "2:4"), "2:4")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize(("rows", "columns"), [(8, 4), (24, 37), (64, 130)])
def test_rows_of_gate_and_up_take_turns(rng: np.random.Generator, rows: int, columns: int, dtype: object) -> None:
    gate, up = weight(rng, rows, columns, dtype), weight(rng, rows, columns, dtype)
    s = louver.gated(gate, up)
    s.validate()
    dense = s.dense().reshape(-1, 2, 8, columns)
    for index, part in enumerate((gate, up)):
        np.testing.assert_array_equal(dense[:, index].reshape(rows, columns), part.dense())
    for found, part in zip(s.parts(), (gate, up), strict=True):
        np.testing.assert_array_equal(found.values, part.values)
        np.testing.assert_array_equal(found.indices, part.indices)
    again = pickle.loads(pickle.dumps(s))
    assert isinstance(again, louver.GatedTensor)
    np.testing.assert_array_equal(again.dense(), s.dense())
    assert repr(s).startswith("GatedTensor(2:4")


def test_what_is_no_pair_is_refused(rng: np.random.Generator) -> None:
    gate = weight(rng)
    with pytest.raises(ValueError, match="multiple of 8 rows, got 9: append rows of zeros"):
        louver.gated(weight(rng, 9), weight(rng, 9))
    for other in (weight(rng, 16), weight(rng, 24, 38), weight(rng, dtype=ml_dtypes.bfloat16)):
        with pytest.raises(ValueError, match="one shape, element type and pattern"):
            louver.gated(gate, other)
    with pytest.raises(TypeError, match=r"up must be a louver\.SparseTensor, got ndarray"):
        louver.gated(gate, gate.dense())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="gate must be .*, got GatedTensor"):
        louver.gated(louver.gated(gate, gate), gate)
    with pytest.raises(ValueError, match="sparse along its last axis"):
        w = louver.prune(rng.standard_normal((24, 8)).astype(np.float16), "2:4", axis=0)
        louver.gated(louver.compress(w, "2:4", axis=0), gate)


def test_a_pair_is_saved_in_parts(rng: np.random.Generator, tmp_path: Path) -> None:
    s = louver.gated(weight(rng), weight(rng))
    with pytest.raises(ValueError, match=r"w is a gated pair: save its parts\(\) under two names"):
        louver.save(tmp_path / "w.safetensors", {"w": s})
