from __future__ import annotations

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
