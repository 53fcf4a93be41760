from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from louver.cli.commands.bench import gemm_tables, host_table, n_major_table, picture, progress_line, sustained_table
from louver.measure.gemm import pick_winners
from louver.measure.host import HostTime, HostTimes
from louver.measure.measurement import Measurement, NMajor
from louver.measure.protocol import Protocol
from louver.measure.record import gemm_record, host_record, write_record
from louver.measure.report.gemm import GemmRow, gemm_table, mean_factor, read_gemm
from louver.measure.report.table import Table
from louver.measure.sustained import Sustained

HEADER: dict[str, Any] = {"device": "a GPU", "versions": {"louver": "0", "ptxas": "13.5"}, "date": "2026-01-02"}
FAST = {"ours": 100.0, "cublas": 150.0, "cusparselt": 110.0}
SLOW = {"ours": 200.0, "cublas": 150.0}


def measurements() -> list[Measurement]:
    long = {"ours": Sustained(120.0, 1400.0, 690.0), "cublas": Sustained(180.0, None, None)}
    return [
        Measurement(GemmRow((512, 256, 1024), "f16", "linear", FAST, "f16"), {"cusparselt": {"algorithm": 3}}, long),
        Measurement(GemmRow((512, 64, 1024), "f16", "linear", SLOW, "f16"), {"cusparselt": {"failed": "refused"}}, {}),
        Measurement(GemmRow((512, 64, 1024), "bf16", "linear", FAST, "bf16"), {}, {}),
        Measurement(GemmRow((512, 64, 1024), "s8", "linear", FAST, "s32"), {}, {}),
    ]


def text(*tables: Table) -> str:
    return "\n".join(line for table in tables for line in table.lines())


def test_a_record_comes_back_as_it_was_measured(tmp_path: Path) -> None:
    path = write_record(tmp_path / "new" / "gemm.json", gemm_record(HEADER, Protocol(), measurements()))
    record = read_gemm(path)
    assert [row.types for row in record.rows] == ["f16", "f16", "bf16", "s8→s32"]
    assert record.rows == tuple(measurement.row for measurement in measurements())
    assert record.device == "a GPU"
    assert record.versions == HEADER["versions"]
    assert record.protocol == Protocol().describe()
    assert [file.name for file in path.parent.iterdir()] == ["gemm.json"]


def test_a_record_holds_notes_and_sustained_speed() -> None:
    record = gemm_record(HEADER, Protocol(), measurements())
    flops = 2 * 512 * 256 * 1024
    ours = record["rows"][0]["sustained"]["ours"]
    assert ours["tflops"] == pytest.approx(flops / 120e-6 / 1e12)
    assert ours["tflop_per_joule"] == pytest.approx(flops / (120e-6 * 690) / 1e12)
    assert record["rows"][0]["sustained"]["cublas"]["tflop_per_joule"] is None
    assert record["rows"][1]["cusparselt_us"] is None
    assert record["rows"][1]["notes"] == {"cusparselt": {"failed": "refused"}}
    assert "1.5 s after 0.5 s" in record["sustained_protocol"]
    assert "sustained_protocol" not in gemm_record(HEADER, Protocol(), measurements()[1:])


def test_a_row_comes_back_from_json() -> None:
    row = GemmRow((512, 64, 1024), "s8", "linear", FAST | {"copy": 3.0}, "s32")
    notes = {"ours": {"call": "louver.linear", "bursts_us": [1.0, 2.0]}}
    dated = Measurement(row, notes, {}, NMajor(10.1, 30.0, 64 * 1024), {"operands": 0.5}, "2026-01-03")
    for taken in (*measurements(), dated):
        found = json.loads(json.dumps(taken.to_json()))
        assert Measurement.from_json(found) == taken
        assert found.get("date") == (taken.date or None)
    with pytest.raises(KeyError):
        Measurement.from_json({"shape": [1, 2, 3], "dtype": "f16"})


def test_a_record_says_what_there_was_no_time_for() -> None:
    record = gemm_record(HEADER, Protocol(), measurements(), ["1×2×3 f16"])
    assert record["missing"]["problems"] == ["1×2×3 f16"]
    assert "missing" not in gemm_record(HEADER, Protocol(), measurements())


def test_a_transposing_copy_is_recorded_and_shown_apart() -> None:
    row = GemmRow((512, 64, 1024), "s8", "linear", FAST, "s32")
    taken = Measurement(row, {}, {}, NMajor(10.0, 30.0, 64 * 1024), {"operands": 0.5})
    found = gemm_record(HEADER, Protocol(), [taken])["rows"][0]
    assert found["n_major"] == {"copy_us": 10.0, "product_us": 30.0, "copy_gigabytes_per_second": 13.1}
    assert found["measuring_seconds"] == {"operands": 0.5}
    lines = [line.split() for line in text(n_major_table([*measurements(), taken], "title")).splitlines()]
    assert ["512×64×1024", "s8→s32", "10.0", "13", "30.0", "25%"] in lines
    assert "contiguous along N" in text(*gemm_tables([taken], HEADER, Protocol()))


def test_a_failed_write_leaves_the_old_record(tmp_path: Path) -> None:
    path = write_record(tmp_path / "gemm.json", {"rows": [1]})
    with pytest.raises(TypeError):
        write_record(path, {"rows": [object()]})
    assert json.loads(path.read_text()) == {"rows": [1]}


def test_means_are_over_the_rows_that_have_both() -> None:
    rows = [measurement.row for measurement in measurements()[:2]]
    assert mean_factor(rows, "cublas") == pytest.approx(math.sqrt(1.5 * 0.75))
    assert mean_factor(rows, "cusparselt") == pytest.approx(1.1)
    assert mean_factor(rows[1:], "cusparselt") is None


def test_the_table_closes_each_type_with_its_means(tmp_path: Path) -> None:
    record = read_gemm(write_record(tmp_path / "g.json", gemm_record(HEADER, Protocol(), measurements())))
    lines = [line.split() for line in text(gemm_table(record, "title")).splitlines()]
    tflops = [f"{2 * 512 * 256 * 1024 / us * 1e-6:.0f}" for us in (100, 150, 110)]
    assert ["512×256×1024", "f16", *tflops, "1.50", "1.10"] in lines
    assert ["geomean", "f16", "1.06", "1.10"] in lines
    assert ["geomean", "bf16", "1.50", "1.10"] in lines
    assert ["geomean", "s8→s32", "1.50", "1.10"] in lines
    slow = next(line for line in lines if line[:2] == ["512×64×1024", "f16"])
    assert slow[-1] == "–"


def test_the_sustained_table_says_what_was_not_read() -> None:
    lines = [line.split() for line in text(sustained_table(measurements()[:1], "title")).splitlines()]
    assert any(line[-3:] == ["0.00", "1400", "690"] for line in lines)
    assert any(line[-3:] == ["–", "–", "–"] for line in lines)


def test_show_prints_sustained_only_where_taken() -> None:
    for rows, expected in ((measurements(), True), (measurements()[1:], False)):
        assert ("sustained" in text(*gemm_tables(rows, HEADER, Protocol()))) is expected


def test_progress_says_what_failed() -> None:
    line = progress_line(measurements()[1], 3.2)
    assert line.startswith("512×64×1024 f16: Louver 2:4")
    assert "(3.2 s)" in line
    assert line.endswith("cusparselt: refused")


def test_progress_says_why_no_variant_was_timed() -> None:
    notes = {"cusparselt": {"algorithms": 3, "wrong: cusparselt 0": 7.0, "failed: cusparselt 1": "refused"}}
    line = progress_line(Measurement(GemmRow((64, 32, 64), "s8", "linear", SLOW, "f16"), notes, {}), 1.0)
    assert line.startswith("64×32×64 s8→f16:")
    assert line.endswith("cusparselt: wrong: cusparselt 0 (7.0), failed: cusparselt 1 (refused)")


def test_progress_does_not_speak_of_variants_that_lost() -> None:
    notes = {"cusparselt": {"wrong: cusparselt 0": 7.0}}
    line = progress_line(Measurement(GemmRow((64, 32, 64), "f16", "linear", FAST, "f16"), notes, {}), 1.0)
    assert line.endswith("(1.0 s)")


def test_the_winner_of_a_library_has_the_least_median() -> None:
    times = {
        "cusparselt 0": (1.0, 9.0, 9.0),
        "cusparselt 4 transposed": (5.0, 5.0, 5.0),
        "ours": (2.0,),
        "cublas": (3.0,),
    }
    assert pick_winners(times) == {"ours": "ours", "cublas": "cublas", "cusparselt": "cusparselt 4 transposed"}
    assert pick_winners({"ours": (2.0,)}) == {"ours": "ours"}


def test_a_picture_is_drawn_from_the_record(tmp_path: Path) -> None:
    path = write_record(tmp_path / "gemm.json", gemm_record(HEADER, Protocol(), measurements()))
    assert picture(path, tmp_path / "gemm.png") == f"wrote {tmp_path / 'gemm.png'}"
    assert (tmp_path / "gemm.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_plotting_library_the_record_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_record(tmp_path / "gemm.json", gemm_record(HEADER, Protocol(), measurements()))
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.backends.backend_agg", None)
    said = picture(path, tmp_path / "gemm.png")
    assert said.startswith("no picture")
    assert f"louver plot {path}" in said


def test_host_times_are_recorded_and_shown() -> None:
    part = HostTime("empty launch", 2.5, 2.4, 2.61)
    ours = HostTime("plan(x)", 8.1234, 7.9, 8.4, "f16", "f16")
    found = HostTimes([part, ours, HostTime("torch._int_mm", 9.3, 9.1, 9.9, "s8", "s32")], {"torch.mm, 1×2×3": "why"})
    record = host_record(HEADER, found)
    assert record["kind"] == "host"
    assert record["device"] == HEADER["device"]
    assert record["missing"] == {"torch.mm, 1×2×3": "why"}
    assert record["rows"][0] == {"name": "empty launch", "us": 2.5, "least_us": 2.4, "p90_us": 2.61}
    assert record["rows"][1] == {
        "name": "plan(x)", "us": 8.123, "least_us": 7.9, "p90_us": 8.4, "dtype": "f16", "out": "f16"
    }  # fmt: skip
    lines = [line.split() for line in text(host_table(found, "title")).splitlines()]
    assert ["empty", "launch", "2.50", "2.40", "2.61"] in lines
    assert ["plan(x)", "f16", "8.12", "7.90", "8.40"] in lines
    assert ["torch._int_mm", "s8→s32", "9.30", "9.10", "9.90"] in lines
