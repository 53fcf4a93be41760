"""PyTorch tensors on the CPU give PyTorch tensors, and files take them."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.formats.dtypes import ELEMENT_TYPES, NARROW_FLOATS, PAIR_TYPES, SPARSE_TYPES, raw_bits
from louver.formats.torch_tensors import host_array, of_host

torch = pytest.importorskip("torch")

TYPES = [name for name in SPARSE_TYPES if name != "tf32" and name not in (*PAIR_TYPES, *NARROW_FLOATS)]


def weight(rng: np.random.Generator, dtype: str, shape: tuple[int, ...] = (6, 20)) -> Any:
    return of_host((8 * rng.standard_normal(shape)).astype(ELEMENT_TYPES[dtype].numpy))


def bits(x: Any) -> Any:
    return raw_bits(host_array(x))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("pattern", "transposable"), [("2:4", False), ("2:4", True), ("2:8@4", False)])
def test_prune_gives_a_tensor(rng: np.random.Generator, dtype: str, pattern: str, transposable: bool) -> None:
    w = weight(rng, dtype)
    kept = louver.prune(w, pattern, transposable=transposable)
    assert type(kept) is torch.Tensor and kept.dtype == w.dtype and kept.device.type == "cpu"
    expected = louver.prune(host_array(w), pattern, transposable=transposable)
    assert isinstance(expected, np.ndarray)
    np.testing.assert_array_equal(bits(kept), raw_bits(expected))
    kept.zero_()


@pytest.mark.parametrize("dtype", TYPES)
def test_dense_gives_a_tensor_of_a_tensor_made_of_one(rng: np.random.Generator, dtype: str) -> None:
    kept = louver.prune(weight(rng, dtype), "2:4")
    s = louver.compress(kept, "2:4")
    made = louver.from_indices(of_host(s.values.copy()), s.unpacked_indices(), "2:4", (6, 20))
    for t in (s, s.T.T, copy.copy(s), copy.deepcopy(s), pickle.loads(pickle.dumps(s)), s.to("cpu"), made):
        dense = t.dense()
        assert type(dense) is torch.Tensor and dense.dtype == kept.dtype
        np.testing.assert_array_equal(bits(dense), bits(kept))
        assert isinstance(np.asarray(t), np.ndarray) and isinstance(t.values, np.ndarray)
    assert type(s.T.dense()) is torch.Tensor and s.T.dense().shape == (20, 6)
    assert isinstance(louver.compress(host_array(kept), "2:4").dense(), np.ndarray)


def test_gated_pairs_and_transposable_pairs_give_tensors(rng: np.random.Generator) -> None:
    first, second = (louver.compress(weight(rng, "f16", (16, 20)), "2:4", method="magnitude") for _ in range(2))
    pair = louver.gated(first, second)
    assert [type(each.dense()) for each in (*pair.parts(), pair)] == [torch.Tensor] * 3
    assert [type(each.dense()) for each in louver.compress_both(weight(rng, "bf16"))] == [torch.Tensor] * 2


def test_views_with_strides_are_read(rng: np.random.Generator) -> None:
    whole = weight(rng, "bf16", (40, 12))
    for w in (whole.T, whole[::2, 1:], whole[3:].T):
        np.testing.assert_array_equal(bits(louver.prune(w, "2:4")), raw_bits(louver.prune(host_array(w), "2:4")))


def test_a_library_is_one_of_two(rng: np.random.Generator) -> None:
    s = louver.compress(weight(rng, "f32"), "2:4", method="magnitude")
    parts = (s.pattern, s.dtype, s.shape, s.axis, s.values, s.indices)
    with pytest.raises(ValueError, match='library is "numpy", "torch" or None, got \'jax\''):
        louver.SparseTensor(*parts, library="jax")  # type: ignore[arg-type]


SAVED = (
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
    *("int8", "uint8", "int16", "uint16", "int32", "int64", "bool"),
)


@pytest.mark.parametrize("name", SAVED)
def test_files_take_tensors_of_every_type_that_they_hold(tmp_path: Path, rng: np.random.Generator, name: str) -> None:
    raw = torch.from_numpy(rng.integers(0, 2, (5, 24), dtype=np.uint8))
    w = raw.view(getattr(torch, name))
    path = tmp_path / "w.safetensors"
    louver.save(path, {"w": w, "strided": w[::2], "scalar": w[0, 0], "dense": host_array(w)})
    back = louver.load(path)
    assert all(isinstance(each, np.ndarray) for each in back.values())
    for key, expected in (("w", w), ("strided", w[::2]), ("scalar", w[0, 0]), ("dense", w)):
        array = back[key]
        assert array.shape == tuple(expected.shape)
        assert array.tobytes() == host_array(expected).tobytes()
        assert array.dtype == np.dtype(getattr(ml_dtypes, name, name))


def test_files_take_parameters_and_activations(tmp_path: Path) -> None:
    layer = torch.nn.Linear(12, 5, dtype=torch.bfloat16)
    louver.save(tmp_path / "w.safetensors", {**layer.state_dict(keep_vars=True), "product": layer.weight * 2})
    back = louver.load(tmp_path / "w.safetensors")
    assert back["weight"].tobytes() == host_array(layer.weight).tobytes()
    assert back["product"].tobytes() == host_array(layer.weight * 2).tobytes()


def test_errors_of_save_name_the_tensor(tmp_path: Path) -> None:
    bad = {
        "meta": torch.empty(3, device="meta"),
        "complex": torch.ones(3, dtype=torch.complex64).conj(),
        "sparse": torch.eye(3).to_sparse(),
        "objects": np.array([object()]),
    }
    for name, tensor in bad.items():
        with pytest.raises((TypeError, ValueError), match=f"^'{name}' cannot be saved: .*"):
            louver.save(tmp_path / "w.safetensors", {"fine": torch.ones(3), name: tensor})
    assert not list(tmp_path.iterdir())


def test_save_wants_names(tmp_path: Path, rng: np.random.Generator) -> None:
    s = louver.compress(weight(rng, "f16"), "2:4", method="magnitude")
    for given in (s, [s], weight(rng, "f16")):
        with pytest.raises(TypeError, match="save takes tensors by name, got .*: give .* a name for each tensor"):
            louver.save(tmp_path / "w.safetensors", given)  # type: ignore[arg-type]
