"""Kernels whose loops load a step ahead, sparse ones too, on the emulator: what they compute is what it was."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from louver.compile import pipeline
from louver.compile.plan.encode import assign_encodings
from louver.compile.plan.feeds.prefetch_loads import prefetch_loads
from louver.emulator import Seeded
from support.compiled import read_copy
from support.emulate_tiles import emulate_tiles
from support.multiples import mark_arguments
from support.triton.tile_cases import kept_tiles
from support.triton.tile_runs import RUNS

AHEAD = {
    "dot_f16": 3,
    "dot_bf16": 3,
    "dot_tf32": 3,
    "dot_e4m3": 3,
    "dot_s8": 3,
    "dense_f16": 2,
    "dense_f16_sum": 2,
    "dense_bf16": 2,
    "dense_e5m2": 2,
    "dense_s8": 2,
    "right_sparse": 3,
    "scaled_operand": 4,
    "split_sums": 3,
    "persistent": 3,
    "attention": 2,
    "counted_dots": 3,
    "two_dots": 0,
    "pointer_loop": 0,
}
"""Loads that are a step ahead, by kernel: values, metadata and dense operands. Those with stores in their loops have none."""

BYTES = ("dot_e4m3", "dot_s8", "dense_e5m2", "dense_s8")
"""Kernels of 8-bit operands, which are staged only where they are loaded in words."""

MANY = 32
"""Warps for which anything here is little enough to be loaded ahead."""


@pytest.mark.parametrize("wide", [False, True], ids=["elements", "wide"])
@pytest.mark.parametrize("name", AHEAD)
def test_kernels_ahead(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, name: str, wide: bool) -> None:
    found: list[int] = []

    def encode_and_prefetch(
        module: ModuleOp, warps: int, *, registers: int, staged: bool, warpgroups: bool, copied: bool
    ) -> ModuleOp:
        encoded = assign_encodings(module, warps, registers=registers, staged=staged, warpgroups=warpgroups)
        before = str(encoded).count("tt.load")
        prefetch_loads(encoded, MANY)
        found.append(str(encoded).count("tt.load") - before)
        return encoded

    monkeypatch.setattr(pipeline, "assign_encodings", encode_and_prefetch)
    run = RUNS[name](rng, name)
    module = read_copy(kept_tiles(name))
    compiled = pipeline.compile_tiles(mark_arguments(module, run.arguments) if wide else module)
    assert found[:1] == [AHEAD[name] if wide or name not in BYTES else 0]
    outputs = [each for each in run.expected if each not in run.read_first]
    emulate_tiles(compiled, run.grid, run.arguments, order=Seeded(3), uninitialised=outputs)
    run.check()
