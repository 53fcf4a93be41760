"""`louver compress` and `louver decompress`: lossless, and each tensor that is left is named."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import louver
from louver.formats.checkpoint import open_checkpoint
from louver.formats.schema import BitmaskForm
from louver.models import compress, decompress
from support.killed import killed_after
from support.sparse import bits_of

if TYPE_CHECKING:
    from support.command_line import Cli

CONFIG = {"model_type": "none-such", "hidden_size": 32}


@pytest.fixture
def model(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A folder with two 2:4 weights, one that is not, and one whose axis is the first."""
    folder = tmp_path / "model"
    folder.mkdir()

    def weight(*shape: int, axis: int = 1) -> np.ndarray:
        return louver.prune(rng.standard_normal(shape).astype(np.float16), "2:4", axis=axis)

    tensors = {
        "0.q_proj.weight": weight(16, 32),
        "0.k_proj.weight": weight(24, 32).astype(np.float32),
        "0.v_proj.weight": rng.standard_normal((16, 32)).astype(np.float16),
        "0.experts.down_proj": weight(3, 20, 16, axis=1),
        "0.norm.weight": rng.standard_normal(32).astype(np.float16),
    }
    louver.save(folder / "model.safetensors", tensors, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def raw(path: Path) -> dict[str, bytes]:
    return {name: bits_of(np.asarray(tensor)).tobytes() for name, tensor in louver.load(path).items()}


@pytest.mark.parametrize("piece", [256, 1 << 22])
def test_there_and_back(piece: int, cli: Cli, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("louver.formats.checkpoint.PIECE", piece)
    monkeypatch.setattr("louver.models.steps.PIECE", piece)
    there, back = tmp_path / "there", tmp_path / "back"
    done = cli("compress", model, there, "--include", "*experts*", "--axis", "1", "--json")
    assert done.exit_code == 0, done.output
    assert "weights that are copied: 0.v_proj.weight (128 of 128 groups break 2:4)" in done.stderr
    after = louver.load(there)
    sparse = {name: each.axis for name, each in after.items() if isinstance(each, louver.SparseTensor)}
    assert sparse == {"0.q_proj.weight": 1, "0.k_proj.weight": 1, "0.experts.down_proj": 1}
    assert after["0.k_proj.weight"].dtype.name == "f32", "compress converts nothing"
    record = json.loads(done.stdout)
    assert record["kind"] == "compress" and record["total"]["error"] == 0 and len(record["tensors"]) == 3
    done = cli("decompress", there, back)
    assert done.exit_code == 0, done.output
    assert raw(back) == raw(model)
    assert (back / "config.json").read_text() == json.dumps(CONFIG)


@pytest.mark.parametrize("pattern", ["2:8@4", "2:8@V4", "1:2", "3:7"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("piece", [256, 1 << 22])
def test_other_patterns_and_axes(
    piece: int,
    axis: int,
    pattern: str,
    cli: Cli,
    tmp_path: Path,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("louver.formats.checkpoint.PIECE", piece)
    monkeypatch.setattr("louver.models.steps.PIECE", piece)
    weight = louver.prune(rng.standard_normal((35, 46)).astype(np.float16), pattern, axis=axis)
    louver.save(tmp_path / "in", {"0.proj.weight": weight, "0.proj.bias": rng.standard_normal(5)})
    arguments = ("--pattern", pattern, "--only", "0.proj.weight", "--axis", axis)
    done = cli("compress", tmp_path / "in", tmp_path / "out", *arguments)
    assert done.exit_code == 0, done.output
    wanted = louver.compress(weight, pattern, axis=axis)
    got = louver.load(tmp_path / "out")["0.proj.weight"]
    assert isinstance(got, louver.SparseTensor) and got.values.tobytes() == wanted.values.tobytes()
    assert got.indices.tobytes() == wanted.indices.tobytes()
    assert cli("decompress", tmp_path / "out", tmp_path / "back").exit_code == 0
    assert raw(tmp_path / "back") == raw(tmp_path / "in")


def test_negative_zeros_are_counted(cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    weight = louver.prune(rng.standard_normal((8, 16)).astype(np.float32), "2:4")
    (places,) = np.nonzero(weight.ravel() == 0)
    weight.ravel()[places[:5]] = -0.0
    louver.save(tmp_path / "in", {"0.q_proj.weight": weight})
    there = cli("compress", tmp_path / "in", tmp_path / "there", "--json")
    assert "5 elements -0.0 that are not stored became +0.0" in there.stderr
    assert json.loads(there.stdout)["tensors"][0]["negative_zeros"] == 5
    assert "5 elements -0.0" in cli("decompress", tmp_path / "there", tmp_path / "back").stderr
    after = np.asarray(louver.load(tmp_path / "back")["0.q_proj.weight"])
    np.testing.assert_array_equal(after, weight)
    assert not np.signbit(after[after == 0]).any()


def test_bitmasks(cli: Cli, model: Path, tmp_path: Path) -> None:
    done = cli("compress", model, tmp_path / "there", "--to", "sparse24_bitmask", "--exclude", "*experts*")
    assert done.exit_code == 0, done.output
    forms = {name: each.form for name, each in open_checkpoint(tmp_path / "there").tensors.items()}
    assert {name for name, form in forms.items() if isinstance(form, BitmaskForm)} == {
        "0.q_proj.weight",
        "0.k_proj.weight",
    }
    config = json.loads((tmp_path / "there" / "config.json").read_text())
    assert config["quantization_config"]["sparsity_config"]["format"] == "sparse-24-bitmask"
    assert cli("decompress", tmp_path / "there", tmp_path / "back").exit_code == 0
    assert raw(tmp_path / "back") == raw(model)
    assert json.loads((tmp_path / "back" / "config.json").read_text()) == CONFIG
    # In place, with the configuration.
    assert cli("decompress", tmp_path / "there", tmp_path / "there", "--force").exit_code == 0
    assert raw(tmp_path / "there") == raw(model)
    assert json.loads((tmp_path / "there" / "config.json").read_text()) == CONFIG


def test_a_run_in_place_killed_anywhere_goes_on(model: Path, tmp_path: Path) -> None:
    """With the configuration, which says what the weights are stored as."""
    compress(model, tmp_path / "there", only=["*[qk]_proj.weight"], to="sparse24_bitmask")
    for limit in itertools.count():
        here = tmp_path / str(limit)
        shutil.copytree(tmp_path / "there", here)
        killed = killed_after(limit, lambda here=here: decompress(here, here, force=True))
        if killed:
            decompress(here, here, force=True)
        assert raw(here) == raw(model) and json.loads((here / "config.json").read_text()) == CONFIG
        assert {path.name for path in here.iterdir()} == {"model.safetensors", "config.json"}
        if not killed:
            break
    assert limit > 15


def test_what_cannot_be_done_is_said(cli: Cli, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = cli.refused("compress", model, out, "--only", "*v_proj*")
    assert "none of 1 weights can be compressed to 2:4: 0.v_proj.weight (128 of 128 groups break 2:4): prune" in line
    assert cli("prune", model, tmp_path / "sparse", "--compressed").exit_code == 0
    line = cli.refused("compress", tmp_path / "sparse", out)
    assert "it is sparse already" in line and "see louver prune --dry-run for all reasons" in line
    line = cli.refused("compress", model, out, "--to", "sparse24_bitmask", "--pattern", "1:2")
    assert "sparse24_bitmask holds 2:4, got 1:2" in line
    assert "none of 5 tensors" in cli.refused("decompress", model, out)
    assert not out.exists()
