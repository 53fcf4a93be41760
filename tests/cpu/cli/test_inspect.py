from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import louver

if TYPE_CHECKING:
    from support.command_line import Cli


def line_of(output: str, name: str) -> str:
    (line,) = [line for line in output.splitlines() if name in line]
    return line


def test_dense_tensors(cli: Cli, checkpoint: Path) -> None:
    result = cli("inspect", checkpoint)
    assert result.exit_code == 0, result.output
    query = line_of(result.output, "encoder.0.query.weight")
    # 70 columns make 18 groups a row; the last has 2 elements, so only it can hold the pattern.
    assert "37×70" in query and "dense" in query and "f32" in query and f"no: {37 * 17} of {37 * 18}" in query
    assert "–" in line_of(result.output, "encoder.0.dense.bias")
    assert "int64" in line_of(result.output, "position_ids")
    assert "format: pt" in result.output


def test_sparse_tensors(cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    weight = rng.standard_normal((6, 16)).astype(np.float16)
    weight[0, :4] = 0
    sparse = louver.compress(louver.prune(weight, "2:4"), "2:4")
    louver.save(tmp_path / "s.safetensors", {"a.w": sparse, "scale": np.float32(3)})
    result = cli("inspect", tmp_path / "s.safetensors")
    line = line_of(result.output, "a.w ")
    assert "2:4" in line and "yes" in line and "0: 4.17% 2: 95.8%" in line
    assert f"{6 * 8 * 2 + 6 * 2} B" in line
    assert "scalar" in line_of(result.output, "scale")
    assert "no:" in line_of(cli("inspect", tmp_path / "s.safetensors", "--pattern", "1:4").output, "a.w ")


def test_names_are_shown_as_they_are(cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    louver.save(tmp_path / "x.safetensors", {"[red]w[/red]": rng.standard_normal((3, 8))})
    assert "[red]w[/red]" in cli("inspect", tmp_path / "x.safetensors").output


def test_an_empty_matrix(cli: Cli, tmp_path: Path) -> None:
    louver.save(tmp_path / "x.safetensors", {"w": np.empty((0, 8), np.float32)})
    result = cli("inspect", tmp_path / "x.safetensors")
    assert result.exit_code == 0 and "0×8" in result.output


def test_errors_are_one_line(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    assert "nowhere" in cli.refused("inspect", tmp_path / "nowhere")
    assert "got 4:2" in cli.refused("inspect", checkpoint, "--pattern", "4:2")
    (tmp_path / "text").write_text("not a safetensors file at all")
    assert "not a safetensors file" in cli.refused("inspect", tmp_path / "text")
    (tmp_path / "empty").mkdir()
    assert "empty: a directory without an index" in cli.refused("inspect", tmp_path / "empty")


def test_the_contracted_axis_is_checked(cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    """A convolution along its input channels, experts in either layout, weights stored [in, out]."""

    def along(shape: tuple[int, ...], axis: int) -> np.ndarray:
        dense = rng.standard_normal(shape).astype(np.float32)
        return np.ascontiguousarray(np.moveaxis(louver.prune(np.moveaxis(dense, axis, -1), "2:4"), -1, axis))

    tensors = {
        "layers.0.conv.weight": (along((6, 16, 3, 3), 1), 1),
        "layers.0.fc.weight": (along((16, 24), 0), 0),
        "layers.0.fc.bias": (rng.standard_normal(24).astype(np.float32), None),
        "layers.0.mlp.experts.up_proj": (along((3, 24, 16), 2), 2),
        "layers.0.mlp.experts.up_proj_bias": (rng.standard_normal((3, 24)).astype(np.float32), None),
        "layers.1.mlp.experts.up_proj": (along((3, 16, 24), 1), 1),
        "layers.1.mlp.experts.up_proj_bias": (rng.standard_normal((3, 24)).astype(np.float32), None),
    }
    louver.save(tmp_path / "x.safetensors", {name: array for name, (array, _) in tensors.items()})
    found = json.loads(cli("inspect", tmp_path / "x.safetensors", "--json").output)
    for entry in found["tensors"]:
        axis = tensors[entry["name"]][1]
        assert entry["axis"] == axis and entry["holds"] == (None if axis is None else True), entry
    roles = {entry["name"]: entry["role"] for entry in found["tensors"]}
    assert roles["layers.0.conv.weight"] == "convolution" and roles["layers.0.mlp.experts.up_proj_bias"] == "bias"


def test_a_1x1_convolution_and_a_wrong_axis_do_not_hold(cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    fc = louver.prune(rng.standard_normal((16, 24)).astype(np.float32), "2:4")
    tensors = {
        "layers.0.conv.weight": rng.standard_normal((6, 16, 1, 1)).astype(np.float32),
        "layers.0.fc.weight": fc,
        "layers.0.fc.bias": rng.standard_normal(24).astype(np.float32),
    }
    louver.save(tmp_path / "x.safetensors", tensors)
    found = {
        entry["name"]: entry
        for entry in json.loads(cli("inspect", tmp_path / "x.safetensors", "--json").output)["tensors"]
    }
    assert found["layers.0.conv.weight"]["holds"] is False and found["layers.0.fc.weight"]["holds"] is False
