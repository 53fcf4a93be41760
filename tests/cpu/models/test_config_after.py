"""`config.json` after weights were written in another form."""

from __future__ import annotations

from typing import Any

import pytest

from louver.formats.schema import BitmaskForm, DenseForm
from louver.models.rewrite import config_after

DENSE = {"a.weight": DenseForm("F16", (4, 8))}

BITMASKS = {"b.weight": BitmaskForm("F16", (4, 8)), "a.weight": BitmaskForm("F16", (4, 8)), "n": DenseForm("F16", (4,))}

ANNOUNCED = {"format": "sparse-24-bitmask", "sparsity_structure": "2:4", "targets": ["Linear"], "ignore": ["lm_head"]}

QUANTIZED = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"]}},
}


def config(**entry: Any) -> dict[str, Any]:
    return {"architectures": ["X"], "quantization_config": entry, "z": 1}


def test_decompressed_weights_are_no_longer_announced() -> None:
    for more in ({}, {"transform_config": {}}, {"version": "0.9.0"}, {"format": "dense"}):
        given = config(quant_method="compressed-tensors", sparsity_config=ANNOUNCED, **more)
        assert config_after(given, DENSE) == {"architectures": ["X"], "z": 1}
    old = {"compression_config": {"sparsity_config": ANNOUNCED}, "z": 1}
    assert config_after(old, DENSE) == {"z": 1}


def test_a_quantization_stays() -> None:
    assert config_after(config(**QUANTIZED, sparsity_config=ANNOUNCED), DENSE) == config(**QUANTIZED)
    transformed = {"quant_method": "compressed-tensors", "transform_config": {"config_groups": {"a": 1}}}
    assert config_after(config(**transformed, sparsity_config=ANNOUNCED), DENSE) == config(**transformed)


@pytest.mark.parametrize(
    "given",
    [
        {"z": 1},
        config(**QUANTIZED, sparsity_config={}),
        config(quant_method="compressed-tensors", sparsity_config={"format": "dense", "sparsity_structure": "2:4"}),
        config(quant_method="gptq", bits=4),
        config(quant_method="modelopt", sparsity_config=None),
    ],
)
def test_all_else_stays(given: dict[str, Any]) -> None:
    assert config_after(given, DENSE) == given


def test_bitmasks_are_announced() -> None:
    announced = {**ANNOUNCED, "targets": ["a", "b"], "ignore": []}
    method = {"quant_method": "compressed-tensors"}
    assert config_after({"z": 1}, BITMASKS) == {"z": 1, "quantization_config": {**method, "sparsity_config": announced}}
    assert config_after(config(**QUANTIZED, sparsity_config={}), BITMASKS) == config(
        **QUANTIZED, sparsity_config=announced
    )
    dense = {"format": "dense", "sparsity_structure": "2:4", "global_sparsity": 0.4}
    given = config(**method, sparsity_config=dense)
    assert config_after(given, BITMASKS) == config(**method, sparsity_config={**announced, "global_sparsity": 0.4})
    assert given["quantization_config"]["sparsity_config"] is dense and dense["format"] == "dense"
    kept = config_after({}, {"a.weight": BitmaskForm("F16", (4, 8), 3)})["quantization_config"]["sparsity_config"]
    assert (kept["format"], kept["sparsity_structure"]) == ("sparse-bitmask", "unstructured")


def test_bitmasks_in_parts_of_different_files_stay_announced() -> None:
    parts = {
        "a.compressed": DenseForm("F16", (4, 4)),
        "a.bitmask": DenseForm("U8", (4, 1)),
        "b.bitmask": DenseForm("U8", (4, 1)),
    }
    after = config_after(config(quant_method="compressed-tensors", sparsity_config=ANNOUNCED), parts)
    assert after["quantization_config"]["sparsity_config"]["targets"] == ["a"]


def test_what_cannot_be_announced() -> None:
    with pytest.raises(ValueError, match="got a checkpoint of 'gptq', as its config.json says: write dense tensors"):
        config_after(config(quant_method="gptq"), BITMASKS)
    with pytest.raises(ValueError, match="sparse-24-bitmask and sparse-bitmask for 'b' and 'c'"):
        config_after({}, {**BITMASKS, "c.weight": BitmaskForm("F16", (4, 8), 3)})
