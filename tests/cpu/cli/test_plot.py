from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.command_line import Cli


def test_plot_draws_a_record(cli: Cli, tmp_path: Path) -> None:
    row = {"shape": [128, 64, 256], "dtype": "f16", "ours_us": 3.0, "cublas_us": 2.0}
    record = {"schema": 1, "kind": "gemm", "device": "a GPU", "versions": {}, "protocol": "bursts", "rows": [row]}
    (tmp_path / "r.json").write_text(json.dumps(record))
    assert cli("plot", tmp_path / "r.json", tmp_path / "r.png").exit_code == 0
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_errors_are_one_line(cli: Cli, tmp_path: Path) -> None:
    assert "nowhere" in cli.refused("plot", tmp_path / "nowhere.json", tmp_path / "r.png")
    (tmp_path / "r.json").write_text("{}")
    assert "needs 'schema'" in cli.refused("plot", tmp_path / "r.json", tmp_path / "r.png")


def test_a_schedule_is_drawn_with_its_quantities(cli: Cli, tmp_path: Path) -> None:
    one, other = tmp_path / "one.svg", tmp_path / "other.svg"
    result = cli("plot", "--problem", "4096,4096,4096", one)
    assert result.exit_code == 0 and f"wrote {one}" in result.stderr
    assert cli("plot", "--schedule", "stages=3", "--schedule", "tile_n=128", other).exit_code == 0
    first, second = (path.read_text(encoding="utf-8") for path in (one, other))
    assert (
        "tile 128×256×64, 4 stages of 40,960 bytes" in first
        and "512 tiles, 132 CTAs on 132 SMs, 4 tiles a CTA" in first
    )
    assert "tile 128×128×64, 3 stages of 24,576 bytes" in second and "1,024 tiles" in second
    assert "stage 3" in first and "stage 3" not in second


def test_errors_of_schedules_are_one_line(cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "p.svg"
    assert "got 2 files" in cli.refused("plot", "--problem", "64,64,64", tmp_path / "r.json", picture)
    assert "give RECORD and PICTURE, got 1" in cli.refused("plot", picture)
    assert "drawn as SVG" in cli.refused("plot", "--problem", "64,64,64", tmp_path / "p.png")
    assert "FIELD is one of tile_m" in cli.refused("plot", "--schedule", "slots=3", picture)
    assert "stages must be a positive integer" in cli.refused("plot", "--schedule", "stages=many", picture)
    assert "use fewer stages" in cli.refused("plot", "--schedule", "stages=40", picture)
    assert "three positive integers" in cli.refused("plot", "--problem", "64", picture)
    assert "nowhere" in cli.refused("plot", "--problem", "64,64,64", tmp_path / "nowhere" / "p.svg")
    assert not list(tmp_path.iterdir())
