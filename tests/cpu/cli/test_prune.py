from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy

import louver
from louver.formats.checkpoint import open_checkpoint
from louver.models.steps import Tally

if TYPE_CHECKING:
    from support.command_line import Cli

PROJECTIONS = ("encoder.0.query.weight", "encoder.0.dense.weight")


def best_error(weight: np.ndarray[Any, Any], pruned: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(weight.astype(float) - pruned.astype(float)) / np.linalg.norm(weight.astype(float)))


def test_dense_output_keeps_the_largest_two_of_four(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    result = cli("prune", checkpoint, tmp_path / "out.safetensors")
    assert result.exit_code == 0, result.output
    before, after = louver.load(checkpoint), safetensors.numpy.load_file(tmp_path / "out.safetensors")
    assert before.keys() == after.keys()
    for name, weight in before.items():
        if name not in PROJECTIONS:
            np.testing.assert_array_equal(weight, after[name])
            continue
        for row, column in itertools.product(range(weight.shape[0]), range(0, weight.shape[1], 4)):
            group = np.asarray(weight)[row, column : column + 4]
            keep = np.argsort(-np.abs(group), kind="stable")[:2]
            expected = np.zeros_like(group)
            expected[keep] = group[keep]
            np.testing.assert_array_equal(after[name][row, column : column + 4], expected)


def test_metadata_is_carried_over(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    cli("prune", checkpoint, tmp_path / "out.safetensors")
    assert open_checkpoint(tmp_path / "out.safetensors").metadata["format"] == "pt"


def test_compressed_output_holds_sparse_tensors(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    assert cli("prune", checkpoint, tmp_path / "d.safetensors", "--dtype", "f16").exit_code == 0
    assert cli("prune", checkpoint, tmp_path / "s.safetensors", "--dtype", "f16", "--compressed").exit_code == 0
    dense, sparse = louver.load(tmp_path / "d.safetensors"), louver.load(tmp_path / "s.safetensors")
    for name in PROJECTIONS:
        tensor = sparse[name]
        assert isinstance(tensor, louver.SparseTensor)
        assert tensor.dtype.name == "f16"
        np.testing.assert_array_equal(tensor.dense(), np.asarray(dense[name]))
    assert np.asarray(sparse["encoder.0.dense.bias"]).dtype == np.float32


def test_the_table_shows_sizes_and_errors(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    result = cli("prune", checkpoint, tmp_path / "out.safetensors")
    before, after = louver.load(checkpoint), louver.load(tmp_path / "out.safetensors")
    for name in PROJECTIONS:
        assert f"{best_error(np.asarray(before[name]), np.asarray(after[name])):.4f}" in result.output
    assert "3 tensors copied" in result.output
    assert "37×70" in result.output


@pytest.mark.parametrize(
    ("options", "pruned"),
    [
        (["--only", "*query*"], {"encoder.0.query.weight"}),
        (["--exclude", "*dense*"], {"encoder.0.query.weight"}),
        (["--include", "embed*.weight"], {*PROJECTIONS, "embeddings.word_embeddings.weight"}),
        (["--only", "embed*.weight", "--axis", "0"], {"embeddings.word_embeddings.weight"}),
    ],
)
def test_globs_choose_the_tensors(
    cli: Cli, checkpoint: Path, tmp_path: Path, options: list[str], pruned: set[str]
) -> None:
    assert cli("prune", checkpoint, tmp_path / "out.safetensors", *options).exit_code == 0
    before, after = louver.load(checkpoint), louver.load(tmp_path / "out.safetensors")
    changed = {name for name in before if not np.array_equal(np.asarray(before[name]), np.asarray(after[name]))}
    assert changed == pruned


def test_other_patterns(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    assert cli("prune", checkpoint, tmp_path / "out.safetensors", "--pattern", "1:2").exit_code == 0
    assert louver.check(np.asarray(louver.load(tmp_path / "out.safetensors")["encoder.0.query.weight"]), "1:2").ok


@pytest.mark.parametrize("pattern", ["2:8@4", "2:8@V4"])
def test_vectors_in_pieces_are_those_of_the_whole(
    pattern: str, cli: Cli, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("louver.formats.checkpoint.PIECE", 256)
    before = louver.load(checkpoint)
    for form in ("--dense", "--compressed"):
        out = tmp_path / f"{form}.safetensors"
        norm = "l1" if form == "--dense" else "l2"
        options = (form, "--pattern", pattern, "--norm", norm, "--dtype", "f32")
        assert cli("prune", checkpoint, out, *options).exit_code == 0
        after = louver.load(out)
        for name in PROJECTIONS:
            got = np.asarray(after[name])
            assert got.dtype == np.float32 and isinstance(after[name], louver.SparseTensor) == (form == "--compressed")
            np.testing.assert_array_equal(got, louver.prune(np.asarray(before[name]), pattern, norm=norm))
        described = json.loads(cli("inspect", out, "--pattern", pattern, "--json").stdout)["tensors"]
        assert {entry["name"] for entry in described if entry["holds"]} == set(PROJECTIONS)
        assert "no:" in cli("inspect", out, "--pattern", pattern.replace("4", "5")).output


def test_pruning_again_changes_nothing(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    once, twice = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    cli("prune", checkpoint, once)
    cli("prune", once, twice)
    assert once.read_bytes() == twice.read_bytes()


def test_an_existing_file_is_kept_unless_forced(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    out.write_text("precious")
    assert "--force" in cli.refused("prune", checkpoint, out)
    assert out.read_text() == "precious"
    assert cli("prune", checkpoint, out, "--force").exit_code == 0
    assert louver.load(out)


def test_a_failure_leaves_no_file(cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    louver.save(source, {"0.a.weight": rng.standard_normal((5, 8)), "0.b.weight": np.full((3, 12), 1e6, np.float32)})
    line = cli.refused("prune", source, out, "--dtype", "f16")
    assert "b.weight" in line and "bf16" in line
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


def test_infinities_stay_and_do_not_spoil_the_error(cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    weight = rng.standard_normal((5, 12)).astype(np.float32)
    weight[2, 5], weight[3, 1] = np.inf, np.nan
    louver.save(tmp_path / "in.safetensors", {"0.proj.weight": weight})
    result = cli("prune", tmp_path / "in.safetensors", tmp_path / "out.safetensors", "--dtype", "f16", "--json")
    after = np.asarray(louver.load(tmp_path / "out.safetensors")["0.proj.weight"])
    assert np.isinf(after[2, 5]) and np.isnan(after[3, 1])
    assert 0 < json.loads(result.stdout)["tensors"][0]["error"] < 1


def test_errors_are_one_line(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    assert "nowhere" in cli.refused("prune", tmp_path / "nowhere.safetensors", out)
    assert '"N:M"' in cli.refused("prune", checkpoint, out, "--pattern", "two of four")
    assert "'nothing*' names none of 5 tensors" in cli.refused("prune", checkpoint, out, "--include", "nothing*")
    line = cli.refused("prune", checkpoint, out, "--exclude", "enc*")
    assert "none of 5 tensors is pruned" in line and "excluded by the user" in line and "--dry-run" in line
    assert "Missing argument 'OUT'" in cli.refused("prune", checkpoint)
    for arguments in (["", out], [checkpoint, ""], [checkpoint, out, "-o", ""]):
        assert "a path is not empty: is a variable unset?" in cli.refused("prune", *arguments, "--force")
    assert "make it first" in cli.refused("prune", checkpoint, tmp_path / "no" / "out.safetensors")
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(checkpoint.read_bytes()[:-100])
    assert "truncated" in cli.refused("prune", damaged, out)
    assert not out.exists()


def test_a_zero_weight_has_no_error() -> None:
    assert Tally().row("w", (3, 4), "f32", (48, 48)).error == 0
