"""Bitmasks against the compressed-tensors package, for versions that have them: 0.14 is the last one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.checkpoint import open_checkpoint
from louver.models.rewrite import config_after
from support.bitmasks import write_bitmask
from support.containers import read_container
from support.sparse import bits_of, same_bits

torch: Any = pytest.importorskip("torch")
sparse_24: Any = pytest.importorskip(
    "compressed_tensors.compressors.sparse_compressors.sparse_24_bitmask",
    reason="this compressed-tensors has no bitmasks: pip install --no-deps compressed-tensors==0.14.0",
)
st: Any = pytest.importorskip("safetensors.torch")

TYPES = {"f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "s8": "int8", "f32": "float32"}

SHAPES = ((16, 64), (7, 12), (5, 4), (3, 100))


def compressor() -> Any:
    from compressed_tensors.config import Sparse24BitMaskConfig

    return sparse_24.Sparse24BitMaskCompressor(config=Sparse24BitMaskConfig())


def weight_of(rng: np.random.Generator, shape: tuple[int, int], dtype: str, zeros: bool) -> Any:
    """A 2:4 weight; with `zeros`, some groups hold fewer than two values."""
    bits = louver.prune(rng.standard_normal(shape, np.float32) * 9 + 1, "2:4")
    bits = np.where((bits != 0) & (np.abs(bits) < 0.1), np.float32(1), bits)
    if zeros:
        bits[rng.random(shape) < 0.2] = 0
    dense = torch.from_numpy(bits)
    if dtype == "s8":
        dense = torch.where((dense != 0) & (dense.abs() < 1), torch.ones(()), dense).round()
    return dense.to(getattr(torch, TYPES[dtype]))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("zeros", [False, True])
def test_both_writers_and_both_readers(
    zeros: bool, shape: tuple[int, int], dtype: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    weight = weight_of(rng, shape, dtype, zeros)
    theirs, ours = tmp_path / "theirs.safetensors", tmp_path / "ours.safetensors"
    st.save_file(compressor().compress({"layer.weight": weight}), theirs)
    dense = np.asarray(louver.load(theirs)["layer.weight"])
    assert dense.tobytes() == weight.view(torch.uint8).numpy().tobytes() and dense.shape == shape

    assert write_bitmask(ours, {"layer.weight": dense}) == 0
    back = dict(compressor().decompress(str(ours)))["layer.weight"]
    assert back.dtype == weight.dtype and torch.equal(back.view(torch.uint8), weight.view(torch.uint8))
    if not zeros:
        # Where a group has fewer than two values, any zero may take the free place.
        written, expected = read_container(ours)[0], read_container(theirs)[0]
        assert written.keys() == expected.keys()
        assert all(same_bits(written[name], expected[name]) for name in expected)


def test_a_weight_that_keeps_any_elements(tmp_path: Path, rng: np.random.Generator) -> None:
    from compressed_tensors.compressors.sparse_compressors.sparse_bitmask import BitmaskCompressor
    from compressed_tensors.config import BitmaskConfig

    dense = np.where(rng.random((9, 21)) < 0.4, rng.standard_normal((9, 21)), 0).astype(np.float16)
    arrays = BitmaskCompressor(config=BitmaskConfig()).compress({"layer.weight": torch.from_numpy(dense)})
    st.save_file(arrays, tmp_path / "t")
    np.testing.assert_array_equal(bits_of(np.asarray(louver.load(tmp_path / "t")["layer.weight"])), bits_of(dense))


def test_a_folder_that_the_package_loads(tmp_path: Path, rng: np.random.Generator) -> None:
    """A model with bitmasks, by Louver's files and `config.json`, and the same one decompressed."""
    from compressed_tensors.compressors import ModelCompressor

    weight = louver.prune(rng.standard_normal((8, 16), np.float32), "2:4")
    path = tmp_path / "model.safetensors"
    write_bitmask(path, {"layer.weight": weight})
    forms = {name: tensor.form for name, tensor in open_checkpoint(path).tensors.items()}
    config = config_after({"model_type": "llama"}, forms)
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = ModelCompressor.from_compression_config(config["quantization_config"])
    model = torch.nn.Sequential()
    model.add_module("layer", torch.nn.Linear(16, 8, bias=False))
    found.decompress(str(tmp_path), model)
    assert torch.equal(model.layer.weight.detach(), torch.from_numpy(weight))
    assert config_after(config, {}) == {"model_type": "llama"}
