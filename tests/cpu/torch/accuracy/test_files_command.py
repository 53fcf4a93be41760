"""`louver prune --method` from the command line: tables, JSON, the picture, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from support.command_line import Cli
from support.model_folders import saved, tokens_file

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tokens_file(torch, path / "text.npy")
    tokens_file(torch, path / "other.npy", 6, 24, seed=9)
    saved(torch, transformers, path / "in", "llama")
    return path


def test_tables_and_json_tell_the_same(model: Path, tmp_path: Path) -> None:
    call = ("prune", model / "in", tmp_path / "out", "--method", "sparsegpt", "--reconstruct", 4, "--length", 24)
    call = (*call, "--calibration", model / "text.npy", "--eval", model / "other.npy", "--resume", tmp_path / "work")
    result = Cli()(*call, "--plot", tmp_path / "errors.png")
    assert result.exit_code == 0, result.output
    assert "2:4 by sparsegpt; error of the outputs, relative; 7 tensors copied" in result.stdout
    assert "14 of 15 layers" in result.stdout and "before and after" in result.stdout
    assert f"wrote {tmp_path / 'errors.png'}" in result.stderr and (tmp_path / "errors.png").stat().st_size > 1000
    again = Cli()(*call, "--force", "--json")
    assert again.exit_code == 0, again.output
    data = json.loads(again.stdout)
    assert data["kind"] == "prune" and data["method"] == {
        "name": "sparsegpt", "correct": False, "reconstruct": 4, "swaps": 0, "damping": None, "transposable": False
    }  # fmt: skip
    row = next(row for row in data["layers"] if row["name"] == "model.layers.1.mlp.up_proj")
    assert f"{row['error']:.4f}" in result.stdout and row["tokens"] == 21 * 24 and row["zeros"] == 0.5
    (judged,) = data["evaluations"]
    assert judged["text"] == "other.npy" and judged["tokens"] == 6 * 23
    assert judged["ratio"] == pytest.approx(judged["pruned"] / judged["perplexity"])
    assert f"{judged['ratio']:.3f}" in result.stdout and 0 < judged["top1"] <= 1 and judged["kl"] > 0
    assert data["distillation"] is None and len(data["tensors"]) == 14 and data["copied"] == 7
    transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")


def test_magnitude_says_that_it_ruins_a_language_model_and_needs_no_torch(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    result = Cli()("prune", model / "in", tmp_path / "out")
    assert result.exit_code == 0, result.output
    line = "magnitude alone ruins a language model: prune it with --method sparsegpt, and measure it with --eval FILE"
    assert result.stderr.count(line) == 1
    # Its errors are measured, and what it costs, if the model runs.
    monkeypatch.undo()
    judged = (
        "--method",
        "magnitude",
        "--calibration",
        model / "text.npy",
        "--eval",
        model / "text.npy",
        "--length",
        24,
    )
    measured = Cli()("prune", model / "in", tmp_path / "out2", *judged, "--json")
    assert measured.exit_code == 0, measured.output
    one, two = louver.load(tmp_path / "out"), louver.load(tmp_path / "out2")
    assert all((one[name] == two[name]).all() for name in one)
    assert json.loads(measured.stdout)["evaluations"][0]["kl"] > 0


def test_what_is_refused(model: Path, tmp_path: Path) -> None:
    call, out = ("prune", model / "in"), tmp_path / "out"
    assert "--eval goes with --method, such as --method sparsegpt." in Cli().refused(*call, out, "--eval", "f")
    assert "--held-out goes with --method" in Cli().refused(*call, out, "--held-out", "f")
    asked = (*call, out, "--method", "wanda")
    assert "--norm is for pruning by magnitude alone" in Cli().refused(*asked, "--norm", "l1")
    only = ("--only", "*up_proj*", "--axis", 1)
    assert "--axis is for pruning by magnitude alone" in Cli().refused(*asked, *only)
    assert "a time is a number with s, m or h, such as 90s or 2m, got '2'" in Cli().refused(*asked, "--distill", 2)
    for device in ("cuda:99", "gpu", "meta"):
        assert f"(the GPUs here), got {device}" in Cli().refused(*asked, "--device", device)
    assert "no such folder" in Cli().refused(*asked, "--plot", tmp_path / "no" / "p.png")
    said = Cli().refused(*asked[:-1], "obs")
    assert "a method is one of magnitude, wanda, sparsegpt" in said and "got 'obs'" in said
    assert "correct=True changes values" in Cli().refused(*asked, "--correct")
    assert "texts are files" in Cli().refused(*asked, "--calibration", "self", "--calibration", model / "text.npy")
    assert "no such file" in Cli().refused(*asked, "--calibration", tmp_path / "none.txt").lower()
    np.save(tmp_path / "far.npy", np.full((4, 24), 99))
    said = Cli().refused(*asked, "--calibration", tmp_path / "far.npy", "--length", 24)
    assert "ids from 0 to 98, the model's vocabulary, got 99 to 99" in said
    assert not out.exists() and not (tmp_path / ".out.blocks").exists()


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {sys.argv[1]!r}", name=sys.argv[1])

sys.meta_path.insert(0, Missing())
from louver.cli import app
app(sys.argv[2:])
"""


@pytest.mark.parametrize(("module", "extra"), [("torch", "torch"), ("transformers", "models")])
def test_a_missing_package_is_named(module: str, extra: str, model: Path, tmp_path: Path) -> None:
    call = ("prune", model / "in", tmp_path / "out", "--method", "wanda")
    done = subprocess.run([sys.executable, "-c", WITHOUT, module, *map(str, call)], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip() == f"error: {module} is not installed: pip install 'louver[{extra}]'"
