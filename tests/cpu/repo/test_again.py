"""benchmarks/again.py: each row of the table becomes a command that writes into another folder."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).resolve().parents[3] / "benchmarks" / "again.py"


@pytest.fixture(scope="module")
def again() -> ModuleType:
    spec = importlib.util.spec_from_file_location("again", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_command_writes_into_the_results(again: ModuleType, tmp_path: Path) -> None:
    for making in again.table().values():
        command = making.written_to(tmp_path)
        assert str(tmp_path) in command
        assert "benchmarks/results" not in command and "FILE.json" not in command, command


def test_records_are_made_on_each_gpu_and_failures_counted(again: ModuleType, tmp_path: Path) -> None:
    write = "printf '\"%s\"' $CUDA_VISIBLE_DEVICES > FILE.json"
    makings = [again.asked(f"card/{at}.json={write}", {}) for at in range(3)]
    makings.append(again.Making("card/both.json", write, several=True))
    makings.append(again.asked("card/bad.json=exit 3", {}))
    assert again.make_all(makings, tmp_path, ["5", "7"]) == 1
    seen = {at: json.loads((tmp_path / "card" / f"{at}.json").read_text()) for at in (0, 1, 2, "both")}
    assert seen.pop("both") == "5,7"
    assert set(seen.values()) <= {"5", "7"}


def test_a_record_without_a_row_is_refused(again: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no command for 'h200/none.json': name one of its records, or RECORD=COMMAND"):
        again.asked("h200/none.json", again.table())
