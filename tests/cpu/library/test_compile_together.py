"""Kernels that are compiled side by side are those in the cache of one after the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import louver
from louver.library.compiled import record_of
from louver.library.execute import schedule_for
from louver.library.prepare import Preparation, compile_together, preparation
from louver.runtime.device import Device

PLACE = Device(0, "Fake GPU", (9, 0), 132, 232448, 50 << 20, 140 << 30, (13, 2))


def here(*_: object) -> Device:
    return PLACE


def fails(*_: object) -> None:
    raise RuntimeError("ptxas is missing")


def test_kernels_of_all_sizes_are_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUVER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("louver.library.prepare._place_of", here)
    w = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float16)
    s = louver.compress(louver.prune(w, "2:4"), "2:4")
    wanted: list[Preparation] = [preparation(s, n) for n in (1, 64, 200, 64)]
    made = compile_together(wanted)
    assert 2 <= made <= 3
    # Nothing is left to build.
    monkeypatch.setattr("louver.library.compiled.build_record", fails)
    for each in wanted:
        (solved, _, high), *_ = each.parts[::-1]
        schedule = schedule_for(solved, 256, high, 512, PLACE, aligned_output=True)
        assert record_of(solved, schedule, PLACE.target).cubin


def test_an_error_of_a_kernel_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("louver.library.prepare._place_of", here)
    monkeypatch.setattr("louver.library.prepare.record_of", fails)
    s = louver.compress(louver.prune(np.ones((64, 64), np.float16), "2:4"), "2:4")
    with pytest.raises(RuntimeError, match="ptxas is missing"):
        compile_together([preparation(s, 16)])
