"""`louver bench nm` and `nm-ladder` with made-up times."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import louver
from louver.cli import app
from louver.cli.commands import nm as command
from louver.compile.pipeline import compile_product
from louver.compile.plan.schedule import Schedule
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.isa.targets import SM_90A
from louver.library.request import default_layout, problem
from louver.measure import nm as ladder
from louver.measure.nm import (
    CASES,
    FEW_TOKENS,
    KINDS,
    TOKENS,
    VERSIONS,
    WEIGHTS,
    candidates,
    flop_per_byte,
    ladder_patterns,
    patterns,
    problem_of,
)
from louver.measure.report.nm import nm_table, read_nm
from louver.ptx.assembler import assemble
from louver.runtime.device import Device

PLACE = Device(0, "a Hopper", (9, 0), 132, 232448, 60 << 20, 141 << 30, (13, 0))


def test_the_points_are_the_papers() -> None:
    assert len(set(WEIGHTS)) * len(set(TOKENS)) == 100
    assert [1 - each.n / each.m for each in patterns(32)] == [0.5, 0.625, 0.75, 0.875]


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_are_compiled_ahead_for_the_problem_that_the_library_solves(kind: Any) -> None:
    s = louver.compress(np.zeros((32, 32), np.float32), "8:32@32")
    layout = default_layout(kind, s, s.dtype)
    assert problem_of(kind, s.pattern) == problem(kind, s, s.dtype, layout, element_type("f32"), None)


@pytest.mark.parametrize(
    ("metadata", "pattern", "columns"),
    # All rows of K; of 4 windows together; of each consumer's window.
    [("stage", "8:32@32", 1.0), ("global", "8:32@32", 1 - 0.75**8), ("global", "8:32@128", 2 * 0.25)],
)
def test_intensity_is_equation_3_with_c_moved_once(metadata: str, pattern: str, columns: float) -> None:
    schedule = Schedule.of(tile_m=256, tile_n=128, tile_k=32, in_flight=0, metadata=metadata)
    moved = 128 * 4096 * columns + 1024 * 256 + 2 * 128 * 256
    assert flop_per_byte(schedule, Pattern.parse(pattern), 4096) == pytest.approx(2 * 128 * 256 * 1024 / moved / 4)


@pytest.mark.parametrize("pattern", ladder_patterns(32), ids=str)
def test_each_version_has_a_tile(pattern: Pattern) -> None:
    found, refused = candidates(pattern, SM_90A)
    assert len(found) + len(refused) == 20
    assert {name.split(",")[0] for name in found} == set(VERSIONS)
    for name, schedule in found.items():
        version = VERSIONS[name.split(",")[0]]
        assert (schedule.ring.stages > 1, schedule.ring.metadata) == (version.deep, version.metadata)
    assert all("two stages" in reason for reason in refused.values())


@pytest.mark.parametrize("name", ["V1, 64×128×32", "V2, 64×128×32"])
def test_versions_assemble_cleanly(name: str) -> None:
    pattern = Pattern.parse("4:32@32")
    assembly = assemble(compile_product(problem_of("matmul", pattern), candidates(pattern, SM_90A)[0][name]).ptx)
    assert assembly.clean, assembly.faults


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    matmul = SimpleNamespace(allow_tf32=True)
    cuda = SimpleNamespace(empty_cache=lambda: None)
    torch = SimpleNamespace(backends=SimpleNamespace(cuda=SimpleNamespace(matmul=matmul)), cuda=cuda)

    def measure_weight(
        _torch: Any, weight: Any, tokens: Any, chosen: Any, _dtype: Any, _protocols: Any
    ) -> list[dict[str, Any]]:
        assert not matmul.allow_tf32
        us = {"cublas matmul": 12.0, "cublas linear": 14.0}

        def times(n: int, p: Pattern) -> dict[str, float]:
            return us | dict.fromkeys(KINDS, 12 * p.n / p.m) | ({"copy": 1.2} if n <= FEW_TOKENS else {})

        return [
            {"shape": [weight[0], n, weight[1]], "pattern": str(p), "us": times(n, p)}
            | {"flop_per_byte": 2.0 * p.n, "schedule": Schedule().flat()}
            for n in tokens
            for p in chosen
        ]

    monkeypatch.setattr(command, "require_torch", lambda: torch)
    monkeypatch.setattr(command, "header", lambda _: {"device": "NVIDIA H200", "versions": {"ptxas": "1"}})
    monkeypatch.setattr(command, "measure_weight", measure_weight)
    monkeypatch.setattr(command, "compile_ahead", lambda *_: None)
    for module in (command, ladder):
        monkeypatch.setattr(module, "require_device", lambda: PLACE)
    return matmul


def printed(out: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    result = CliRunner().invoke(app, ["bench", *arguments, "--json", "--out", str(out)])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def test_the_points_are_shown_written_and_drawn(machine: Any, tmp_path: Path) -> None:
    found, _ = printed(tmp_path, "nm")
    assert found == json.loads((tmp_path / "nm.json").read_text(encoding="utf-8"))
    assert (found["kind"], len(found["rows"]), found["length"]) == ("nm", 400, 32)
    assert machine.allow_tf32
    assert (tmp_path / "nm.png").read_bytes().startswith(b"\x89PNG")
    text = "\n".join(command.bench_nm(32, tmp_path, quick=True).lines())
    rows = [line.split() for line in text.splitlines() if line.startswith("8:32@32")]
    # Over cuBLAS of the same layout: 12 µs by 3 and 14 by 3.
    assert rows == [
        ["8:32@32", "matmul", "2", *["4.00"] * 6],
        ["8:32@32", "linear", "2", *["4.67"] * 3, "4.00", *["4.67"] * 2],
    ]
    (row,) = [r for r in read_nm(tmp_path / "nm.json").rows if r.shape[1] == 4096 and r.sparsity == "87.5%"]
    assert row.tflops("matmul") == pytest.approx(2 * 4096**3 / 8 / 1.5e6)


def test_other_types_and_shapes_have_records_of_their_own(machine: Any, tmp_path: Path) -> None:
    found, _ = printed(
        tmp_path, "nm", "--dtype", "bf16", "--length", "128", "--shapes", "64x128x256,64x512x256,32x8x64"
    )
    assert [row["shape"] for row in found["rows"][::4]] == [[64, 128, 256], [64, 512, 256], [32, 8, 64]]
    record = read_nm(tmp_path / "nm-bf16.json")
    assert (record.dtype, record.title) == ("bf16", "bf16 vectors N:M@L, times as fast as cuBLAS bf16")
    assert (tmp_path / "nm-bf16.png").exists() and not (tmp_path / "nm.json").exists()
    text = nm_table(record).markdown()
    assert "of a copy, N=8" in text and "of a copy, N=128" not in text and "80%" in text
    found, _ = printed(tmp_path, "nm", "--patterns", "6:8@128,2:8@V64", "--shapes", "64x128x256")
    assert [row["pattern"] for row in found["rows"]] == found["patterns"] == ["6:8@128", "2:8@V64"]
    assert "length" not in found
    result = CliRunner().invoke(app, ["bench", "nm", "--quick", "--shapes", "64x128x256"])
    assert "--quick chooses the shapes: give it or --shapes, not both" in result.stderr


def test_without_time_the_record_says_what_is_missing(machine: Any, tmp_path: Path) -> None:
    found, notes = printed(tmp_path, "nm", "--quick", "--budget", "0.001", "--length", "128")
    assert (found["rows"], found["missing"]["weights"], found["length"]) == ([], ["4096×4096"], 128)
    assert "no time left for 4096×4096" in notes and not (tmp_path / "nm.png").exists()


def test_each_version_counts_with_its_best_tile(machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that do not compile are left out, with the reason."""
    times = {"cublas": 8.0, "V2, 128×64×32": 4.0, "V2, 64×128×32": 5.0, "V3, 64×128×32": 2.0}

    def measured(_torch: Any, _shape: Any, _pattern: Any, runs: Any, *_: Any) -> dict[str, float]:
        return {name: times.get(name, 9.0) for name in ("cublas", *runs)}

    def compile_all(pairs: Any, _target: str) -> dict[Any, str]:
        return {pair: "no picks" for pair in pairs if (pair[1].ring.metadata, pair[1].ring.stages) == ("stage", 1)}

    monkeypatch.setattr(ladder, "_measure_case", measured)
    monkeypatch.setattr(ladder, "compile_all", compile_all)
    found, _ = printed(tmp_path, "nm-ladder")
    assert [(row["case"], row["pattern"]) for row in found["rows"]] == [
        (case, str(pattern)) for case in CASES for pattern in ladder_patterns(32)
    ]
    row = found["rows"][0]
    assert row["us"] == {"cublas": 8.0, "V2": 4.0, "V3": 2.0, "V3 unpacked": 9.0}
    assert (row["tiles"]["V2"], row["refused"]["V1, 256×128×32"]) == ("128×64×32", "no picks")
    assert Schedule.of(**row["schedules"]["V3"]).ring.stages > 1
    text = "\n".join(command.bench_nm_ladder(32, tmp_path, quick=True).lines())
    assert (
        "2.00 (128×64×32)" in text
        and "4.00 (64×128×32)" in text
        and "not built: 4:32@32 V1, 256×128×32: no picks" in text
    )
    assert (tmp_path / "nm-ladder.png").read_bytes().startswith(b"\x89PNG")
