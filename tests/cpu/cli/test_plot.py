from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Cli


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
