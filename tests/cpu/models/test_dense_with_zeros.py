"""Checkpoints of programs that store pruned weights as dense tensors with zeros: what each of them leaves in a file.

ASP (apex) multiplies a weight by its mask, and keeps the mask as a buffer beside it: of the weight's own type in old
releases, of bool in new ones. ModelOpt multiplies too, and keeps `_weight_mask` unless the model was exported. So dropped
negative values are -0.0. llm-compressor assigns zeros, and describes them in `config.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from support.bitmasks import two_of_four
from support.command_line import Cli
from support.containers import read_container, write_container
from support.sparse import bits_of, same_bits

Arrays = dict[str, np.ndarray[Any, Any]]

SHAPE = (12, 32)


def of_asp(weight: Any, mask: Any) -> Arrays:
    masked = weight * mask.astype(weight.dtype)
    return {"fc.weight": masked, "fc.__weight_mma_mask": mask}


def of_old_asp(weight: Any, mask: Any) -> Arrays:
    return of_asp(weight, mask) | {"fc.__weight_mma_mask": mask.astype(weight.dtype)}


def of_modelopt(weight: Any, mask: Any) -> Arrays:
    return {"fc.weight": weight * mask.astype(weight.dtype), "fc._weight_mask": mask}


def of_exported_modelopt(weight: Any, mask: Any) -> Arrays:
    return {"fc.weight": weight * mask.astype(weight.dtype)}


def of_llm_compressor(weight: Any, mask: Any) -> Arrays:
    return {"fc.weight": np.where(mask, weight, weight.dtype.type(0))}


WRITERS = (of_asp, of_old_asp, of_modelopt, of_exported_modelopt, of_llm_compressor)


@pytest.fixture(params=WRITERS, ids=lambda writer: writer.__name__)
def written(request: pytest.FixtureRequest, tmp_path: Path, rng: np.random.Generator) -> tuple[Path, Arrays]:
    writer: Callable[[Any, Any], Arrays] = request.param
    arrays = writer(rng.standard_normal(SHAPE).astype(np.float16), two_of_four(rng, SHAPE))
    arrays["fc.bias"] = rng.standard_normal(12).astype(np.float16)
    return write_container(tmp_path / "model.safetensors", arrays, {"format": "pt"}), arrays


def negative_zeros(array: Any) -> int:
    return int(np.count_nonzero(bits_of(array) == 0x8000))


def same_tensors(loaded: Mapping[str, Any], arrays: Arrays) -> bool:
    return loaded.keys() == arrays.keys() and all(same_bits(np.asarray(loaded[name]), arrays[name]) for name in arrays)


def test_they_load_bit_for_bit_and_compress(written: tuple[Path, Arrays]) -> None:
    path, arrays = written
    loaded = louver.load(path)
    assert same_tensors(loaded, arrays)
    weight = arrays["fc.weight"]
    s = louver.compress(loaded["fc.weight"], "2:4")
    assert s.negative_zeros_dropped == negative_zeros(weight)
    # -0.0 in a dropped place becomes +0.0; nothing else changes.
    assert same_bits(s.dense(), np.where(weight == 0, np.float16(0), weight))


def test_inspect_finds_the_pattern(written: tuple[Path, Arrays], cli: Cli) -> None:
    path, _ = written
    rows = {row["name"]: row for row in json.loads(cli("inspect", path, "--json").stdout)["tensors"]}
    assert rows["fc.weight"]["holds"] and rows["fc.weight"]["offending"] == 0


def test_pruning_them_again_changes_no_number(written: tuple[Path, Arrays], cli: Cli, tmp_path: Path) -> None:
    path, arrays = written
    done = cli("prune", path, tmp_path / "out", "--compressed", "--include", "fc.weight", "--json")
    (row,) = json.loads(done.stdout)["tensors"]
    assert row["error"] == 0
    after, _ = read_container(tmp_path / "out")
    masks = {name: array for name, array in arrays.items() if "mask" in name or name == "fc.bias"}
    assert all(same_bits(after[name], array) for name, array in masks.items())
    s = louver.load(tmp_path / "out")["fc.weight"]
    assert isinstance(s, louver.SparseTensor) and np.array_equal(s.dense(), arrays["fc.weight"])
