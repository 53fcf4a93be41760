"""Runs that were killed, and files that others change meanwhile: nothing is replaced that the run did not see."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.pattern import Pattern
from louver.formats.regular import FormatError, Target
from louver.models import pruning
from louver.models.journal import Journal
from louver.models.pruning import PruneOptions
from louver.models.rewrite import Rewritten, rewrite
from support.killed import KilledError

INDEX = "model.safetensors.index.json"
SECOND = "2.safetensors"


def run(
    source: Path, out: Path, force: bool = True, progress: Callable[[float], Any] = lambda share: None
) -> Rewritten:
    return rewrite(source, out, PruneOptions(Pattern(2, 4)), force=force, progress=progress)


def model(folder: Path, seed: int, index: str = INDEX) -> Path:
    """A folder with an index of two files, and a configuration that no library knows."""
    rng = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    weight_map: dict[str, str] = {}
    for number, name in enumerate("ab", 1):
        tensors = {f"{name}.0.proj.weight": rng.standard_normal((8, 16)).astype(np.float32)}
        louver.save(folder / f"{number}.safetensors", tensors)
        weight_map |= dict.fromkeys(tensors, f"{number}.safetensors")
    (folder / index).write_text(json.dumps({"weight_map": weight_map}))
    (folder / "tokenizer.txt").write_text(f"tokens {seed}")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def killed(stage: str, call: Callable[[], object]) -> None:
    """Kill a run when all tensors are written, when its journal says so, or after the first file has its place."""
    count = itertools.count()
    replace = Target.replace

    def second(target: Target, token: str) -> None:
        if next(count):
            raise KilledError
        replace(target, token)

    def stop(*_: object) -> None:
        raise KilledError

    owner, name, patch = {
        "begun": (Journal, "seal", stop),
        "complete": (Journal, "place", stop),
        "partly": (Target, "replace", second),
    }[stage]
    with pytest.MonkeyPatch.context() as context, pytest.raises(KilledError):
        context.setattr(owner, name, patch)
        call()


@pytest.mark.parametrize("force", [False, True], ids=["", "force"])
@pytest.mark.parametrize("source", ["same", "changed"])
@pytest.mark.parametrize("target", ["same", "changed", "gone"])
@pytest.mark.parametrize("stage", ["begun", "complete", "partly"])
def test_the_next_run(stage: str, target: str, source: str, force: bool, tmp_path: Path) -> None:
    """One action for each state of the journal, the target and the source."""
    here, out = model(tmp_path / "in", 1), model(tmp_path / "out", 2)
    killed(stage, lambda: run(here, out))
    old = tmp_path / "old"
    run(here, old)
    if target == "changed":
        (out / SECOND).write_bytes(b"the user's")
    elif target == "gone":
        (out / SECOND).unlink()
    if source == "changed":
        model(here, 3)
    run(here, tmp_path / "fresh")
    fresh, before = content(tmp_path / "fresh"), content(out)
    finishes = (stage == "complete" and source == "same" and target != "changed" and force) or (
        stage == "partly" and target != "changed"
    )
    if stage == "partly" and target == "changed":
        # Old and new files are mixed: a person decides.
        with pytest.raises(FormatError, match=r"2\.safetensors: another program changed or removed this file"):
            run(here, out, force)
        assert content(out) == before
        return
    if force or (finishes and source == "same"):
        with pytest.MonkeyPatch.context() as patch:
            if finishes and source == "same":
                patch.setattr(pruning.PruneStep, "pieces", None)
            run(here, out, force)
        assert content(out) == fresh
        return
    with pytest.raises(ValueError, match=r"exists: choose another name, or replace it with --force"):
        run(here, out, force)
    # A run that had begun to replace files ends first.
    assert content(out) == (content(old) if finishes else before)


@pytest.mark.parametrize("when", ["killed", "while it runs"])
def test_a_source_with_the_same_header_size_and_time(when: str, tmp_path: Path, rng: np.random.Generator) -> None:
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    names = [f"{i}.proj.weight" for i in range(4)]
    models = [{name: rng.standard_normal((8, 16)).astype(np.float32) for name in names} for _ in range(2)]
    paths = [tmp_path / f"{i}" for i in range(2)]
    import safetensors.numpy

    for path, tensors in zip(paths, models, strict=True):
        safetensors.numpy.save_file(tensors, path)
        os.utime(path, ns=(10**18, 10**18))
    shutil.copy2(paths[0], source)

    def swap(share: float) -> None:
        if share == 0.5:
            shutil.copy2(paths[1], tmp_path / "other")
            (tmp_path / "other").replace(source)
            if when == "killed":
                raise KilledError

    if when == "killed":
        with pytest.raises(KilledError):
            run(source, out, progress=swap)
        run(source, out)
        after = louver.load(out)
        for name in names:
            np.testing.assert_array_equal(np.asarray(after[name]), louver.prune(models[1][name], "2:4"))
    else:
        with pytest.raises(FormatError, match="was changed while it was read: start again"):
            run(source, out, progress=swap)
        assert not out.exists() and not list(tmp_path.glob(".*"))


def test_what_was_read_is_compared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system without times and inodes: only the bytes tell the files apart."""
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    rng = np.random.default_rng(5)
    names = [f"{i}.proj.weight" for i in range(2)]
    models = [{name: rng.standard_normal((8, 16)).astype(np.float32) for name in names} for _ in range(2)]
    import safetensors.numpy

    safetensors.numpy.save_file(models[0], source)
    monkeypatch.setattr("louver.formats.checkpoint._seen", lambda file: (file.size, 0, 0, 0))

    def kill(share: float) -> None:
        raise KilledError

    with pytest.raises(KilledError):
        run(source, out, progress=kill)
    safetensors.numpy.save_file(models[1], source)
    run(source, out)
    after = louver.load(out)
    for name in names:
        np.testing.assert_array_equal(np.asarray(after[name]), louver.prune(models[1][name], "2:4"))


@pytest.mark.parametrize("what", ["part removed", "part changed", "shard overwritten", "index appears"])
def test_another_program_in_the_output_folder(what: str, tmp_path: Path) -> None:
    source, out = model(tmp_path / "in", 1), tmp_path / "out"

    def meddle(share: float) -> None:
        if share < 1:
            return
        (part,) = out.glob(f".{SECOND}.*.part")
        if what == "part removed":
            part.unlink()
        elif what == "part changed":
            # After the journal was sealed there is no later check of the bytes.
            seal = Journal.seal

            def sealed(journal: Journal, before: Any) -> None:
                seal(journal, before)
                with part.open("r+b") as file:
                    file.seek(-1, 2)
                    file.write(b"?")

            patch.setattr(Journal, "seal", sealed)
        else:
            (out / (SECOND if "shard" in what else INDEX)).write_bytes(b"another's")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(FormatError, match=r"start again"):
        run(source, out, progress=meddle)
    left = content(out) if out.exists() else {}
    assert left == ({} if "part" in what else {SECOND if "shard" in what else INDEX: b"another's"})
    run(source, out)
    run(source, tmp_path / "fresh")
    assert content(out) == content(tmp_path / "fresh")


def test_a_shard_overwritten_while_files_take_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = model(tmp_path / "in", 1), tmp_path / "out"
    replace = Target.replace

    def meddling(target: Target, token: str) -> None:
        replace(target, token)
        if target.path.name == SECOND:
            target.path.write_bytes(b"another's")

    monkeypatch.setattr(Target, "replace", meddling)
    with pytest.raises(
        FormatError, match=r"2\.safetensors: another program changed.* while its checkpoint was replaced"
    ):
        run(source, out)
    assert not (out / INDEX).exists() and (out / SECOND).read_bytes() == b"another's"


def test_two_runs_in_one_folder_under_two_indexes(tmp_path: Path) -> None:
    first, second = model(tmp_path / "a", 1), model(tmp_path / "b", 2)
    out = tmp_path / "out"
    out.mkdir()
    seen: list[str] = []

    def meanwhile(share: float) -> None:
        with pytest.raises(BlockingIOError, match="another process is writing this file: wait for it"):
            run(second, out / "other.index.json")
        seen.append("refused")

    run(first / INDEX, out / INDEX, progress=meanwhile)
    assert seen
    run(first / INDEX, tmp_path / "fresh")
    assert content(out) == content(tmp_path / "fresh")


def test_runs_to_other_files_of_a_folder_go_on(tmp_path: Path) -> None:
    source, out = model(tmp_path / "a", 1), tmp_path / "out"
    out.mkdir()

    def meanwhile(share: float) -> None:
        run(source / SECOND, out)

    run(source / "1.safetensors", out, progress=meanwhile)
    assert {path.name for path in out.iterdir()} == {"1.safetensors", SECOND}


def test_the_remains_of_a_run_under_another_index_are_removed(tmp_path: Path) -> None:
    first, second = model(tmp_path / "a", 1), model(tmp_path / "b", 2)
    out = tmp_path / "out"
    out.mkdir()
    killed("complete", lambda: run(first / INDEX, out / INDEX))
    run(second / INDEX, out / "other.index.json")
    run(second / INDEX, tmp_path / "fresh")
    assert {path.name for path in out.iterdir()} == {"1.safetensors", SECOND, "other.index.json"}
    assert (out / SECOND).read_bytes() == (tmp_path / "fresh" / SECOND).read_bytes()


def test_a_changed_configuration_or_tokenizer_starts_again(tmp_path: Path) -> None:
    source, out = model(tmp_path / "in", 1), tmp_path / "out"
    killed("complete", lambda: run(source, out))
    (source / "tokenizer.txt").write_text("newer")
    run(source, out)
    assert (out / "tokenizer.txt").read_text() == "newer" and not list(out.glob(".*"))
