"""Tensors that were pruned apart: written in the place of the source's, dense or compressed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import louver
from louver.formats.checkpoint import Checkpoint
from louver.formats.pattern import Pattern
from louver.formats.regular import FormatError
from louver.models.analyze import analyze
from louver.models.pruning import Given, PruneOptions, found, prune_plan
from louver.models.rewrite import Plan, rewrite
from louver.models.workers import HERE, Workers

QUERY, DENSE, BIAS = "encoder.0.query.weight", "encoder.0.dense.weight", "encoder.0.dense.bias"


@dataclass(frozen=True, slots=True)
class Request:
    options: PruneOptions
    given: dict[str, Given]

    def plan(self, checkpoint: Checkpoint, workers: Workers = HERE) -> Plan:
        return prune_plan(checkpoint, analyze(checkpoint.path, pattern=self.options.pattern), self.options, self.given)


@pytest.mark.parametrize("compressed", [False, True])
def test_given_tensors_take_the_place(compressed: bool, checkpoint: Path, tmp_path: Path) -> None:
    before = louver.load(checkpoint)
    # The smallest two of four, and other values: no choice by magnitude gives them.
    w = np.asarray(before[QUERY])
    pruned = np.where(louver.prune(w, "2:4") == 0, w * 1.5, 0).astype(np.float32)
    pruned = np.asarray(louver.prune(pruned, "2:4"))
    bias = np.asarray(before[BIAS]) + 1
    louver.save(tmp_path / "a", {QUERY: w, BIAS: bias})
    louver.save(tmp_path / "b", {QUERY: pruned})
    options = PruneOptions(Pattern.parse("2:4"), "f32", compressed=compressed)
    done = rewrite(checkpoint, tmp_path / "out.safetensors", Request(options, found([tmp_path / "a", tmp_path / "b"])))
    after = louver.load(tmp_path / "out.safetensors")
    assert isinstance(after[QUERY], louver.SparseTensor) == compressed
    np.testing.assert_array_equal(np.asarray(after[QUERY]), pruned)
    np.testing.assert_array_equal(np.asarray(after[BIAS]), bias)
    np.testing.assert_array_equal(np.asarray(after[DENSE]), np.asarray(before[DENSE]))
    (row,) = done.rows
    assert row.name == QUERY and BIAS in done.copied
    assert row.error == pytest.approx(np.linalg.norm(w - pruned) / np.linalg.norm(w))


def test_files_of_others_and_changed_files_are_refused(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"w": np.ones((4, 8), np.float32)}, tmp_path / "other")
    with pytest.raises(FormatError, match="'w' has no checksum: Louver did not write this file"):
        found([tmp_path / "other"])
    louver.save(tmp_path / "file", {"w": np.ones((4, 8), np.float32)})
    given = found([tmp_path / "file"])["w"]
    np.testing.assert_array_equal(given.array(), np.ones((4, 8), np.float32))
    louver.save(tmp_path / "file", {"w": np.zeros((4, 9), np.float32)})
    with pytest.raises(FormatError, match="the file was changed while it was read: start again"):
        given.array()
