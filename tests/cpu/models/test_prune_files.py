"""The files of `louver prune`: those that it replaces, those that it keeps, and those that it leaves when it is interrupted."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors import safe_open

import louver
from louver.formats.pattern import Pattern
from louver.models import pruning
from louver.models.pruning import PruneOptions
from louver.models.rewrite import Rewritten, rewrite
from support.killed import KilledError, killed_after
from support.sparse import bits_of

if TYPE_CHECKING:
    from support.command_line import Cli

INDEX = "model.safetensors.index.json"


def options(force: bool = True, **changed: Any) -> tuple[PruneOptions, bool]:
    return PruneOptions(**({"pattern": Pattern(2, 4)} | changed)), force


def prune_checkpoint(
    source: Path, out: Path, given: tuple[PruneOptions, bool], progress: Callable[[float], None]
) -> Rewritten:
    return rewrite(source, out, given[0], force=given[1], progress=progress)


def quiet(share: float) -> None:
    assert 0 <= share <= 1


def content(path: Path) -> dict[str, bytes]:
    """All tensors of a checkpoint, as bytes."""
    found: dict[str, bytes] = {}
    for name, tensor in louver.load(path).items():
        dense = tensor.dense() if isinstance(tensor, louver.SparseTensor) else tensor
        found[name] = bits_of(np.ascontiguousarray(dense)).tobytes()
    return found


@pytest.fixture
def sharded(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A folder with an index of two files."""
    folder = tmp_path / "in"
    folder.mkdir()
    shards = [
        {"a.0.weight": rng.standard_normal((12, 40)).astype(np.float32), "a.0.bias": rng.standard_normal(12)},
        {"b.0.weight": rng.standard_normal((7, 24)).astype(np.float32), "b.0.steps": rng.integers(0, 99, 3)},
    ]
    weight_map: dict[str, str] = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05}-of-00002.safetensors"
        louver.save(folder / name, tensors, {"format": "pt"})
        weight_map |= dict.fromkeys(tensors, name)
    index = {"metadata": {"total_size": 1, "note": ["kept"]}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index))
    return folder


def test_what_is_no_regular_file_is_not_replaced(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for out, kind in ((fifo, "a FIFO"), (Path("/dev/null"), "a character device")):
        line = cli.refused("prune", checkpoint, out, "--force")
        assert f"{out} is {kind}: only a regular file is replaced" in line
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    with pytest.raises(ValueError, match=r"fifo is a FIFO: only a regular file is replaced"):
        louver.save(fifo, {"a": np.ones(3)})


def test_a_symlink_is_followed(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real.safetensors", tmp_path / "link.safetensors"
    link.symlink_to(real)
    assert cli("prune", checkpoint, link).exit_code == 0
    assert link.is_symlink() and louver.load(real).keys() == louver.load(checkpoint).keys()
    assert cli("prune", checkpoint, link, "--compressed", "--force").exit_code == 0
    assert link.is_symlink() and isinstance(louver.load(real)["encoder.0.dense.weight"], louver.SparseTensor)
    assert [path.name for path in real.parent.iterdir()] == [real.name]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_the_mode_of_a_replaced_file_is_kept(mode: int, cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    out.write_text("old")
    out.chmod(mode)
    assert cli("prune", checkpoint, out, "--force").exit_code == 0
    assert stat.S_IMODE(out.stat().st_mode) == mode


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can change a file's owner")
def test_the_owner_of_a_replaced_file_is_kept(
    cli: Cli, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.safetensors"
    out.write_text("old")
    os.chown(out, 1234, 5678)
    assert cli("prune", checkpoint, out, "--force").exit_code == 0
    assert (out.stat().st_uid, out.stat().st_gid) == (1234, 5678)
    os.chown(out, 4321, 5678)

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    assert f"{out}: its owner cannot be kept: remove it first" in cli.refused("prune", checkpoint, out, "--force")


@pytest.mark.parametrize("kind", ["same", "symlink", "hard link"])
def test_output_may_be_the_input(kind: str, cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    out = checkpoint if kind == "same" else tmp_path / "other.safetensors"
    if kind == "symlink":
        out.symlink_to(checkpoint)
    elif kind == "hard link":
        os.link(checkpoint, out)
    assert cli("prune", checkpoint, tmp_path / "expected.safetensors").exit_code == 0
    expected = (tmp_path / "expected.safetensors").read_bytes()
    before = checkpoint.read_bytes()
    assert "--force" in cli.refused("prune", checkpoint, out)
    assert cli("prune", checkpoint, out, "--force").exit_code == 0
    assert out.read_bytes() == expected
    assert checkpoint.read_bytes() == (before if kind == "hard link" else expected)


def test_long_names(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / ("n" * 242 + ".safetensors")
    assert cli("prune", checkpoint, out).exit_code == 0 and louver.load(out)
    longer = tmp_path / ("n" * 256)
    assert f"{longer}: File name too long" in cli.refused("prune", checkpoint, longer)
    with pytest.raises(OSError, match="File name too long") as caught:
        louver.save(longer, {"a": np.ones(3)})
    assert caught.value.filename == str(longer)


def test_dense_files_are_the_same_as_those_of_save(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    assert cli("prune", checkpoint, tmp_path / "out.safetensors", "--compressed").exit_code == 0
    louver.save(tmp_path / "saved.safetensors", louver.load(tmp_path / "out.safetensors"), {"format": "pt"})
    assert (tmp_path / "out.safetensors").read_bytes() == (tmp_path / "saved.safetensors").read_bytes()


def test_sizes_are_of_what_was_written(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    for form in ("--dense", "--compressed"):
        out = tmp_path / f"{form}.safetensors"
        result = json.loads(cli("prune", checkpoint, out, form, "--json").stdout)
        with safe_open(out, "np") as file:
            written = sum(file.get_tensor(name).nbytes for name in list(file.keys()))
        assert result["written_bytes"] == written
        ratio = result["total"]["dense_bytes"] / result["total"]["stored_bytes"]
        assert ratio == 1 if form == "--dense" else 1.6 < ratio < 1.8


def test_compressed_weights_are_of_a_type_that_products_take(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    weight = np.asarray(louver.load(checkpoint)["encoder.0.dense.weight"])
    expected = louver.prune(weight.astype(np.float16), "2:4")
    cli("prune", checkpoint, tmp_path / "s.safetensors", "--compressed")
    sparse = louver.load(tmp_path / "s.safetensors")["encoder.0.dense.weight"]
    assert isinstance(sparse, louver.SparseTensor) and sparse.dtype.name == "f16"
    np.testing.assert_array_equal(sparse.dense(), expected)
    with warnings.catch_warnings(action="ignore"):
        assert louver.linear(np.ones((2, 128), np.float16), sparse).shape == (2, 9)
    for dtype in ("bf16", "e4m3", "e5m2", "f32"):
        cli("prune", checkpoint, tmp_path / dtype, "--compressed", "--dtype", dtype)
        assert louver.load(tmp_path / dtype)["encoder.0.dense.weight"].dtype.name == dtype
    cli("prune", checkpoint, tmp_path / "d.safetensors")
    assert np.asarray(louver.load(tmp_path / "d.safetensors")["encoder.0.dense.weight"]).dtype == np.float32


@pytest.mark.parametrize(
    ("value", "arguments", "advice"),
    [
        (7e4, ["--compressed"], "holds 70000.0, which f16 cannot: use --dtype bf16"),
        (500, ["--dtype", "e4m3"], "holds 500.0, which e4m3 cannot: use --dtype bf16"),
        (np.inf, ["--dtype", "e4m3"], "holds inf, which e4m3 cannot"),
        (3.4e38, ["--dtype", "bf16"], "holds 3.3999999521443642e+38, which bf16 cannot: use --dtype f32"),
    ],
)
def test_values_out_of_a_type_s_range(
    value: float, arguments: list[str], advice: str, cli: Cli, tmp_path: Path, rng: np.random.Generator
) -> None:
    weight = rng.standard_normal((5, 12)).astype(np.float32)
    weight[3, 7] = value
    louver.save(tmp_path / "in.safetensors", {"0.proj.weight": weight})
    assert f"'0.proj.weight' {advice}" in cli.refused(
        "prune", tmp_path / "in.safetensors", tmp_path / "out", *arguments
    )
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


def test_parts_of_sparse_tensors_are_not_pruned_again(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    once, twice = tmp_path / "once.safetensors", tmp_path / "twice.safetensors"
    cli("prune", checkpoint, once, "--compressed", "--only", "*query*")
    assert cli("prune", once, twice, "--compressed").exit_code == 0
    first, second = louver.load(once), louver.load(twice)
    assert first["encoder.0.query.weight"].values.tobytes() == second["encoder.0.query.weight"].values.tobytes()
    # Another program has written the arrays without Louver's metadata.
    import safetensors.numpy

    stripped = tmp_path / "stripped.safetensors"
    safetensors.numpy.save_file(safetensors.numpy.load_file(once), stripped)
    for command in (["inspect", stripped], ["prune", stripped, tmp_path / "out"]):
        line = cli.refused(*command)
        assert (
            f"{stripped}: the file has lost the metadata that describe the sparse tensor 'encoder.0.query.weight'"
            in line
        )


@pytest.mark.parametrize("arguments", [[], ["--compressed"]])
def test_a_tensor_that_the_index_does_not_list_is_copied(
    arguments: list[str], cli: Cli, sharded: Path, tmp_path: Path
) -> None:
    fields = json.loads((sharded / INDEX).read_text())
    left_out = "a.0.weight"
    shard = fields["weight_map"].pop(left_out)
    fields["metadata"].pop("louver_crc32", None)
    (sharded / INDEX).write_text(json.dumps(fields))
    out = tmp_path / "out"
    done = cli("prune", sharded, out, *arguments)
    assert done.exit_code == 0 and f"{INDEX} does not list 'a.0.weight'" in done.stderr
    assert not any(name.startswith(left_out) for name in json.loads((out / INDEX).read_text())["weight_map"])
    with safe_open(out / shard, "np") as file:
        assert file.get_tensor(left_out).tobytes() == content(sharded)[left_out]
    listed = cli("inspect", out)
    assert listed.exit_code == 0 and f"{INDEX} does not list 'a.0.weight'" in listed.stdout


def test_a_sharded_checkpoint(cli: Cli, sharded: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = louver.load(sharded)
    assert cli("prune", sharded / INDEX, out, "--compressed").exit_code == 0
    after = louver.load(out)
    assert after.keys() == before.keys() == louver.load(out / INDEX).keys()
    for name, tensor in after.items():
        expected = np.asarray(before[name])
        if name.endswith("weight"):
            assert isinstance(tensor, louver.SparseTensor)
            np.testing.assert_array_equal(tensor.dense(), louver.prune(expected.astype(np.float16), "2:4"))
        else:
            np.testing.assert_array_equal(np.asarray(tensor), expected)
    index = json.loads((out / INDEX).read_text())
    total = 0
    for name, shard in index["weight_map"].items():
        with safe_open(out / shard, "np") as file:
            total += file.get_tensor(name).nbytes
            assert file.metadata()["format"] == "pt"
    assert index["metadata"] == {
        "total_size": total,
        "note": ["kept"],
        "louver_crc32": index["metadata"]["louver_crc32"],
    }
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in sharded.iterdir())
    listed = cli("inspect", out)
    assert "4 tensors in 2 files" in listed.output and "12×40" in listed.output


def test_a_sharded_checkpoint_to_an_index(cli: Cli, sharded: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert cli("prune", sharded, tmp_path / "out" / "pruned.index.json").exit_code == 0
    assert content(tmp_path / "out" / "pruned.index.json").keys() == content(sharded).keys()
    assert "exists: choose another name" in cli.refused("prune", sharded, tmp_path / "out")
    (tmp_path / "file").write_text("x")
    assert f"{sharded} is a folder, and {tmp_path / 'file'} is a file" in cli.refused(
        "prune", sharded, tmp_path / "file", "--force"
    )
    line = cli.refused("prune", sharded, tmp_path / "out.safetensors")
    assert f"{sharded} has an index: OUT is a folder, or an index that ends in .json" in line
    folder = tmp_path / "no" / "no"
    assert f"{folder}: no such folder: make it first" in cli.refused("prune", sharded, folder / "x.json")


def test_a_failed_run_leaves_nothing(sharded: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(sharded)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("louver.formats.writer.write_all", full)
    for out in (tmp_path / "out", sharded):
        line = cli.refused("prune", sharded, out, "--force")
        assert f"{out / 'model-00001-of-00002.safetensors'}: No space left on device while writing 'a." in line
    monkeypatch.undo()
    assert not (tmp_path / "out").exists()
    assert content(sharded) == before and not list(sharded.glob(".*"))


def test_a_failure_while_files_take_their_places_loses_nothing(
    sharded: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    prune_checkpoint(sharded, tmp_path / "expected", options(), quiet)
    real = Path.replace

    def second_fails(part: Path, target: Path) -> Path:
        if "00002" in target.name:
            raise OSError(5, "Input/output error", str(target))
        return real(part, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", second_fails)
        assert "Input/output error" in cli.refused("prune", sharded, sharded, "--force")
    assert cli("prune", sharded, sharded, "--force").exit_code == 0
    assert content(sharded) == content(tmp_path / "expected")
    assert not list(sharded.glob(".*"))


@pytest.mark.parametrize("compressed", [False, True], ids=["dense", "compressed"])
@pytest.mark.parametrize("place", ["file", "same file", "folder", "same folder"])
def test_a_run_killed_anywhere_goes_on(
    place: str, compressed: bool, sharded: Path, checkpoint: Path, tmp_path: Path
) -> None:
    given = options(compressed=compressed, force="same" in place)
    source = sharded if "folder" in place else checkpoint
    wanted = prune_checkpoint(source, tmp_path / "expected", given, quiet)
    expected = content(tmp_path / "expected")
    for limit in itertools.count():
        home = tmp_path / str(limit)
        home.mkdir()
        here = home / source.name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, here)
        out = here if "same" in place else home / "out"
        killed = killed_after(limit, lambda here=here, out=out: prune_checkpoint(here, out, given, quiet))
        if "file" in place and out.exists():
            assert content(out) in (expected, content(source))
        done = prune_checkpoint(here, out, given, quiet) if killed else None
        assert content(out) == expected
        assert done is None or (done.rows, done.copied, done.nbytes) == (wanted.rows, wanted.copied, wanted.nbytes)
        assert not [path.name for path in home.rglob(".*")]
        if not killed:
            break
    assert limit > 15


def test_complete_tensors_are_not_pruned_again(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned: list[str] = []
    real = pruning.PruneStep.pieces

    def spied(step: Any, source: Any, name: str, *rest: Any) -> Any:
        if len(pruned) == 1:
            pruned.append(name)
            raise KilledError
        pruned.append(name)
        return real(step, source, name, *rest)

    monkeypatch.setattr(pruning.PruneStep, "pieces", spied)
    with pytest.raises(KilledError):
        prune_checkpoint(checkpoint, tmp_path / "out", options(), quiet)
    prune_checkpoint(checkpoint, tmp_path / "out", options(), quiet)
    assert len(pruned) == 3 and pruned[1] == pruned[2] != pruned[0]


@pytest.mark.parametrize("change", ["options", "source", "damage"])
def test_what_another_run_left_is_not_used(
    change: str, checkpoint: Path, tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.safetensors"

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("louver.formats.regular.Target.adopt", killed)
        with pytest.raises(KilledError):
            prune_checkpoint(checkpoint, out, options(), quiet)
    (part,) = [path for path in tmp_path.glob(".*.part") if not path.name.endswith("journal.part")]
    given = options(compressed=change == "options")
    if change == "source":
        tensors = {name: np.asarray(tensor) for name, tensor in louver.load(checkpoint).items()}
        tensors["encoder.0.dense.weight"] = rng.standard_normal((9, 128)).astype(np.float32)
        louver.save(checkpoint, tensors, {"format": "pt"})
    elif change == "damage":
        bits = bytearray(part.read_bytes())
        for at in range(len(bits) // 2, len(bits), 50):
            bits[at] ^= 0x10
        part.write_bytes(bits)
    prune_checkpoint(checkpoint, out, given, quiet)
    prune_checkpoint(checkpoint, tmp_path / "fresh", given, quiet)
    assert out.read_bytes() == (tmp_path / "fresh").read_bytes()
    assert not list(tmp_path.glob(".*"))


def test_two_runs_to_one_file(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    seen: list[str] = []

    def meanwhile(share: float) -> None:
        with pytest.raises(BlockingIOError, match="another process is writing this file: wait for it"):
            prune_checkpoint(checkpoint, out, options(), quiet)
        seen.append("refused")

    prune_checkpoint(checkpoint, out, options(), meanwhile)
    assert seen and louver.load(out)


def test_a_save_that_was_killed_is_cleaned_up(tmp_path: Path, rng: np.random.Generator) -> None:
    out = tmp_path / "out.safetensors"
    code = (
        "import os, sys, numpy, louver.formats.writer as w\n"
        "w.FileWriter.seal = lambda *_: os.kill(os.getpid(), 9)\n"
        "import louver; louver.save(sys.argv[1], {'a': numpy.ones(3)})"
    )
    done = subprocess.run([sys.executable, "-c", code, str(out)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".out.safetensors.*.part"))) == 1
    (tmp_path / ".out.safetensors.mine.part").write_text("not Louver's")
    louver.save(out, {"a": rng.random(3)})
    assert {path.name for path in tmp_path.iterdir()} == {out.name, ".out.safetensors.mine.part"}


@pytest.mark.parametrize(
    "line",
    [
        {"key": "0" * 16, "request": "0" * 16, "names": ["../../escape"]},
        {"key": "../escape", "request": "0" * 16, "names": ["out.safetensors"]},
        {"other": 1},
    ],
)
def test_a_journal_that_is_not_ours(line: dict[str, Any], checkpoint: Path, tmp_path: Path) -> None:
    import zlib

    from louver.models.journal import journal_path

    out = tmp_path / "out.safetensors"
    text = json.dumps(line).encode() + b"\n"
    complete = json.dumps({"complete": True}).encode() + b"\n"
    journal_path(tmp_path, out.name).write_bytes(b"".join(b"%08x " % zlib.crc32(t) + t for t in (text, complete)))
    prune_checkpoint(checkpoint, out, options(), quiet)
    assert content(out).keys() == content(checkpoint).keys()
    assert {path.name for path in tmp_path.iterdir()} == {checkpoint.name, out.name}


def killed_before_placing(run: Callable[[], object]) -> None:
    """Kill a run that has sealed its journal, before it replaces a file."""
    with pytest.MonkeyPatch.context() as patch:

        def killed(*_: object) -> None:
            raise KilledError

        patch.setattr("louver.models.journal.Journal.place", killed)
        with pytest.raises(KilledError):
            run()


def test_a_killed_run_does_not_replace_a_file_that_came_later(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    killed_before_placing(lambda: prune_checkpoint(checkpoint, out, options(force=False), quiet))
    out.write_bytes(b"the user's")
    assert "--force" in cli.refused("prune", checkpoint, out)
    assert out.read_bytes() == b"the user's"
    assert cli("prune", checkpoint, out, "--force").exit_code == 0
    prune_checkpoint(checkpoint, tmp_path / "fresh", options(), quiet)
    assert out.read_bytes() == (tmp_path / "fresh").read_bytes() and not list(tmp_path.glob(".*"))


def test_a_killed_run_in_place_does_not_replace_a_newer_input(
    checkpoint: Path, tmp_path: Path, rng: np.random.Generator
) -> None:
    killed_before_placing(lambda: prune_checkpoint(checkpoint, checkpoint, options(), quiet))
    newer = {"encoder.0.query.weight": rng.standard_normal((37, 70)).astype(np.float32)}
    louver.save(checkpoint, newer)
    prune_checkpoint(checkpoint, checkpoint, options(), quiet)
    after = louver.load(checkpoint)
    assert after.keys() == newer.keys()
    np.testing.assert_array_equal(
        np.asarray(after["encoder.0.query.weight"]), louver.prune(newer["encoder.0.query.weight"], "2:4")
    )
    assert not list(tmp_path.glob(".*"))


def test_a_killed_run_that_was_complete_is_not_written_again(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.safetensors"
    killed_before_placing(lambda: prune_checkpoint(checkpoint, out, options(), quiet))
    monkeypatch.setattr(pruning.PruneStep, "pieces", None)
    assert prune_checkpoint(checkpoint, out, options(), quiet).rows and louver.load(out)
