"""Folders in, folders out: what is copied, what is left, and where links may lead."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import louver

if TYPE_CHECKING:
    from support.command_line import Cli


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A model with everything that hubs put beside the weights."""
    here = tmp_path / "in"
    for name in ("1_Pooling", "2_Dense", "onnx", "original", ".cache"):
        (here / name).mkdir(parents=True)
    weights = {"0.proj.weight": rng.standard_normal((8, 16)).astype(np.float32)}
    for name in ("model.safetensors", "2_Dense/model.safetensors"):
        louver.save(here / name, weights)
    texts = ("config.json", "tokenizer.json", "tokenizer.model", "1_Pooling/config.json", "2_Dense/config.json")
    weights_again = ("pytorch_model.bin", "pytorch_model.bin.index.json", "onnx/model.onnx", "original/a.00.pth")
    for name in (*texts, *weights_again, "original/params.json", ".cache/x", ".gitattributes"):
        (here / name).write_text(json.dumps({"file": name}))
    return here


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_an_output_folder_has_what_belongs_to_the_model(cli: Cli, folder: Path, tmp_path: Path) -> None:
    done = cli("prune", folder, tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert files(tmp_path / "out") == {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "tokenizer.model",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
        "original/params.json",
    }
    left = "onnx/model.onnx, original/a.00.pth"
    assert f"lead out of the folder: pytorch_model.bin, pytorch_model.bin.index.json, {left}" in done.stderr
    for name in files(tmp_path / "out") - {"model.safetensors"}:
        assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()
    assert louver.check(np.asarray(louver.load(tmp_path / "out")["0.proj.weight"]), "2:4").ok
    assert not list(tmp_path.rglob("*.part"))


def test_a_file_in_and_a_folder_out(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """Only a folder brings its other files."""
    (tmp_path / "out").mkdir()
    assert cli("prune", folder / "model.safetensors", tmp_path / "out").exit_code == 0
    assert files(tmp_path / "out") == {"model.safetensors"}
    assert cli("prune", folder, tmp_path / "named.safetensors").exit_code == 0
    assert louver.load(tmp_path / "named.safetensors")


def test_the_output_may_lie_in_the_input_or_be_it(cli: Cli, folder: Path, tmp_path: Path) -> None:
    assert cli("prune", folder, folder / "pruned").exit_code == 0
    assert "pruned/tokenizer.json" in files(folder) and "pruned/pruned/tokenizer.json" not in files(folder)
    before = files(folder)
    assert "--force" in cli.refused("prune", folder, folder)
    assert cli("prune", folder, folder, "--force").exit_code == 0
    assert files(folder) == before
    wanted = louver.load(folder / "pruned" / "model.safetensors")["0.proj.weight"]
    np.testing.assert_array_equal(np.asarray(louver.load(folder / "model.safetensors")["0.proj.weight"]), wanted)


def test_other_files_are_kept_unless_forced(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    (out / "config.json").write_text("another model's")
    assert f"{out / 'config.json'} exists: choose another name" in cli.refused("prune", folder, out)
    assert files(out) == {"tokenizer.json", "config.json"} and (out / "config.json").read_text() == "another model's"
    assert cli("prune", folder, out, "--force").exit_code == 0
    assert (out / "config.json").read_bytes() == (folder / "config.json").read_bytes()


def test_a_folder_holds_one_checkpoint(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """Two would be an old model for one loader, and the pruned one for another."""
    out = tmp_path / "out"
    out.mkdir()
    other = out / "model-00001-of-00002.safetensors"
    other.write_bytes(b"of another model")
    for force in ((), ("--force",)):
        line = cli.refused("prune", folder, out, *force)
        assert f"holds a checkpoint in other files ({other.name}): name another folder, or remove these files" in line
    assert list(out.iterdir()) == [other]
    other.unlink()
    assert cli("prune", folder, out).exit_code == 0
    assert cli("prune", folder, out, "--force").exit_code == 0


def test_an_index_is_written_for_an_index_only(cli: Cli, folder: Path, tmp_path: Path) -> None:
    line = cli.refused("prune", folder, tmp_path / "out.json")
    assert "has no index: OUT is a folder, or a file that ends in .safetensors" in line


def test_links_lead_to_the_model_only(cli: Cli, folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    (folder / "notes.txt").symlink_to(secret)
    (folder / "more").symlink_to(tmp_path)
    (folder / "gone.txt").symlink_to(tmp_path / "nowhere")
    (folder / "readme.txt").symlink_to(folder / "config.json")
    os.mkfifo(folder / "pipe")
    done = cli("prune", folder, tmp_path / "out")
    assert done.exit_code == 0, done.output
    found = files(tmp_path / "out")
    assert "readme.txt" in found and not (tmp_path / "out" / "readme.txt").is_symlink()
    assert not found & {"notes.txt", "gone.txt", "pipe"} and not (tmp_path / "out" / "more").exists()
    for name in ("notes.txt", "gone.txt", "pipe", "more"):
        assert name in done.stderr


def test_a_snapshot_of_a_cache(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """Links to blobs, as huggingface_hub makes them."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, name in enumerate(("model.safetensors", "config.json", "tokenizer.json")):
        (folder / name).rename(blobs / str(number))
        (snapshot / name).symlink_to(Path("../../blobs") / str(number))
    assert cli("prune", snapshot, tmp_path / "out").exit_code == 0
    assert files(tmp_path / "out") == {"model.safetensors", "config.json", "tokenizer.json"}
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())


@pytest.mark.parametrize("kind", ["zip", "pickle"])
def test_files_of_torch_save(kind: str, cli: Cli, tmp_path: Path) -> None:
    here = tmp_path / "model"
    here.mkdir()
    path = here / "pytorch_model.bin"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("archive/data.pkl", pickle.dumps({}))
    else:
        path.write_bytes(pickle.dumps({"a": list(range(99))}, protocol=2))
    for source in (here, path):
        line = cli.refused("prune", source, tmp_path / "out")
        assert f"{path}: a file of torch.save" in line and "weights_only=True" in line and "save_file" in line


@pytest.mark.parametrize("length", [640, 0x02_80 + 0x100])
def test_a_header_whose_length_begins_like_a_pickle(length: int, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for size in range(1, 2000):
        louver.save(path, {"a": np.ones(3)}, {"pad": "x" * size})
        if int.from_bytes(path.read_bytes()[:8], "little") == length:
            break
    assert path.read_bytes()[:1] == b"\x80" and louver.load(path)
